"""Training by DPO, KTO and SFT: its data, the forward passes, a run, what it will need, and publishing its result."""
