"""Floor 2: what the service knows of itself."""
