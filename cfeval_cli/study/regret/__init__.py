"""The regret of the answer: naming the best explainer on some instances, scored on others."""
