"""Riddles: what a package adds to Notewriter (see docs/extending.md)."""
