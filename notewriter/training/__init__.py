"""DPO training, what it needs, and publishing its result."""
