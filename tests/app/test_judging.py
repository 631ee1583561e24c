import json
import os
import re
import signal
import subprocess
import sys
from html import unescape

import pytest

pytest.importorskip("starlette", reason="needs the extra `serve`")

from by_hand_pairs import HOSTILE, pairs_folder
from starlette.testclient import TestClient

from notewriter.app import app, judging
from notewriter.app.application import AppSection, make_app
from notewriter.artifacts.hand_labels import read_hand_labels
from notewriter.data.by_hand.items import ByHandArguments, SampleArguments, sample
from notewriter.ground.errors import UserError

NUMBERED = re.compile(r"\((\d+)\)")


@pytest.fixture
def items(tmp_path):
    return sample(ByHandArguments(pairs=[str(pairs_folder(tmp_path / "pairs", 5))]), SampleArguments())


@pytest.fixture
def closing():
    """The pages that are open."""
    pages = []
    yield pages
    for each in pages:
        each.__exit__(None, None, None)


@pytest.fixture
def opened(items, tmp_path, closing):
    """Opens the page of a person."""

    def open_page(judge="ana", items=items):
        closing.append(judging.judging(items, judge, 0, tmp_path / "labels"))
        judged = closing[-1].__enter__()
        section = AppSection(judging.PATH, "Judge", "", judged.routes)
        client = TestClient(make_app([section], "right", 8002), base_url="http://127.0.0.1:8002")
        client.get("/?token=right")
        return client

    return open_page


def item_on(reply):
    return re.search(r'name="item" value="(\w+)"', reply.text)[1]


def texts_on(reply):
    parts = re.findall(r'<h2>Text \d</h2>\s*<div class="text-block">(.*?)</div>', reply.text, re.DOTALL)
    return [unescape(re.sub(r"</?mark>", "", part)) for part in parts]


def answer(client, preferred, reply=None):
    item = item_on(reply or client.get("/judge"))
    return client.post("/judge", content=f"item={item}&preferred={preferred}")


def test_the_answers_are_kept_as_they_are_given(opened, items, tmp_path):
    client = opened()
    first = client.get("/judge")
    assert "0 of 5 judged, 5 left" in first.text
    second = answer(client, "left", first)
    assert "1 of 5 judged, 4 left" in second.text and item_on(second) != item_on(first)
    (line,) = (tmp_path / "labels" / "ana.jsonl").read_text().splitlines()
    label = json.loads(line)
    assert label["schema"] == "notewriter/hand-label/1"
    assert [label["left"], label["right"]] == texts_on(first)
    assert (label["preferred"], label["judge"], label["item"]) == ("left", "ana", item_on(first))


def test_the_page_goes_on_where_one_was(opened, closing):
    client = opened()
    order = [item_on(answer(client, "right")) for _ in range(3)]
    closing.pop().__exit__(None, None, None)
    reply = opened().get("/judge")
    assert "3 of 5 judged, 2 left" in reply.text and item_on(reply) == order[-1]


def test_the_way_back_changes_an_answer_and_the_last_one_counts(opened, tmp_path):
    client = opened()
    first = client.get("/judge")
    answer(client, "left", first)
    back = client.get("/judge?at=1")
    assert item_on(back) == item_on(first) and 'value="left" data-key="1" aria-pressed="true"' in back.text
    assert "you have judged" in back.text
    onward = answer(client, "neither", back)
    assert "1 of 5 judged" in onward.text
    path = tmp_path / "labels" / "ana.jsonl"
    assert len(path.read_text().splitlines()) == 2
    assert [label.preferred for label in read_hand_labels(path).values()] == ["neither"]


def test_the_end_says_where_the_answers_are(opened):
    client = opened()
    for _ in range(5):
        last = answer(client, "left")
    assert "All judged" in last.text and "labels/ana.jsonl" in last.text and "5 of 5 judged, 0 left" in last.text
    # The list can be passed without an answer to everything.
    assert client.get("/judge?at=99").status_code == 200


@pytest.mark.parametrize("at", ["0", "-1", "x", "²", ""])
def test_a_place_that_is_none_shows_what_is_next(opened, at):
    assert "0 of 5 judged" in opened().get("/judge", params={"at": at}).text


@pytest.mark.parametrize("form", ["", "item=&preferred=left", "item=x", "item={item}&preferred=both"])
def test_what_is_no_answer_is_refused(opened, tmp_path, form):
    client = opened()
    item = item_on(client.get("/judge"))
    assert client.post("/judge", content=form.format(item=item)).status_code == 400
    assert (tmp_path / "labels" / "ana.jsonl").read_text() == ""


def test_a_place_beyond_the_last_is_the_end_however_many_digits_it_has(opened):
    client = opened()
    for place in ("6", "99999999999", "9" * 5000):
        reply = client.get(f"/judge?at={place}")
        assert reply.status_code == 200 and "The end of the list" in reply.text


def test_an_answer_that_cannot_be_kept_is_told_and_its_item_is_shown_again(opened, monkeypatch, caplog):
    client = opened()
    first = client.get("/judge")

    def full(self, record):
        raise UserError("ana.jsonl: cannot be written (No space left on device); free some space")

    with monkeypatch.context() as patch:
        patch.setattr(judging.Journal, "append", full)
        refused = answer(client, "left", first)
    assert refused.status_code == 507 and item_on(refused) == item_on(first)
    assert "This answer was not kept: ana.jsonl: cannot be written (No space left on device)" in refused.text
    assert "0 of 5 judged" in refused.text and "free some space" in caplog.text
    assert "1 of 5 judged" in answer(client, "left", first).text


def test_of_a_body_no_more_is_kept_than_an_answer_has(opened, tmp_path):
    client = opened()
    assert client.post("/judge", content=b"item=x&preferred=left&rest=" + b"x" * 5000).status_code == 413
    # Without a Content-Length.
    assert client.post("/judge", content=iter([b"x" * 1000] * 10)).status_code == 413
    assert (tmp_path / "labels" / "ana.jsonl").read_text() == ""


def test_texts_that_repeat_themselves_are_shown_without_marks(tmp_path, opened):
    folder = pairs_folder(tmp_path / "alike", 1, chosen=f"<b> {'the ' * 5000}", rejected="the " * 5000 + "mill")
    reply = opened(items=sample(ByHandArguments(pairs=[str(folder)]), SampleArguments())).get("/judge")
    assert "<mark>" not in reply.text and "Differences are not marked: the texts are too long" in reply.text
    assert {text.split()[0] for text in texts_on(reply)} == {"<b>", "the"}


def test_the_page_is_blind(tmp_path, opened):
    """Neither side's place nor anything in the page says which text the judge chose."""
    folder = pairs_folder(tmp_path / "many", 40, chosen_score=0.875, rejected_score=0.125)
    items = sample(ByHandArguments(pairs=[str(folder)]), SampleArguments())
    client = opened(items=items)
    chosen_left = 0
    for place in range(1, 41):
        reply = client.get(f"/judge?at={place}")
        for told in ("reference", "0.875", "0.125", "chosen", "rejected"):
            assert told not in reply.text
        chosen_left += "born in Tirsk" in texts_on(reply)[0]
    assert 10 < chosen_left < 30


def test_hostile_text_is_text(tmp_path, opened):
    folder = pairs_folder(tmp_path / "hostile", 1, chosen=HOSTILE, rejected=HOSTILE[:-1], stage="<b>")
    client = opened(items=sample(ByHandArguments(pairs=[str(folder)]), SampleArguments()))
    reply = client.get("/judge")
    assert "<script>alert" not in reply.text and "<img" not in reply.text
    assert f"{HOSTILE} (0)" in texts_on(reply)


def test_two_pages_of_one_person_are_refused_and_of_two_are_not(opened):
    opened("ana")
    opened("ben")
    with pytest.raises(UserError, match="using this folder"):
        opened("ana")


KILLED = """
import os, signal, sys
from pathlib import Path
from notewriter.app.judging import judging
from notewriter.data.by_hand.items import ByHandArguments, SampleArguments, sample

items = sample(ByHandArguments(pairs=[sys.argv[1]]), SampleArguments())
with judging(items, "ana", 0, Path(sys.argv[2])) as judged:
    for item in items[:2]:
        judged.answer(item.id, "left")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_loses_no_answer_and_the_next_page_goes_on(opened, items, tmp_path):
    script = subprocess.run([sys.executable, "-c", KILLED, tmp_path / "pairs", tmp_path / "labels"], env={**os.environ})
    assert script.returncode == -signal.SIGKILL
    # As if it had died in the middle of the third line.
    with open(tmp_path / "labels" / "ana.jsonl", "a") as file:
        file.write('{"schema": "notewriter/hand-lab')
    reply = opened().get("/judge")
    assert "2 of 5 judged, 3 left" in reply.text and item_on(reply) == items[2].id


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "nothing to show: give --pairs FOLDER"),
        (["--pairs", "nowhere"], "judge_name is missing"),
        (["--judge_name", "../ana", "--pairs", "nowhere"], "cannot name a file"),
        (["--judge_name", "ana", "--runs", "a"], "give two"),
        (["--judge_name", "ana", "--pairs", "nowhere"], r"has no train\.parquet"),
    ],
)
def test_what_cannot_be_judged_is_one_line(options, message, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=message):
        app.main(["--page_port", "0", *options])
