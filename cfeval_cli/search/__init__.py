"""Searches for a counterfactual among edits of the explained features."""
