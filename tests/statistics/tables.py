"""Random scores of a few metrics and explainers, and what a resample draws of them, one instance at a time."""

from itertools import combinations

import numpy as np
import pandas as pd

from cfeval_cli.core import Quantity
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics import metric_summary, run_statistics
from cfeval_cli.statistics.scores import Scores

EXPLAINERS = ["a", "b", "c", "d"]
QUANTITIES = {"coverage": Quantity.COMPLETE}
KINDS = [("c", "label", "higher"), ("sufficiency", "del", "lower"), ("recall", "signed", "higher")]


def build(seed, n=5, gaps=False, controls=()):
    """Scores of two metrics and a truth, one metric being a ratio of sums; with gaps, b lacks some instances."""
    rng = np.random.default_rng(seed)
    rows, order = [], []
    for metric, variant, better in [*KINDS, ("coverage", "all", "none")]:
        for explainer in EXPLAINERS:
            key = {"metric": metric, "variant": variant, "explainer": explainer}
            role = {"recall": "truth", "coverage": "fact"}.get(metric, "judged")
            facts = {
                "quality_level": np.nan,
                "better": better,
                "role": role,
                "access": "label",
                "low": 0.0,
                "high": 1.0,
            }
            facts |= {
                "note": "",
                "method": "",
                "remark": "",
                "empty": "every distance is zero",
                "control": explainer in controls,
            }
            facts |= {"circular": False, "quantity": QUANTITIES.get(metric)}
            order.append({**key, **facts})
            for instance in range(n):
                value = float(instance > 0) if metric == "coverage" else float(rng.integers(0, 3))
                weight = float(rng.integers(1, 4)) if metric == "c" else 1.0
                if gaps and explainer == "b" and instance % 3 == 0 and metric != "coverage":
                    continue
                rows.append({**key, "instance": instance, "numerator": value, "denominator": weight})
    return pd.DataFrame(rows), pd.DataFrame(order)


def summarise(scores, order):
    """The summary of a table of scores."""
    return metric_summary.summarise_scores(Scores.from_frame(scores), order)


def conclude(scores, *arguments, **options):
    """All that follows from a table of scores."""
    return run_statistics.compute_statistics(Scores.from_frame(scores), *arguments, **options)


def list_drawn_rows(scores, resamples, seed):
    """For each resample the drawn instances, each with its (numerator, denominator) by metric, variant, explainer."""
    ids = sorted(scores["instance"].unique())
    scores_of = {i: {} for i in ids}
    for row in scores.itertuples():
        scores_of[row.instance][row.metric, row.variant, row.explainer] = (row.numerator, row.denominator)
    for positions in make_stream(seed, "bootstrap").integers(0, len(ids), (resamples, len(ids))):
        yield [scores_of[ids[i]] for i in positions]


def compute_sign(x):
    return 0 if abs(x) < 1e-12 else (1 if x > 0 else -1)


def compute_kendall_tau(values, truth):
    """Kendall's, written out: a tied pair is neither right nor wrong."""
    pairs = list(combinations(range(len(values)), 2))
    return sum(compute_sign(values[i] - values[j]) * compute_sign(truth[i] - truth[j]) for i, j in pairs) / len(pairs)
