"""Judges: models with a known ground truth, which check the metric-based ranking on the user's data."""
