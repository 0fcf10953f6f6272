"""How much is lost by an explainer that is chosen by a metric, on models whose truth is known."""
