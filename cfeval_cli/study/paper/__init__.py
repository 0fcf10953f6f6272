"""The figures that the paper printed: their audit, and their comparison with runs."""
