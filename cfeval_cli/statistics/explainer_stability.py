"""Stability across explainer seeds: do a second seed's explanations select the same features and score the same?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import NO_FEATURE, Bools, ExplainerResult, Explanation, Floats, Ints
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.proportion import compute_proportion_interval
from cfeval_cli.statistics.scores import Scores

COLUMNS = [
    "explainer",
    "n_requested",
    "instances",
    "same_features",
    "low",
    "high",
    "overlap",
    "same_order",
    "deterministic",
]
METRICS_COLUMNS = [
    "explainer", "metric", "variant", "instances", "value", "value_again", "difference", "se", "explainer_se",
]  # fmt: skip

_KEYS = ["metric", "variant", "explainer"]


@dataclass(frozen=True)
class RepeatedExplanations:
    """Explanations of some instances with a second explainer seed, and their scores."""

    positions: Ints  # of the instances among all
    explanations: Mapping[str, ExplainerResult]
    scores: Scores

    def build_tables(
        self,
        first: Mapping[str, ExplainerResult],
        scores: Scores,
        summary: pd.DataFrame,
        k: int,
        bootstrap: Bootstrap,
    ) -> dict[str, pd.DataFrame]:
        """Return the tables of the run folder by name, given the first explanations and scores of all instances."""
        return {
            "explainer_stability": compare_explanations(
                first, self.explanations, self.positions, k, bootstrap.confidence
            ),
            "explainer_stability_metrics": compare_values(
                scores.select_frame(self.positions), self.scores.to_frame(), summary, bootstrap.min_instances
            ),
        }


def compare_explanations(
    first: Mapping[str, ExplainerResult],
    second: Mapping[str, ExplainerResult],
    positions: Ints,
    k: int,
    confidence: float,
) -> pd.DataFrame:
    """Return explainer_stability.csv: how often both explanations of an instance select the same k features.

    `positions` are those of the instances with a second explanation among the first explanations.
    """
    lines = []
    for name, repeated in second.items():
        pair = _select_pair(first[name], repeated, positions)
        lines.append({"explainer": name, "n_requested": len(positions), **_compare_pair(*pair, k, confidence)})
    return pd.DataFrame(lines, columns=COLUMNS)


def compute_mean_overlap(
    first: Mapping[str, ExplainerResult], second: Mapping[str, ExplainerResult], positions: Ints, k: int
) -> dict[str, float]:
    """Return per explainer the mean overlap of both top-k sets, relative to the larger set, without empty pairs."""
    overlap = {}
    for name, repeated in second.items():
        pair = _select_pair(first[name], repeated, positions)
        n_common, larger_size, _ = compare_feature_sets(*(explanation.top_k(k) for explanation in pair))
        if (larger_size > 0).any():
            overlap[name] = float((n_common[larger_size > 0] / larger_size[larger_size > 0]).mean())
    return overlap


def _select_pair(
    original: ExplainerResult, repeated: ExplainerResult, positions: Ints
) -> tuple[Explanation, Explanation]:
    """Return both explanations of the instances that were explained with both seeds."""
    failed = np.isin(positions, list(original.failures)) | np.isin(np.arange(len(positions)), list(repeated.failures))
    return original.explanation.take(positions[~failed]), repeated.explanation.take(np.flatnonzero(~failed))


def _compare_pair(first: Explanation, second: Explanation, k: int, confidence: float) -> dict[str, Any]:
    """Compare two explanations of the same instances, without instances where both select no feature."""
    n_common, larger_size, is_same = compare_feature_sets(first.top_k(k), second.top_k(k))
    is_compared = larger_size > 0
    n_compared, n_same = int(is_compared.sum()), int(is_same[is_compared].sum())
    low, high = compute_proportion_interval(n_same, n_compared, confidence)
    row = {"instances": n_compared, "low": low, "high": high, "deterministic": ""}
    if not n_compared:
        return row
    width = max(first.features.shape[1], second.features.shape[1])
    same_order = (first.top_k(width) == second.top_k(width)).all(axis=1)
    is_deterministic = same_order.all() and np.array_equal(_list_scores(first), _list_scores(second))
    return row | {
        "same_features": n_same / n_compared,
        "overlap": (n_common[is_compared] / larger_size[is_compared]).mean(),
        "same_order": same_order[is_compared].mean(),
        "deterministic": "yes" if is_deterministic else "no",
    }


def compare_feature_sets(first: Ints, second: Ints) -> tuple[Ints, Ints, Bools]:
    """Return for two sets of features (n, k) of each instance the common number, the larger size, and equality."""
    is_common = (first[:, :, None] == second[:, None, :]) & (first != NO_FEATURE)[:, :, None]
    n_common = is_common.sum(axis=(1, 2))
    larger_size = np.maximum((first != NO_FEATURE).sum(axis=1), (second != NO_FEATURE).sum(axis=1))
    return n_common, larger_size, n_common == larger_size


def _list_scores(explanation: Explanation) -> Floats:
    """Return the scores of all selected features."""
    return np.asarray(explanation.scores[explanation.features != NO_FEATURE])


def compare_values(
    scores: pd.DataFrame, repeated: pd.DataFrame, summary: pd.DataFrame, min_instances: int
) -> pd.DataFrame:
    """Return explainer_stability_metrics.csv: the values with each seed, on instances with scores of both.

    `scores` and `repeated` are tables like scores.parquet; `summary` has the role of each metric. With fewer than
    `min_instances` there is no standard error.
    """
    facts = summary.loc[summary["role"] == "fact", "metric"].unique()
    repeated = repeated[~repeated["metric"].isin(facts)]
    is_compared = scores["instance"].isin(repeated["instance"]) & ~scores["metric"].isin(facts)
    plain = dict.fromkeys(_KEYS, object)  # the two tables have different categories
    both = repeated.astype(plain).merge(
        scores[is_compared].astype(plain), on=["instance", *_KEYS], suffixes=("_again", "")
    )
    lines = []
    for (metric, variant, name), part in both.groupby(_KEYS, sort=False):
        columns = ("numerator", "denominator", "numerator_again", "denominator_again")
        errors = compute_seed_errors(*(part[column].to_numpy(float) for column in columns))
        if len(part) < min_instances:
            errors |= {"se": np.nan, "explainer_se": np.nan}
        lines.append({"explainer": name, "metric": metric, "variant": variant, "instances": len(part), **errors})
    return pd.DataFrame(lines, columns=METRICS_COLUMNS)


def compute_seed_errors(n: Floats, d: Floats, n_again: Floats, d_again: Floats) -> dict[str, float]:
    """Return Σn/Σd with each seed, and standard errors: over instances, and over explainer seeds alone.

    The explainer draws independently for each instance, so that half of the mean square of the n differences between
    two seeds estimates the variance of one draw, and with it the error of a mean of n draws. Ratios are linearised.
    """
    size, columns = len(n), ("value", "value_again", "difference", "se", "explainer_se")
    value = n.sum() / d.sum() if d.sum() else np.nan
    value_again = n_again.sum() / d_again.sum() if d_again.sum() else np.nan
    if np.isnan(value) or np.isnan(value_again):
        return dict.fromkeys(columns, np.nan) | {"value": value, "value_again": value_again}
    ratio, mean = (n.sum() + n_again.sum()) / (d.sum() + d_again.sum()), (d.sum() + d_again.sum()) / (2 * size)
    residuals = (n - value * d) / d.mean()
    differences = ((n - ratio * d) - (n_again - ratio * d_again)) / mean
    se = float(np.sqrt((residuals**2).sum() / (size * (size - 1)))) if size > 1 else np.nan
    explainer_se = float(np.sqrt((differences**2).sum() / 2) / size)
    return dict(zip(columns, (value, value_again, value_again - value, se, explainer_se), strict=True))
