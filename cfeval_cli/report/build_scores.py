"""Tables of scores: values and ranks of the explainers and of graded controls, scores on own instances, mean ranks.

A line is a row of metrics.csv. The leading truths are the agreements with the truths of the run, marked by a star.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.report.instance_counts import write_support_notes
from cfeval_cli.report.metric_table import build_metric_table
from cfeval_cli.report.notes import (
    describe_run,
    find_not_identifiable,
    group_by_reason,
    write_absent_notes,
    write_circular_notes,
    write_fault_notes,
    write_interval_note,
    write_not_identifiable_note,
    write_reference_notes,
    write_remark_notes,
)
from cfeval_cli.report.numbers import TENTH_PERCENT, NumberFormat
from cfeval_cli.report.table import CIRCULAR_MARK, STAR, Cell, Row, Table, Title
from cfeval_cli.report.titles import (
    Pair,
    describe_truths,
    is_truth,
    list_leading_truths,
    make_explainer_titles,
    write_reason,
)
from cfeval_cli.results.record import RunRecord

_MAX_SHOWN_LEVELS = 11  # of graded controls, in a table
_Lines = Mapping[Pair, Mapping[str, Mapping[Any, Any]]]


def group_lines(metrics: pd.DataFrame) -> dict[Pair, dict[str, dict[Any, Any]]]:
    """Return the lines of metrics.csv by metric and variant, and then by explainer."""
    lines: dict[Pair, dict[str, dict[Any, Any]]] = {}
    for line in metrics.to_dict("records"):
        lines.setdefault((line["metric"], line["variant"]), {})[line["explainer"]] = line
    return lines


def build_scores(
    title: str, metrics: pd.DataFrame, record: RunRecord, low_coverage: Mapping[str, float], names: Sequence[str] = ()
) -> Table:
    """Build the values and ranks of the explainers by each metric, or of those that are named."""
    shown_names = set(names or metrics["explainer"])
    titles = {n: t for n, t in make_explainer_titles(record, low_coverage).items() if n in shown_names}
    truths = list_leading_truths(record)
    lines = group_lines(metrics)
    cells = {
        pair: _make_score_cells(pair, lines, list(titles), record)
        for pair in lines
        if not is_truth(pair[0], record) or pair[0] == record.settings.agreement
    }
    return build_metric_table(
        title, list(titles.values()), cells, _write_score_notes(metrics, titles, record), record,
        starred=truths, not_identifiable=find_not_identifiable(metrics), ranked=True, part="scores",
    )  # fmt: skip


def _make_score_cells(pair: Pair, lines: _Lines, names: Sequence[str], record: RunRecord) -> list[Cell]:
    """Return the cells of one metric.

    With one leading truth, a rank is bold if it is the same as by that truth; with several, if it is the first.
    """
    truths, line_of = list_leading_truths(record), lines[pair]
    is_leading, is_fact = pair in truths, record.metrics[pair[0]].better == "none"
    true_ranks = {n: line["rank"] for n, line in lines.get(truths[0], {}).items()} if len(truths) == 1 else {}
    ranks = [line["rank"] for line in line_of.values()]
    cells = []
    for name in names:
        line = line_of.get(name)
        if line is None or pd.isna(line["value"]):
            cells.append(Cell(reason=str(line["note"]) if line else ""))
            continue
        if is_fact:
            cells.append(Cell(line["value"], form=TENTH_PERCENT))
            continue
        rank, is_tied = line["rank"], ranks.count(line["rank"]) > 1
        agrees = not is_leading and not is_tied and rank == true_ranks.get(name)
        is_first = len(truths) > 1 and rank == 1
        marks = STAR * is_leading + CIRCULAR_MARK * (line.get("circular") is True)
        bold = len(names) > 1 and (agrees or is_first)
        ends = line["value_low"], line["value_high"]
        cells.append(Cell(line["value"], *ends, rank, is_tied=is_tied, rank_marks=marks, bold=bold))
    return cells


def _write_score_notes(metrics: pd.DataFrame, titles: Mapping[str, Title], record: RunRecord) -> list[str]:
    truths = list_leading_truths(record)
    shown_lines = metrics[metrics["explainer"].isin(list(titles))]
    notes = [describe_run(record), *write_support_notes(metrics, record), *write_reference_notes(record)]
    if set(truths) & set(zip(metrics["metric"], metrics["variant"], strict=True)):
        agree = "ranks that agree with it are bold" if len(truths) == 1 else "the best of each row is bold"
        notes.append(f"* marks the ground truth ({describe_truths(record)}); {agree}.")
    notes.append(f"↑ higher is better, ↓ lower; = marks a tie.{write_interval_note(record)}")
    if find_not_identifiable(metrics):
        notes.append(write_not_identifiable_note("value"))
    notes += [*write_circular_notes(shown_lines, record), *write_remark_notes(shown_lines, record)]
    reasons = sorted({note for note in metrics["note"] if note})
    if reasons:
        notes.append(write_reason("; ".join(reasons)))
    if record.metrics_absent:
        notes.append(f"Not computed: {group_by_reason(record.metrics_absent)}.")
    explainers = {name: title.name for name, title in titles.items()}
    return [*notes, *write_absent_notes(record), *write_fault_notes(explainers, record)]


def build_graded(
    metrics: pd.DataFrame, record: RunRecord, low_coverage: Mapping[str, float], *, is_supplementary: bool
) -> Table:
    """Build the scores of graded controls: some quality levels, the first and the last among them."""
    levels = list(dict.fromkeys(metrics["explainer"]))
    places = np.linspace(0, len(levels) - 1, min(len(levels), _MAX_SHOWN_LEVELS))
    shown_levels = [levels[round(place)] for place in places]
    title = "Scores and ranks of graded control explainers"
    table = build_scores(title, metrics, record, low_coverage, shown_levels)
    table = table.add_notes(
        f"Truth 0.9 selects the reference features with probability 0.9 and random features otherwise. "
        f"{len(shown_levels)} of {len(levels)} quality levels are shown."
    )
    return replace(table, is_supplementary=is_supplementary, part="trust")


def build_own_scores(metrics: pd.DataFrame, record: RunRecord, low_coverage: Mapping[str, float]) -> Table:
    """Build the scores of each explainer on its own instances, which are all that it covers."""
    scored = metrics[(metrics["role"] == "judged") | metrics["metric"].eq(record.settings.agreement)]
    titles = {
        name: title
        for name, title in make_explainer_titles(record, low_coverage).items()
        if name in set(scored["explainer"])
    }
    cells = {
        pair: [
            Cell(of_pair[name]["own_value"], n=of_pair[name]["own_n"]) if name in of_pair else Cell() for name in titles
        ]
        for pair, of_pair in group_lines(scored).items()
    }
    note = (
        "On all instances that an explainer covers (their number). These differ between explainers, so the scores are "
        "not comparable: an explainer that covers only the hard instances scores low."
    )
    title = "Scores of each explainer on its own instances"
    return build_metric_table(title, list(titles.values()), cells, [note], record, is_supplementary=True, part="scores")


def compute_mean_ranks(metrics: pd.DataFrame, record: RunRecord) -> dict[str, pd.DataFrame]:
    """Return for each kind of metrics the mean rank of each explainer, the best first, and the number of metrics.

    Ranks among different explainers are not comparable. So a mean is over the metrics that rank the same, largest set
    of explainers; other metrics are left out.
    """
    judged = metrics[(metrics["role"] == "judged") & metrics["rank"].notna() & metrics["quality_level"].isna()]
    kinds = judged["metric"].map({name: facts.block for name, facts in record.metrics.items()})
    mean_ranks = {}
    for kind, lines in judged.groupby(kinds, sort=False):
        # a metric that ties all explainers has no information
        differing = lines[lines.groupby(["metric", "variant"])["rank"].transform("nunique") > 1]
        if differing.empty:
            continue
        by_pair = differing.groupby(["metric", "variant"], sort=False)["explainer"].agg(frozenset).to_dict()
        ranked = [by_pair[pair] for pair in zip(differing["metric"], differing["variant"], strict=True)]
        largest = max(dict.fromkeys(ranked), key=lambda names: (len(names), ranked.count(names)))
        is_compared = [names == largest for names in ranked]
        mean = differing[is_compared].groupby("explainer", sort=False)["rank"].agg(["mean", "count"])
        mean_ranks[str(kind)] = mean.sort_values("mean", kind="stable")
    return mean_ranks


def build_mean_ranks(metrics: pd.DataFrame, record: RunRecord, low_coverage: Mapping[str, float]) -> Table:
    """Build the mean ranks of the explainers by each kind of metrics, for a model without a ground truth."""
    titles = make_explainer_titles(record, low_coverage)
    rows = []
    for kind, mean in compute_mean_ranks(metrics, record).items():
        best, means = mean["mean"].min(), mean["mean"].to_dict()
        cells = [
            Cell(means.get(name), bold=bool(means.get(name) == best), form=NumberFormat(decimals=2)) for name in titles
        ]
        rows.append(Row(Title(f"{kind} metrics", (str(mean["count"].max()),)), cells))
    note = (
        "There is no ground truth for this model, so no metric can be judged. Mean ranks over the metrics of each kind "
        "(their number); the lowest is bold. Metrics that tie all explainers, or rank fewer explainers than others of "
        "their kind, are left out. Erasure metrics measure what contributed to the prediction, counterfactual metrics "
        "what would change it; an average over both measures neither."
    )
    header = [Title("Rank by"), *titles.values()]
    return Table("Mean ranks of the explainers", header, [rows], [note], part="scores")
