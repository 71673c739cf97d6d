"""Floor 1: what a record is, what time it is, how the database is reached."""
