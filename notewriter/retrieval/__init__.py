"""Retrieval: indexes of passages, and chains of sources that are searched and steps that reorder what they find."""
