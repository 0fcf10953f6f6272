"""Judges: models of known truth beside the user's, by which the rule is checked on her own data."""
