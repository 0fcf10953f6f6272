"""The report of a sweep: what was varied, how each metric's agreement with the truth varies, and means over seeds."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.notes import NOT_IDENTIFIABLE_NOTE
from cfeval_cli.report.page import build, glossary, methods
from cfeval_cli.report.plots import (
    COLOURS,
    INK,
    MARKS,
    PAGE_WIDTH,
    Plot,
    add_legend,
    apply_style,
    make_figure,
    make_panels,
)
from cfeval_cli.report.table import NOT_IDENTIFIABLE_MARK, Table
from cfeval_cli.report.titles import Pair, make_metric_title, mark_not_identifiable
from cfeval_cli.report.wording import join_names
from cfeval_cli.results.locations import PAGE_FILE
from cfeval_cli.results.record import RunRecord
from cfeval_cli.settings.run_settings import FIGURE_FORMATS
from cfeval_cli.study.sweep.conclusion import name_leading_truths
from cfeval_cli.study.sweep.frames import SweepFrames
from cfeval_cli.study.sweep.runs import Sweep, collect_taus_without_controls, merge_records
from cfeval_cli.study.sweep.seed_conclusion import Conclusion
from cfeval_cli.study.sweep.tables import RUNS_PART, build_run_cells

_MAX_PANELS = 12  # groups of seeds in one figure
_MAX_SHOWN_VALUES = 12  # of a setting, on one axis


def write_page(sweep: Sweep, frames: SweepFrames, conclusion: Conclusion, tables: Sequence[Table], into: Path) -> None:
    """Write the figures and the report of a sweep."""
    plots = draw_figures(sweep)
    build.save_figures(plots, into, FIGURE_FORMATS)
    build.write_file(_render(sweep, frames.sweep, conclusion, tables, plots, into), into / PAGE_FILE)


def _write_metric_title(taus: pd.DataFrame, pair: Pair, record: RunRecord, separator: str = " ") -> str:
    """Write a metric's name and details, with a mark if its τ depends on the parametrisation in some run."""
    lines = taus[(taus["metric"] == pair[0]) & (taus["variant"] == pair[1])]
    title = mark_not_identifiable(make_metric_title(*pair, record), bool((lines["not_identifiable"] == 1).any()))
    if not title.details:
        return escape_controls(title.text)
    details = replace(title, name="").text.strip()
    return f"{escape_controls(title.name)}{separator}{escape_controls(details)}"


def _explain_marks(taus: pd.DataFrame) -> str:
    """Explain the mark of τ that is not identifiable, if there is one."""
    return f" {NOT_IDENTIFIABLE_MARK} {NOT_IDENTIFIABLE_NOTE}." * bool((taus["not_identifiable"] == 1).any())


def _render(
    sweep: Sweep, lines: pd.DataFrame, conclusion: Conclusion, tables: Sequence[Table], plots: Mapping[str, Plot],
    into: Path,
) -> str:  # fmt: skip
    names = list(dict.fromkeys(run.record.data.name for run in sweep.runs))
    runs = [
        {
            "folder": line["folder"],
            "report": find_report(line["folder"], into),
            "cells": build_run_cells(line),
            "bad": line["status"] != "complete",
        }
        for line in lines.to_dict("records")
    ]
    return build.render_template(
        "sweep.html",
        [table for table in tables if table.part != RUNS_PART],
        glossary.list_terms(merge_records(sweep.runs)),
        title=f"{join_names(names)}: {len(sweep.runs)} runs together",
        headline=conclusion.headline,
        points=conclusion.points,
        varied=_list_varied(sweep),
        others=[f"{run.name}: {reason}" for run, reason in sweep.excluded],
        head=["Run", "seed", *sweep.varied, "status", "test accuracy", "instances"],
        runs=runs,
        plots=build.embed_figures(plots, FIGURE_FORMATS),
        methods=_write_methods(sweep),
        citation=methods.write_citation(sweep.runs[0].record.cfeval),
    )


def _list_varied(sweep: Sweep) -> list[tuple[str, list[str]]]:
    """List the varied settings with their values, and the seeds if there are several."""
    seeds = sorted({run.seed for run in sweep.runs})
    varied = [(key, sweep.list_values(key)) for key in sweep.varied]
    return [*varied, ("seed", [str(seed) for seed in seeds])] if len(seeds) > 1 else varied


def _write_methods(sweep: Sweep) -> str:
    """Write how the first run was made, and what the other runs vary."""
    varied = [f"{key} ({', '.join(values)})" for key, values in _list_varied(sweep)]
    first, n_runs = sweep.runs[0], len(sweep.runs)
    if n_runs == 1 or not varied:
        return methods.write_methods(first.record)
    return (
        f"{methods.write_methods(first.record)} There are {n_runs} such runs, which vary {join_names(varied)}. Figures "
        f"of one run are those of {first.name}."
    )


def find_report(folder: str, into: Path) -> str:
    """Return the link to a run's own report, if it has one below the sweep; other folders may be moved."""
    is_below = not folder.startswith(("..", "/")) and re.fullmatch(r"[\w./=,+-]+", folder)
    return f"{folder}/{PAGE_FILE}" if is_below and (into / folder / PAGE_FILE).exists() else ""


def draw_figures(sweep: Sweep) -> dict[str, Plot]:
    """Draw τ by metric in each group of seeds, and against each varied setting."""
    taus = collect_taus_without_controls(sweep)
    if taus.empty:
        return {}
    plots = {}
    with apply_style():
        for number, (truth, question) in enumerate(name_leading_truths(sweep, taus).items()):
            rows, suffix = taus[taus["truth"] == truth], f"_{truth}" * (number > 0)
            if len(sweep.groups) <= _MAX_PANELS:
                plots[f"agreement{suffix}"] = _plot_groups(sweep, rows, question)
            for key in sweep.varied:
                if 1 < len(sweep.list_values(key)) <= _MAX_SHOWN_VALUES:
                    name = re.sub(r"[^A-Za-z0-9_.-]", "_", key)
                    plots[f"varied_{name}{suffix}"] = _plot_setting(sweep, rows, key, question)
    return plots


def _list_metrics(taus: pd.DataFrame) -> list[Pair]:
    return list(dict.fromkeys(zip(taus["metric"], taus["variant"], strict=True)))


def _plot_groups(sweep: Sweep, taus: pd.DataFrame, question: str) -> Plot:
    """Draw a panel for each group: dots for seeds, a bar for their mean."""
    record, pairs = merge_records(sweep.runs), _list_metrics(taus)
    row_of = {pair: row for row, pair in enumerate(pairs)}
    groups = {values: number for number, values in enumerate(sweep.groups)}
    n_columns = min(3, len(groups))
    n_rows = -(-len(groups) // n_columns)
    figure = make_figure(PAGE_WIDTH, 0.5 + n_rows * (0.45 + 0.17 * len(pairs)))
    grid = figure.subplots(n_rows, n_columns, sharex=True, sharey=True, squeeze=False)
    axes = np.asarray(grid).ravel().tolist()
    group_of_run = [groups[sweep.get_values(run)] for run in sweep.runs]
    for axis, values, number in zip(axes, groups, range(len(groups)), strict=False):
        of_group = taus[[group_of_run[run] == number for run in taus["run"]]]
        rows = np.array([row_of[pair] for pair in zip(of_group["metric"], of_group["variant"], strict=True)])
        axis.plot(of_group["tau"], rows, "o", ms=3.2, alpha=0.55, color=COLOURS[0], label="a seed", mew=0)
        means = of_group.assign(row=rows).groupby("row")["tau"].mean()
        axis.plot(means, means.index, "|", ms=9, mew=1.8, color=COLOURS[3], label="mean")
        axis.set_title(sweep.describe_group(values), parse_math=False)
        axis.axvline(0, color=INK, lw=0.6)
        axis.set_xlim(-1.08, 1.08)
        axis.set_xticks((-1, -0.5, 0, 0.5, 1))
        axis.grid(axis="x")
    for axis in axes[len(groups) :]:
        axis.set_visible(False)
    titles = [_write_metric_title(taus, pair, record) for pair in pairs]
    axes[0].set_yticks(range(len(pairs)), titles, parse_math=False)
    axes[0].set_ylim(len(pairs) - 0.5, -0.5)
    figure.supxlabel(f"Kendall's τ with the ground truth ({question}), without controls", fontsize=8, parse_math=False)
    add_legend(figure, axes[0], "upper center")
    panels = ", a panel for each combination of the varied settings." if len(groups) > 1 else "."
    caption = (
        f"Kendall's τ of each metric with the ground truth ({question}), without controls: a dot for each seed, a bar "
        f"for their mean{panels}{_explain_marks(taus)}"
    )
    return Plot(figure, f"Agreement with the ground truth ({question}), by seed", caption)


def _plot_setting(sweep: Sweep, taus: pd.DataFrame, key: str, question: str) -> Plot:
    """Draw a panel for each metric: τ of every run against its value of one setting."""
    record, values, pairs = merge_records(sweep.runs), sweep.list_values(key), _list_metrics(taus)
    place = sweep.varied.index(key)
    value_of_run = [values.index(sweep.get_values(run)[place]) for run in sweep.runs]
    figure, axes = make_panels(len(pairs), 1.35)
    for i, (axis, pair) in enumerate(zip(axes, pairs, strict=True)):
        of_metric = taus[(taus["metric"] == pair[0]) & (taus["variant"] == pair[1])]
        x = np.array([value_of_run[run] for run in of_metric["run"]])
        axis.plot(x, of_metric["tau"], "o", ms=3, alpha=0.5, mew=0, color=COLOURS[0], label="a run")
        means = of_metric.assign(x=x).groupby("x")["tau"].mean()
        axis.plot(means.index, means, MARKS[1] + "-", ms=3.5, lw=1.2, color=COLOURS[3], label="mean")
        axis.set_ylim(-1.08, 1.08)
        axis.axhline(0, color=INK, lw=0.6)
        axis.grid(axis="y")
        axis.set_xlim(-0.5, len(values) - 0.5)
        is_last_row = i >= len(pairs) - 4
        slanted: dict[str, Any] = {"rotation": 30, "ha": "right"} if max(map(len, values)) > 6 else {}
        labels = values if is_last_row else [""] * len(values)
        axis.set_xticks(range(len(values)), labels, parse_math=False, **slanted)
        axis.set_title(_write_metric_title(taus, pair, record, "\n"), parse_math=False)
    figure.supylabel(f"τ ({question})", fontsize=8, parse_math=False)
    figure.supxlabel(key, fontsize=8, parse_math=False)
    add_legend(figure, axes[0], "upper center")
    caption = (
        f"Kendall's τ of each metric with the ground truth ({question}), without controls, by value of {key}: a dot "
        f"for each run, whatever its other settings, and a line through the means.{_explain_marks(taus)}"
    )
    return Plot(figure, f"Agreement with the ground truth ({question}) against {key}", caption)
