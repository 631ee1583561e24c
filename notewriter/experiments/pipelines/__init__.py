"""Pipelines: the commands of a run in a file, run on this machine or submitted to Slurm."""
