"""Data construction: rollouts with a teacher model become preference pairs and reasoning chains."""
