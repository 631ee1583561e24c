"""Rows of training data: read, checked, written with the chat template, and tokenised."""
