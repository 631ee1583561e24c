#!/usr/bin/env bash
# torchmetrics' retrieval metrics of one ranking whose scores are all moved by a constant. Four of nine metrics count a
# relevant document with a score of 0 or less as not found; the area under the curve puts scores through a sigmoid, in
# which those above 17 are equal. Not guessed: the run was to check that a ranking is measured by its order alone.
#
# torchmetrics 1.9.0, torch 2.13.0 (CPU); 1.8.2 and 1.7.4 do the same. Two queries of four documents. Output seen:
#   scores          4 to 1          0.4 to 0.1      -6 to -9        24 to 21
#   MRR             0.75            0.75            0.0             0.75
#   MAP             0.75            0.75            0.0             0.75
#   Recall          0.75            0.75            0.0             0.75
#   Precision       0.5             0.5             0.0             0.5
#   HitRate         1.0             1.0             1.0             1.0
#   NormalizedDCG   0.825           0.825           0.825           0.825
#   RPrecision      0.75            0.75            0.75            0.75
#   FallOut         0.417           0.417           0.417           0.417
#   AUROC           0.625           0.625           0.625           0.5
#
# It bites whoever measures a reranker by its logits, distances times -1, or log-probabilities: recall and MRR are too
# low wherever right documents score below 0, and contradict the hit rate of the same call. Nothing is said; the pages
# of the metrics ask for "float predictions from a model output", and a check in their code for "scores/logits". Pull
# request 3104 of Lightning-AI/torchmetrics (2025) meant zeros to be no prediction. Scores moved above 0 are a remedy,
# not far above for AUROC. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 torchmetrics==1.9.0
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
from torchmetrics import retrieval

QUERIES = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
RELEVANT = torch.tensor([0, 1, 0, 1, 1, 0, 0, 0])
SCORES = torch.tensor([4.0, 3.0, 2.0, 1.0] * 2)
MOVED = {"4 to 1": SCORES, "0.4 to 0.1": SCORES / 10, "-6 to -9": SCORES - 10, "24 to 21": SCORES + 20}
METRICS = {"MRR": {}, "MAP": {}, "Recall": {"top_k": 2}, "Precision": {"top_k": 2}, "HitRate": {"top_k": 2}}
METRICS |= {"NormalizedDCG": {}, "RPrecision": {}, "FallOut": {"top_k": 2}, "AUROC": {}}

print("".join(f"{title:<16}" for title in ["scores", *MOVED]).rstrip())
changed = {}
for metric, options in METRICS.items():
    measure = getattr(retrieval, f"Retrieval{metric}")(**options)
    values = [round(measure(scores, RELEVANT, indexes=QUERIES).item(), 3) for scores in MOVED.values()]
    print("".join(f"{cell:<16}" for cell in [metric, *values]).rstrip())
    changed |= {metric: value for value in values if value != values[0]}
sys.exit(changed != {"MRR": 0.0, "MAP": 0.0, "Recall": 0.0, "Precision": 0.0, "AUROC": 0.5})
PYTHON
