"""The sources of passages, a file each with its options, its identity and the class that searches."""
