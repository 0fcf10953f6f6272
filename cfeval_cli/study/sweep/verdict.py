"""What the seeds of one setting say together, in words: no more than their figures bear."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.notes import MOVES_NOTE
from cfeval_cli.report.titles import make_metric_title, name_truths
from cfeval_cli.report.wording import format_p_value, join_names
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.sweep.runs import Run, most_ranked

_NAMED = 3


def by_question(lines: pd.DataFrame, runs: Sequence[Run], record: RunRecord) -> dict[str, tuple[str, list[str]]]:
    """For each truth that the runs of one group lead with, by what it asks, a headline and points."""
    first = runs[0].record
    mine = lines[(lines["family"] == "explainers") & (lines["agreement"] == first.settings.agreement)]
    mine = mine[mine["coefficient"] == "tau"]
    rest = select_subset(mine, WITHOUT_CONTROLS)
    mine = rest if rest["p"].notna().any() else select_subset(mine)
    names = name_truths(first.settings.gold, first)
    parts = {name: mine[(mine["gold"] == gold) & mine["p"].notna()] for gold, name in names.items()}
    return {name: over_seeds(part, record) for name, part in parts.items() if len(part)}


def over_seeds(lines: pd.DataFrame, record: RunRecord) -> tuple[str, list[str]]:
    """A headline and points from lines of seeds_correlations.csv: one group, truth and coefficient, judged metrics."""
    lines = lines[lines["p"].notna()].sort_values("mean", ascending=False, kind="stable")
    if lines.empty:
        return "these seeds cannot tell which metric agrees with the truth", []
    compared = lines["ranked"] == most_ranked(lines["ranked"].tolist())
    lines, others = lines[compared], lines[~compared]
    seeds, best = int(lines["seeds"].max()), lines.iloc[0]
    alike = lines[(lines["behind"] < 1e-9)]
    who = _names(alike, record)
    better = lines[(lines["p_holm"] < SIGNIFICANCE_LEVEL) & (lines["mean"] > 0)]
    verb = "come" if len(alike) > 1 else "comes"
    if len(better):
        many = "agrees" if len(better) == 1 else "agree"
        headline = f"{_names(better, record)} {many} with the truth better than chance over {seeds} seeds"
    elif best["mean"] <= 0:
        headline = f"no metric ranks the explainers as the truth does over {seeds} seeds"
    else:
        headline = f"no metric can be told from chance with {seeds} seeds; {who} {verb} closest"
    points = [
        f"{who}: mean τ {best['mean']:.3f} [{best['low']:.3f}, {best['high']:.3f}] over seeds and, within them, "
        f"instances; {format_p_value(best['p'])}, {format_p_value(best['p_holm'])} after Holm's correction over the "
        "metrics."
    ]
    if best["p_holm"] >= SIGNIFICANCE_LEVEL and best["mean"] > 0:
        points.append(f"To tell it from chance would take about {int(best['needed']):,} seeds of this spread.")
    moving = alike[alike["moves"].fillna(0) > 0]
    if len(moving):
        points.append(
            f"{_names(moving, record)} {MOVES_NOTE}, in {int(moving['moves'].max())} of {seeds} seeds."
        )  # fmt: skip
    behind = lines[lines["p_behind"] < SIGNIFICANCE_LEVEL]
    close = lines[(lines["p_behind"] >= SIGNIFICANCE_LEVEL)]
    if len(behind):
        points.append(f"Further from the truth for sure: {_names(behind, record, 6)}.")
    if len(close):
        points.append(f"Not told apart from {who}: {_names(close, record, 6)}.")
    if len(others):
        points.append(_of_others(others, record))
    return headline, points


def _of_others(others: pd.DataFrame, record: RunRecord) -> str:
    """Which metrics ranked other explainers, and their mean τ, which is not compared."""
    ends = [f"{value:.3f}" for value in (others["mean"].min(), others["mean"].max())]
    told = ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"
    verb = "ranks" if len(others) == 1 else "rank"
    return f"{_names(others, record)} {verb} other explainers and cannot be compared with these: mean τ {told}."


def _names(lines: pd.DataFrame, record: RunRecord, most: int = _NAMED) -> str:
    """Metrics as the tables call them, without arrows."""
    pairs = zip(lines["metric"], lines["variant"], strict=True)
    names: Sequence[str] = [escape_controls(make_metric_title(*pair, record).plain) for pair in pairs]
    some = [*names[:most], f"{len(names) - most} more"] if len(names) > most + 1 else names
    return join_names(some)
