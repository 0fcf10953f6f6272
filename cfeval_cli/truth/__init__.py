"""Definitions of what truly matters to a model, one file each."""
