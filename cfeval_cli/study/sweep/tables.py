"""What the runs of a sweep say together, as tables."""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from cfeval_cli.report.tables import (
    DASH,
    MOVES,
    OF_MOVES,
    Cell,
    Table,
    asked,
    block_of,
    headed,
    instance_counts,
    is_truth,
    leading,
    low_coverage,
    mark_moves,
    marked,
    of_coverage,
    row_title,
    tidied,
    usual_counts,
    words_of,
)
from cfeval_cli.statistics.correlation import REST, less
from cfeval_cli.statistics.stability import ALL
from cfeval_cli.study.sweep.runs import Run, Sweep, most_ranked, taus
from cfeval_cli.study.sweep.verdict import by_question

_ON_SCREEN = 3  # groups of seeds whose tables are shown; more stand in the files only
_Pair = tuple[str, str]  # metric and variant


def ends(name: str) -> tuple[str, str]:
    """The columns of stability.csv, but for the name of a truth, that have the range of a τ with it."""
    return f"truth_{name}_lowest_", f"truth_{name}_highest_"


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
        if mine["mean"].notna().any():
            made.append(_agreement(mine, runs, chosen, detail))
        made += _without_controls(_of_group(seeds_correlations, chosen), runs, chosen, detail)
        made[-1] = _concluded(made[-1], _of_group(seeds_correlations, chosen), runs)
    if stability["pairs"].sum():
        made.append(_stability(stability, sweep, "tau"))
        if _differ(stability) and stability[less("pairs")].sum():
            made.append(_stability(stability, sweep, less("tau")))
    return [*made, _runs(lines, sweep)]


def _concluded(table: Table, correlations: pd.DataFrame, runs: Sequence[Run]) -> Table:
    """The table with what the seeds say together below it."""
    said = by_question(correlations, runs, merged(runs)).items()
    notes = [f"{name.capitalize()}: {headline}. {' '.join(points)}" for name, (headline, points) in said]
    return replace(table, notes=[*table.notes, *notes])


def of_group(sweep: Sweep, frame: pd.DataFrame, values: Sequence[str]) -> pd.DataFrame:
    """The lines of a group, by the values of the settings that vary."""
    return _of_group(frame, dict(zip(sweep.keys, values, strict=True)))


def _of_group(frame: pd.DataFrame, chosen: Mapping[str, str]) -> pd.DataFrame:
    for key, value in chosen.items():
        frame = frame[frame[f"setting.{key}"] == value]
    return frame


def _means(metrics: pd.DataFrame, runs: Sequence[Run], chosen: Mapping[str, str], detail: bool) -> Table:
    settings, many = runs[0].record["settings"], len(runs)
    metrics = metrics[metrics["rung"].isna()]
    means = metrics.rename(columns={"mean": "value"})
    record = marked(means, merged(runs) | {"settings": settings})
    truths = leading(runs[0].record)
    explainers = {name: title for name, title in record["explainers"].items() if name in set(metrics["explainer"])}
    header = [Cell("Metric"), *map(Cell, explainers.values())]
    lines, moving = _keyed(metrics, "explainer"), set(_pairs(metrics[metrics["moves"].fillna(0) > 0], record))
    blocks: dict[str, list[list[Cell]]] = {}
    for pair in _pairs(metrics, record, {runs[0].record["settings"]["agreement"]}):
        facts = record["metrics"][pair[0]]
        row = [mark_moves(row_title(*pair, record, star=pair in truths), pair in moving)]
        for name in explainers:
            row.append(Cell(_spread(lines.get((*pair, name)), many, 4, share=facts["better"] == "none")))
        blocks.setdefault(block_of(pair[1], facts), []).append(row)
    notes = [
        f"Mean ± standard deviation over {many} seeds, each with a split, a model, explainers and a search of its own. "
        f"{_about(runs)}",
        f"* marks the ground truth ({asked(runs[0].record)}). ↑ higher is better, ↓ lower. {_gaps(metrics, many)}",
        *_of_moves("value", bool(moving)),
        *counts_note(runs),
        *of_coverage(low_coverage(means), record),
    ]
    kept, left = tidied(blocks, ranked=True)
    title = f"Means over {many} seeds{_named(chosen)}"
    return Table(title, header, kept, [*notes, *left], detail, part="scores")


def _agreement(correlations: pd.DataFrame, runs: Sequence[Run], chosen: Mapping[str, str], detail: bool) -> Table:
    record, many, settings = merged(runs), len(runs), runs[0].record["settings"]
    mine = correlations[correlations["agreement"] == settings["agreement"]]
    golds = headed(mine["gold"], runs[0].record)
    header = [Cell("Metric")]
    for gold, name in golds.items():
        lead = gold in settings["gold"]
        header.append(Cell(f"τ {name}{'*' * lead}"))
        header += [Cell("between"), Cell("within")] * lead
    lines = _keyed(mine, "gold")
    best = {gold: _largest(of) for gold, of in mine.groupby("gold")}
    nothing = {"seeds": 0, "moves": 0, "ranked": "", **dict.fromkeys(("mean", "between", "within"), math.nan)}
    rows = []
    for pair in _pairs(mine, record):
        row = [row_title(*pair, record)]
        for gold in golds:
            line = lines.get((*pair, gold), nothing)
            moves = MOVES * bool(not pd.isna(line["moves"]) and line["moves"])
            row.append(Cell(_spread(line, many, 3) + moves, bold=(line["mean"], line["ranked"]) == best[gold]))
            if gold in settings["gold"]:
                row += [Cell(_number(line[name], 3)) for name in ("between", "within")]
        rows.append(row)
    notes = [
        f"Kendall's τ with the ground truth ({settings['agreement']}) under each definition of gold, mean ± standard "
        f"deviation over {many} seeds; * marks what the runs lead with ({asked(runs[0].record)}). "
        "The largest mean of a column is bold, of the metrics that rank the most explainers. "
        "within: the deviation that the choice of instances explains (bootstrap, inside each seed). between: the "
        f"deviation that is left, of splits, models, explainers and searches. {_gaps(mine, many)}",
        _about(runs),
        *counts_note(runs),
        *_of_moves("τ", bool((mine["moves"].fillna(0) > 0).any())),
    ]
    kept, left = tidied({"": rows})
    title = f"Agreement with the ground truth over {many} seeds{_named(chosen)}"
    return Table(title, header, kept, [*notes, *left], detail)


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
    mine = correlations[correlations["coefficient"] == "tau_without_controls"]
    mine = mine[mine["family"] == "explainers"]
    everyone = correlations[(correlations["coefficient"] == "tau") & (correlations["family"] == "explainers")]
    if not mine["mean"].notna().any() or (mine["mean"].to_numpy() == everyone["mean"].to_numpy()).all():
        return []
    table = _agreement(mine, runs, chosen, detail)
    note = (
        "Without controls, which name features at random or the gold itself and are there to be compared with (column "
        "control of metrics.csv)."
    )
    return [replace(table, title=f"{table.title}, without controls", notes=[*table.notes, note])]


def _of_moves(what: str, there: bool) -> list[str]:
    """What a § means, if there is one."""
    return [
        f"{MOVES} {OF_MOVES}, in one of the runs at least: other parameters of the model move this {what} and change "
        "no prediction."
    ] * there


def _differ(stability: pd.DataFrame) -> bool:
    """Whether leaving out the controls changes anything."""
    columns = [name for name in stability.columns.astype(str) if REST in name]
    return any(not stability[name].equals(stability[name.replace(REST, "")]) for name in columns)


def _stability(stability: pd.DataFrame, sweep: Sweep, name: str) -> Table:
    """Over all explainers or, with the name of that τ, without controls."""
    end = REST * (REST in name)
    record, (lowest, highest) = merged(sweep.runs), ends(name)
    keys = list(dict.fromkeys(stability["key"]))
    if len(keys) == 2:
        keys.remove(ALL)  # the same as the only setting that varies
    golds = [of.removeprefix(lowest) for of in stability.columns.astype(str) if of.startswith(lowest)]
    header = [Cell("Metric"), *map(Cell, keys), *(Cell(f"τ with {gold}") for gold in golds)]
    lines, moving = _keyed(stability, "key"), _moving(sweep, f"moves{end}")
    blocks: dict[str, list[list[Cell]]] = {}
    leading = {run.record["settings"]["agreement"] for run in sweep.runs}
    compared = stability[f"pairs{end}"] + stability[f"left_out{end}"]
    pairs = _pairs(stability[(stability["key"] == ALL) & (compared > 0)], record, leading)
    for pair in pairs:
        row = [row_title(*pair, record)]
        for key in keys:
            line = lines[*pair, key]
            shown = f"{line[name]:.3f} ({line[f'{name}_lowest']:.3f})" if line[f"pairs{end}"] else DASH
            row.append(Cell(shown))
        for gold in golds:
            low, high = (lines[*pair, ALL][f"{which}{gold}"] for which in (lowest, highest))
            span = DASH if pd.isna(low) else f"{low:.3f}" if low == high else f"{low:.3f} to {high:.3f}"
            row.append(Cell(span + MOVES * ((*pair, gold) in moving)))
        blocks.setdefault(block_of(pair[1], record["metrics"][pair[0]]), []).append(row)
    most = compared.groupby(stability["key"]).max()
    counts = ", ".join(f"{key} {most[key]:,}" for key in keys)
    notes = [
        "Kendall's τ between the two rankings of the explainers by the same metric in two runs that differ in this "
        f"setting only{' (all: in anything)' * (ALL in keys)}: mean over the pairs of runs (lowest). 1: the same "
        f"order; a pair of explainers that is tied in one of them counts 0. Pairs of runs: {counts}.",
        f"τ with a truth, controls {'left out' if end else 'included'}: lowest to highest over the runs that lead "
        "with it.",
        *_of_moves("τ", any(f"{MOVES}" in cell.text for block in blocks.values() for row in block for cell in row)),
    ]
    out = [
        f"{row_title(*pair, record).text} {many:,}" for pair in pairs if (many := lines[*pair, ALL][f"left_out{end}"])
    ]
    if out:
        notes.append(
            f"Pairs left out, since both runs tie all explainers or share fewer than two: {', '.join(out)}. "
            f"{DASH}: no pair is left."
        )
    title = f"How stable each metric's ranking of the explainers is{', without controls' * bool(end)}"
    kept, left = tidied(blocks)
    return Table(title, header, kept, [*notes, *left])


def _moving(sweep: Sweep, name: str) -> set[tuple[str, str, str]]:
    """Metric, variant and gold whose τ other parameters of the model move in some run."""
    rows = taus(sweep)
    return {*rows.loc[rows[name] == 1, ["metric", "variant", "gold"]].itertuples(index=False, name=None)}


def _runs(lines: pd.DataFrame, sweep: Sweep) -> Table:
    header = ["Folder", "seed", *sweep.keys, "status", "test accuracy", "instances"]
    forms = ["{}"] * (len(header) - 2) + ["{:.2%}", "{:,}"]
    rows = [
        [Cell(DASH if pd.isna(value) else form.format(value)) for form, value in zip(forms, line, strict=True)]
        for line in lines.itertuples(index=False, name=None)
    ]
    notes = [f"Not gathered: {sweep.left_out}."] if sweep.others else []
    return Table("The runs", [*map(Cell, header)], [rows], notes, detail=True)


def merged(runs: Iterable[Run]) -> dict[str, Any]:
    """What the titles need, of all runs together."""
    records = [run.record for run in runs]
    return {
        "explainers": {name: title for record in reversed(records) for name, title in record["explainers"].items()},
        "metrics": {name: facts for record in records for name, facts in record["metrics"].items()},
        "search": " / ".join(dict.fromkeys(record["search"] for record in records)),
        "removals": {name: facts for record in records for name, facts in record["removals"].items()},
    }


def _pairs(frame: pd.DataFrame, record: Mapping[str, Any], truths: Iterable[str] | None = None) -> list[_Pair]:
    """Metrics and variants in the order of the files; of the ground truths those that are wanted, or all."""
    pairs = dict.fromkeys(zip(frame["metric"], frame["variant"], strict=True))
    return [pair for pair in pairs if truths is None or not is_truth(pair[0], record) or pair[0] in truths]


def _keyed(frame: pd.DataFrame, key: str) -> dict[tuple[str, str, str], dict[Any, Any]]:
    """The lines of a file by metric, variant and one column more."""
    return {(line["metric"], line["variant"], line[key]): line for line in frame.to_dict("records")}


def _spread(line: Mapping[Any, Any] | None, many: int, digits: int, share: bool = False) -> str:
    """0.2521 ± 0.0103, and from how many seeds if not from all."""
    if line is None or not line["seeds"]:
        return DASH
    text = _number(line["mean"], digits, share)
    if not pd.isna(line["deviation"]):
        text += f" ± {_number(line['deviation'], digits, share)}"
    return text if line["seeds"] == many else f"{text} ({line['seeds']})"


def _number(value: float, digits: int, share: bool = False) -> str:
    if pd.isna(value):
        return DASH
    if share:
        return f"{value:.1%}"
    return f"{value:.{digits}f}" if abs(value) < 1000 else f"{value:.{digits}g}"


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
    accuracy = _range([run.record["accuracy"]["test"] for run in runs], "{:.2%}")
    instances = _range([run.record["instances"] for run in runs], "{:,}")
    return (
        f"{record['data']['name']}: seeds {seeds}; test accuracy {accuracy}; {instances} instances, "
        f"k = {record['settings']['k']}; {record['setup']}; incomplete explanations: "
        f"{record['settings']['incomplete']}."
    )


def counts_note(runs: Sequence[Run], hidden: Container[_Pair] = ()) -> list[str]:
    """Return over how many instances the runs score explainers, and which rows have another n."""
    usual, others = list[int](), dict[_Pair, list[int]]()
    for run in runs:
        counts = instance_counts(run.metrics, run.record, hidden)
        of_run = usual_counts(counts, run.record["explainers"])
        usual += [n for n in of_run.values() if n]
        for pair, row in counts.items():
            others.setdefault(pair, []).extend(n for name, n in row.items() if n != of_run[name])
    record, rows = merged(runs), dict[str, list[str]]()
    for pair, some in others.items():
        if some:
            rows.setdefault(_range(some, "{:,}"), []).append(words_of(row_title(*pair, record).text))
    if not rows and set(usual) <= {run.record["instances"] for run in runs}:
        return []
    groups = [f"{', '.join(names)} {span} instances{' each' * (len(names) > 1)}" for span, names in rows.items()]
    scored = f"Each run scores explainers on {_range(usual, '{:,}')} instances."
    return [scored + (f" Other rows: {'; '.join(groups)}." if groups else "")]


def _range(values: Sequence[float], form: str) -> str:
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"
