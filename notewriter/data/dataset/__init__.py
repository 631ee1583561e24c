"""Rows of training data on their way to a folder: cleaned, split, counted, written, and described by a card."""
