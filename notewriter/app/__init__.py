"""The page on this machine: one small web application, for the person who started it alone."""
