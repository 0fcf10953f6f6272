"""The tables of a sweep: means over seeds, agreement with the ground truth, stability of rankings, and the runs."""

from __future__ import annotations

import math
from collections.abc import Collection, Container, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from cfeval_cli.report.instance_counts import count_instances, find_typical_counts
from cfeval_cli.report.metric_table import build_metric_table
from cfeval_cli.report.notes import NOT_IDENTIFIABLE_NOTE, write_coverage_notes
from cfeval_cli.report.numbers import COUNT, TENTH_PERCENT, WHOLE_NUMBER, NumberFormat
from cfeval_cli.report.table import DASH, NOT_IDENTIFIABLE_MARK, STAR, Cell, Row, Table, Title
from cfeval_cli.report.titles import (
    Pair,
    describe_truths,
    find_low_coverage,
    is_truth,
    list_leading_truths,
    make_explainer_titles,
    make_metric_title,
    name_truths,
)
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.ranking_stability import ANY_SETTING
from cfeval_cli.statistics.small_rankings import SMALL_RANKING_REASON
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, SUBSETS, WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.sweep.frames import SweepFrames, index_tau_ranges
from cfeval_cli.study.sweep.runs import (
    RankedExplainers,
    Sweep,
    SweepRun,
    collect_taus,
    drop_small_rankings,
    merge_records,
    select_largest_ranking,
)
from cfeval_cli.study.sweep.seed_conclusion import conclude_by_question
from cfeval_cli.study.words import write_range

RUNS_PART = "runs"  # the part of a report with the list of runs
_MAX_SHOWN_GROUPS = 3  # with more groups of seeds, their tables are in the files only
_RUN_FORMATS = {"seed": WHOLE_NUMBER, "test_accuracy": NumberFormat("percent", 2), "instances": COUNT}


def build_tables(sweep: Sweep, frames: SweepFrames) -> list[Table]:
    """Build the tables of each group with several seeds, the stability of rankings, and the list of runs."""
    groups = {values: runs for values, runs in sweep.groups.items() if len(runs) > 1}
    is_supplementary = len(groups) > _MAX_SHOWN_GROUPS
    built = []
    for values, runs in groups.items():
        heading = f": {sweep.describe_group(values)}" if values else ""
        built.append(_build_means(sweep.select_group(frames.seeds_metrics, values), runs, heading, is_supplementary))
        correlations = drop_small_rankings(sweep.select_group(frames.seeds_correlations, values))
        is_tau = (correlations["family"] == "explainers") & (correlations["coefficient"] == "tau")
        built += _build_agreements(correlations[is_tau], runs, heading, is_supplementary)
        conclusions = conclude_by_question(correlations, runs, merge_records(runs))
        notes = [
            f"{name.capitalize()}: {conclusion.headline}. {' '.join(conclusion.points)}"
            for name, conclusion in conclusions.items()
        ]
        if correlations["mean"].isna().all():
            notes = [f"τ is not computed: {SMALL_RANKING_REASON}."]
        built[-1] = built[-1].add_notes(*notes)
    all_explainers, without_controls = (select_subset(frames.stability, subset) for subset in SUBSETS)
    ranges, ranges_without = (select_subset(frames.stability_truth, subset) for subset in SUBSETS)
    if all_explainers["pairs"].sum():
        built.append(_build_stability(all_explainers, ranges, sweep, ALL_EXPLAINERS))
        is_different = _differ(all_explainers, without_controls) or _differ(ranges, ranges_without)
        if is_different and without_controls["pairs"].sum():
            built.append(_build_stability(without_controls, ranges_without, sweep, WITHOUT_CONTROLS))
    return [*built, _build_run_list(frames.sweep, sweep)]


def _build_means(metrics: pd.DataFrame, runs: Sequence[SweepRun], heading: str, is_supplementary: bool) -> Table:
    first, n_seeds, record = runs[0].record, len(runs), merge_records(runs)
    metrics = metrics[metrics["quality_level"].isna()]
    low_coverage = find_low_coverage(metrics.rename(columns={"mean": "value"}), first)
    truths, explainers = list_leading_truths(first), set(metrics["explainer"])
    titles = {name: title for name, title in make_explainer_titles(record, low_coverage).items() if name in explainers}
    lines, moving = (
        _index_lines(metrics, "explainer"),
        set(_list_pairs(metrics[metrics["not_identifiable"].fillna(0) > 0])),
    )
    cells = {}
    for pair in _select_pairs(metrics, record, {first.settings.agreement}):
        form = TENTH_PERCENT if record.metrics[pair[0]].better == "none" else NumberFormat(decimals=4)
        cells[pair] = [_build_mean_cell(lines.get((*pair, name)), n_seeds, form) for name in titles]
    notes = [
        f"Mean ± standard deviation over {n_seeds} seeds. Each seed has its own split, model, explainers and search. "
        f"{_describe_runs(runs)}",
        f"* marks the ground truth ({describe_truths(first)}). ↑ higher is better, ↓ lower. "
        f"{_explain_missing(metrics, n_seeds)}",
        *_explain_moves("value", bool(moving)),
        *write_counts_notes(runs),
        *write_coverage_notes(low_coverage, record),
    ]
    return build_metric_table(
        f"Means over {n_seeds} seeds{heading}", list(titles.values()), cells, notes, record,
        starred=truths, not_identifiable=moving, ranked=True, is_supplementary=is_supplementary, part="scores",
    )  # fmt: skip


def _build_agreements(
    correlations: pd.DataFrame, runs: Sequence[SweepRun], heading: str, is_supplementary: bool
) -> list[Table]:
    """Build the table over all explainers, and one without controls if it has other values."""
    all_explainers, without_controls = select_subset(correlations), select_subset(correlations, WITHOUT_CONTROLS)
    built = []
    if all_explainers["mean"].notna().any():
        built.append(_build_agreement(all_explainers, runs, heading, is_supplementary))
    is_same = (without_controls["mean"].to_numpy() == all_explainers["mean"].to_numpy()).all()
    if without_controls["mean"].notna().any() and not is_same:
        table = _build_agreement(without_controls, runs, heading, is_supplementary)
        note = (
            "Controls select features at random or by the ground truth itself, as a reference (column control of "
            "metrics.csv)."
        )
        built.append(replace(table, title=f"{table.title}, without controls").add_notes(note))
    return built


def _build_agreement(
    correlations: pd.DataFrame, runs: Sequence[SweepRun], heading: str, is_supplementary: bool
) -> Table:
    record, n_seeds, settings = merge_records(runs), len(runs), runs[0].record.settings
    rows = correlations[correlations["agreement"] == settings.agreement]
    truths = name_truths(rows["truth"], runs[0].record)
    columns = []
    for truth, name in truths.items():
        is_leading = truth in settings.truth
        columns.append(Title(f"τ {name}", marks=STAR * is_leading, term="τ"))
        columns += [Title("between"), Title("within")] * is_leading
    lines = _index_lines(rows, "truth")
    best = {truth: _find_best(part) for truth, part in rows.groupby("truth")}
    empty: dict[str, Any] = {"seeds": 0, "not_identifiable": 0, "ranked": RankedExplainers()}
    empty |= dict.fromkeys(("mean", "between", "within"), math.nan)
    cells: dict[Pair, list[Cell]] = {}
    for pair in _list_pairs(rows):
        row = cells.setdefault(pair, [])
        for truth in truths:
            line = lines.get((*pair, truth), empty)
            marks = NOT_IDENTIFIABLE_MARK * bool(not pd.isna(line["not_identifiable"]) and line["not_identifiable"])
            is_best = bool(line["seeds"]) and (line["mean"], line["ranked"]) == best[truth]
            row.append(replace(_build_mean_cell(line, n_seeds, NumberFormat(decimals=3)), marks=marks, bold=is_best))
            if truth in settings.truth:
                row += [Cell(line[name], form=NumberFormat(decimals=3)) for name in ("between", "within")]
    notes = [
        f"Kendall's τ with the ground truth ({settings.agreement}) under each of its definitions: mean ± standard "
        f"deviation over {n_seeds} seeds. * marks the leading ones ({describe_truths(runs[0].record)}). "
        "Bold: the largest mean of a column, among the metrics that rank the most explainers. "
        "within: the deviation due to the choice of instances (bootstrap within each seed). between: the remaining "
        f"deviation, due to splits, models, explainers and searches. {_explain_missing(rows, n_seeds)}",
        _describe_runs(runs),
        *write_counts_notes(runs),
        *_explain_moves("τ", bool((rows["not_identifiable"].fillna(0) > 0).any())),
    ]
    title = f"Agreement with the ground truth over {n_seeds} seeds{heading}"
    return build_metric_table(title, columns, cells, notes, record, in_blocks=False, is_supplementary=is_supplementary)


def _find_best(lines: pd.DataFrame) -> tuple[float, RankedExplainers]:
    """Return the largest mean among the metrics that rank the most explainers, and these explainers."""
    lines = lines[lines["mean"].notna()]
    if lines.empty:
        return math.nan, RankedExplainers()
    ranking = select_largest_ranking(lines["ranked"].tolist())
    return float(lines.loc[lines["ranked"] == ranking, "mean"].max()), ranking


def _differ(first: pd.DataFrame, second: pd.DataFrame) -> bool:
    """Return whether two subsets of a table have different values."""
    first, second = (part.drop(columns="subset").reset_index(drop=True) for part in (first, second))
    return not first.equals(second)


def _build_stability(stability: pd.DataFrame, ranges: pd.DataFrame, sweep: Sweep, subset: str) -> Table:
    record, truths = merge_records(sweep.runs), list(ranges["truth"].unique())
    ends = index_tau_ranges(ranges)
    keys = list(dict.fromkeys(stability["key"]))
    if len(keys) == 2:
        keys.remove(ANY_SETTING)  # the same as the only setting that varies
    columns = [*map(Title, keys), *(Title(f"τ with {truth}", term="τ") for truth in truths)]
    lines, moving = _index_lines(stability, "key"), _find_moving(sweep, subset)
    cells: dict[Pair, list[Cell]] = {}
    leading = {run.record.settings.agreement for run in sweep.runs}
    n_compared = stability["pairs"] + stability["left_out"]
    pairs = _select_pairs(stability[(stability["key"] == ANY_SETTING) & (n_compared > 0)], record, leading)
    form = NumberFormat(decimals=3)
    for pair in pairs:
        row = cells.setdefault(pair, [])
        for key in keys:
            line = lines[*pair, key]
            has_pairs = bool(line["pairs"])
            row.append(Cell(line["tau"], detail=form.write(line["tau_lowest"]), form=form) if has_pairs else Cell())
        for truth in truths:
            low, high = ends.get((*pair, truth), (math.nan, math.nan))
            marks = NOT_IDENTIFIABLE_MARK * ((*pair, truth) in moving)
            row.append(Cell(low=low, high=high, is_range=True, marks=marks, form=form))
    largest = n_compared.groupby(stability["key"]).max()
    counts = ", ".join(f"{key} {largest[key]:,}" for key in keys)
    has_moving = any(NOT_IDENTIFIABLE_MARK in cell.marks for row in cells.values() for cell in row)
    without = subset == WITHOUT_CONTROLS
    notes = [
        "Kendall's τ between the two rankings of the explainers by the same metric in two runs that differ in this "
        f"setting only{' (all: in any setting)' * (ANY_SETTING in keys)}: mean over the pairs of runs (lowest). 1: the "
        f"same order; a pair of explainers that is tied in one run counts 0. Pairs of runs: {counts}.",
        f"τ with a ground truth, {'without' if without else 'with'} controls: lowest to highest over the runs with it.",
        *_explain_moves("τ", has_moving),
    ]
    left_out = [
        f"{make_metric_title(*pair, record).text} {count:,}"
        for pair in pairs if (count := lines[*pair, ANY_SETTING]["left_out"])
    ]  # fmt: skip
    if left_out:
        notes.append(
            f"Pairs left out, because both runs tie all explainers or share fewer than two: {', '.join(left_out)}. "
            f"{DASH}: no pair is left."
        )
    title = f"Stability of the rankings by each metric{', without controls' * without}"
    return build_metric_table(title, columns, cells, notes, record)


def _find_moving(sweep: Sweep, subset: str) -> set[tuple[str, str, str]]:
    """Return metric, variant and truth of each τ that a reparametrisation of the model changes in some run."""
    rows = select_subset(collect_taus(sweep), subset)
    return {*rows.loc[rows["not_identifiable"] == 1, ["metric", "variant", "truth"]].itertuples(index=False, name=None)}


def _explain_moves(quantity: str, has_moving: bool) -> list[str]:
    """Explain the mark of values that are not identifiable, if there is one."""
    return [
        f"{NOT_IDENTIFIABLE_MARK} {NOT_IDENTIFIABLE_NOTE}, in at least one run: other parameters with the same "
        f"predictions give another {quantity}."
    ] * has_moving


def _build_run_list(lines: pd.DataFrame, sweep: Sweep) -> Table:
    header = [Title(name) for name in ("Folder", "seed", *sweep.varied, "status", "test accuracy", "instances")]
    rows = [Row(Title(str(line["folder"])), build_run_cells(line)) for line in lines.to_dict("records")]
    notes = [f"Not gathered: {sweep.describe_excluded()}."] if sweep.excluded else []
    return Table("Runs", header, [rows], notes, is_supplementary=True, part=RUNS_PART)


def build_run_cells(line: Mapping[Any, Any]) -> list[Cell]:
    """Return the cells of a row of sweep.csv, without its folder."""
    return [
        Cell(value) if isinstance(value, str) else Cell(None if pd.isna(value) else value, form=_RUN_FORMATS[name])
        for name, value in line.items()
        if name != "folder"
    ]


def _list_pairs(frame: pd.DataFrame) -> list[Pair]:
    """List metrics and variants in the order of the file."""
    return list(dict.fromkeys(zip(frame["metric"], frame["variant"], strict=True)))


def _select_pairs(frame: pd.DataFrame, record: RunRecord, agreements: Collection[str]) -> list[Pair]:
    """List metrics and variants; of the metrics that compare with the ground truth only some agreements."""
    return [pair for pair in _list_pairs(frame) if not is_truth(pair[0], record) or pair[0] in agreements]


def _index_lines(frame: pd.DataFrame, key: str) -> dict[tuple[str, str, str], dict[Any, Any]]:
    """Return the rows of a file by metric, variant and one more column."""
    return {(line["metric"], line["variant"], line[key]): line for line in frame.to_dict("records")}


def _build_mean_cell(line: Mapping[Any, Any] | None, n_seeds: int, form: NumberFormat) -> Cell:
    """Return mean and deviation, with the number of seeds if some have no value."""
    if line is None or not line["seeds"]:
        return Cell()
    n = None if line["seeds"] == n_seeds else int(line["seeds"])
    return Cell(line["mean"], deviation=line["deviation"], n=n, form=form)


def _explain_missing(lines: pd.DataFrame, n_seeds: int) -> str:
    """Explain the signs of missing values, if there are any."""
    partial = "In brackets: the number of seeds with a value. " if lines["seeds"].between(1, n_seeds - 1).any() else ""
    return partial + (f"{DASH}: no seed has a value." if (lines["seeds"] == 0).any() else "")


def _describe_runs(runs: Sequence[SweepRun]) -> str:
    """Write data, seeds, accuracy and instances."""
    record = runs[0].record
    seeds = ", ".join(str(seed) for seed in sorted(run.seed for run in runs))
    accuracy = write_range([run.record.accuracy["test"] for run in runs], "{:.2%}")
    instances = write_range([run.record.instances for run in runs], "{:,}")
    return (
        f"{record.data.name}: seeds {seeds}; test accuracy {accuracy}; {instances} instances, "
        f"k = {record.settings.k}; {record.setup}; incomplete explanations: "
        f"{record.settings.incomplete}."
    )


def write_counts_notes(runs: Sequence[SweepRun], hidden: Container[Pair] = ()) -> list[str]:
    """Write on how many instances the runs score explainers, and which rows differ in it."""
    typical_counts, different = list[int](), dict[Pair, list[int]]()
    for run in runs:
        counts = count_instances(run.metrics, run.record, hidden)
        of_run = find_typical_counts(counts, run.record.explainers)
        typical_counts += [n for n in of_run.values() if n]
        for pair, row in counts.items():
            different.setdefault(pair, []).extend(n for name, n in row.items() if n != of_run[name])
    record, titles = merge_records(runs), dict[str, list[str]]()
    for pair, numbers in different.items():
        if numbers:
            titles.setdefault(write_range(numbers, "{:,}"), []).append(make_metric_title(*pair, record).plain)
    if not titles and set(typical_counts) <= {run.record.instances for run in runs}:
        return []
    groups = [f"{', '.join(names)} {span} instances{' each' * (len(names) > 1)}" for span, names in titles.items()]
    note = f"Each run scores explainers on {write_range(typical_counts, '{:,}')} instances."
    return [note + (f" Other rows: {'; '.join(groups)}." if groups else "")]
