"""Conclusions over the seeds of one group, in words."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.notes import NOT_IDENTIFIABLE_NOTE
from cfeval_cli.report.titles import make_metric_title, name_truths
from cfeval_cli.report.wording import format_p_value
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.sweep.runs import SweepRun, drop_small_rankings, select_largest_ranking
from cfeval_cli.study.words import join_first_names

_MAX_LEADING_METRICS, _MAX_OTHER_METRICS = 3, 6  # in a sentence
_TIE = 1e-9  # a difference of mean τ below which two metrics are equal


@dataclass(frozen=True)
class Conclusion:
    """A headline, and the points below it."""

    headline: str
    points: Sequence[str]


def conclude_by_question(
    correlations: pd.DataFrame, runs: Sequence[SweepRun], record: RunRecord
) -> dict[str, Conclusion]:
    """Return a conclusion for each leading truth of a group, by the name of its question.

    `correlations` are the rows of seeds_correlations.csv of the group.
    """
    first, correlations = runs[0].record, drop_small_rankings(correlations)
    is_leading = (correlations["family"] == "explainers") & (correlations["agreement"] == first.settings.agreement)
    rows = correlations[is_leading & (correlations["coefficient"] == "tau")]
    without_controls = select_subset(rows, WITHOUT_CONTROLS)
    rows = without_controls if without_controls["p"].notna().any() else select_subset(rows)
    names = name_truths(first.settings.truth, first)
    tested = {name: rows[(rows["truth"] == truth) & rows["p"].notna()] for truth, name in names.items()}
    return {name: conclude_over_seeds(part, record) for name, part in tested.items() if len(part)}


def conclude_over_seeds(correlations: pd.DataFrame, record: RunRecord) -> Conclusion:
    """Return the conclusion from rows of seeds_correlations.csv with one truth and one coefficient."""
    rows = correlations[correlations["p"].notna()].sort_values("mean", ascending=False, kind="stable")
    if rows.empty:
        return Conclusion("inconclusive: no metric has a τ in every seed", [])
    is_compared = rows["ranked"] == select_largest_ranking(rows["ranked"].tolist())
    rows, not_compared = rows[is_compared], rows[~is_compared]
    n_seeds, best = int(rows["seeds"].max()), rows.iloc[0]
    tied_first = rows[rows["behind"] < _TIE]
    leaders = _join_titles(tied_first, record)
    significant = rows[(rows["p_holm"] < SIGNIFICANCE_LEVEL) & (rows["mean"] > 0)]
    has = "have" if len(tied_first) > 1 else "has"
    if len(significant):
        verb = "agrees" if len(significant) == 1 else "agree"
        names = _join_titles(significant, record)
        headline = f"{names} {verb} with the ground truth significantly better than chance over {n_seeds} seeds"
    elif best["mean"] <= 0:
        headline = f"no metric has a positive mean τ with the ground truth over {n_seeds} seeds"
    else:
        headline = (
            f"inconclusive with {n_seeds} seeds: no metric is significantly better than chance; "
            f"{leaders} {has} the highest mean τ"
        )
    points = [
        f"{leaders}: mean τ {best['mean']:.3f}, 95 % CI [{best['low']:.3f}, {best['high']:.3f}] over seeds and their "
        f"instances; {format_p_value(best['p'])}, Holm-adjusted over the metrics {format_p_value(best['p_holm'])}."
    ]
    if best["p_holm"] >= SIGNIFICANCE_LEVEL and best["mean"] > 0:
        points.append(f"Required sample size: about {int(best['needed']):,} seeds with this mean and spread.")
    moving = tied_first[tied_first["not_identifiable"].fillna(0) > 0]
    if len(moving):
        count = int(moving["not_identifiable"].max())
        points.append(f"{_join_titles(moving, record)} {NOT_IDENTIFIABLE_NOTE}, in {count} of {n_seeds} seeds.")
    lower = rows[rows["p_behind"] < SIGNIFICANCE_LEVEL]
    tied = rows[rows["p_behind"] >= SIGNIFICANCE_LEVEL]
    if len(lower):
        points.append(f"Significantly lower τ: {_join_titles(lower, record, _MAX_OTHER_METRICS)}.")
    if len(tied):
        names = _join_titles(tied, record, _MAX_OTHER_METRICS)
        points.append(f"Not significantly different from {leaders}: {names}.")
    if len(not_compared):
        points.append(_describe_not_compared(not_compared, record))
    return Conclusion(headline, points)


def _describe_not_compared(rows: pd.DataFrame, record: RunRecord) -> str:
    """Name the metrics that rank other explainers, with their mean τ."""
    low, high = (f"{value:.3f}" for value in (rows["mean"].min(), rows["mean"].max()))
    span = low if low == high else f"{low} to {high}"
    verb = "ranks" if len(rows) == 1 else "rank"
    return f"Not compared: {_join_titles(rows, record)} {verb} other explainers (mean τ {span})."


def _join_titles(rows: pd.DataFrame, record: RunRecord, max_shown: int = _MAX_LEADING_METRICS) -> str:
    """Join the names of metrics, without arrows."""
    pairs = zip(rows["metric"], rows["variant"], strict=True)
    names = [escape_controls(make_metric_title(*pair, record).plain) for pair in pairs]
    return join_first_names(names, max_shown)
