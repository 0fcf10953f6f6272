"""The table of a sweep for the screen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from cfeval_cli.report.build_brief import (
    build_brief_scores,
    find_arbitrary_metrics,
    write_hidden_notes,
    write_marks_note,
)
from cfeval_cli.report.numbers import SHORT_DECIMAL, NumberFormat
from cfeval_cli.report.table import NOT_IDENTIFIABLE_MARK, Cell, Row, Table, Title
from cfeval_cli.report.titles import Pair, find_low_coverage, get_block, make_metric_title, name_truths
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.ranking_stability import ANY_SETTING
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.sweep.frames import SweepFrames, index_tau_ranges
from cfeval_cli.study.sweep.runs import Sweep, SweepRun, drop_small_rankings, merge_records
from cfeval_cli.study.sweep.tables import write_counts_notes
from cfeval_cli.study.words import write_count


def build_brief(sweep: Sweep, frames: SweepFrames) -> Table:
    """Build the means over seeds if only the seed varies; otherwise how much rankings and τ vary over the runs."""
    if len(sweep.groups) == 1:
        return _build_means(sweep.runs, frames.seeds_metrics, drop_small_rankings(frames.seeds_correlations))
    return _build_stability(sweep, frames.stability, frames.stability_truth)


def _write_title(runs: Sequence[SweepRun]) -> str:
    names = ", ".join(dict.fromkeys(run.record.data.name for run in runs))
    return f"{names}: {write_count(len(runs), 'run')}"


def _build_means(runs: Sequence[SweepRun], metrics: pd.DataFrame, correlations: pd.DataFrame) -> Table:
    """Build the table of one run from means: values, their ranks, and τ with its interval."""
    first = runs[0].record
    lines = metrics[metrics["quality_level"].isna()].rename(columns={"mean": "value"})
    lines = lines.assign(
        rank=np.nan,
        low_end=lines["value"] - lines["deviation"],
        not_identifiable=lines["not_identifiable"].fillna(0) > 0,
    )
    lines["high_end"] = lines["value"] + lines["deviation"]
    record = merge_records(runs)
    for (metric, _), rows in lines.groupby(["metric", "variant"], sort=False):
        with_value, better = rows[rows["value"].notna()], record.metrics[str(metric)].better
        if len(with_value) and better != "none":
            lines.loc[with_value.index, "rank"] = compute_ranks(with_value["value"].to_numpy(float), better)
    taus = _build_tau_cells(correlations, first)
    hidden = find_arbitrary_metrics(lines, record)
    table = build_brief_scores(_write_title(runs), lines, record, find_low_coverage(lines, record), taus, hidden)
    seeds = ", ".join(str(run.seed) for run in runs)
    close = (
        "the difference from the next better explainer is smaller than the sum of their standard deviations over seeds"
    )
    notes = [f"Means over {len(runs)} seeds ({seeds}).", write_marks_note(table, close)]
    if taus:
        has_subset = correlations["subset"].eq(WITHOUT_CONTROLS).any()
        explainers = "without controls" if has_subset else "over all explainers"
        notes.append(f"τ: mean, {explainers}; in brackets its 95 % CI over seeds and instances.")
    notes += [*table.notes, *write_hidden_notes(hidden, record), *write_counts_notes(runs, hidden)]
    return replace(table, notes=[note for note in notes if note])


def _build_tau_cells(correlations: pd.DataFrame, record: RunRecord) -> dict[str, dict[Pair, Cell]]:
    """Return the cells of mean τ with each leading truth, by the name of its question."""
    settings = record.settings
    is_leading = (correlations["family"] == "explainers") & (correlations["agreement"] == settings.agreement)
    rows = correlations[is_leading & (correlations["coefficient"] == "tau")]
    without_controls = select_subset(rows, WITHOUT_CONTROLS)
    rows = without_controls if without_controls["mean"].notna().any() else select_subset(rows)
    by_question: dict[str, dict[Pair, Cell]] = {}
    for truth, name in name_truths(settings.truth, record).items():
        lines = rows[(rows["truth"] == truth) & rows["mean"].notna()]
        if len(lines):
            by_question[name] = {
                (line["metric"], line["variant"]): Cell(
                    line["mean"], line["low"], line["high"], form=SHORT_DECIMAL,
                    marks=NOT_IDENTIFIABLE_MARK * bool(pd.notna(line["not_identifiable"]) and line["not_identifiable"]),
                )
                for line in lines.to_dict("records")
            }  # fmt: skip
    return by_question


def _build_stability(sweep: Sweep, stability: pd.DataFrame, ranges: pd.DataFrame) -> Table:
    """Build the stability of each metric's ranking, and the range of τ with each truth."""
    record = merge_records(sweep.runs)
    has_pairs = bool(select_subset(stability, WITHOUT_CONTROLS)["pairs"].sum())
    subset = WITHOUT_CONTROLS if has_pairs else ALL_EXPLAINERS
    stability, ranges = select_subset(stability, subset), select_subset(ranges, subset)
    truths, ends = list(ranges["truth"].unique()), index_tau_ranges(ranges)
    questions: dict[str, str] = {}
    for run in sweep.runs:
        questions = {**name_truths(run.record.settings.truth, run.record), **questions}
    form = NumberFormat(decimals=2)
    header = [Title("Metric"), Title("same\u00a0order", ("lowest",))]
    header += [Title(f"τ {questions.get(truth, truth)}") for truth in truths]
    blocks: dict[str, list[Row]] = {}
    for line in stability[(stability["key"] == ANY_SETTING) & (stability["pairs"] > 0)].to_dict("records"):
        cells = [Cell(line["tau"], detail=form.write(line["tau_lowest"]), form=form)]
        for truth in truths:
            low, high = ends.get((line["metric"], line["variant"], truth), (math.nan, math.nan))
            cells.append(Cell(low=low, high=high, is_range=True, form=form))
        row = Row(make_metric_title(line["metric"], line["variant"], record), cells)
        blocks.setdefault(get_block(line["variant"], record.metrics[line["metric"]]), []).append(row)
    notes = [
        f"What varies: {', '.join(sweep.varied) or 'the seed'}. Same order: Kendall's τ between the rankings of the "
        f"explainers by the same metric in two runs{', without controls' * has_pairs}: mean over pairs of runs "
        "(lowest). τ: with the ground truth, lowest to highest over the runs."
    ]
    return Table(_write_title(sweep.runs), header, list(blocks.values()), notes)
