"""From scores per instance to averages, ranks and correlations."""
