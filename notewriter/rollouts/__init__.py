"""The surroundings of a method: rollouts, prompts, parsing, the concurrent loop over questions, and the dry run."""
