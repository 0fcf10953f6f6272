"""Scores of an explainer, computed per instance."""
