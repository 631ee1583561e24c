"""Corpora: documents of any origin, split into the passages of a `corpus.jsonl`."""
