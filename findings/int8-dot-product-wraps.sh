#!/usr/bin/env bash
# Embeddings of eight bits, as quantize_embeddings and encode(precision="int8") make them, and the search by dot product
# of sentence-transformers over them: the products are summed in eight bits as well, so that every score is a remainder
# between -128 and 127. Guess before running, half sure: an error. Right for cosine alone; maxsim counts well.
#
# sentence-transformers 6.2.0, transformers 5.19.0, torch 2.13.0 (CPU). Output seen:
#   own document first, of 100 queries: float32 100, int8 0, int8 as float32 100
#   one product: 637837; dot_score: -115 (torch.int8)
#   maxsim, for many vectors a text: 637837
#   cos_sim: RuntimeError
#
# It bites whoever searches small vectors without an index: semantic_search with score_function=dot_score, or the
# method `similarity` of a model whose function is "dot". Nothing is said: the scores are whole numbers and sort well.
# The docstring of `similarity` asks for vectors that are not quantized; those of dot_score and semantic_search do not.
# Vectors converted with astype("float32") are found. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 sentence-transformers==6.2.0
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import numpy as np
from sentence_transformers import util
from sentence_transformers.util import quantize_embeddings

generator = np.random.default_rng(0)
documents = generator.normal(size=(1000, 384)).astype(np.float32)
documents /= np.linalg.norm(documents, axis=1, keepdims=True)
queries = documents[:100] + 0.02 * generator.normal(size=(100, 384)).astype(np.float32)
small = quantize_embeddings(documents, "int8")
asked = quantize_embeddings(queries, "int8", calibration_embeddings=documents)


def found(queries, documents):
    hits = util.semantic_search(queries, documents, top_k=1, score_function=util.dot_score)
    return sum(hit[0]["corpus_id"] == number for number, hit in enumerate(hits))


shares = found(queries, documents), found(asked, small), found(asked.astype(np.float32), small.astype(np.float32))
print(f"own document first, of 100 queries: float32 {shares[0]}, int8 {shares[1]}, int8 as float32 {shares[2]}")
right = int(asked[0].astype(int) @ small[0].astype(int))
score = util.dot_score(asked[:1], small[:1])
print(f"one product: {right}; dot_score: {score.item()} ({score.dtype})")
print(f"maxsim, for many vectors a text: {util.maxsim([asked[:1]], [small[:1]]).item():.0f}")
try:
    raised = f"{util.cos_sim(asked[:1], small[:1]).item()}"
except Exception as error:
    raised = type(error).__name__
print(f"cos_sim: {raised}")
wrapped = score.item() != right and (score.item() - right) % 256 == 0
sys.exit(not (wrapped and shares[0] == shares[2] == 100 and shares[1] < 10 and raised == "RuntimeError"))
PYTHON
