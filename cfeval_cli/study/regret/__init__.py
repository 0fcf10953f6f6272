"""The regret of choosing an explainer by a metric, on models with known ground truth."""
