"""Claims about metrics: each is a test that is fixed in claims.json before the runs, and its result."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.statistics.bootstrap import compute_percentile_interval
from cfeval_cli.statistics.hierarchical import (
    MIN_FACTOR_LEVELS,
    CrossedValues,
    FactorLevels,
    list_factor_levels,
)
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL, adjust_holm, compute_bootstrap_p_values
from cfeval_cli.study.atlas.summary import MIN_CELL_SHARE, RUN_KEYS, AtlasSummary, Pair, compute_differences, pivot_runs
from cfeval_cli.study.definitions import load_definitions

HOLDS, FAILS, INCONCLUSIVE = "holds", "does not hold", "inconclusive"
_QUESTIONS = ("contribution", "change")
_CONFIDENCE = 0.95


@dataclass(frozen=True)
class ClaimDefinition:
    """A claim as it was fixed: metrics, the column of the atlas that is compared, and a limit."""

    name: str
    source: str  # the publication that makes the claim
    text: str
    test: Literal["difference", "interaction", "highest", "absolute difference", "none reaches", "opposite signs"]
    column: str
    limit: float
    metrics: tuple[str, ...] = ()
    reference_metrics: tuple[str, ...] = ()  # the metrics that they are compared with
    question: str | None = None  # None: both
    without_circular: bool = False


@dataclass(frozen=True)
class ClaimEstimate:
    """The estimate for a claim: the claim holds if it is positive."""

    value: float
    resampled: Floats  # (B,) in resamples of data sets, judges, truths and seeds
    n_rows: int
    n_data_sets: int
    n_judges: int
    quantity: float  # what the claim is about, in its own terms
    interval: tuple[float, float]  # of the quantity

    @property
    def is_tested(self) -> bool:
        """Whether there are enough data sets and judges for a test."""
        return min(self.n_data_sets, self.n_judges) >= MIN_FACTOR_LEVELS and not np.isnan(self.value)


@dataclass(frozen=True)
class ClaimResult:
    """A claim with the result of its test."""

    definition: ClaimDefinition
    estimate: ClaimEstimate
    p: float  # Holm-adjusted over all claims

    @property
    def verdict(self) -> str:
        """The verdict: holds, does not hold, or inconclusive."""
        if not self.estimate.is_tested or not self.p < SIGNIFICANCE_LEVEL:
            return INCONCLUSIVE
        return HOLDS if self.estimate.value > 0 else FAILS


def load_claims() -> tuple[ClaimDefinition, ...]:
    """Load the claims as they were fixed."""
    return load_definitions("cfeval_cli.study.atlas", "claims.json", tuple[ClaimDefinition, ...])


def check_claims(summary: AtlasSummary) -> list[ClaimResult]:
    """Test all claims as one family."""
    definitions = load_claims()
    estimates = [_TESTS[claim.test](_select_rows(summary.rows, claim), claim) for claim in definitions]
    p = np.array(
        [float(compute_bootstrap_p_values(estimate.resampled)) if estimate.is_tested else 1.0 for estimate in estimates]
    )
    return [
        ClaimResult(definition, estimate, float(adjusted))
        for definition, estimate, adjusted in zip(definitions, estimates, adjust_holm(p), strict=True)
    ]


def _select_rows(rows: pd.DataFrame, claim: ClaimDefinition) -> pd.DataFrame:
    """Select the rows of the questions of a claim."""
    questions = [claim.question] if claim.question is not None else list(_QUESTIONS)
    rows = rows[rows["question"].isin(questions)]
    return rows[~rows["circular"]] if claim.without_circular else rows


def _list_pairs(rows: pd.DataFrame, metrics: Sequence[str]) -> list[Pair]:
    """List the identifiable variants of some metrics."""
    rows = rows[~rows["arbitrary"] & rows["metric"].isin(metrics)]
    return list(dict.fromkeys(zip(rows["metric"], rows["variant"], strict=True)))


def _list_compared_pairs(rows: pd.DataFrame) -> list[Pair]:
    """List the identifiable metrics and variants that have nearly all cells."""
    n_cells = rows.groupby(RUN_KEYS).ngroups
    sizes = rows[~rows["arbitrary"]].groupby(["metric", "variant"], sort=False).size()
    return [pair for pair, size in zip(sizes.index.tolist(), sizes.tolist(), strict=True)
            if size >= MIN_CELL_SHARE * n_cells]  # fmt: skip


def _compute_claim_differences(rows: pd.DataFrame, claim: ClaimDefinition) -> pd.DataFrame:
    """Return the mean of the metrics less that of the others, in each run and truth."""
    pairs, reference_pairs = _list_pairs(rows, claim.metrics), _list_pairs(rows, claim.reference_metrics)
    return compute_differences(pivot_runs(rows, claim.column), pairs, reference_pairs, claim.column)


def _estimate_mean(cells: CrossedValues, limit: float) -> ClaimEstimate:
    """Return the estimate for a mean that must be above a limit."""
    mean, resampled = cells.compute_mean(), cells.resample_mean()
    low, high = compute_percentile_interval(resampled, _CONFIDENCE)
    interval = (float(low), float(high))
    return ClaimEstimate(
        mean - limit, resampled - limit, cells.n_rows, cells.n_data_sets, cells.n_judges, mean, interval
    )


def _estimate_lowest(cells: Sequence[CrossedValues], n_rows: int) -> ClaimEstimate:
    """Return the estimate for the lowest of several means, which is taken in every resample."""
    if not cells:
        nan = float("nan")
        return ClaimEstimate(nan, np.zeros(0), n_rows, 0, 0, nan, (nan, nan))
    value = min(values.compute_mean() for values in cells)
    resampled = np.stack([values.resample_mean() for values in cells]).min(axis=0)
    low, high = compute_percentile_interval(resampled, _CONFIDENCE)
    n_data_sets, n_judges = min(values.n_data_sets for values in cells), min(values.n_judges for values in cells)
    return ClaimEstimate(value, resampled, n_rows, n_data_sets, n_judges, value, (float(low), float(high)))


def _test_difference(rows: pd.DataFrame, claim: ClaimDefinition) -> ClaimEstimate:
    """Compare the mean of the metrics with that of the others, in the same runs."""
    differences = _compute_claim_differences(rows, claim)
    return _estimate_mean(CrossedValues.from_rows(differences, claim.column), claim.limit)


def _test_absolute_difference(rows: pd.DataFrame, claim: ClaimDefinition) -> ClaimEstimate:
    """Compare the metrics with the others, whichever has the larger value."""
    differences = _compute_claim_differences(rows, claim)
    differences[claim.column] = differences[claim.column].abs()
    return _estimate_mean(CrossedValues.from_rows(differences, claim.column), claim.limit)


def _test_interaction(rows: pd.DataFrame, claim: ClaimDefinition) -> ClaimEstimate:
    """Compare the difference for contribution with that for change, in the same run."""
    sides = []
    for question in _QUESTIONS:
        differences = _compute_claim_differences(rows[rows["question"] == question], claim)
        sides.append(differences.groupby(["data", "judge", "seed", "k"])[claim.column].mean())
    both = pd.concat(sides, axis=1, join="inner", keys=list(_QUESTIONS)).dropna()
    interaction = (both[_QUESTIONS[0]] - both[_QUESTIONS[1]]).rename(claim.column).reset_index().assign(truth="")
    return _estimate_mean(CrossedValues.from_rows(interaction, claim.column), claim.limit)


def _test_highest(rows: pd.DataFrame, claim: ClaimDefinition) -> ClaimEstimate:
    """Compare the mean of the metrics with the highest mean of all others."""
    pairs, levels = _list_pairs(rows, claim.metrics), list_factor_levels(rows)
    values = pivot_runs(rows, claim.column)
    differences = [
        CrossedValues.from_rows(compute_differences(values, pairs, [other], claim.column), claim.column, levels)
        for other in _list_compared_pairs(rows) if other not in pairs
    ]  # fmt: skip
    return _estimate_lowest(differences, len(rows))


def _test_none_reaches(rows: pd.DataFrame, claim: ClaimDefinition) -> ClaimEstimate:
    """Compare the highest mean of all metrics with a limit that it must be below."""
    levels = list_factor_levels(rows)
    cells = [_cross_values(rows, pair, claim.column, levels) for pair in _list_compared_pairs(rows)]
    lowest = _estimate_lowest(
        [CrossedValues(claim.limit - values.values, values.n_rows) for values in cells], len(rows)
    )
    interval = (claim.limit - lowest.interval[1], claim.limit - lowest.interval[0])
    return ClaimEstimate(
        lowest.value, lowest.resampled, lowest.n_rows, lowest.n_data_sets, lowest.n_judges,
        claim.limit - lowest.quantity, interval,
    )  # fmt: skip


def _cross_values(rows: pd.DataFrame, pair: Pair, column: str, levels: FactorLevels) -> CrossedValues:
    return CrossedValues.from_rows(rows[(rows["metric"] == pair[0]) & (rows["variant"] == pair[1])], column, levels)


def _test_opposite_signs(rows: pd.DataFrame, claim: ClaimDefinition) -> ClaimEstimate:
    """Compare the share of pairs of metrics with opposite signs, among pairs without a zero, with a limit."""
    rows = rows[~rows["arbitrary"]]
    signs = rows.assign(positive=rows[claim.column] > 0, negative=rows[claim.column] < 0)
    counts = signs.groupby(RUN_KEYS)[["positive", "negative"]].sum().astype(float)
    n_metrics = counts["positive"] + counts["negative"]
    n_pairs = n_metrics * (n_metrics - 1) / 2
    opposite = (counts["positive"] * counts["negative"] / n_pairs.where(n_pairs > 0)).rename(claim.column)
    return _estimate_mean(CrossedValues.from_rows(opposite.reset_index(), claim.column), claim.limit)


_TESTS: dict[str, Callable[[pd.DataFrame, ClaimDefinition], ClaimEstimate]] = {
    "difference": _test_difference,
    "interaction": _test_interaction,
    "highest": _test_highest,
    "absolute difference": _test_absolute_difference,
    "none reaches": _test_none_reaches,
    "opposite signs": _test_opposite_signs,
}
