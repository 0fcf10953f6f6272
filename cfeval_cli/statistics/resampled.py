"""Every value of a run as it is, and as it would have been with other instances."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.statistics.bootstrap import deviation, interval, ratios, sums
from cfeval_cli.statistics.ranking import ranks
from cfeval_cli.statistics.scores import Row, Scores

LEAST = 30  # instances: fewer are no sample to draw from again
SURE = 0.05  # below which a p is called significant
USUAL = 2000  # resamples, if no more are needed; intervals need no more

_ROOM = 2  # times what it takes at least: one resample against a difference does not undo it
_WORK = 1 << 32  # scores added up over all resamples
_VALUES = 1 << 25  # values of all resamples held at once, 256 MB


def enough(metrics: int, scores: int, values: int) -> int:
    """So many resamples that some difference among so many metrics can be significant after Holm's correction.

    The smallest p of B resamples is 2 / (B + 1), and Holm multiplies it by the number of pairs. So many scores and
    values (of metrics for explainers) limit it, but never below what is usual: the time that it takes is bounded.
    """
    pairs = metrics * (metrics - 1) // 2
    most = min(_WORK // max(1, scores), _VALUES // max(1, values))
    return max(USUAL, min(ceil(_ROOM * 2 * pairs / SURE), most))


def too_few(resamples: int, pairs: int) -> bool:
    """Whether no difference among so many pairs of metrics could be significant after Holm's correction."""
    return 2 / (resamples + 1) * pairs >= SURE


@dataclass(frozen=True)
class Bootstrap:
    """How to resample."""

    seed: int
    resamples: int = 2000  # 0: no intervals
    confidence: float = 0.95
    least: int = LEAST
    most: int | None = None  # resamples for intervals alone, the first of all; None: all

    @property
    def alone(self) -> Bootstrap:
        """For intervals alone, of what is not compared with anything after a correction."""
        return self if self.most is None else replace(self, resamples=min(self.resamples, self.most))

    def spread(self, values: Floats, enough: Bools | bool = True) -> tuple[Floats, Floats, Floats]:
        """Both ends of the interval and the standard error of what was resampled along the first axis.

        NaN where there were not enough instances.
        """
        if not len(values):
            empty = np.full(values.shape[1:], np.nan)
            return empty, empty, empty
        low, high = interval(values, self.confidence)
        return (
            np.where(enough, low, np.nan),
            np.where(enough, high, np.nan),
            np.where(enough, deviation(values), np.nan),
        )


@dataclass(frozen=True)
class Resampled:
    """Values by row (metric and variant) and explainer."""

    rows: list[Row]
    better: list[str]  # of each row
    roles: list[str]  # of each row: judged, truth or fact
    notes: list[set[str]]  # of each row, why it lacks values
    explainers: list[str]
    rungs: Floats  # (E,) NaN for an explainer that is no rung of a ladder
    controls: Bools  # (E,) explainers that name chance or the gold itself
    values: Floats  # (1 + B, R, E): the real ones, then those of every resample
    instances: Ints  # (R, E)

    @staticmethod
    def of(scores: Scores, metrics: pd.DataFrame, how: Bootstrap) -> Resampled:
        """Resample all scores of a summary."""
        by_row = metrics.groupby(["metric", "variant"], sort=False)
        rows = list(dict.fromkeys(zip(metrics["metric"], metrics["variant"], strict=True)))
        wide = metrics.set_index(["metric", "variant", "explainer"])
        explainers = list(dict.fromkeys(metrics["explainer"]))
        value = wide["value"].unstack("explainer").reindex(index=pd.Index(rows), columns=explainers).to_numpy(float)
        # an explainer at a time, so that its bits do not depend on which others there are
        makers = [partial(scores.columns, name, rows) for name in explainers]
        drawn = [ratios(total) for total in sums(makers, scores.size, how.resamples, how.seed)]
        values = np.stack(drawn, axis=-1)
        return Resampled(
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

    def without(self, cells: pd.DataFrame) -> Resampled:
        """The same without the values of some metrics, variants and explainers."""
        values = self.values.copy()
        for metric, variant, explainer in cells[["metric", "variant", "explainer"]].itertuples(index=False, name=None):
            values[:, self.rows.index((metric, variant)), self.explainers.index(explainer)] = np.nan
        return replace(self, values=values)

    def first(self, resamples: int) -> Resampled:
        """No more than the first so many resamples."""
        return replace(self, values=self.values[: 1 + resamples])

    def standing(self, rows: list[int], explainers: Ints, draws: slice) -> Floats:
        """Ranks (b, r, e) of some explainers, 1 the best."""
        values = self.values[draws][:, rows][:, :, explainers]
        lower = np.array([self.better[row] == "lower" for row in rows], dtype=bool)
        return ranks(np.where(lower[:, None], values, -values), "lower")


def with_intervals(metrics: pd.DataFrame, drawn: Resampled, how: Bootstrap) -> pd.DataFrame:
    """The summary itself, to which interval and standard error are added behind each value."""
    row = pd.MultiIndex.from_tuples(drawn.rows).get_indexer(pd.MultiIndex.from_frame(metrics[["metric", "variant"]]))
    column = pd.Index(drawn.explainers).get_indexer(pd.Index(metrics["explainer"]))
    place = list(metrics).index("value") + 1
    spread = how.spread(drawn.values[1:], drawn.instances >= how.least)
    for name, of in zip(("value_se", "value_high", "value_low"), reversed(spread), strict=True):
        metrics.insert(place, name, of[row, column])
    return metrics
