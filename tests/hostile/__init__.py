"""Input that was made to do harm: read right, or refused with a message, and nothing else."""
