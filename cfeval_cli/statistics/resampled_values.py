"""Every value of a run as it is, and as it would have been with other instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.statistics.bootstrap import (
    Bootstrap,
    compute_resampled_sums,
    divide_halves,
)
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.scores import MetricKey, Scores


@dataclass(frozen=True)
class ResampledValues:
    """Values by row (metric and variant) and explainer."""

    rows: list[MetricKey]
    better: list[str]  # of each row
    roles: list[str]  # of each row: judged, truth or fact
    notes: list[set[str]]  # of each row, why it lacks values
    explainers: list[str]
    rungs: Floats  # (E,) NaN for an explainer that is no rung of a ladder
    controls: Bools  # (E,) explainers that name chance or the truth itself
    values: Floats  # (1 + B, R, E): the real ones, then those of every resample
    instances: Ints  # (R, E)

    @staticmethod
    def of(scores: Scores, metrics: pd.DataFrame, how: Bootstrap) -> ResampledValues:
        """Resample all scores of a summary."""
        by_row = metrics.groupby(["metric", "variant"], sort=False)
        rows = list(dict.fromkeys(zip(metrics["metric"], metrics["variant"], strict=True)))
        wide = metrics.set_index(["metric", "variant", "explainer"])
        explainers = list(dict.fromkeys(metrics["explainer"]))
        value = wide["value"].unstack("explainer").reindex(index=pd.Index(rows), columns=explainers).to_numpy(float)
        # an explainer at a time, so that its bits do not depend on which others there are
        makers = [partial(scores.columns, name, rows) for name in explainers]
        drawn = [divide_halves(total) for total in compute_resampled_sums(makers, scores.size, how.resamples, how.seed)]
        values = np.stack(drawn, axis=-1)
        return ResampledValues(
            rows=rows,
            better=by_row["better"].first().tolist(),
            roles=by_row["role"].first().tolist(),
            notes=[notes - {""} for notes in by_row["note"].agg(set)],
            explainers=explainers,
            rungs=metrics.groupby("explainer")["rung"].first().reindex(explainers).to_numpy(float),
            controls=metrics.groupby("explainer")["control"].first().reindex(explainers).to_numpy(bool),
            values=np.concatenate([value[None], np.where(np.isnan(value), np.nan, values)]),
            instances=wide["n"].unstack("explainer").reindex(index=pd.Index(rows), columns=explainers).to_numpy(int),
        )

    def without(self, cells: pd.DataFrame) -> ResampledValues:
        """The same without the values of some metrics, variants and explainers."""
        values = self.values.copy()
        for metric, variant, explainer in cells[["metric", "variant", "explainer"]].itertuples(index=False, name=None):
            values[:, self.rows.index((metric, variant)), self.explainers.index(explainer)] = np.nan
        return replace(self, values=values)

    def first(self, resamples: int) -> ResampledValues:
        """No more than the first so many resamples."""
        return replace(self, values=self.values[: 1 + resamples])

    def standing(self, rows: list[int], explainers: Ints, draws: slice) -> Floats:
        """Ranks (b, r, e) of some explainers, 1 the best."""
        values = self.values[draws][:, rows][:, :, explainers]
        lower = np.array([self.better[row] == "lower" for row in rows], dtype=bool)
        return compute_ranks(np.where(lower[:, None], values, -values), "lower")


def insert_intervals(metrics: pd.DataFrame, drawn: ResampledValues, how: Bootstrap) -> pd.DataFrame:
    """The summary itself, to which interval and standard error are added behind each value."""
    row = pd.MultiIndex.from_tuples(drawn.rows).get_indexer(pd.MultiIndex.from_frame(metrics[["metric", "variant"]]))
    column = pd.Index(drawn.explainers).get_indexer(pd.Index(metrics["explainer"]))
    place = list(metrics).index("value") + 1
    spread = how.compute_interval(drawn.values[1:], drawn.instances >= how.min_instances)
    for name, of in zip(("value_se", "value_high", "value_low"), reversed(spread), strict=True):
        metrics.insert(place, name, of[row, column])
    return metrics
