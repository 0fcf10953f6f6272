"""The report of a sweep: what was varied, how each metric's agreement with the truth moved, means over seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.notes import MOVES_NOTE
from cfeval_cli.report.page import build, glossary, methods
from cfeval_cli.report.plots import COLOURS, INK, MARKS, WIDE, Plot, add_legend, apply_style, make_figure, make_panels
from cfeval_cli.report.table import MOVES, Table
from cfeval_cli.report.titles import make_metric_title, mark_moving
from cfeval_cli.report.wording import join_names
from cfeval_cli.results.record import RunRecord
from cfeval_cli.settings.run_settings import FIGURE_FORMATS
from cfeval_cli.study.sweep.answer import Answer, asked, contended
from cfeval_cli.study.sweep.runs import Sweep
from cfeval_cli.study.sweep.tables import RUNS, merged, run_cells

_GROUPS = 12  # that one figure has room for
_VALUES = 12  # of a setting
_Pair = tuple[str, str]  # metric and variant


def write(sweep: Sweep, lines: pd.DataFrame, answer: Answer, made: Sequence[Table], into: Path) -> None:
    """The figures and the report of some runs; `lines` are those of sweep.csv."""
    drawn = _draw(sweep, contended(sweep))
    build.save_figures(drawn, into, FIGURE_FORMATS)
    build.write_file(_page(sweep, lines, made, answer, drawn, into), into / build.PAGE_FILE)


def _title(taus: pd.DataFrame, pair: _Pair, record: RunRecord, between: str = " ") -> str:
    """Return a metric's name and its details, with a § if the parametrisation of the model moves its τ in some run."""
    lines = taus[(taus["metric"] == pair[0]) & (taus["variant"] == pair[1])]
    title = mark_moving(make_metric_title(*pair, record), bool((lines["moves"] == 1).any()))
    details = replace(title, name="").text.strip()
    return (
        escape_controls(title.text)
        if not title.details
        else f"{escape_controls(title.name)}{between}{escape_controls(details)}"
    )


def _marks(told: pd.DataFrame) -> str:
    """What a § in a figure means, if there is one."""
    return f" {MOVES} {MOVES_NOTE}." * bool((told["moves"] == 1).any())


def _page(
    sweep: Sweep,
    lines: pd.DataFrame,
    made: Sequence[Table],
    answer: Answer,
    drawn: Mapping[str, Plot],
    into: Path,
) -> str:
    names = list(dict.fromkeys(run.record.data.name for run in sweep.runs))
    seeds = sorted({run.seed for run in sweep.runs})
    runs = [
        {
            "folder": line["folder"],
            "report": _link(line["folder"], into),
            "cells": run_cells(line),
            "bad": line["status"] != "complete",
        }
        for line in lines.to_dict("records")
    ]
    varied = [(key, _values(sweep, key)) for key in sweep.keys]
    if len(seeds) > 1:
        varied.append(("seed", [str(seed) for seed in seeds]))
    return build.render_page(
        "sweep.html",
        [table for table in made if table.part != RUNS],
        glossary.list_terms(merged(sweep.runs)),
        title=f"{join_names(names)}: {len(sweep.runs)} runs together",
        headline=answer.headline,
        points=answer.points,
        varied=varied,
        others=[f"{run.name}: {why}" for run, why in sweep.others],
        head=["Run", "seed", *sweep.keys, "status", "test accuracy", "instances"],
        runs=runs,
        plots=build.embed_figures(drawn, FIGURE_FORMATS),
        methods=_methods(sweep),
        citation=methods.write_citation(sweep.runs[0].record.cfeval),
    )


def _methods(sweep: Sweep) -> str:
    """How the first run was made, and what the others have otherwise."""
    varied = [f"{key} ({', '.join(_values(sweep, key))})" for key in sweep.keys]
    seeds = sorted({run.seed for run in sweep.runs})
    varied += [f"seed ({', '.join(map(str, seeds))})"] if len(seeds) > 1 else []
    first, many = sweep.runs[0], len(sweep.runs)
    if many == 1 or not varied:
        return methods.write_methods(first.record)
    more = f"This was done {many} times, varying {join_names(varied)}"
    more += f"; figures given for one run are those of {first.name}."
    return f"{methods.write_methods(first.record)} {more}"


def _link(folder: str, into: Path) -> str:
    """Where a run's own report is, if it has one; only folders below, since others may move."""
    inside = not folder.startswith(("..", "/")) and re.fullmatch(r"[\w./=,+-]+", folder)
    return f"{folder}/{build.PAGE_FILE}" if inside and (into / folder / build.PAGE_FILE).exists() else ""


def _values(sweep: Sweep, key: str) -> list[str]:
    place = sweep.keys.index(key)
    return list(dict.fromkeys(sweep.values(run)[place] for run in sweep.runs))


def _draw(sweep: Sweep, told: pd.DataFrame) -> dict[str, Plot]:
    """τ by metric in each group of seeds, and against each setting that varies."""
    if told.empty:
        return {}
    drawn = {}
    with apply_style():
        for place, (gold, name) in enumerate(asked(sweep, told).items()):
            mine, more = told[told["gold"] == gold], f"_{gold}" * (place > 0)
            if len(sweep.groups) <= _GROUPS:
                drawn[f"agreement{more}"] = _by_group(sweep, mine, name)
            for key in sweep.keys:
                if 1 < len(_values(sweep, key)) <= _VALUES:
                    drawn[f"varied_{re.sub(r'[^A-Za-z0-9_.-]', '_', key)}{more}"] = _by_value(sweep, mine, key, name)
    return drawn


def _by_group(sweep: Sweep, told: pd.DataFrame, asked: str) -> Plot:
    """A panel for each group: dots for seeds, a bar for their mean."""
    record = merged(sweep.runs)
    pairs = list(dict.fromkeys(zip(told["metric"], told["variant"], strict=True)))
    place = {pair: i for i, pair in enumerate(pairs)}
    group = {values: i for i, values in enumerate(sweep.groups)}
    across = min(3, len(group))
    down = -(-len(group) // across)
    figure = make_figure(WIDE, 0.5 + down * (0.45 + 0.17 * len(pairs)))
    axes = np.asarray(figure.subplots(down, across, sharex=True, sharey=True, squeeze=False)).ravel().tolist()
    of_run = [group[sweep.values(run)] for run in sweep.runs]
    for axis, values, number in zip(axes, group, range(len(group)), strict=False):
        mine = told[[of_run[run] == number for run in told["run"]]]
        rows = np.array([place[pair] for pair in zip(mine["metric"], mine["variant"], strict=True)])
        axis.plot(mine["tau"], rows, "o", ms=3.2, alpha=0.55, color=COLOURS[0], label="a seed", mew=0)
        means = mine.assign(row=rows).groupby("row")["tau"].mean()
        axis.plot(means, means.index, "|", ms=9, mew=1.8, color=COLOURS[3], label="mean")
        axis.set_title(
            ", ".join(f"{key}={value}" for key, value in zip(sweep.keys, values, strict=True)), parse_math=False
        )
        axis.axvline(0, color=INK, lw=0.6)
        axis.set_xlim(-1.08, 1.08)
        axis.set_xticks((-1, -0.5, 0, 0.5, 1))
        axis.grid(axis="x")
    for axis in axes[len(group) :]:
        axis.set_visible(False)
    axes[0].set_yticks(range(len(pairs)), [_title(told, pair, record) for pair in pairs], parse_math=False)
    axes[0].set_ylim(len(pairs) - 0.5, -0.5)
    figure.supxlabel(f"Kendall's τ with the ground truth ({asked}), without controls", fontsize=8, parse_math=False)
    add_legend(figure, axes[0], "upper center")
    caption = (
        f"Agreement of each metric with the ground truth ({asked}), controls left out: a dot for each seed, a bar at "
        "their mean"
        + (", a panel for each choice of the settings that vary." if len(group) > 1 else ".")
        + _marks(told)
    )
    return Plot(figure, f"Agreement with the truth ({asked}), by seed", caption)


def _by_value(sweep: Sweep, told: pd.DataFrame, key: str, asked: str) -> Plot:
    """A panel for each metric: τ of every run against its value of one setting."""
    record, values = merged(sweep.runs), _values(sweep, key)
    place = sweep.keys.index(key)
    of_run = [values.index(sweep.values(run)[place]) for run in sweep.runs]
    pairs = list(dict.fromkeys(zip(told["metric"], told["variant"], strict=True)))
    figure, axes = make_panels(len(pairs), 1.35)
    for i, (axis, pair) in enumerate(zip(axes, pairs, strict=True)):
        mine = told[(told["metric"] == pair[0]) & (told["variant"] == pair[1])]
        at = np.array([of_run[run] for run in mine["run"]])
        axis.plot(at, mine["tau"], "o", ms=3, alpha=0.5, mew=0, color=COLOURS[0], label="a run")
        means = mine.assign(at=at).groupby("at")["tau"].mean()
        axis.plot(means.index, means, MARKS[1] + "-", ms=3.5, lw=1.2, color=COLOURS[3], label="mean")
        axis.set_ylim(-1.08, 1.08)
        axis.axhline(0, color=INK, lw=0.6)
        axis.grid(axis="y")
        axis.set_xlim(-0.5, len(values) - 0.5)
        last = i >= len(pairs) - 4
        slanted: dict[str, Any] = {"rotation": 30, "ha": "right"} if max(map(len, values)) > 6 else {}
        axis.set_xticks(range(len(values)), values if last else [""] * len(values), parse_math=False, **slanted)
        axis.set_title(_title(told, pair, record, "\n"), parse_math=False)
    figure.supylabel(f"τ ({asked})", fontsize=8, parse_math=False)
    figure.supxlabel(key, fontsize=8, parse_math=False)
    add_legend(figure, axes[0], "upper center")
    caption = (
        f"Kendall's τ of each metric with the ground truth, without controls, under each value of {key}: a dot for "
        f"each run, whatever else it varies, and the line of their means.{_marks(told)}"
    )
    return Plot(figure, f"Agreement with the truth ({asked}) against {key}", caption)
