"""The values of all metrics and explainers, and their values in every resample of the instances."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.statistics.bootstrap import Bootstrap, compute_resampled_sums, divide_halves
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.scores import MetricKey, Scores


@dataclass(frozen=True)
class ResampledValues:
    """Values by metric (with its variant) and explainer."""

    metrics: list[MetricKey]
    directions: list[str]  # of each metric: which values are better: higher, lower or none
    roles: list[str]  # of each metric: judged, truth or fact
    notes: list[set[str]]  # of each metric, why it lacks values
    explainers: list[str]
    quality_levels: Floats  # (E,) NaN for an explainer that is no graded control
    controls: Bools  # (E,) explainers that select features by chance or by the truth itself
    values: Floats  # (1 + B, R, E): index 0 has the observed values, 1 to B those of the resamples
    n_instances: Ints  # (R, E)

    @staticmethod
    def compute(scores: Scores, summary: pd.DataFrame, bootstrap: Bootstrap) -> ResampledValues:
        """Resample all scores of a summary."""
        by_metric = summary.groupby(["metric", "variant"], sort=False)
        by_explainer = summary.groupby("explainer")
        wide = summary.set_index(["metric", "variant", "explainer"])
        metrics = list(dict.fromkeys(zip(summary["metric"], summary["variant"], strict=True)))
        explainers = list(dict.fromkeys(summary["explainer"]))
        value = wide["value"].unstack("explainer").reindex(index=pd.Index(metrics), columns=explainers)
        n = wide["n"].unstack("explainer").reindex(index=pd.Index(metrics), columns=explainers)
        observed = value.to_numpy(float)
        # One matrix for each explainer, so that the bits of its values do not depend on the other explainers.
        matrices = [partial(scores.stack_columns, name, metrics) for name in explainers]
        sums = compute_resampled_sums(matrices, scores.n_instances, bootstrap.n_resamples, bootstrap.seed)
        resampled = np.stack([divide_halves(total) for total in sums], axis=-1)
        return ResampledValues(
            metrics=metrics,
            directions=by_metric["better"].first().tolist(),
            roles=by_metric["role"].first().tolist(),
            notes=[notes - {""} for notes in by_metric["note"].agg(set)],
            explainers=explainers,
            quality_levels=by_explainer["quality_level"].first().reindex(explainers).to_numpy(float),
            controls=by_explainer["control"].first().reindex(explainers).to_numpy(bool),
            values=np.concatenate([observed[None], np.where(np.isnan(observed), np.nan, resampled)]),
            n_instances=n.to_numpy(int),
        )

    def drop(self, cells: pd.DataFrame) -> ResampledValues:
        """Return the values without those of some metrics, variants and explainers."""
        values = self.values.copy()
        for metric, variant, explainer in cells[["metric", "variant", "explainer"]].itertuples(index=False, name=None):
            values[:, self.metrics.index((metric, variant)), self.explainers.index(explainer)] = np.nan
        return replace(self, values=values)

    def take_resamples(self, n_resamples: int) -> ResampledValues:
        """Return the values of the first resamples only."""
        return replace(self, values=self.values[: 1 + n_resamples])

    def rank_explainers(self, metrics: Sequence[int], explainers: Ints, resample_slice: slice) -> Floats:
        """Return the ranks (b, r, e) of some explainers by some metrics, 1 is best."""
        values = self.values[resample_slice][:, metrics][:, :, explainers]
        is_lower_better = np.array([self.directions[metric] == "lower" for metric in metrics], dtype=bool)
        return compute_ranks(np.where(is_lower_better[:, None], values, -values), "lower")


def insert_intervals(summary: pd.DataFrame, resampled: ResampledValues, bootstrap: Bootstrap) -> pd.DataFrame:
    """Insert the columns value_low, value_high and value_se behind `value` of the summary, and return it."""
    row = pd.MultiIndex.from_tuples(resampled.metrics).get_indexer(
        pd.MultiIndex.from_frame(summary[["metric", "variant"]])
    )
    column = pd.Index(resampled.explainers).get_indexer(pd.Index(summary["explainer"]))
    position = list(summary).index("value") + 1
    intervals = bootstrap.compute_interval(resampled.values[1:], resampled.n_instances >= bootstrap.min_instances)
    for name, ends in zip(("value_se", "value_high", "value_low"), reversed(intervals), strict=True):
        summary.insert(position, name, ends[row, column])
    return summary
