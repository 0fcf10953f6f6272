"""Rows of an atlas that no run has given, of which it is known what they should say."""

import numpy as np
import pandas as pd

from cfeval_cli.atlas.rows import COLUMNS, TYPES
from cfeval_cli.atlas.store import Atlas

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


def world(spread=0.05, seed=0, sets=SETS, judges=JUDGES, metrics=METRICS, seeds=SEEDS):
    """An atlas: τ is the metric's mean and some noise."""
    rng, lines = np.random.default_rng(seed), []
    for data in sets:
        for judge in judges:
            for truth, question in TRUTHS.items():
                for one in seeds:
                    for k in KS:
                        for (metric, variant), (block, *means) in metrics.items():
                            tau = float(np.clip(means[question == "change"] + rng.normal(0, spread), -1, 1))
                            lines.append({
                                "data": data, "judge": judge, "truth": truth, "seed": one, "k": k, "metric": metric,
                                "variant": variant, "question": question, "block": block,
                                "title": f"{metric} ({variant})", "ranked": "anchor lime shap", "run": "0" * 16,
                                "cfeval": "0.1.0", "instances": 200, "explainers": 5, "explainers_without_controls": 3,
                                "explainers_without_circular": 2, "explainers_without_weak": 2, "tau": (tau + 1) / 2,
                                "tau_without_controls": tau, "tau_without_circular": tau / 2,
                                "tau_without_weak": tau / 4,
                                "diagnosticity": 0.5 + tau / 2, "agreement": tau / 3, "model_rows": 10.0,
                                "circular": (metric, truth) == ("comprehensiveness", "shapley"),
                                "arbitrary": variant == "del", "exact": True,
                            })  # fmt: skip
    return Atlas(pd.DataFrame(lines)[COLUMNS].astype(TYPES).round(6))
