"""Tables of pairs of metrics: which is closer to the ground truth, and how far they agree with each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import pandas as pd

from cfeval_cli.report.numbers import NumberFormat
from cfeval_cli.report.table import BLANK, DASH, STAR, Cell, Row, Table, Title
from cfeval_cli.report.titles import Pair, list_contenders, make_metric_title, name_truths
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL, is_underpowered
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset

_PairOfPairs = tuple[Pair, Pair]


def build_differences(differences: pd.DataFrame, record: RunRecord) -> list[Table]:
    """Build for each leading truth the differences between the τ of metrics, over all explainers."""
    return [] if differences.empty else _build_triangles(select_subset(differences), record)


def _build_triangles(differences: pd.DataFrame, record: RunRecord) -> list[Table]:
    """Build a triangle for each leading truth."""
    judged = differences[differences["agreement"] == record.settings.agreement]
    names = name_truths(judged["truth"], record)
    parts = {truth: judged[judged["truth"] == truth] for truth in names if truth in record.settings.truth}
    has_several = len(parts) > 1
    return [_build_triangle(part, record, f": {names[truth]}" if has_several else "") for truth, part in parts.items()]


def build_differences_without_controls(statistics: RunStatistics, record: RunRecord) -> list[Table]:
    """Build the same differences with the controls left out."""
    if statistics.differences.empty:
        return []
    lines = select_subset(statistics.differences, WITHOUT_CONTROLS)
    if lines["difference"].isna().all() or not list_contenders(statistics.metrics, record, controls=True):
        return []
    # the larger τ over all explainers can be the smaller one without controls
    is_negative = lines["difference"] < 0
    for name in ("metric", "variant"):
        first, second = lines[name].copy(), lines[f"than_{name}"].copy()
        lines[name], lines[f"than_{name}"] = first.where(~is_negative, second), second.where(~is_negative, first)
    lines["difference"] = lines["difference"].abs()
    return [replace(table, title=f"{table.title}, without controls") for table in _build_triangles(lines, record)]


def _build_triangle(differences: pd.DataFrame, record: RunRecord, about: str) -> Table:
    """Build a triangle: how much larger the τ of a row's metric is than that of a column's."""
    lines: dict[_PairOfPairs, Mapping[Any, Any]] = {
        ((line["metric"], line["variant"]), (line["than_metric"], line["than_variant"])): line
        for line in differences.to_dict("records")
    }
    equal: dict[Pair, list[Pair]] = {}  # metrics with the same τ in every resample share a row
    wins: dict[Pair, int] = {}
    for (first, second), line in lines.items():
        wins[first], wins[second] = wins.get(first, 0) + 1, wins.get(second, 0)
        if line["same"]:
            equal.setdefault(first, []).append(second)
    hidden = {second for duplicates in equal.values() for second in duplicates}
    order = sorted((pair for pair in wins if pair not in hidden), key=lambda pair: -wins[pair])
    lines = {both: line for both, line in lines.items() if not pd.isna(line["difference"])}
    incomparable = {both for both in combinations(order, 2) if both not in lines and both[::-1] not in lines}
    rows = []
    for i, pair in enumerate(order, 1):
        cells = [
            Cell() if (pair, other) in incomparable else _make_difference_cell(lines.get((pair, other)))
            for other in order[1:]
        ]
        rows.append(Row(replace(make_metric_title(*pair, record), number=i), cells))
    notes = _write_triangle_notes(differences, record, {p: s for p, s in equal.items() if p not in hidden})
    if incomparable:
        notes.append(f"{DASH}: the two metrics rank different explainers, so their τ are not comparable.")
    hypotheses = len(order) * (len(order) - 1) // 2 - len(incomparable)
    if is_underpowered(record.resampled, hypotheses):
        notes.append(
            f"{record.resampled:,} resamples are too few for any of {hypotheses} differences to be significant: raise "
            "resamples."
        )
    header = _number_columns(len(order))
    return Table(f"Differences between the τ of metrics{about}", header, [rows], notes, is_supplementary=True)


def _make_difference_cell(line: Mapping[Any, Any] | None) -> Cell:
    if line is None:
        return BLANK
    is_significant = bool(line["p_holm"] < SIGNIFICANCE_LEVEL)
    return Cell(line["difference"], marks=STAR * is_significant, bold=is_significant, form=NumberFormat(decimals=3))


def _number_columns(count: int) -> list[Title]:
    return [Title("Metric"), *(Title(str(i)) for i in range(2, count + 1))]


def _write_triangle_notes(
    differences: pd.DataFrame, record: RunRecord, equal: Mapping[Pair, Sequence[Pair]]
) -> list[str]:
    notes = [
        "τ of the row's metric minus τ of the column's, with the ground truth "
        f"({differences['agreement'].iloc[0]}, {differences['truth'].iloc[0]}); * p < {SIGNIFICANCE_LEVEL}, "
        "Holm-adjusted over all pairs. Paired bootstrap over "
        f"{record.resampled:,} resamples of the instances; the explainers are fixed."
    ]
    if equal:
        same = (
            f"{make_metric_title(*pair, record).text} and "
            f"{', '.join(make_metric_title(*other, record).text for other in duplicates)}"
            for pair, duplicates in equal.items()
        )
        notes.append(f"Same τ in every resample: {'; '.join(same)}.")
    return notes


def build_metric_agreement(pairs: pd.DataFrame, record: RunRecord, *, is_supplementary: bool) -> Table:
    """Build a triangle: τ between the rankings of two metrics."""
    taus = {
        ((line["metric"], line["variant"]), (line["other_metric"], line["other_variant"])): line["tau"]
        for line in pairs.to_dict("records")
    }
    order = list(dict.fromkeys(pair for both in taus for pair in both))
    rows = []
    for i, pair in enumerate(order, 1):
        cells = [
            Cell(taus[pair, other], form=NumberFormat(decimals=2)) if (pair, other) in taus else BLANK
            for other in order[1:]
        ]
        rows.append(Row(replace(make_metric_title(*pair, record), number=i), cells))
    note = (
        "Kendall's τ between the rankings of the explainers by the row's metric and by the column's: 1 the same order, "
        "-1 the opposite. Metrics that agree need not be right."
    )
    header = _number_columns(len(order))
    return Table("Agreement between metrics", header, [rows], [note], is_supplementary=is_supplementary)
