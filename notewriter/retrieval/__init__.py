"""Retrieval: indexes of passages, and chains of sources to search and steps that reorder the results."""
