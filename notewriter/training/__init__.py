"""Training by DPO, KTO and SFT: its data, the forward passes, a run, the estimate of its needs, and publishing."""
