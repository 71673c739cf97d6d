"""Findings on their way out: JSON, JSON lines, CSV and SARIF, streamed, masked, whole files or none."""
