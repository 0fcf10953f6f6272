"""What several runs say together."""
