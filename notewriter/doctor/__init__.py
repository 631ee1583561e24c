"""The check of a machine: the command, its findings, and the probes that may hang or crash."""
