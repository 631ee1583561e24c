"""Prompts shared by the completions that follow them, and reference log-probs shared by runs."""
