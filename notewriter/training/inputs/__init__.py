"""Rows of training data: read, checked, rendered with the chat template, and tokenised."""
