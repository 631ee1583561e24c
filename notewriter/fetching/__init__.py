"""Getting what others have published: benchmarks, corpora, ready-made indexes and models."""
