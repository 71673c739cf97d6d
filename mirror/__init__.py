"""Floor 3: local copies of what providers hold."""
