"""Ready-made vectors of the corpora that the papers searched, for `notewriter index --vectors`."""

from notewriter.ground.releases import Release

INDEXES: dict[str, Release] = {}
"""By name."""
