"""Counterfactual evaluation of explanation methods, from the shell."""

__version__ = "0.1.0"
