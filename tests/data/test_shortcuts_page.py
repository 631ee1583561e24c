import json
import re

import pytest
from dataset_folders import HOSTILE, write

from notewriter.data.shortcuts_page import main
from notewriter.ground.errors import UserError


def pair(number, chosen, rejected):
    return {
        "prompt": [{"role": "user", "content": f"prompt {number} {HOSTILE}"}],
        "chosen": [{"role": "assistant", "content": chosen}],
        "rejected": [{"role": "assistant", "content": rejected}],
        "stage": "deepnote/init_note",
        "question_id": f"q{number}",
        "chosen_source": {"kind": "gold"},
        "rejected_source": {"kind": "model"},
        "chosen_score": 0.75,
        "rejected_score": 0.25,
    }


def test_the_page_shows_each_feature_with_its_share_and_warns_of_the_strongest(tmp_path, caplog):
    pairs = [pair(number, f"Mira was born in Tolen {number}.", HOSTILE + " Osk") for number in range(30)]
    questions = [{"id": f"q{number}", "question": "Where?", "answers": ["Tolen"]} for number in range(31)]
    (tmp_path / "questions.jsonl").write_text("".join(json.dumps(each) + "\n" for each in questions))
    folder = write(tmp_path / "pairs", pairs)
    write(tmp_path / "pairs", [pair(30, "Mira was born in Tolen.", "Osk")], "dev")
    (folder / "config.yaml").write_text(f"dataset: jsonl\npath: {tmp_path / 'questions.jsonl'}\n")
    main(["--pairs", str(folder), "--output", str(tmp_path / "page.html")])
    page = (tmp_path / "page.html").read_text()
    assert "31 pairs of 31 questions; median margin 0.5" in page
    assert "<script>alert" not in page
    rows = dict(re.findall(r"<th>([a-z ]+?)(?: <span class=\"chip\">content</span>)?</th>(.*?)</tr>", page, re.DOTALL))
    assert re.findall(r">(\d+)<", rows["finished sentence"])[:3] == ["1", "0", "31"]
    assert "100.0%" in rows["gold answer"]
    assert "Mira was" in page
    (line,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert line.startswith("deepnote/init_note: the side that ") and "100% of 31 pairs" in line


def test_without_questions_or_configuration_the_answer_is_left_out(tmp_path):
    folder = write(tmp_path / "pairs", [pair(0, "Tolen.", "Fulda")])
    main(["--pairs", str(folder), "--output", str(tmp_path / "page.html")])
    assert "gold answer" in (tmp_path / "page.html").read_text().partition("or unknown:")[2]
    with pytest.raises(UserError, match=r"has no train\.parquet; give the folder"):
        main(["--pairs", str(tmp_path)])
