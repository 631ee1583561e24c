#!/usr/bin/env bash
# ir_measures takes RR from trec_eval and RR@10 from a script for MS MARCO. The first puts equal scores in descending
# order of the documents' names and compares scores as float32, the second in ascending order and as float64. So one
# call measures two rankings. Guess before running: RR@10 of two documents is their RR.
#
# ir-measures 0.4.3, pytrec-eval-terrier 0.5.11, ranx 0.3.21. Output seen:
#   right one above, by scores: RR 1.0, RR@10 1.0, Success@1 1.0, nDCG@10 1.0
#   equal scores: RR 0.5, RR@10 1.0, Success@1 0.0, nDCG@10 0.63
#   100000001 above 100000000: RR 0.5, RR@10 1.0, Success@1 0.0, nDCG@10 0.63
#   1.000000001 above 1: RR 0.5, RR@10 1.0, Success@1 0.0, nDCG@10 0.63
#   ranx, 100 equal scores: the first is at place 73, the second at 72, the last at 87
#
# It bites whoever reports MRR@10 beside nDCG@10 or success@1 where scores are equal (BM25 over short or repeated texts,
# few bits) or close (large numbers, such as a rank taken from 10^8, are equal in float32). ranx, asked by itself, keeps
# no order of names at all. That providers break ties in their own ways is issue 18 of terrierteam/ir_measures, open
# since 2021; it speaks of ties, not of rounding. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet ir-measures==0.4.3 pytrec-eval-terrier==0.5.11 ranx==0.3.21
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import ir_measures
import ranx
from ir_measures import RR, Success, nDCG

RUNS = {
    "right one above, by scores": {"right": 2.0, "wrong": 1.0},
    "equal scores": {"right": 1.0, "wrong": 1.0},
    "100000001 above 100000000": {"right": 100_000_001.0, "wrong": 100_000_000.0},
    "1.000000001 above 1": {"right": 1.000000001, "wrong": 1.0},
}
seen = []
for name, run in RUNS.items():
    measured = ir_measures.calc_aggregate([RR, RR @ 10, Success @ 1, nDCG @ 10], {"q": {"right": 1}}, {"q": run})
    values = {str(measure): round(value, 2) for measure, value in measured.items()}
    seen.append((values["RR"], values["RR@10"]))
    shown = (f"{measure} {values[measure]}" for measure in ("RR", "RR@10", "Success@1", "nDCG@10"))
    print(f"{name}: {', '.join(shown)}")
names = [f"d{number:03d}" for number in range(100)]
ranks = [
    round(1 / ranx.evaluate(ranx.Qrels({"q": {name: 1}}), ranx.Run({"q": dict.fromkeys(names, 1.0)}), "mrr"))
    for name in (names[0], names[1], names[99])
]
print(f"ranx, 100 equal scores: the first is at place {ranks[0]}, the second at {ranks[1]}, the last at {ranks[2]}")
sys.exit(seen != [(1.0, 1.0), (0.5, 1.0), (0.5, 1.0), (0.5, 1.0)] or ranks[0] in (1, 100))
PYTHON
