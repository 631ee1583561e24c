import pytest
from dataset_folders import HOSTILE, write

from notewriter.data.viewer import main, write_viewer
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
        "chosen_source": {"kind": "model", "temperature": 0.5, "max_tokens": 64},
    }


def test_the_first_rows_of_every_stage_and_split_are_shown(tmp_path):
    pairs = write(tmp_path / "pairs", [pair(number) for number in range(7)])
    write(pairs, [pair(1000, stage="deepnote/refine_query")], "dev")
    messages = [{"role": "user", "content": "Who?"}, {"role": "assistant", "content": "Thought 1: ..."}]
    chains = write(tmp_path / "chains", [{"messages": messages, "question_id": "c0", "f1": 1.0}])
    write_viewer(tmp_path / "page.html", pairs, chains, most=5)
    page = (tmp_path / "page.html").read_text()
    assert "deepnote/init_note</a>: 5 of 7" in page and "chain</a>: 1 of 1" in page
    assert "prompt 4 " in page and "prompt 5 " not in page and "prompt 1000 " in page
    assert "source <b>model, temperature 0.5, max tokens 64</b>" in page and "f1 <b>1</b>" in page
    assert "Thought 1: ..." in page and "Better: 1" in page


def test_model_text_is_never_embedded_unescaped(tmp_path):
    pairs = write(tmp_path / "<b>pairs", [pair(0, stage=HOSTILE)])
    write_viewer(tmp_path / "page.html", pairs)
    page = (tmp_path / "page.html").read_text()
    assert HOSTILE not in page and "alert(1)</script>" not in page and "<b>pairs" not in page
    assert "&lt;b&gt;pairs" in page


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
