"""Explainers: methods that score the features of an instance by their importance for its prediction."""
