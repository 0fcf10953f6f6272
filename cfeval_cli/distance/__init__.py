"""Distances between an instance and an edited instance, one file each."""
