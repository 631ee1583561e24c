"""The foundation of all packages: options and their parsing, errors, JSON Lines, text, plug-ins, recipes by name."""
