"""The page on this machine: one small web application, only for the person who started it."""
