"""Values and correlations that change when a model is written in other parameters with the same predictions."""

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
    "metric", "variant", "truth", "agreement", "subset", "tau", "tau_lowest", "tau_highest", "not_identifiable",
    "changed_by",
    "reparametrisations", "instances",
]  # fmt: skip

ALL_CHANGES = "together"  # all changes applied at once; every other entry is a single change
_TOLERANCE = 1e-9  # parameters of another size round differently


@dataclass(frozen=True)
class ReparametrisedValues:
    """The values of a run's metrics on some instances, of the model as it is and in other parameters."""

    metrics: list[MetricKey]
    explainers: list[str]
    values: Floats  # (R, E) of the model as it is
    changed: Mapping[str, Floats]  # (B, R, E) by the change of the parameters
    n_instances: int

    @property
    def n_draws(self) -> int:
        """The number of draws of each change."""
        return max((len(values) for values in self.changed.values()), default=0)

    def find_changed(self) -> Bools:
        """Return the values (R, E) that any change alters."""
        is_changed = np.zeros(self.values.shape, dtype=bool)
        for values in self.changed.values():
            is_changed |= _differ(values, self.values).any(axis=0)
        return is_changed

    def stack(self, resampled: ResampledValues) -> tuple[ResampledValues, dict[str, slice]]:
        """Return all values in the place of a run's resamples, and the positions of those of each change."""
        parts = [self.values[None], *self.changed.values()]
        values = np.full((sum(map(len, parts)), len(resampled.metrics), len(resampled.explainers)), np.nan)
        rows = np.array([resampled.metrics.index(metric) for metric in self.metrics])
        columns = np.array([resampled.explainers.index(name) for name in self.explainers])
        values[np.ix_(np.arange(len(values)), rows, columns)] = np.concatenate(parts)
        values[:, np.isnan(resampled.values[0])] = np.nan  # values that count in no τ of the run count in none here
        ends = np.cumsum([len(part) for part in parts]).tolist()
        spans = [slice(start, end) for start, end in pairwise(ends)]
        return replace(resampled, values=values), dict(zip(self.changed, spans, strict=True))


def tabulate_tau_ranges(
    reparametrised: ReparametrisedValues, resampled: ResampledValues, family: RankedFamily
) -> Iterator[dict[str, Any]]:
    """Yield rows of invariance.csv: the range of τ, and over all explainers the changes that suffice alone."""
    stacked, spans = reparametrised.stack(resampled)
    tau = compute_kendall_tau(stacked, family)
    is_changed = {change: np.asarray(_differ(tau[span], tau[0]).any(axis=0)) for change, span in spans.items()}
    lowest, highest = (np.asarray(extreme.reduce(tau, axis=0)) for extreme in (np.fmin, np.fmax))
    for j, metric in enumerate(family.judged):
        for t, reference in enumerate(family.references):
            if np.isnan(tau[0, j, t]):
                continue
            changes = [change for change, mask in is_changed.items() if mask[j, t]]
            alone = [change for change in changes if change != ALL_CHANGES]
            changed_by = " ".join(alone or changes) if family.subset == ALL_EXPLAINERS else ""
            yield {
                "metric": stacked.metrics[metric][0], "variant": stacked.metrics[metric][1], "truth": reference.name,
                "agreement": reference.agreement, "subset": family.subset, "tau": tau[0, j, t],
                "tau_lowest": lowest[j, t], "tau_highest": highest[j, t], "not_identifiable": bool(changes),
                "changed_by": changed_by,
                "reparametrisations": reparametrised.n_draws, "instances": reparametrised.n_instances,
            }  # fmt: skip


def build_tau_ranges(
    reparametrised: ReparametrisedValues, resampled: ResampledValues, families: Sequence[RankedFamily]
) -> pd.DataFrame:
    """Return invariance.csv."""
    rows = [row for family in families for row in tabulate_tau_ranges(reparametrised, resampled, family)]
    return pd.DataFrame(rows, columns=COLUMNS)


def mark_changed_values(metrics: pd.DataFrame, reparametrised: ReparametrisedValues | None) -> pd.Series:
    """Return for each row of metrics.csv whether its value is not identifiable; None where not computed."""
    changed_by_key: dict[tuple[MetricKey, str], bool] = {}
    if reparametrised is not None:
        is_changed, is_present = reparametrised.find_changed(), ~np.isnan(reparametrised.values)
        changed_by_key = {
            (reparametrised.metrics[i], reparametrised.explainers[j]): bool(is_changed[i, j])
            for i, j in zip(*np.nonzero(is_present), strict=True)
        }
    pairs = zip(metrics["metric"], metrics["variant"], strict=True)
    keys = zip(pairs, metrics["explainer"], strict=True)
    return pd.Series([changed_by_key.get(key) for key in keys], index=metrics.index, dtype=object)


def mark_changed_taus(correlations: pd.DataFrame, ranges: pd.DataFrame | None) -> pd.Series:
    """Return for each row of correlations.csv whether its τ is not identifiable; None where not computed."""
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    changed_by_key: dict[Any, bool] = {}
    if ranges is not None:
        changed_by_key = dict(
            zip(ranges[keys].itertuples(index=False, name=None), ranges["not_identifiable"], strict=True)
        )
    rows = correlations[keys].itertuples(index=False, name=None)
    return pd.Series([changed_by_key.get(row) for row in rows], index=correlations.index, dtype=object)


def _differ(values: Floats, original: Floats) -> Bools:
    """Return whether values differ by more than rounding."""
    return np.asarray(~np.isclose(values, original, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True))
