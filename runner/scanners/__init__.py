"""Scanners: how they are started, watched, read, and what their words mean."""
