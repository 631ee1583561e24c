"""Train local language models to write notes for retrieval-augmented question answering."""

__version__ = "0.1.0"
