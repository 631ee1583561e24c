"""What one command hands to the next on disk: each file's records, the run folder, and its record."""
