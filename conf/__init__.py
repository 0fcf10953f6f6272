"""Hydra configs: run.yaml composes one folder a group."""
