"""What the runtime shows over HTTP."""
