"""The run itself: trainers and losses, saving, resuming, stopping, and its display."""
