"""Downloads of published benchmarks, corpora, ready-made indexes and models."""
