"""Metrics: scores of explanations, computed per instance."""
