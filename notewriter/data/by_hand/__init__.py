"""Judging by hand: what people are shown, how far the judges agree with them, and the pairs that follow."""
