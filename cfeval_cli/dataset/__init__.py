"""Finding, verifying and encoding data."""
