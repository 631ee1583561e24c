"""What this machine is and whether it is ready: the command, its looks, and the probes that may hang or crash."""
