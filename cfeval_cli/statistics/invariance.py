"""What moves when a model is written in other parameters that change none of its predictions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Floats
from cfeval_cli.statistics.correlation import RankedFamily, compute_kendall_tau
from cfeval_cli.statistics.resampled_values import ResampledValues
from cfeval_cli.statistics.scores import MetricKey
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS

COLUMNS = [
    "metric", "variant", "truth", "agreement", "subset", "tau", "tau_lowest", "tau_highest", "moves", "moved_by",
    "reparametrisations", "instances",
]  # fmt: skip

TOGETHER = "together"  # all changes at once; the others are each alone
_SAME = 1e-9  # values that differ by no more are the same: parameters of another size round otherwise


@dataclass(frozen=True)
class ReparametrisedValues:
    """The values of a run's metrics on some instances, of the model as it is and in other parameters."""

    rows: list[MetricKey]
    explainers: list[str]
    values: Floats  # (R, E) of the model as it is
    changed: Mapping[str, Floats]  # (B, R, E) by the change that was made
    instances: int

    @property
    def draws(self) -> int:
        """How many times each change was drawn."""
        return max((len(values) for values in self.changed.values()), default=0)

    def moved(self) -> Bools:
        """Which values (R, E) any change moves."""
        moved = np.zeros(self.values.shape, dtype=bool)
        for values in self.changed.values():
            moved |= _differs(values, self.values).any(axis=0)
        return moved

    def drawn(self, like: ResampledValues) -> tuple[ResampledValues, dict[str, slice]]:
        """All values where a run has its resamples: of the model as it is, then of each change, and where those are."""
        parts = [self.values[None], *self.changed.values()]
        whole = np.full((sum(map(len, parts)), len(like.rows), len(like.explainers)), np.nan)
        rows = np.array([like.rows.index(row) for row in self.rows])
        columns = np.array([like.explainers.index(name) for name in self.explainers])
        whole[np.ix_(np.arange(len(whole)), rows, columns)] = np.concatenate(parts)
        ends = np.cumsum([len(part) for part in parts]).tolist()
        places = [slice(start, end) for start, end in pairwise(ends)]
        whole[:, np.isnan(like.values[0])] = np.nan  # what counts in no τ there counts in none here
        return replace(like, values=whole), dict(zip(self.changed, places, strict=True))


def tabulate_tau_ranges(
    found: ReparametrisedValues, like: ResampledValues, family: RankedFamily
) -> Iterator[dict[str, Any]]:
    """Rows of invariance.csv: for each metric and truth the range of τ, and of all explainers what alone moves it."""
    drawn, places = found.drawn(like)
    tau = compute_kendall_tau(drawn, family)
    differs = {change: np.asarray(_differs(tau[place], tau[0]).any(axis=0)) for change, place in places.items()}
    lowest, highest = (np.asarray(end.reduce(tau, axis=0)) for end in (np.fmin, np.fmax))
    for j, row in enumerate(family.judged):
        for t, truth in enumerate(family.truths):
            if np.isnan(tau[0, j, t]):
                continue
            by = [change for change, of in differs.items() if of[j, t]]
            alone = [change for change in by if change != TOGETHER]
            moved_by = " ".join(alone or by) if family.subset == ALL_EXPLAINERS else ""
            yield {
                "metric": drawn.rows[row][0], "variant": drawn.rows[row][1], "truth": truth.name,
                "agreement": truth.agreement, "subset": family.subset, "tau": tau[0, j, t],
                "tau_lowest": lowest[j, t], "tau_highest": highest[j, t], "moves": bool(by), "moved_by": moved_by,
                "reparametrisations": found.draws, "instances": found.instances,
            }  # fmt: skip


def build_tau_ranges(
    found: ReparametrisedValues, like: ResampledValues, families: Sequence[RankedFamily]
) -> pd.DataFrame:
    """invariance.csv."""
    return pd.DataFrame(
        [line for family in families for line in tabulate_tau_ranges(found, like, family)], columns=COLUMNS
    )


def find_moved_values(metrics: pd.DataFrame, found: ReparametrisedValues | None) -> pd.Series:
    """For each row of metrics.csv whether its value moves; nothing where that is not known."""
    known: dict[tuple[MetricKey, str], bool] = {}
    if found is not None:
        moved, there = found.moved(), ~np.isnan(found.values)
        known = {
            (found.rows[i], found.explainers[j]): bool(moved[i, j])
            for i, j in zip(*np.nonzero(there), strict=True)
        }  # fmt: skip
    rows = zip(metrics["metric"], metrics["variant"], strict=True)
    keys = zip(rows, metrics["explainer"], strict=True)
    return pd.Series([known.get(key) for key in keys], index=metrics.index, dtype=object)


def find_moved_taus(correlations: pd.DataFrame, ranges: pd.DataFrame | None) -> pd.Series:
    """For each row of correlations.csv whether its τ moves; nothing where that is not known."""
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    known: dict[Any, bool] = {}
    if ranges is not None:
        known = dict(zip(ranges[keys].itertuples(index=False, name=None), ranges["moves"], strict=True))
    told = [known.get(key) for key in correlations[keys].itertuples(index=False, name=None)]
    return pd.Series(told, index=correlations.index, dtype=object)


def _differs(values: Floats, before: Floats) -> Bools:
    """Not the same, but for rounding."""
    return np.asarray(~np.isclose(values, before, rtol=_SAME, atol=_SAME, equal_nan=True))
