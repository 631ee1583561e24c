"""A checkpoint and its data on the Hugging Face Hub: their cards, and a search for secrets."""
