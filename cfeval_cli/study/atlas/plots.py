"""The figures of the atlas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.plots import COLOURS, INK, WIDE, Plot, add_legend, apply_style, make_figure
from cfeval_cli.study.atlas.summary import Answer, Metric, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_NAMED = 1  # metrics whose names stand in the figure of costs: more would cover each other


def draw(summary: Summary) -> dict[str, Plot]:
    """All of them, by name."""
    with apply_style():
        drawn = {"forest": _forest(summary)}
        if len(summary.variance):
            drawn["shares"] = _shares(summary)
        drawn["cost"] = _cost(summary)
    return drawn


def _forest(summary: Summary) -> Plot:
    """A line for each metric that is compared, a panel for each question."""
    answers = summary.answers
    order: dict[tuple[str, str], Metric] = {}
    for answer in answers:
        order |= {one.pair: one for one in answer.compared if one.pair not in order}
    places = {pair: place for place, pair in enumerate(order)}
    figure = make_figure(WIDE, 0.9 + 0.19 * max(1, len(places)))
    axes = np.atleast_1d(np.asarray(figure.subplots(1, len(answers), sharey=True)))
    for axis, answer in zip(axes, answers, strict=True):
        mine = answer.compared
        at = np.array([places[one.pair] for one in mine], dtype=float)
        for shift, colour, mark, label, told in (
            (-0.15, COLOURS[0], "o", "without controls", [one.lead for one in mine]),
            (0.2, COLOURS[3], "D", "nothing by construction", [one.clean for one in mine]),
        ):
            means = np.array([one.mean for one in told], dtype=float)
            ends = np.array([(one.mean - one.low, one.high - one.mean) for one in told], dtype=float).reshape(-1, 2).T
            there = ~np.isnan(means)
            axis.errorbar(
                means[there], at[there] + shift, xerr=np.nan_to_num(np.maximum(ends[:, there], 0)), fmt=mark, ms=3,
                lw=1.1, color=colour, label=label,
            )  # fmt: skip
        axis.axvline(0, color=INK, lw=0.6)
        axis.grid(axis="x")
        axis.set_xlim(-1.05, 1.05)
        rows = max((one.rows for one in mine), default=0)
        axis.set_xlabel(f"{answer.question}: mean τ\nn up to {rows:,} rows", parse_math=False)
    axes[0].set_yticks(range(len(places)), [escape_controls(one.title) for one in order.values()], parse_math=False)
    axes[0].set_ylim(max(1, len(places)) - 0.4, -0.6)
    add_legend(figure, axes[0])
    caption = (
        "Mean τ of each metric with the truth, by question, with 95 % intervals over data sets, judges, truths and "
        "seeds: without controls, and also without rows and explainers that are right by construction. Metrics in the "
        "order of the first question. No bar: fewer than three data sets or judges have it."
    )
    return Plot(figure, "How far each metric agrees with the truth", caption)


def _shares(summary: Summary) -> Plot:
    found = summary.variance[~summary.variance["factor"].str.contains("×")]
    questions = list(dict.fromkeys(found["question"]))
    figure = make_figure(WIDE, 0.9 + 0.35 * len(questions))
    axis = figure.subplots(1, 1)
    left = np.zeros(len(questions))
    colours = [*COLOURS[:6], "#bbbbbb"]
    for colour, factor in zip(colours, dict.fromkeys(found["factor"]), strict=False):
        part = found[found["factor"] == factor].set_index("question")["share"].reindex(questions).to_numpy(float)
        axis.barh(range(len(questions)), np.maximum(part, 0), left=left, color=colour, label=factor, height=0.6)
        left += np.maximum(part, 0)
    axis.set_yticks(range(len(questions)), questions)
    axis.set_ylim(len(questions) - 0.4, -0.6)
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the variance of τ")
    add_legend(figure, axis)
    many = ", ".join(f"{one}: {int(found.loc[found['question'] == one, 'rows'].max()):,} rows" for one in questions)
    caption = f"How much of the variance of τ without controls each factor explains ({many})."
    return Plot(figure, "What τ depends on", caption)


def _cost(summary: Summary) -> Plot:
    """Trust against model rows."""
    answers = [one for one in summary.answers if one.question != "either"] or summary.answers
    figure = make_figure(WIDE, 3.1)
    axes = np.atleast_1d(np.asarray(figure.subplots(1, len(answers), sharey=True)))
    for axis, answer in zip(axes, answers, strict=True):
        _dots(axis, answer)
        axis.set_xscale("symlog", linthresh=1)
        axis.set_xlim(left=-0.6)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.axhline(0, color=INK, lw=0.6)
        axis.grid()
        axis.set_xlabel(f"{answer.question}: model rows for one explanation", parse_math=False)
    axes[0].set_ylabel("mean τ without controls")
    add_legend(figure, axes[0])
    many = sum(one.rows for answer in answers for one in answer.compared)
    caption = (
        f"How far a metric agrees with the truth, against what it asks of the model ({many:,} rows); what another "
        "metric has asked before is not counted again, and a metric that asks nothing else is not shown. The "
        "upper left is best; the best one is named."
    )
    return Plot(figure, "Cost against trust", caption)


def _dots(axis: Axes, answer: Answer) -> None:
    paying = [one for one in answer.compared if one.model_rows]
    blocks = list(dict.fromkeys(one.block for one in paying))
    for place, block in enumerate(sorted(blocks)):
        mine = [one for one in paying if one.block == block]
        axis.plot(
            [one.model_rows for one in mine], [one.lead.mean for one in mine], "os^Dv*"[place % 6], ms=4, mew=0,
            color=COLOURS[place % len(COLOURS)], label=block,
        )  # fmt: skip
    for one in paying[:_NAMED]:
        axis.annotate(
            escape_controls(one.title), (one.model_rows, one.lead.mean), xytext=(4, 2), textcoords="offset points",
            fontsize=6, color=INK, parse_math=False,
        )  # fmt: skip
