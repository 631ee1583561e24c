"""The steps after a search, a file each: they reorder, drop or shorten what was found."""
