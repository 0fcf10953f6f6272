"""Synthetic atlases with known means."""

from functools import cache
from itertools import product

import numpy as np
import pandas as pd

from cfeval_cli.study.atlas.rows import COLUMNS, TYPES
from cfeval_cli.study.atlas.store import Atlas
from cfeval_cli.study.atlas.summary import AtlasSummary

SETS, JUDGES, SEEDS, KS = (
    ("adults", "german", "heloc", "pima"),
    ("Additive", "Logistic", "Mlp", "Tree"),
    (0, 1, 2),
    (1, 3),
)
METRICS = {  # block, mean τ for contribution and for change
    ("comprehensiveness", "marginal"): ("erasure", 0.8, 0.1), ("sufficiency", "marginal"): ("erasure", 0.6, 0.1),
    ("dfr", "marginal"): ("erasure", 0.4, 0.0), ("validity", "label"): ("counterfactual", -0.2, 0.4),
    ("validity_soft", "probability"): ("counterfactual", 0.0, 0.85), ("c", "label"): ("counterfactual", -0.3, 0.3),
    ("c_soft", "probability"): ("counterfactual", -0.1, 0.6), ("aopc", "marginal"): ("order", 0.7, 0.1),
    ("naopc", "marginal"): ("order", 0.3, 0.0), ("aopc", "del"): ("order", 0.9, 0.9),
}  # fmt: skip
TRUTHS = {"shapley": "contribution", "contrast": "change"}


def make_atlas(spread=0.05, seed=0, sets=SETS, judges=JUDGES, metrics=METRICS, seeds=SEEDS):
    """An atlas in which τ is the mean of the metric plus noise."""
    cells = list(product(sets, judges, TRUTHS.items(), seeds, KS, metrics.items()))
    data, judge, truths, seed_of_row, k, metric_entries = zip(*cells, strict=True)
    truth, question = zip(*truths, strict=True)
    metric, variant = zip(*(pair for pair, _ in metric_entries), strict=True)
    means = [entry[2 if name == "change" else 1] for name, (_, entry) in zip(question, metric_entries, strict=True)]
    tau = np.clip(np.array(means) + np.random.default_rng(seed).normal(0, spread, len(cells)), -1, 1)
    rows = pd.DataFrame({
        "data": data, "judge": judge, "truth": truth, "seed": seed_of_row, "k": k, "metric": metric, "variant": variant,
        "question": question, "block": [entry[0] for _, entry in metric_entries],
        "title": [f"{name} ({detail})" for (name, detail), _ in metric_entries], "ranked": "anchor lime shap",
        "run": "0" * 16,
        "cfeval": "0.1.0", "instances": 200, "explainers": 5, "explainers_without_controls": 3,
        "explainers_without_circular": 2, "explainers_without_weak": 2, "tau": (tau + 1) / 2,
        "tau_without_controls": tau, "tau_without_circular": tau / 2, "tau_without_weak": tau / 4,
        "diagnosticity": 0.5 + tau / 2, "agreement": tau / 3, "model_rows": 10.0,
        "circular": [pair == ("comprehensiveness", "shapley") for pair in zip(metric, truth, strict=True)],
        "arbitrary": [name == "del" for name in variant], "exact": True,
    })  # fmt: skip
    return Atlas(rows[COLUMNS].astype(TYPES).round(6))


@cache
def summarise_default():
    """The summary of the default atlas, shared by tests that only read it."""
    return AtlasSummary(make_atlas())
