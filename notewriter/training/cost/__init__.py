"""The memory and time that a training run needs, by formula (`preflight`)."""
