"""Judging by hand: the items that people see, their agreement with the judges, and the resulting pairs."""
