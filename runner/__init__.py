"""Floor 4: everything that runs, decides, works and shows."""
