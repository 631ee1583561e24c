"""What methods run in: rollouts, prompts, parsing, the concurrent loop over questions, and the dry run."""
