"""Caches of computed results."""
