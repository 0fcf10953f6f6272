"""The one table of a sweep that a screen is shown."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pandas as pd

from cfeval_cli.report.build_brief import build_brief_scores, find_arbitrary, hidden_notes, marks_note
from cfeval_cli.report.numbers import SHORT, fixed
from cfeval_cli.report.table import MOVES, Cell, Row, Table, Title
from cfeval_cli.report.titles import Pair, find_low_coverage, get_block, make_metric_title, name_truths
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.ranking_stability import ANY_SETTING
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from cfeval_cli.study.sweep.runs import Run, Sweep
from cfeval_cli.study.sweep.tables import counts_note, list_range_columns, merged


def of_sweep(
    sweep: Sweep, lines: pd.DataFrame, metrics: pd.DataFrame, correlations: pd.DataFrame, stability: pd.DataFrame
) -> Table:
    """Means over seeds if nothing else varies; otherwise how far rankings and τ move over the runs."""
    if len(sweep.groups) == 1:
        return _seeds(sweep.runs, metrics, correlations)
    return _settings(sweep, stability)


def _about(runs: Sequence[Run]) -> str:
    names = ", ".join(dict.fromkeys(run.record.data.name for run in runs))
    return f"{names}: {len(runs)} run{'s' * (len(runs) != 1)}"


def _seeds(runs: Sequence[Run], metrics: pd.DataFrame, correlations: pd.DataFrame) -> Table:
    """As of one run: mean values, their ranks, and the mean τ with its interval over seeds and instances."""
    first = runs[0].record
    lines = metrics[metrics["rung"].isna()].rename(columns={"mean": "value"})
    lines = lines.assign(rank=np.nan, low_end=lines["value"] - lines["deviation"], moves=lines["moves"].fillna(0) > 0)
    lines["high_end"] = lines["value"] + lines["deviation"]
    record = merged(runs)
    for (metric, _), mine in lines.groupby(["metric", "variant"], sort=False):
        there, better = mine[mine["value"].notna()], record.metrics[str(metric)].better
        if len(there) and better != "none":
            lines.loc[there.index, "rank"] = compute_ranks(there["value"].to_numpy(float), better)
    taus = _taus(correlations, first)
    hidden = find_arbitrary(lines, record)
    table = build_brief_scores(_about(runs), lines, record, find_low_coverage(lines, record), taus, hidden)
    seeds = ", ".join(str(run.seed) for run in runs)
    apart = "they are less than their standard deviations over seeds apart"
    notes = [f"Means over {len(runs)} seeds ({seeds}).", marks_note(table, apart)]
    if taus:
        of = "without controls" if correlations["subset"].eq(WITHOUT_CONTROLS).any() else "all explainers"
        notes.append(f"τ: mean, {of}; in brackets its interval over seeds and instances.")
    notes += [*table.notes, *hidden_notes(hidden, record), *counts_note(runs, hidden)]
    return replace(table, notes=[note for note in notes if note])


def _taus(correlations: pd.DataFrame, record: RunRecord) -> dict[str, dict[Pair, Cell]]:
    settings = record.settings
    mine = correlations[(correlations["family"] == "explainers") & (correlations["agreement"] == settings.agreement)]
    mine = mine[mine["coefficient"] == "tau"]
    rest = select_subset(mine, WITHOUT_CONTROLS)
    mine = rest if rest["mean"].notna().any() else select_subset(mine)
    by_question: dict[str, dict[Pair, Cell]] = {}
    for gold, name in name_truths(settings.gold, record).items():
        lines = mine[(mine["gold"] == gold) & mine["mean"].notna()]
        if len(lines):
            by_question[name] = {
                (line["metric"], line["variant"]): Cell(
                    line["mean"], line["low"], line["high"], form=SHORT,
                    marks=MOVES * bool(not pd.isna(line["moves"]) and line["moves"]),
                )
                for line in lines.to_dict("records")
            }  # fmt: skip
    return by_question


def _settings(sweep: Sweep, stability: pd.DataFrame) -> Table:
    """How alike two runs rank the explainers, and the range of τ with each truth."""
    record = merged(sweep.runs)
    subset = WITHOUT_CONTROLS if select_subset(stability, WITHOUT_CONTROLS)["pairs"].sum() else ALL_EXPLAINERS
    stability, ranges = select_subset(stability, subset), list_range_columns(stability.columns.astype(str))
    questions: dict[str, str] = {}
    for run in sweep.runs:
        questions = {**name_truths(run.record.settings.gold, run.record), **questions}
    form = fixed(2)
    header = [Title("Metric"), Title("same\u00a0order", ("lowest",))]
    header += [Title(f"τ {questions.get(gold, gold)}") for gold in ranges]
    blocks: dict[str, list[Row]] = {}
    for line in stability[(stability["key"] == ANY_SETTING) & (stability["pairs"] > 0)].to_dict("records"):
        cells = [Cell(line["tau"], detail=form.write(line["tau_lowest"]), form=form)]
        cells += [Cell(low=line[low], high=line[high], is_range=True, form=form) for low, high in ranges.values()]
        row = Row(make_metric_title(line["metric"], line["variant"], record), cells)
        blocks.setdefault(get_block(line["variant"], record.metrics[line["metric"]]), []).append(row)
    whose = ", controls left out" * (subset == WITHOUT_CONTROLS)
    notes = [
        f"What varies: {', '.join(sweep.keys) or 'the seed'}. Same order: Kendall's τ between the rankings of the "
        f"explainers by the same metric in two runs{whose}, on average over pairs of runs (the lowest). τ: with the "
        "truth, lowest to highest over the runs."
    ]
    return Table(_about(sweep.runs), header, list(blocks.values()), notes)
