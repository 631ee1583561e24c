#!/usr/bin/env bash
# A column that holds texts in some rows and lists, objects or numbers in others becomes a Json() column when `datasets`
# 5 loads it from JSON Lines. Texts that happen to be JSON come back as what they say: "12" is the number 12, "007" is
# 7, "null" is None, and a text '{"a": 1}' is an object. Other texts of the column stay texts. Guess before running:
# every text stays what it is. With features=Json(), or returned by map(), they change likewise.
#
# datasets 5.2.0. Output seen:
#   texts alone come back equal: True
#   beside a list: 'Paris' is 'Paris', '12' is 12, '007' is 7, '1.50' is 1.5, 'null' is None, 'true' is True, '{"a": 1}' is {'a': 1}
#   map() that returns '12', then an object: [12, {'a': 1}]
# It bites whoever loads answers (a text, or a list of them), labels or arguments of tools of several kinds: an exact
# match with "007" fails, "null" is a missing value. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet datasets==5.2.0
cd "$work"
HF_HOME="$work/cache" "$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import json
import sys
from pathlib import Path

from datasets import Dataset, load_dataset

TEXTS = ["Paris", "12", "007", "1.50", "null", "true", '{"a": 1}']


def loaded(name, rows):
    Path(name).write_text("".join(json.dumps({"answer": row}) + "\n" for row in rows), encoding="utf-8")
    return load_dataset("json", data_files=name, split="train")["answer"][:]


alone, mixed = loaded("alone.jsonl", TEXTS), loaded("mixed.jsonl", [*TEXTS, ["a", "b"]])
print("texts alone come back equal:", alone == TEXTS)
print("beside a list:", ", ".join(f"{text!r} is {value!r}" for text, value in zip(TEXTS, mixed)))
mapped = Dataset.from_dict({"row": [0, 1]}).map(lambda row: {"answer": "12" if row["row"] == 0 else {"a": 1}})
print("map() that returns '12', then an object:", mapped["answer"][:])
expected = ["Paris", 12, 7, 1.5, None, True, {"a": 1}]
sys.exit(alone != TEXTS or mixed != [*expected, ["a", "b"]] or mapped["answer"][0] != 12)
PYTHON
