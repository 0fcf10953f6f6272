"""A small table with columns of many types, and a model of it."""

import numpy as np
import pandas as pd

QUICK = {
    "figures": [], "report": False, "bounds": 0, "explainer_stability": 0, "reparametrisations": 0, "resamples": 100,
    "cache": "off", "n_jobs": 1, "truth.shapley.background": 20,
}  # fmt: skip
METRICS = ["validity", "validity_soft", "comprehensiveness", "recall"]


def make_loans(size=200, seed=0):
    """Rows with a label; the last column is the label."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {
            "age": rng.integers(18, 80, size),
            "home": rng.choice(["own", "rent", "none"], size),
            "member": rng.random(size) > 0.5,
            "income": rng.normal(50, 10, size).round(1),
        }
    )
    chance = 0.1 + 0.4 * (table["age"] > 45) + 0.4 * (table["home"] == "own")
    return table.assign(paid=np.where(rng.random(size) < chance, "yes", "no"))


def predict_proba(rows):
    """Reads three of the columns, whatever their types."""
    logit = (rows["age"] > 45) + 1.5 * (rows["home"].astype(str) == "own") + (rows["member"].astype(str) == "True") - 2
    positive = 1 / (1 + np.exp(-logit.to_numpy(dtype=float)))
    return np.stack([1 - positive, positive], axis=1)
