"""The pages that a benchmark's questions name come from MediaWiki's Action API, here from a stand-in for it."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest
from corpus_files import read_corpus
from json_service import Answer, json_service

from notewriter.corpora import corpus
from notewriter.fetching import wikipedia
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError

LONG = " ".join(f"Word {number} of the page." for number in range(5_000))


def wiki(request):
    """A wiki of three pages, one of them under a second name, and of one old revision."""
    asked = {key: value for key, (value,) in parse_qs(urlsplit(request.path).query).items()}
    assert asked["action"] == "parse"
    if asked.get("oldid") == "12":
        return page(1, "Osk", f"<p>As it was. {LONG}</p>")
    if asked.get("page") in {"Osk", "River Osk"} and asked["redirects"] == "1":
        return page(1, "Osk", "<table><tr><th>Length</th><td>90 km</td></tr></table><p>A river.</p>")
    if asked.get("page") == "Who? What/Why & how":
        return page(2, "Who? What/Why & how", "<p>A film.</p>")
    return {"error": {"code": "missingtitle", "info": "The page you specified doesn't exist."}}


def page(id, title, html):
    return {"parse": {"pageid": id, "title": title, "text": f'<div class="mw-parser-output">{html}</div>'}}


def frames(path, *links):
    keys = {f"wikipedia_link_{number}": link for number, link in enumerate(links, start=1)}
    path.write_text(json.dumps({"question": "?", "answer": "a", **keys}) + "\n")
    return path


def fanoutqa(path, **revisions):
    parts = [
        {"decomposition": [], "evidence": {"title": title, "revid": revision}} for title, revision in revisions.items()
    ]
    path.write_text(json.dumps([{"id": "1", "question": "?", "answer": "a", "decomposition": parts}]))
    return path


def fetch(service, dataset, path, output):
    options = {"dataset": dataset, "path": path, "output": output, "contact": "me@example.org", "api": service.url}
    wikipedia.main([part for name, value in options.items() for part in (f"--{name}", str(value))])


def test_pages_become_a_corpus_of_whole_pages_under_the_names_that_the_questions_use(tmp_path, capsys):
    links = [
        "https://en.m.wikipedia.org/wiki/river_Osk#Course",
        "https://en.wikipedia.org/wiki/Who%3F_What/Why_%26_how",
    ]
    path, output = frames(tmp_path / "frames.jsonl", *links), tmp_path / "pages.jsonl"
    with json_service(wiki) as service:
        fetch(service, "frames", path, output)
    assert capsys.readouterr().out.endswith("pages.jsonl: 2 of 2 pages\n")
    assert {request.headers["user-agent"].rpartition(" ")[2] for request in service.requests} == {"(me@example.org)"}
    options = ["--split", "none", "--pages_of", str(path), "--dataset", "frames", "--output_dir", str(tmp_path / "c")]
    corpus.main(["--source", "wikipedia-html", "--path", str(output), *options])
    assert {passage["title"]: passage["text"] for passage in read_corpus(tmp_path / "c")} == {
        "River Osk": "| Length | 90 km |\n| --- | --- |\n\nA river.",
        "Who? What/Why & how": "A film.",
    }


def test_the_revision_that_the_questions_were_written_from_is_asked_for(tmp_path):
    path, output = fanoutqa(tmp_path / "dev.json", Osk=12), tmp_path / "pages.jsonl"
    with json_service(wiki) as service:
        fetch(service, "fanoutqa", path, output)
    ((_, record),) = jsonl.read(output)
    assert "As it was." in record["html"] and len(record["html"].split()) > 20_000


def test_a_file_with_another_revision_of_a_page_is_not_taken_for_these_questions(tmp_path):
    output = tmp_path / "pages.jsonl"
    path = frames(tmp_path / "frames.jsonl", "https://en.wikipedia.org/wiki/Osk")
    with json_service(wiki) as service:
        fetch(service, "frames", path, output)
        with pytest.raises(UserError, match=r"has Osk in another revision.*choose another --output"):
            fetch(service, "fanoutqa", fanoutqa(tmp_path / "dev.json", Osk=12), output)
    assert output.exists()


def test_a_download_that_was_killed_is_not_taken_for_whole_and_goes_on(tmp_path, monkeypatch):
    monkeypatch.setattr(wikipedia, "ATTEMPTS", 1)
    links = ["https://en.wikipedia.org/wiki/Osk", "https://en.wikipedia.org/wiki/Who%3F_What/Why_%26_how"]
    path, output = frames(tmp_path / "frames.jsonl", *links), tmp_path / "pages.jsonl"
    with (
        json_service(lambda request: wiki(request) if "Osk" in request.path else Answer(drop=True)) as service,
        pytest.raises(UserError, match="pages that came are kept"),
    ):
        fetch(service, "frames", path, output)
    assert not output.exists()
    part = tmp_path / "pages.jsonl.part"
    part.write_bytes(part.read_bytes() + b'{"id": 2, "ti')
    with json_service(wiki) as service:
        fetch(service, "frames", path, output)
        assert [request.path.count("Osk") for request in service.requests] == [0]
        fetch(service, "frames", path, output)
        assert len(service.requests) == 1
    assert [record["title"] for _, record in jsonl.read(output)] == ["Osk", "Who? What/Why & how"]


def test_pages_that_are_not_there_are_named_with_the_reason_and_the_others_kept(tmp_path, caplog):
    links = [f"https://{host}/wiki/{page}" for host, page in (("en.wikipedia.org", "Nowhere"), ("de.x.org", "Osk"))]
    path = frames(tmp_path / "frames.jsonl", *links, "https://en.wikipedia.org/wiki/Osk_(river)")
    with json_service(wiki) as service, pytest.raises(UserError, match="has none of the 3 pages"):
        fetch(service, "frames", path, tmp_path / "pages.jsonl")
    frames(path, *links, "https://en.wikipedia.org/wiki/River_Osk")
    with json_service(wiki) as service:
        fetch(service, "frames", path, tmp_path / "pages.jsonl")
    assert "2 pages were not found: https://en.wikipedia.org/wiki/Nowhere (The page you specified" in caplog.text
    assert "https://de.x.org/wiki/Osk (a page of de.x.org)" in caplog.text


def test_a_wiki_that_is_busy_is_asked_again_after_the_time_that_it_names(tmp_path):
    busy = iter(
        [
            Answer(429, {"error": "slow down"}, {"Retry-After": "0"}),
            {"error": {"code": "maxlag", "info": "Waiting for a database server"}},
        ]
    )
    path = frames(tmp_path / "frames.jsonl", "https://en.wikipedia.org/wiki/Osk")
    with json_service(lambda request: next(busy, None) or wiki(request)) as service:
        fetch(service, "frames", path, tmp_path / "pages.jsonl")
        assert len(service.requests) == 3


@pytest.mark.parametrize(
    "answer",
    [
        Answer(403, {"error": "no user agent"}),
        Answer(200, b"<html>Sign in</html>", {"Content-Type": "text/html"}),
        Answer(302, b"", {"Location": "https://elsewhere.org/"}),
        {"parse": {"title": "Osk"}},
        {"error": {"code": "blocked", "info": "You have been blocked from editing."}},
    ],
)
def test_a_wiki_that_refuses_or_a_proxy_that_answers_ends_the_command_in_a_line(tmp_path, monkeypatch, answer):
    monkeypatch.setattr(wikipedia, "ATTEMPTS", 1)
    path = frames(tmp_path / "frames.jsonl", "https://en.wikipedia.org/wiki/Osk")
    with json_service(lambda _: answer) as service, pytest.raises(UserError) as error:
        fetch(service, "frames", path, tmp_path / "pages.jsonl")
    assert str(error.value).startswith(service.url) and "\n" not in str(error.value)
    assert not (tmp_path / "pages.jsonl").exists()
