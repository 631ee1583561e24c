"""The steps after a search, a file each: they reorder, drop or shorten the passages found."""
