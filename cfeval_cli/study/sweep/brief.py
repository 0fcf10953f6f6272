"""The one table of a sweep that a screen is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.report.brief import Brief, Column, Field, arbitrary, of_left, of_marks, scores, tau
from cfeval_cli.report.tables import DASH, MOVES, block_of, headed, marked, row_title
from cfeval_cli.statistics.correlation import REST, less
from cfeval_cli.statistics.ranking import ranks
from cfeval_cli.statistics.stability import ALL
from cfeval_cli.study.sweep.runs import Run, Sweep
from cfeval_cli.study.sweep.tables import counts_note, ends, merged

_Pair = tuple[str, str]  # metric and variant


def of_sweep(
    sweep: Sweep, lines: pd.DataFrame, metrics: pd.DataFrame, correlations: pd.DataFrame, stability: pd.DataFrame
) -> Brief:
    """Means over seeds if nothing else varies; otherwise how far rankings and τ move over the runs."""
    if len(sweep.groups) == 1:
        return _seeds(sweep.runs, metrics, correlations)
    return _settings(sweep, stability)


def _about(runs: Sequence[Run]) -> str:
    names = ", ".join(dict.fromkeys(str(run.record["data"]["name"]) for run in runs))
    return f"{names}: {len(runs)} run{'s' * (len(runs) != 1)}"


def _seeds(runs: Sequence[Run], metrics: pd.DataFrame, correlations: pd.DataFrame) -> Brief:
    """As of one run: mean values, their ranks, and the mean τ with its interval over seeds and instances."""
    first = runs[0].record
    lines = metrics[metrics["rung"].isna()].rename(columns={"mean": "value"})
    lines = lines.assign(rank=np.nan, low_end=lines["value"] - lines["deviation"], moves=lines["moves"].fillna(0) > 0)
    lines["high_end"] = lines["value"] + lines["deviation"]
    record = marked(lines, {**first, **merged(runs)})
    for (metric, _), mine in lines.groupby(["metric", "variant"], sort=False):
        there, better = mine[mine["value"].notna()], record["metrics"][metric]["better"]
        if len(there) and better != "none":
            lines.loc[there.index, "rank"] = ranks(there["value"].to_numpy(float), better)
    taus = _taus(correlations, first)
    left = arbitrary(lines, record)
    rows, blocks, columns, notes = scores(lines, record, taus, left)
    seeds = ", ".join(str(run.seed) for run in runs)
    apart = "they are less than their standard deviations over seeds apart"
    told = [f"Means over {len(runs)} seeds ({seeds}).", of_marks(rows, columns, apart)]
    if taus:
        of = "without controls" if correlations["coefficient"].eq(less("tau")).any() else "all explainers"
        told.append(f"τ: mean, {of}; in brackets its interval over seeds and instances.")
    return Brief(
        _about(runs),
        rows,
        blocks,
        columns,
        [note for note in [*told, *notes, *of_left(left, record), *counts_note(runs, left)] if note],
    )


def _taus(correlations: pd.DataFrame, record: Mapping[str, Any]) -> dict[str, dict[_Pair, str]]:
    settings = record["settings"]
    mine = correlations[(correlations["family"] == "explainers") & (correlations["agreement"] == settings["agreement"])]
    rest = mine[mine["coefficient"] == less("tau")]
    mine = rest if rest["mean"].notna().any() else mine[mine["coefficient"] == "tau"]
    found: dict[str, dict[_Pair, str]] = {}
    for gold, name in headed(settings["gold"], record).items():
        there = mine[(mine["gold"] == gold) & mine["mean"].notna()]
        if len(there):
            found[name] = {
                (one["metric"], one["variant"]): tau(one["mean"], one["low"], one["high"])
                + MOVES * bool(not pd.isna(one["moves"]) and one["moves"])
                for one in there.to_dict("records")
            }
    return found


def _settings(sweep: Sweep, stability: pd.DataFrame) -> Brief:
    """How alike two runs rank the explainers, and the range of τ with each truth."""
    record = merged(sweep.runs)
    name = less("tau") if stability[less("pairs")].sum() else "tau"
    end, (lowest, highest) = REST * (name != "tau"), ends(name)
    mine = stability[(stability["key"] == ALL) & (stability[f"pairs{end}"] > 0)]
    golds = [of.removeprefix(lowest) for of in stability.columns.astype(str) if of.startswith(lowest)]
    named: dict[str, str] = {}
    for run in sweep.runs:
        named = {**headed(run.record["settings"]["gold"], run.record), **named}
    told = mine.to_dict("records")
    rows = [row_title(one["metric"], one["variant"], record).text for one in told]
    blocks = [block_of(one["variant"], record["metrics"][one["metric"]]) for one in told]
    columns = [
        Column(["same order", "(lowest)"], [Field([f"{one[name]:.2f} ({one[f'{name}_lowest']:.2f})"]) for one in told])
    ]
    for gold in golds:
        spans = []
        for one in told:
            low, high = one[f"{lowest}{gold}"], one[f"{highest}{gold}"]
            spans.append(Field([DASH if pd.isna(low) else f"{low:.2f} to {high:.2f}"]))
        columns.append(Column(["τ", named.get(gold, gold)], spans))
    less_ = ", controls left out" * bool(end)
    notes = [
        f"What varies: {', '.join(sweep.keys) or 'the seed'}. Same order: Kendall's τ between the rankings of the "
        f"explainers by the same metric in two runs{less_}, on average over pairs of runs (the lowest). τ: with the "
        "truth, lowest to highest over the runs."
    ]
    return Brief(_about(sweep.runs), rows, blocks, columns if rows else [], notes)
