"""What the runs of a sweep say together, as tables."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from cfeval_cli.report.instance_counts import count_instances, find_usual_counts
from cfeval_cli.report.notes import MOVES_NOTE, coverage_notes
from cfeval_cli.report.numbers import COUNT, TENTH_PERCENT, WHOLE, NumberFormat, fixed
from cfeval_cli.report.table import DASH, MOVES, STAR, Cell, Row, Table, Title
from cfeval_cli.report.titles import (
    Pair,
    describe_truths,
    find_low_coverage,
    get_block,
    is_truth,
    list_leading_truths,
    make_explainer_titles,
    make_metric_title,
    mark_moving,
    merge_rows,
    name_truths,
)
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.ranking_stability import ANY_SETTING
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, SUBSETS, WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.sweep.runs import Run, Sweep, most_ranked, taus
from cfeval_cli.study.sweep.verdict import by_question

RUNS = "runs"  # the part of a report with the list of runs
_ON_SCREEN = 3  # groups of seeds whose tables are shown; more stand in the files only
_RUN_FORMATS = {"seed": WHOLE, "test_accuracy": NumberFormat("percent", 2), "instances": COUNT}


def range_columns(gold: str) -> tuple[str, str]:
    """Return the columns of stability.csv that have the range of a τ with a ground truth."""
    return f"truth_tau_lowest_{gold}", f"truth_tau_highest_{gold}"


def list_range_columns(columns: Iterable[str]) -> dict[str, tuple[str, str]]:
    """Return by ground truth the columns of stability.csv that have the range of a τ with it."""
    prefix, _ = range_columns("")
    golds = [name.removeprefix(prefix) for name in columns if name.startswith(prefix)]
    return {gold: range_columns(gold) for gold in golds}


def make(
    sweep: Sweep,
    lines: pd.DataFrame,
    seeds_metrics: pd.DataFrame,
    seeds_correlations: pd.DataFrame,
    stability: pd.DataFrame,
) -> list[Table]:
    """Means over seeds for each group that has several, how stable the rankings are, and the list of runs."""
    several = {values: runs for values, runs in sweep.groups.items() if len(runs) > 1}
    detail = len(several) > _ON_SCREEN
    made = []
    for values, runs in several.items():
        chosen = dict(zip(sweep.keys, values, strict=True))
        made.append(_means(_of_group(seeds_metrics, chosen), runs, chosen, detail))
        mine = _of_group(seeds_correlations, chosen)
        mine = mine[(mine["family"] == "explainers") & (mine["coefficient"] == "tau")]
        of_all = select_subset(mine)
        if of_all["mean"].notna().any():
            made.append(_agreement(of_all, runs, chosen, detail))
        made += _without_controls(mine, runs, chosen, detail)
        made[-1] = _concluded(made[-1], _of_group(seeds_correlations, chosen), runs)
    if select_subset(stability)["pairs"].sum():
        made.append(_stability(stability, sweep, ALL_EXPLAINERS))
        if _differ(stability) and select_subset(stability, WITHOUT_CONTROLS)["pairs"].sum():
            made.append(_stability(stability, sweep, WITHOUT_CONTROLS))
    return [*made, _runs(lines, sweep)]


def _concluded(table: Table, correlations: pd.DataFrame, runs: Sequence[Run]) -> Table:
    """The table with what the seeds say together below it."""
    said = by_question(correlations, runs, merged(runs)).items()
    notes = [f"{name.capitalize()}: {headline}. {' '.join(points)}" for name, (headline, points) in said]
    return table.add_notes(*notes)


def of_group(sweep: Sweep, frame: pd.DataFrame, values: Sequence[str]) -> pd.DataFrame:
    """The lines of a group, by the values of the settings that vary."""
    return _of_group(frame, dict(zip(sweep.keys, values, strict=True)))


def _of_group(frame: pd.DataFrame, chosen: Mapping[str, str]) -> pd.DataFrame:
    for key, value in chosen.items():
        frame = frame[frame[f"setting.{key}"] == value]
    return frame


def _means(metrics: pd.DataFrame, runs: Sequence[Run], chosen: Mapping[str, str], detail: bool) -> Table:
    first, many = runs[0].record, len(runs)
    metrics = metrics[metrics["rung"].isna()]
    low = find_low_coverage(metrics.rename(columns={"mean": "value"}), first)
    record = merged(runs)
    truths, explainers = list_leading_truths(first), set(metrics["explainer"])
    titles = {name: title for name, title in make_explainer_titles(record, low).items() if name in explainers}
    lines, moving = _keyed(metrics, "explainer"), set(_pairs(metrics[metrics["moves"].fillna(0) > 0], record))
    blocks: dict[str, list[Row]] = {}
    for pair in _pairs(metrics, record, {first.settings.agreement}):
        facts = record.metrics[pair[0]]
        form = TENTH_PERCENT if facts.better == "none" else fixed(4)
        title = mark_moving(make_metric_title(*pair, record, star=pair in truths), pair in moving)
        cells = [_mean_cell(lines.get((*pair, name)), many, form) for name in titles]
        blocks.setdefault(get_block(pair[1], facts), []).append(Row(title, cells))
    notes = [
        f"Mean ± standard deviation over {many} seeds, each with a split, a model, explainers and a search of its own. "
        f"{_about(runs)}",
        f"* marks the ground truth ({describe_truths(first)}). ↑ higher is better, ↓ lower. {_gaps(metrics, many)}",
        *_moves_notes("value", bool(moving)),
        *counts_note(runs),
        *coverage_notes(low, record),
    ]
    rows, left_out = merge_rows(blocks, ranked=True)
    title_ = f"Means over {many} seeds{_named(chosen)}"
    return Table(title_, [Title("Metric"), *titles.values()], rows, [*notes, *left_out], detail, part="scores")


def _agreement(correlations: pd.DataFrame, runs: Sequence[Run], chosen: Mapping[str, str], detail: bool) -> Table:
    record, many, settings = merged(runs), len(runs), runs[0].record.settings
    mine = correlations[correlations["agreement"] == settings.agreement]
    golds = name_truths(mine["gold"], runs[0].record)
    header = [Title("Metric")]
    for gold, name in golds.items():
        is_leading = gold in settings.gold
        header.append(Title(f"τ {name}", marks=STAR * is_leading, term="τ"))
        header += [Title("between"), Title("within")] * is_leading
    lines = _keyed(mine, "gold")
    best = {gold: _largest(of) for gold, of in mine.groupby("gold")}
    nothing = {"seeds": 0, "moves": 0, "ranked": "", **dict.fromkeys(("mean", "between", "within"), math.nan)}
    rows = []
    for pair in _pairs(mine, record):
        cells = []
        for gold in golds:
            line = lines.get((*pair, gold), nothing)
            marks = MOVES * bool(not pd.isna(line["moves"]) and line["moves"])
            is_best = bool(line["seeds"]) and (line["mean"], line["ranked"]) == best[gold]
            cells.append(replace(_mean_cell(line, many, fixed(3)), marks=marks, bold=is_best))
            if gold in settings.gold:
                cells += [Cell(line[name], form=fixed(3)) for name in ("between", "within")]
        rows.append(Row(make_metric_title(*pair, record), cells))
    notes = [
        f"Kendall's τ with the ground truth ({settings.agreement}) under each definition of gold, mean ± standard "
        f"deviation over {many} seeds; * marks what the runs lead with ({describe_truths(runs[0].record)}). "
        "The largest mean of a column is bold, of the metrics that rank the most explainers. "
        "within: the deviation that the choice of instances explains (bootstrap, inside each seed). between: the "
        f"deviation that is left, of splits, models, explainers and searches. {_gaps(mine, many)}",
        _about(runs),
        *counts_note(runs),
        *_moves_notes("τ", bool((mine["moves"].fillna(0) > 0).any())),
    ]
    merged_rows, left_out = merge_rows({"": rows})
    title = f"Agreement with the ground truth over {many} seeds{_named(chosen)}"
    return Table(title, header, merged_rows, [*notes, *left_out], detail)


def _largest(lines: pd.DataFrame) -> tuple[float, str]:
    """The largest mean among the metrics that rank the most explainers, and whom those rank."""
    there = lines[lines["mean"].notna()]
    if there.empty:
        return math.nan, ""
    who = most_ranked(there["ranked"].tolist())
    return float(there.loc[there["ranked"] == who, "mean"].max()), who


def _without_controls(
    correlations: pd.DataFrame, runs: Sequence[Run], chosen: Mapping[str, str], detail: bool
) -> list[Table]:
    """The same agreement over the explainers that are no controls, if there are two of them."""
    mine, everyone = select_subset(correlations, WITHOUT_CONTROLS), select_subset(correlations)
    if not mine["mean"].notna().any() or (mine["mean"].to_numpy() == everyone["mean"].to_numpy()).all():
        return []
    table = _agreement(mine, runs, chosen, detail)
    note = (
        "Without controls, which name features at random or the gold itself and are there to be compared with (column "
        "control of metrics.csv)."
    )
    return [replace(table, title=f"{table.title}, without controls").add_notes(note)]


def _moves_notes(what: str, there: bool) -> list[str]:
    """Write what § means, if it is there."""
    return [
        f"{MOVES} {MOVES_NOTE}, in one of the runs at least: other parameters of the model move this {what} and change "
        "no prediction."
    ] * there


def _differ(stability: pd.DataFrame) -> bool:
    """Whether leaving out the controls changes anything."""
    everyone, rest = (
        select_subset(stability, subset).drop(columns="subset").reset_index(drop=True) for subset in SUBSETS
    )
    return not everyone.equals(rest)


def _stability(stability: pd.DataFrame, sweep: Sweep, subset: str) -> Table:
    """Over a subset of the explainers."""
    without, stability = subset == WITHOUT_CONTROLS, select_subset(stability, subset)
    record, ranges = merged(sweep.runs), list_range_columns(stability.columns.astype(str))
    keys = list(dict.fromkeys(stability["key"]))
    if len(keys) == 2:
        keys.remove(ANY_SETTING)  # the same as the only setting that varies
    header = [Title("Metric"), *map(Title, keys), *(Title(f"τ with {gold}", term="τ") for gold in ranges)]
    lines, moving = _keyed(stability, "key"), _moving(sweep, subset)
    blocks: dict[str, list[Row]] = {}
    leading = {run.record.settings.agreement for run in sweep.runs}
    compared = stability["pairs"] + stability["left_out"]
    pairs = _pairs(stability[(stability["key"] == ANY_SETTING) & (compared > 0)], record, leading)
    for pair in pairs:
        cells = []
        for key in keys:
            line, form = lines[*pair, key], fixed(3)
            lowest = line["tau_lowest"]
            has_pairs = bool(line["pairs"])
            cells.append(Cell(line["tau"], detail=form.write(lowest), form=form) if has_pairs else Cell())
        for gold, columns in ranges.items():
            low, high = (lines[*pair, ANY_SETTING][column] for column in columns)
            marks = MOVES * ((*pair, gold) in moving)
            cells.append(Cell(low=low, high=high, is_range=True, marks=marks, form=fixed(3)))
        row = Row(make_metric_title(*pair, record), cells)
        blocks.setdefault(get_block(pair[1], record.metrics[pair[0]]), []).append(row)
    most = compared.groupby(stability["key"]).max()
    counts = ", ".join(f"{key} {most[key]:,}" for key in keys)
    has_moving = any(MOVES in cell.marks for rows in blocks.values() for row in rows for cell in row.cells)
    notes = [
        "Kendall's τ between the two rankings of the explainers by the same metric in two runs that differ in this "
        f"setting only{' (all: in anything)' * (ANY_SETTING in keys)}: mean over the pairs of runs (lowest). 1: the "
        f"same order; a pair of explainers that is tied in one of them counts 0. Pairs of runs: {counts}.",
        f"τ with a truth, controls {'left out' if without else 'included'}: lowest to highest over the runs that lead "
        "with it.",
        *_moves_notes("τ", has_moving),
    ]
    out = [
        f"{make_metric_title(*pair, record).text} {many:,}"
        for pair in pairs
        if (many := lines[*pair, ANY_SETTING]["left_out"])
    ]
    if out:
        notes.append(
            f"Pairs left out, since both runs tie all explainers or share fewer than two: {', '.join(out)}. "
            f"{DASH}: no pair is left."
        )
    title = f"How stable each metric's ranking of the explainers is{', without controls' * without}"
    rows, left_out = merge_rows(blocks)
    return Table(title, header, rows, [*notes, *left_out])


def _moving(sweep: Sweep, subset: str) -> set[tuple[str, str, str]]:
    """Metric, variant and gold whose τ other parameters of the model move in some run."""
    rows = select_subset(taus(sweep), subset)
    return {*rows.loc[rows["moves"] == 1, ["metric", "variant", "gold"]].itertuples(index=False, name=None)}


def _runs(lines: pd.DataFrame, sweep: Sweep) -> Table:
    header = [Title(name) for name in ("Folder", "seed", *sweep.keys, "status", "test accuracy", "instances")]
    rows = [Row(Title(str(line["folder"])), run_cells(line)) for line in lines.to_dict("records")]
    notes = [f"Not gathered: {sweep.left_out}."] if sweep.others else []
    return Table("The runs", header, [rows], notes, detail=True, part=RUNS)


def run_cells(line: Mapping[Any, Any]) -> list[Cell]:
    """Return the cells of a line of sweep.csv, without its folder."""
    return [
        Cell(value) if isinstance(value, str) else Cell(None if pd.isna(value) else value, form=_RUN_FORMATS[name])
        for name, value in line.items()
        if name != "folder"
    ]


def merged(runs: Sequence[Run]) -> RunRecord:
    """The record of the first run, with the explainers, metrics, searches and removals of all."""
    records = [run.record for run in runs]
    entries = {
        "explainers": {name: title for record in reversed(records) for name, title in record.explainers.items()},
        "metrics": {name: facts for record in records for name, facts in record.metrics.items()},
        "search": " / ".join(dict.fromkeys(record.search for record in records)),
        "removals": {name: facts for record in records for name, facts in record.removals.items()},
    }
    return records[0].model_copy(update=entries)


def _pairs(frame: pd.DataFrame, record: RunRecord, truths: Iterable[str] | None = None) -> list[Pair]:
    """Metrics and variants in the order of the files; of the ground truths those that are wanted, or all."""
    pairs = dict.fromkeys(zip(frame["metric"], frame["variant"], strict=True))
    return [pair for pair in pairs if truths is None or not is_truth(pair[0], record) or pair[0] in truths]


def _keyed(frame: pd.DataFrame, key: str) -> dict[tuple[str, str, str], dict[Any, Any]]:
    """The lines of a file by metric, variant and one column more."""
    return {(line["metric"], line["variant"], line[key]): line for line in frame.to_dict("records")}


def _mean_cell(line: Mapping[Any, Any] | None, many: int, form: NumberFormat) -> Cell:
    """Return mean and deviation, and from how many seeds if not from all."""
    if line is None or not line["seeds"]:
        return Cell()
    n = None if line["seeds"] == many else int(line["seeds"])
    return Cell(line["mean"], deviation=line["deviation"], n=n, form=form)


def _gaps(lines: pd.DataFrame, many: int) -> str:
    """What the signs for missing values mean, if there are any."""
    few = "In brackets: how many seeds have a value. " if lines["seeds"].between(1, many - 1).any() else ""
    return few + (f"{DASH}: no seed has a value." if (lines["seeds"] == 0).any() else "")


def _named(chosen: Mapping[str, str]) -> str:
    return ": " * bool(chosen) + ", ".join(f"{key}={value}" for key, value in chosen.items())


def _about(runs: Sequence[Run]) -> str:
    """Data, seeds, accuracy, instances."""
    record = runs[0].record
    seeds = ", ".join(str(seed) for seed in sorted(run.seed for run in runs))
    accuracy = _range([run.record.accuracy["test"] for run in runs], "{:.2%}")
    instances = _range([run.record.instances for run in runs], "{:,}")
    return (
        f"{record.data.name}: seeds {seeds}; test accuracy {accuracy}; {instances} instances, "
        f"k = {record.settings.k}; {record.setup}; incomplete explanations: "
        f"{record.settings.incomplete}."
    )


def counts_note(runs: Sequence[Run], hidden: Container[Pair] = ()) -> list[str]:
    """Return over how many instances the runs score explainers, and which rows have another n."""
    usual, others = list[int](), dict[Pair, list[int]]()
    for run in runs:
        counts = count_instances(run.metrics, run.record, hidden)
        of_run = find_usual_counts(counts, run.record.explainers)
        usual += [n for n in of_run.values() if n]
        for pair, row in counts.items():
            others.setdefault(pair, []).extend(n for name, n in row.items() if n != of_run[name])
    record, rows = merged(runs), dict[str, list[str]]()
    for pair, some in others.items():
        if some:
            rows.setdefault(_range(some, "{:,}"), []).append(make_metric_title(*pair, record).plain)
    if not rows and set(usual) <= {run.record.instances for run in runs}:
        return []
    groups = [f"{', '.join(names)} {span} instances{' each' * (len(names) > 1)}" for span, names in rows.items()]
    scored = f"Each run scores explainers on {_range(usual, '{:,}')} instances."
    return [scored + (f" Other rows: {'; '.join(groups)}." if groups else "")]


def _range(values: Sequence[float], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"
