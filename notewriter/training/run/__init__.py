"""The run itself: trainers and losses, saving, resuming, stopping, and what is shown of it."""
