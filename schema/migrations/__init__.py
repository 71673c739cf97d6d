"""The schema's steps, forward only, one a file; a landed file is never edited."""
