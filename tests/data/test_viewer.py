import base64
import gzip
import json
import re

import pytest
from dataset_folders import HOSTILE, write

from notewriter.data.viewer import CHUNK, main, write_viewer
from notewriter.ground.errors import UserError


def pair(number, stage="deepnote/init_note"):
    return {
        "prompt": [{"role": "user", "content": f"prompt {number} {HOSTILE}"}],
        "chosen": [{"role": "assistant", "content": f"better {number}"}],
        "rejected": [{"role": "assistant", "content": HOSTILE}],
        "stage": stage,
        "question_id": f"q{number}",
        "judge_replies": ["Better: 1"],
        "chosen_score": 0.5,
    }


def embedded(path):
    """The JSON of a page by element id, unpacked."""
    blocks = re.findall(r'<script type="application/json" id="([^"]+)">"([^"]*)"</script>', path.read_text())
    return {identifier: json.loads(gzip.decompress(base64.b64decode(text))) for identifier, text in blocks}


def test_the_page_contains_every_pair_and_chain_with_long_texts_separate(tmp_path):
    pairs = write(tmp_path / "pairs", [pair(number) for number in range(CHUNK + 5)])
    write(pairs, [pair(1000, stage="deepnote/refine_query")], "dev")
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Thought 1: ..."}]
    chains = write(tmp_path / "chains", [{"messages": messages, "question_id": "c0", "f1": 1.0}])
    write_viewer(tmp_path / "page.html", pairs, chains)
    data = embedded(tmp_path / "page.html")
    index = data["index"]
    assert [item["question_id"] for item in index] == [*(f"q{n}" for n in range(CHUNK + 5)), "q1000", "c0"]
    assert index[0] == {"split": "train", **{k: v for k, v in pair(0).items() if k not in ("prompt", "judge_replies")}}
    assert (index[-2]["split"], index[-2]["stage"]) == ("dev", "deepnote/refine_query")
    assert (index[-1]["stage"], index[-1]["f1"]) == ("chain", 1.0)
    # What the page looks up: block and place follow from the index alone.
    long = [item for number in range(2) for item in data[f"block-{number}"]]
    assert len(data["block-0"]) == CHUNK and len(long) == len(index)
    assert long[CHUNK + 4] == {key: pair(CHUNK + 4)[key] for key in ("prompt", "judge_replies")}
    assert long[-1] == {"messages": messages}
    assert "deepnote/init_note: 105; deepnote/refine_query: 1; chain: 1" in (tmp_path / "page.html").read_text()


def test_model_text_is_never_embedded_unescaped(tmp_path):
    pairs = write(tmp_path / "<b>pairs", [pair(0, stage=HOSTILE)])
    write_viewer(tmp_path / "page.html", pairs)
    page = (tmp_path / "page.html").read_text()
    assert HOSTILE not in page and "alert(1)</script>" not in page and "<b>pairs" not in page
    assert "&lt;b&gt;pairs" in page


def test_the_same_pairs_give_the_same_page(tmp_path):
    pairs = write(tmp_path / "pairs", [pair(number) for number in range(3)])
    for name in ("a.html", "b.html"):
        main(["--pairs", str(pairs), "--output", str(tmp_path / name)])
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()


def test_what_cannot_be_shown_is_reported_in_one_line(tmp_path):
    page = tmp_path / "page.html"
    with pytest.raises(UserError, match="give --pairs FOLDER, --chains FOLDER, or both"):
        main(["--output", str(page)])
    with pytest.raises(UserError, match=r"nowhere: has no train\.parquet"):
        main(["--pairs", str(tmp_path / "nowhere"), "--output", str(page)])
    pairs = write(tmp_path / "pairs", [pair(0)])
    with pytest.raises(UserError, match=r"train\.parquet: lacks the column\(s\) messages"):
        main(["--chains", str(pairs), "--output", str(page)])
    with pytest.raises(UserError, match=r"cannot be created as a folder .*; choose another path"):
        main(["--pairs", str(pairs), "--output", str(pairs / "train.parquet" / "page.html")])
    write(pairs, [pair(0), pair(1, stage=None)])
    with pytest.raises(UserError, match=r"train\.parquet: row 1: stage must be str, not None; fix or remove the row"):
        main(["--pairs", str(pairs), "--output", str(page)])
    (pairs / "train.parquet").write_text("no Parquet")
    with pytest.raises(UserError, match=r"train\.parquet: is not a readable Parquet file"):
        main(["--pairs", str(pairs), "--output", str(page)])
    assert not page.exists()
