"""Tables of agreement with the ground truth: correlations, their ranges, and agreement instance by instance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import isnan, nan
from typing import Any

import pandas as pd

from cfeval_cli.report.instance_counts import count_by_row, find_typical_counts, write_exceptions
from cfeval_cli.report.metric_table import build_metric_table
from cfeval_cli.report.notes import (
    NOT_IDENTIFIABLE_NOTE,
    describe_run,
    select_circular,
    select_not_identifiable,
    write_interval_note,
    write_not_identifiable_note,
)
from cfeval_cli.report.numbers import P_VALUE, NumberFormat
from cfeval_cli.report.table import (
    CIRCULAR_MARK,
    NOT_IDENTIFIABLE_MARK,
    OUTSIDE_INTERVAL_MARK,
    STAR,
    Cell,
    Table,
    Title,
)
from cfeval_cli.report.titles import (
    Pair,
    describe_truths,
    is_truth,
    list_contenders,
    list_leading_truths,
    list_truth_metrics,
    make_metric_title,
    name_truths,
    write_reason,
)
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.correlation import GRADED
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, has_controls, select_subset

_Line = Mapping[Any, Any]

# the coefficients of correlations.csv: subset, column, sign, and what is behind the name of the ground truth
_COEFFICIENTS = (
    (ALL_EXPLAINERS, "tau", "τ", ""),
    (WITHOUT_CONTROLS, "tau", "τ", ", no controls"),
    (ALL_EXPLAINERS, "rho", "ρ", ""),
)
_ROUNDING = 1e-9


@dataclass(frozen=True)
class _CoefficientColumn:
    """A coefficient, or its p-value, with one definition of the ground truth."""

    title: Title
    coefficient: str  # tau or rho
    subset: str  # of the explainers
    lines: pd.DataFrame  # of all subsets
    truths: Sequence[str]  # metrics that are the ground truth
    has_p_values: bool = False  # instead of the coefficient

    @cached_property
    def by_pair(self) -> Mapping[Pair, _Line]:
        """The lines of the subset by metric and variant."""
        return _index_by_pair(select_subset(self.lines, self.subset).set_index(["metric", "variant"]))

    @cached_property
    def best(self) -> float:
        """The largest value of a metric that is not the ground truth."""
        lines = select_subset(self.lines, self.subset)
        return float(lines.loc[~lines["metric"].isin(self.truths), self.coefficient].max())

    def make_cell(self, pair: Pair) -> Cell:
        """Return the value of a metric, with its interval and its marks."""
        line = self.by_pair.get(pair)
        name = self.coefficient
        value = None if line is None else line[f"p_{name}" if self.has_p_values else name]
        if line is None or pd.isna(value):
            return Cell(reason=str(line.get("note") or "") if line else "")
        if self.has_p_values:
            return Cell(value, form=P_VALUE)
        low, high = line[f"{name}_low"], line[f"{name}_high"]
        is_outside = bool(value < low - _ROUNDING or value > high + _ROUNDING)
        marks = OUTSIDE_INTERVAL_MARK * is_outside + NOT_IDENTIFIABLE_MARK * (
            name == "tau" and line.get("not_identifiable") is True
        )
        marks += CIRCULAR_MARK * (line.get("circular") is True)
        return Cell(value, low, high, marks=marks, bold=bool(value == self.best))


def build_correlations(correlations: pd.DataFrame, record: RunRecord) -> Table:
    """Build τ and ρ of each metric with each definition of the ground truth."""
    title = "Agreement of each metric's ranking with the ground truth"
    if correlations.empty or correlations["tau"].isna().all():
        reasons = "; ".join(sorted({note for note in correlations["note"] if note}))
        reason = record.correlations_absent or reasons or "no metric has values for two explainers"
        header = [Title(name) for name in ("Metric", "τ", "ρ")]
        return Table(title, header, [], [f"Not computed: {reason}.", describe_run(record)])
    columns = _make_columns(correlations, record)
    pairs: list[Pair] = list(dict.fromkeys(pair for column in columns for pair in column.by_pair))
    tied, leading = _find_tied(columns, pairs), list_leading_truths(record)
    cells = {
        pair: [column.make_cell(pair) for column in columns]
        for pair in pairs
        # only graded controls can judge a ground truth; of these, the leading ones are shown
        if pair not in tied and (not is_truth(pair[0], record) or pair in leading)
    }
    has_outside = any(OUTSIDE_INTERVAL_MARK in cell.marks for row in cells.values() for cell in row)
    notes = _write_correlation_notes(correlations, columns, record, tied, has_outside=has_outside)
    return build_metric_table(title, [column.title for column in columns], cells, notes, record)


def _make_columns(correlations: pd.DataFrame, record: RunRecord) -> list[_CoefficientColumn]:
    """Return the leading truths with their p, the graded controls, and the other definitions of the ground truth."""
    settings, truths = record.settings, list_truth_metrics(record)
    judged = correlations[correlations["agreement"] == settings.agreement]
    names = name_truths(judged["truth"], record)
    sides = [(name, STAR * (g in settings.truth), judged[judged["truth"] == g]) for g, name in names.items()]
    graded = (GRADED, "", correlations[correlations["family"] == GRADED])
    sides.insert(sum(bool(star) for _, star, _ in sides), graded)
    columns = []
    for name, star, lines in sides:
        if lines["tau"].isna().all():
            continue
        for subset, coefficient, sign, suffix in _COEFFICIENTS:
            is_absent = select_subset(lines, subset)[coefficient].isna().all()
            if is_absent or (subset == WITHOUT_CONTROLS and not has_controls(lines)):
                continue
            title = Title(f"{sign} {name}{star}{suffix}", term=sign)
            columns.append(_CoefficientColumn(title, coefficient, subset, lines, truths))
            if star or name == GRADED:
                # it names its coefficient, from which a narrow screen can separate it
                of_what = f"{sign} {GRADED}" if name == GRADED else f"{sign}{suffix}"
                p_title = Title(f"p({of_what})", term="p")
                columns.append(_CoefficientColumn(p_title, coefficient, subset, lines, truths, has_p_values=True))
    return columns


def _find_tied(columns: Sequence[_CoefficientColumn], pairs: Sequence[Pair]) -> list[Pair]:
    """Return the metrics that tie all explainers, so that their τ has no information; none if all do."""
    with_tau = {}
    for pair in pairs:
        lines = [line for column in columns if (line := column.by_pair.get(pair)) is not None]
        with_tau[pair] = [line for line in lines if not pd.isna(line["tau"])]
    tied = [pair for pair, lines in with_tau.items() if lines and all(pd.isna(line["rho"]) for line in lines)]
    return tied if len(tied) < sum(map(bool, with_tau.values())) else []


def _write_correlation_notes(
    correlations: pd.DataFrame,
    columns: Sequence[_CoefficientColumn],
    record: RunRecord,
    tied: Sequence[Pair],
    *,
    has_outside: bool,
) -> list[str]:
    shown_lines = pd.concat([column.lines for column in columns])
    notes = [
        describe_run(record),
        f"Kendall's τ and Spearman's ρ with the ground truth ({record.settings.agreement}) under each of "
        f"its definitions; * marks those that this run leads with ({describe_truths(record)}). The largest value of a "
        f"column is bold.{write_interval_note(record)} "
        "p: probability that a random ordering of the explainers agrees with the ground truth as well (one-sided).",
    ]
    if has_outside:
        notes.append(
            f"{OUTSIDE_INTERVAL_MARK} outside its interval: resamples are noisier than the sample, so with many "
            "similar explainers their τ and ρ are smaller."
        )
    if select_not_identifiable(shown_lines).any():
        notes.append(f"{write_not_identifiable_note('τ')} The table of ranges shows how far.")
    circular_lines = shown_lines[select_circular(shown_lines) & shown_lines["tau"].notna()]
    if len(circular_lines):
        notes.append(_write_circular_note(circular_lines, record))
    graded = correlations[correlations["family"] == GRADED]
    if len(graded):
        notes.append(
            f"Graded: {graded['explainers'].max()} control explainers that select the features of "
            f"{graded['truth'].iloc[0]} with increasing probability; a metric is judged by this order."
        )
    with_reason = shown_lines[(shown_lines["subset"] == ALL_EXPLAINERS) | shown_lines["tau"].isna()]
    reasons = sorted({note for note in with_reason["note"] if note})
    if reasons:
        notes.append(write_reason("; ".join(reasons)))
    if tied:
        names = ", ".join(make_metric_title(*pair, record).plain for pair in tied)
        notes.append(f"Not shown, because they tie all explainers: {names}.")
    return notes


def _write_circular_note(lines: pd.DataFrame, record: RunRecord) -> str:
    """Write which metrics are circular with which ground truths, and by how much if that was measured."""
    measured, declared = [], []
    for line in lines.drop_duplicates(["metric", "variant", "truth"]).to_dict("records"):
        title = f"{make_metric_title(line['metric'], line['variant'], record).plain} with {line['truth']}"
        share = line.get("circular_share", nan)
        if isnan(share):
            declared.append(title)
        else:
            measured.append(f"{title} {share:.1%}")
    note = f"{CIRCULAR_MARK} circular: the metric is optimal for this ground truth by construction."
    if measured:
        note += f" Measured, as the share of reference features in the best feature sets: {', '.join(measured)}."
    return note + f" Declared: {', '.join(declared)}." * bool(declared)


def _index_by_pair(lines: pd.DataFrame) -> dict[Pair, dict[Any, Any]]:
    """Return lines that are indexed by metric and variant as records."""
    return dict(zip(lines.index.tolist(), lines.to_dict("records"), strict=True))


def build_ranges(ranges: pd.DataFrame, record: RunRecord) -> Table:
    """Build the range of each metric's τ over parametrisations of the model, and what moves it."""
    is_leading = ranges["agreement"] == record.settings.agreement
    judged = ranges[is_leading] if is_leading.any() else ranges  # graded controls alone have their order only
    truths = name_truths(judged["truth"], record)
    lines = {(line["metric"], line["variant"], line["truth"]): line for line in judged.to_dict("records")}
    cells = {
        pair: [_make_range_cell(lines.get((*pair, truth))) for truth in truths]
        for pair in dict.fromkeys(zip(judged["metric"], judged["variant"], strict=True))
    }
    columns = [_make_truth_title("τ", truth, name, record) for truth, name in truths.items()]
    note = (
        f"τ of each metric with the ground truth on {judged['instances'].max():,} instances. "
        f"{NOT_IDENTIFIABLE_MARK} {NOT_IDENTIFIABLE_NOTE}: the lowest and the highest τ over "
        f"{judged['reparametrisations'].max():,} draws of other parameters with the same predictions, for the same "
        "explanations. In brackets, which change suffices: the constant that the effects of a feature share with the "
        "bias, the part of the embeddings that is orthogonal to the weights, or the scale of the embeddings."
    )
    title = "Range of τ over parametrisations of the model"
    return build_metric_table(title, columns, cells, [note], record, in_blocks=False, is_supplementary=True)


def _make_range_cell(line: _Line | None) -> Cell:
    if line is None or line["not_identifiable"] is not True:
        return Cell(None if line is None else line["tau"], form=NumberFormat(decimals=3))
    ends = line["tau_lowest"], line["tau_highest"]
    return Cell(
        line["tau"],
        *ends,
        marks=NOT_IDENTIFIABLE_MARK,
        is_range=True,
        detail=line["changed_by"],
        form=NumberFormat(decimals=3),
    )


def _make_truth_title(sign: str, truth: str, name: str, record: RunRecord) -> Title:
    return Title(f"{sign} {name}", marks=STAR * (truth in record.settings.truth), term=sign)


def build_instance_agreement(statistics: RunStatistics, record: RunRecord) -> list[Table]:
    """Build the agreement instance by instance, over all explainers and, if there are controls, without those."""
    table = _build_instances(select_subset(statistics.instance_agreement), record)
    lines = select_subset(statistics.instance_agreement, WITHOUT_CONTROLS)
    if lines.empty or not list_contenders(statistics.metrics, record, controls=True):
        return [table]
    return [table, replace(_build_instances(lines, record), title=f"{table.title}, without controls")]


def _build_instances(instances: pd.DataFrame, record: RunRecord) -> Table:
    agreement = record.settings.agreement
    judged = instances[instances["agreement"] == agreement]
    truths = name_truths(judged["truth"], record)
    titles, columns = [], []
    for truth, name in truths.items():
        lines = judged[judged["truth"] == truth].set_index(["metric", "variant"])
        by_pair = _index_by_pair(lines)
        for statistic, sign in (("tau", "τ"), ("d", "d")):
            titles.append(_make_truth_title(sign, truth, name, record))
            columns.append((statistic, by_pair, lines[statistic].max()))
    cells = {
        pair: [_make_statistic_cell(by_pair.get(pair), statistic, best) for statistic, by_pair, best in columns]
        for pair in dict.fromkeys(zip(judged["metric"], judged["variant"], strict=True))
    }
    with_tau = judged[judged["tau"].notna()]
    counts = count_by_row(with_tau, with_tau["truth"], with_tau["instances"])
    typical_counts = find_typical_counts(counts, truths)
    counts_text = ", ".join(f"{name} {typical_counts[truth]:,}" for truth, name in truths.items())
    number = (
        f"{max(typical_counts.values()):,} instances"
        if len(set(typical_counts.values())) == 1
        else f"some instances ({counts_text})"
    )
    note = (
        f"For each of {number}: the ordering of the explainers by a metric against their agreement with the ground "
        f"truth ({agreement}). τ: mean over instances; a tied pair counts as neither right nor wrong. d: (right - "
        "wrong) / all pairs that the ground truth does not tie; 1 if the metric always prefers the explainer with the "
        f"higher agreement.{write_interval_note(record, without_differences=True)}"
        f"{write_exceptions(counts, typical_counts, record, truths)}"
    )
    title = "Agreement instance by instance"
    return build_metric_table(title, titles, cells, [note], record, in_blocks=False, is_supplementary=True)


def _make_statistic_cell(line: _Line | None, statistic: str, best: float) -> Cell:
    if line is None:
        return Cell()
    value, ends = line[statistic], (line[f"{statistic}_low"], line[f"{statistic}_high"])
    return Cell(value, *ends, bold=bool(value == best))
