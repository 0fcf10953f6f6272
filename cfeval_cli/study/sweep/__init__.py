"""Sweeps: several runs in one set of tables."""
