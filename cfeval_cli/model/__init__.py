"""Models: training, loading, and the abilities that they declare."""
