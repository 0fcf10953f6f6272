"""Settings: their types and bounds, the packaged configs, and the plan of a run that they describe."""
