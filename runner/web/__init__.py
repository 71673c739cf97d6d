"""What is served over HTTP: metrics and probes."""
