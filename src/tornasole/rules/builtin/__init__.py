"""The built-in rules, one per file; ``tornasole.registry`` knows them by name."""
