"""The files that one command hands to the next: their records, the run folder, and its record."""
