"""The one table of a run for a narrow screen: scores, ranks and the agreement with the ground truth."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from cfeval_cli.report.instance_counts import write_support_notes
from cfeval_cli.report.notes import NOT_IDENTIFIABLE_NOTE, write_absent_notes, write_coverage_notes, write_fault_notes
from cfeval_cli.report.numbers import SHORT_DECIMAL, THREE_DIGITS, write_three_digits
from cfeval_cli.report.table import BLANK, CIRCULAR_MARK, NOT_IDENTIFIABLE_MARK, STAR, Cell, Row, Table, Title
from cfeval_cli.report.titles import (
    Pair,
    find_low_coverage,
    join_titles,
    list_contenders,
    list_leading_truths,
    make_explainer_titles,
    make_metric_title,
    mark_not_identifiable,
    name_truths,
)
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.small_rankings import SMALL_RANKING_REASON
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset

OVERLAP_MARK = "~"  # the interval of the rank overlaps that of the next better rank
_Line = Mapping[Any, Any]
Taus = Mapping[str, Mapping[Pair, Cell]]  # by question, metric and variant


def build_brief(statistics: RunStatistics, record: RunRecord) -> Table:
    """Build the table of one run; graded controls are left to the full tables."""
    metrics = statistics.metrics[statistics.metrics["quality_level"].isna()]
    if metrics.empty:
        metrics = statistics.metrics
    lines = metrics.rename(columns={"value_low": "low_end", "value_high": "high_end"})
    hidden, low = find_arbitrary_metrics(lines, record), find_low_coverage(statistics.metrics, record)
    taus = _make_taus(statistics.correlations, record)
    table = build_brief_scores(_describe(record), lines, record, low, taus, hidden)
    level = f"{100 * record.settings.confidence:.4g} %"
    notes = [write_marks_note(table, f"{level} CI overlaps that of the next better explainer")]
    if taus:
        controls = list_contenders(statistics.metrics, record, controls=True)
        subset = f", without the controls ({', '.join(controls)})" if controls else ""
        notes.append(f"τ: Kendall's τ of a metric's ranking with the ground truth{subset}, with its {level} CI.")
    elif (statistics.correlations["note"] == SMALL_RANKING_REASON).any():
        notes.append(f"τ of the metrics is not computed: {SMALL_RANKING_REASON}.")
    notes += [*table.notes, *write_hidden_notes(hidden, record)]
    notes += write_coverage_notes(find_low_coverage(lines, record), record)
    notes += write_support_notes(statistics.metrics, record, hidden)
    notes += [*write_absent_notes(record), *write_fault_notes(record.explainers, record)]
    return replace(table, notes=[note for note in notes if note])


def build_brief_scores(
    title: str, lines: pd.DataFrame, record: RunRecord, low_coverage: Iterable[str], taus: Taus, hidden: Iterable[Pair]
) -> Table:
    """Build values, ranks and τ of the metrics; notes name the rows without information.

    `lines` has value, rank, and ends; ranks whose ends overlap with those of the next better one are marked.
    """
    explainers = set(lines["explainer"])
    titles = {n: t for n, t in make_explainer_titles(record, low_coverage).items() if n in explainers}
    leading, left_out = list_leading_truths(record), set(hidden)
    line_of: dict[Pair, dict[str, _Line]] = {}
    for line in lines.to_dict("records"):
        line_of.setdefault((line["metric"], line["variant"]), {})[line["explainer"]] = line
    merged: dict[Any, list[Pair]] = {}
    empty, same = list[str](), list[str]()
    for pair, of_pair in line_of.items():
        facts = record.metrics[pair[0]]
        if pair in left_out or (facts.role == "truth" and pair not in leading):
            continue
        with_value = {name: line for name, line in of_pair.items() if not pd.isna(line["value"])}
        name = make_metric_title(*pair, record).plain
        texts = {write_three_digits(line["value"]) for line in with_value.values()}
        if not with_value:
            empty.append(name)
        elif len(titles) > 1 and len(with_value) == len(titles) and len(texts) == 1:
            value = next(iter(with_value.values()))["value"]
            same.append(f"{name} {f'{value:.0%}' if facts.better == 'none' else texts.pop()}")
        elif facts.better != "none":
            shown_values = tuple((name, line["value"], line["rank"]) for name, line in with_value.items())
            key = pair[0] if facts.role != "truth" else pair
            merged.setdefault((key, shown_values, *(of.get(pair, BLANK).text for of in taus.values())), []).append(pair)
    blocks: list[list[Row]] = []
    last = None
    for pairs in sorted(merged.values(), key=lambda pairs: pairs[0] not in leading):  # the ground truths first
        row, block = _make_row(pairs, line_of[pairs[0]], list(titles), taus, record)
        blocks = [*blocks, [row]] if block != last else [*blocks[:-1], [*blocks[-1], row]]
        last = block
    header = [Title("Metric"), *titles.values()]
    header += [Title(f"τ\u00a0{name}", is_stacked=i > 0) for i, name in enumerate(taus)]
    notes = [f"Same value for all explainers: {', '.join(same)}."] if same else []
    notes += [f"No values: {', '.join(empty)}."] if empty else []
    return Table(title, header, blocks, notes)


def _make_row(
    pairs: Sequence[Pair], lines: Mapping[str, _Line], names: Sequence[str], taus: Taus, record: RunRecord
) -> tuple[Row, str]:
    """Return the row of one or several equal variants of a metric, and its block."""
    first, facts = pairs[0], record.metrics[pairs[0][0]]
    title = make_metric_title(*first, record, star=first in list_leading_truths(record))
    for other in pairs[1:]:
        title = join_titles(title, make_metric_title(*other, record))
    title = mark_not_identifiable(title, any(line.get("not_identifiable") is True for line in lines.values()))
    cells = make_rank_cells(lines)
    missing = BLANK if facts.role == "truth" else Cell()
    tau_cells = [of_question.get(first, missing) for of_question in taus.values()]
    row = Row(title, [*(cells.get(name, Cell()) for name in names), *tau_cells])
    return row, "truth" if facts.role == "truth" else facts.block


def make_rank_cells(lines: Mapping[str, _Line]) -> dict[str, Cell]:
    """Return value and rank of each explainer, marked if its interval overlaps that of the next better one."""
    with_value = {name: line for name, line in lines.items() if not pd.isna(line["value"])}
    order = sorted(with_value, key=lambda name: with_value[name]["rank"])
    ranks = [line["rank"] for line in with_value.values()]
    cells = {}
    for name in order:
        line = with_value[name]
        if len(with_value) == 1:
            return {name: Cell(line["value"], form=THREE_DIGITS)}
        rank = line["rank"]
        better = [other for other in order if with_value[other]["rank"] < rank]
        is_close = bool(better) and _has_overlap(with_value[better[-1]], line)
        marks = CIRCULAR_MARK * (line.get("circular") is True) + OVERLAP_MARK * is_close
        is_tied, is_first = ranks.count(rank) > 1, rank == min(ranks)
        cells[name] = Cell(
            line["value"], rank=rank, is_tied=is_tied, rank_marks=marks, bold=is_first, form=THREE_DIGITS
        )
    return cells


def _has_overlap(line: _Line, other: _Line) -> bool:
    ends = [line["low_end"], line["high_end"], other["low_end"], other["high_end"]]
    return not any(pd.isna(end) for end in ends) and ends[0] <= ends[3] and ends[2] <= ends[1]


def write_hidden_notes(pairs: Sequence[Pair], record: RunRecord) -> list[str]:
    """Write which metrics are not shown, and how to see them."""
    names = ", ".join(make_metric_title(*pair, record).plain for pair in pairs)
    return [f"Shown by --full: {names}."] if pairs else []


def write_marks_note(table: Table, overlap: str) -> str:
    """Write what the marks of a table mean."""
    cells = [cell for row in table.rows for cell in row.cells]
    cell_marks = "".join(cell.marks + cell.rank_marks for cell in cells)
    title_marks = "".join(row.title.marks + row.title.suffix for row in table.rows)
    parts = ["Values, with ranks below"] if any(cell.rank_text for cell in cells) else []
    parts += [f"{OVERLAP_MARK} {overlap}"] * (OVERLAP_MARK in cell_marks)
    parts += [f"{CIRCULAR_MARK} circular (optimal by construction)"] * (CIRCULAR_MARK in cell_marks)
    parts += [f"{NOT_IDENTIFIABLE_MARK} {NOT_IDENTIFIABLE_NOTE}"] * (NOT_IDENTIFIABLE_MARK in cell_marks + title_marks)
    parts += ["* ground truth"] * (STAR in title_marks)
    return f"{'; '.join(parts)}." if parts else ""


def find_arbitrary_metrics(lines: pd.DataFrame, record: RunRecord) -> list[Pair]:
    """Return metrics whose removal depends on an arbitrary constant, if they have another one and no truth does."""
    constants = record.arbitrary_removals
    if any(truth in record.truths and record.truths[truth].arbitrary for truth in record.settings.truth):
        return []
    with_value = lines[lines["value"].notna()]
    pairs = list(dict.fromkeys(zip(with_value["metric"], with_value["variant"], strict=True)))
    erasing = [pair for pair in pairs if record.metrics[pair[0]].block != "counterfactual"]
    other = {metric for metric, variant in erasing if variant not in constants and variant in record.removals}
    return [(metric, variant) for metric, variant in erasing if variant in constants and metric in other]


def _make_taus(correlations: pd.DataFrame, record: RunRecord) -> dict[str, dict[Pair, Cell]]:
    """Return for each question each metric's τ, without controls where that is known."""
    settings = record.settings
    judged = correlations[(correlations["agreement"] == settings.agreement) & (correlations["family"] == "explainers")]
    taus: dict[str, dict[Pair, Cell]] = {}
    for truth, name in name_truths(settings.truth, record).items():
        with_value = judged[(judged["truth"] == truth) & judged["tau"].notna()]
        if with_value.empty:
            continue
        without_controls = select_subset(with_value, WITHOUT_CONTROLS)
        lines = select_subset(with_value) if without_controls.empty else without_controls
        taus[name] = {
            (line["metric"], line["variant"]): Cell(
                line["tau"], line["tau_low"], line["tau_high"], form=SHORT_DECIMAL,
                marks=NOT_IDENTIFIABLE_MARK * (line["not_identifiable"] is True)
                + CIRCULAR_MARK * (line["circular"] is True),
            )
            for line in lines.to_dict("records")
        }  # fmt: skip
    return taus


def _describe(record: RunRecord) -> str:
    settings, count = record.settings, record.instances
    return (
        f"{record.data.name}: {count:,} instance{'s' * (count != 1)}, k = {settings.k}, seed "
        f"{settings.seed}, test accuracy {record.accuracy['test']:.1%}"
    )
