"""Train local language models to write notes for retrieval-augmented question answering."""

__version__ = "0.2.0"
