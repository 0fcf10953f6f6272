"""The figures that the paper printed, and what can be said about them."""
