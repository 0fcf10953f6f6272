"""From scores per instance to averages, ranks and correlations, and how sure they are (docs/statistics.md)."""
