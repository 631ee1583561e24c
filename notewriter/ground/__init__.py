"""What every room stands on: options and their parsing, errors, JSON Lines, text, plug-ins, recipes by name."""
