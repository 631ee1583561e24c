#!/usr/bin/env bash
# JSON Lines in which a column is empty at first, null or [] in all rows but the last, as errors, tool calls and
# references often are. Readers that infer types from the first rows then meet a value for which the type has no room.
# Guess before running: each keeps the value or raises an error.
#
# duckdb 2.0.1, polars 2.1.0, pyarrow 26.0.1. The last value, as it is read after so many empty rows. Output seen:
#   null, then "late", duckdb: after 20479 late, after 20480 None
#   null, then "late", polars: after 99 late, after 100 ComputeError
#   null, then "late", pyarrow: after 20479 late, after 20480 late
#   [], then ["late"], duckdb: after 20479 ['late'], after 20480 ['"late"']
#   [], then ["late"], polars: after 99 ['late'], after 100 [None]
#   [], then ["late"], pyarrow: after 20479 ['late'], after 20480 ['late']
#   [{}], then [{"name": "late"}], duckdb: after 20479 [{'name': 'late'}], after 20480 [{'name': '"late"'}]
#   [{}], then [{"name": "late"}], polars: after 99 [{'name': 'late'}], after 100 [{}]
#   [{}], then [{"name": "late"}], pyarrow: after 20479 [{'name': 'late'}], after 20480 [{'name': 'late'}]
#   types from the whole file: duckdb right True, polars right True
#   duckdb, 20480 nulls and 5000 texts: 0 rows that are not null, type "NULL"
#
# So "which rows have an error" is answered with none, and lists of the right length hold nothing; nobody warns. duckdb
# 1.4.4 counts 5000 in the last line. Pass sample_size=-1 (duckdb) and infer_schema_length=None (polars), or the types.
# Related reports: duckdb/duckdb 25786 and 25826 (late numbers are cast, late keys left out), pola-rs/polars 29330 (late
# keys). Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet duckdb==2.0.1 polars==2.1.0 pyarrow==26.0.1
cd "$work"
"$work/venv/bin/python" - <<'PYTHON'
import json
import sys
from pathlib import Path

import duckdb
import polars
import pyarrow.json

FILE = "rows.jsonl"
CASES = [(None, "late"), ([], ["late"]), ([{}], [{"name": "late"}])]


def by_duckdb(options=""):
    return duckdb.sql(f"SELECT a FROM read_json('{FILE}'{options})").fetchall()[-1][0]


def by_polars(**options):
    return polars.read_ndjson(FILE, **options)["a"].to_list()[-1]


def by_pyarrow():
    return pyarrow.json.read_json(FILE)["a"].to_pylist()[-1]


def read_after(count, first, last, reader):
    Path(FILE).write_text("".join(json.dumps({"a": value}) + "\n" for value in [first] * count + [last]))
    try:
        return reader()
    except Exception as error:
        return type(error).__name__


READERS = {"duckdb": (20480, by_duckdb), "polars": (100, by_polars), "pyarrow": (20480, by_pyarrow)}
seen = []
for first, last in CASES:
    for name, (sampled, reader) in READERS.items():
        short, long = (read_after(count, first, last, reader) for count in (sampled - 1, sampled))
        values = f"{json.dumps(first)}, then {json.dumps(last)}"
        print(f"{values}, {name}: after {sampled - 1} {short}, after {sampled} {long}")
        seen.append((short == last, long))
right = [
    all(read_after(20480, *case, lambda: by_duckdb(", sample_size=-1")) == case[1] for case in CASES),
    all(read_after(100, *case, lambda: by_polars(infer_schema_length=None)) == case[1] for case in CASES),
]
print(f"types from the whole file: duckdb right {right[0]}, polars right {right[1]}")
Path(FILE).write_text('{"a": null}\n' * 20480 + '{"a": "late"}\n' * 5000)
count, kind = duckdb.sql(f"SELECT count(a), any_value(typeof(a)) FROM '{FILE}'").fetchall()[0]
print(f"duckdb, 20480 nulls and 5000 texts: {count} rows that are not null, type {kind}")
expected = [
    *(None, "ComputeError", "late"),
    *(['"late"'], [None], ["late"]),
    *([{"name": '"late"'}], [{}], [{"name": "late"}]),
]
sys.exit(seen != [(True, value) for value in expected] or not all(right) or count != 0)
PYTHON
