"""Removals: what replaces features that are removed, one file each."""
