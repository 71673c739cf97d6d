"""Statements of the queue, one a file, read as package data."""
