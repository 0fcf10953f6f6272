"""The run folder: how it is written, checked and read."""
