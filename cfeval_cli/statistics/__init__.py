"""Statistics of the scores: values, ranks, correlations, and their intervals and tests (docs/statistics.md)."""
