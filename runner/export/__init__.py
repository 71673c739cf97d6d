"""Findings on their way out: JSON, JSON lines, CSV and SARIF, streamed, masked, in files that appear whole or not at all."""
