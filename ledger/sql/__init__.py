"""Statements of the ledger, one a file, read as package data."""
