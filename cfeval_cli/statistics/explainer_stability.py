"""What another seed of an explainer changes: the features that it names, and the values that it gets."""

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

COLUMNS = ["explainer", "asked", "instances", "same_features", "low", "high", "overlap", "same_order", "deterministic"]
OF_METRICS = [
    "explainer", "metric", "variant", "instances", "value", "value_again", "difference", "se", "explainer_se",
]  # fmt: skip

_KEYS = ["metric", "variant", "explainer"]


@dataclass(frozen=True)
class Again:
    """Some instances, explained a second time."""

    rows: Ints  # their places among all instances
    explanations: Mapping[str, ExplainerResult]
    scores: Scores  # of these

    def tables(
        self, first: Mapping[str, ExplainerResult], scores: Scores, order: pd.DataFrame, k: int, how: Bootstrap
    ) -> dict[str, pd.DataFrame]:
        """By the names of their files, from what was explained and scored the first time."""
        return {
            "explainer_stability": named(first, self.explanations, self.rows, k, how.confidence),
            "explainer_stability_metrics": valued(
                scores.select_frame(self.rows), self.scores.to_frame(), order, how.min_instances
            ),
        }


def named(
    first: Mapping[str, ExplainerResult], second: Mapping[str, ExplainerResult], rows: Ints, k: int, confidence: float
) -> pd.DataFrame:
    """explainer_stability.csv: how often the second explanation of an instance names the same k features as the first.

    `rows` are the places, among the instances of the first explanations, of those that were explained again.
    """
    lines = []
    for name, again in second.items():
        before = first[name]
        failed = np.isin(rows, list(before.failures)) | np.isin(np.arange(len(rows)), list(again.failures))
        told = _taken(before.explanation, rows[~failed]), _taken(again.explanation, np.flatnonzero(~failed))
        lines.append({"explainer": name, "asked": len(rows), **_line(*told, k, confidence)})
    return pd.DataFrame(lines, columns=COLUMNS)


def _taken(explanation: Explanation, rows: Ints) -> Explanation:
    return Explanation(explanation.features[rows], explanation.scores[rows])


def _line(one: Explanation, two: Explanation, k: int, confidence: float) -> dict[str, Any]:
    """What is told of two explanations of the same instances; where both name nothing, nothing is compared."""
    common, larger, same = compared(one.top_k(k), two.top_k(k))
    there = larger > 0
    many, alike = int(there.sum()), int(same[there].sum())
    low, high = compute_proportion_interval(alike, many, confidence)
    width = max(one.features.shape[1], two.features.shape[1])
    listed = (one.top_k(width) == two.top_k(width)).all(axis=1)
    told = {"instances": many, "low": low, "high": high, "deterministic": ""}
    if many:
        told |= {"same_features": alike / many, "overlap": (common[there] / larger[there]).mean()}
        told |= {"same_order": listed[there].mean(), "deterministic": "no"}
    if many and listed.all() and _scored(one) == _scored(two):
        told["deterministic"] = "yes"
    return told


def compared(one: Ints, two: Ints) -> tuple[Ints, Ints, Bools]:
    """Of two sets of features (n, k) for each instance: how many they share, the size of the larger, whether equal."""
    shared = (one[:, :, None] == two[:, None, :]) & (one != NO_FEATURE)[:, :, None]
    common, sizes = shared.sum(axis=(1, 2)), [(side != NO_FEATURE).sum(axis=1) for side in (one, two)]
    larger = np.maximum(*sizes)
    return common, larger, common == larger


def _scored(explanation: Explanation) -> list[float]:
    """The scores of all named features."""
    return list(explanation.scores[explanation.features != NO_FEATURE].tolist())


def valued(scores: pd.DataFrame, again: pd.DataFrame, order: pd.DataFrame, least: int) -> pd.DataFrame:
    """explainer_stability_metrics.csv: each explainer's values with either seed, on instances scored with both.

    `scores` and `again` are tables like scores.parquet; `order` says which rows are no values but facts about them.
    From fewer than `least` instances no standard error is given.
    """
    facts = order.loc[order["role"] == "fact", "metric"].unique()
    again = again[~again["metric"].isin(facts)]
    keys = ["instance", *_KEYS]
    some = scores["instance"].isin(again["instance"]) & ~scores["metric"].isin(facts)
    plain = dict.fromkeys(_KEYS, object)  # the two have categories of their own
    both = again.astype(plain).merge(scores[some].astype(plain), on=keys, suffixes=("_again", ""))
    lines = []
    for (metric, variant, name), part in both.groupby(_KEYS, sort=False):
        columns = ("numerator", "denominator", "numerator_again", "denominator_again")
        told = moved(*(part[column].to_numpy(float) for column in columns))
        if len(part) < least:
            told |= {"se": np.nan, "explainer_se": np.nan}
        lines.append({"explainer": name, "metric": metric, "variant": variant, "instances": len(part), **told})
    return pd.DataFrame(lines, columns=OF_METRICS)


def moved(n: Floats, d: Floats, n_again: Floats, d_again: Floats) -> dict[str, float]:
    """Σn/Σd with either seed, and how sure it is: over instances, and over seeds of the explainer alone.

    Every instance draws for itself, so that n differences between two seeds tell the variance of one draw each:
    half of the mean square, which the error of a mean of n such draws follows from. A ratio is taken as linear.
    """
    size, nothing = len(n), dict.fromkeys(("value", "value_again", "difference", "se", "explainer_se"), np.nan)
    value = n.sum() / d.sum() if d.sum() else np.nan
    value_again = n_again.sum() / d_again.sum() if d_again.sum() else np.nan
    nothing |= {"value": value, "value_again": value_again}
    if np.isnan(value) or np.isnan(value_again):
        return nothing
    ratio, mean = (n.sum() + n_again.sum()) / (d.sum() + d_again.sum()), (d.sum() + d_again.sum()) / (2 * size)
    residual = (n - value * d) / d.mean()
    gap = ((n - ratio * d) - (n_again - ratio * d_again)) / mean
    se = np.sqrt((residual**2).sum() / (size * (size - 1))) if size > 1 else np.nan
    return nothing | {
        "difference": value_again - value,
        "se": float(se),
        "explainer_se": float(np.sqrt((gap**2).sum() / 2) / size),
    }
