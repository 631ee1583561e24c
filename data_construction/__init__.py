"""Rollouts with a teacher model become labelled pairs."""
