"""The numbers of finished runs, compared and shown: the one room in which they are read."""
