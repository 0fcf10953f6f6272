"""Searches for counterfactuals among the edits of the selected features."""
