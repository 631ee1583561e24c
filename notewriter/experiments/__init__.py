"""The engine of pipelines: their files, and their runs on this machine and on Slurm."""
