"""The figures of the atlas."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from cfeval_cli.errors import escape_controls
from cfeval_cli.report.plots import COLOURS, INK, PAGE_WIDTH, Plot, add_legend, apply_style, make_figure
from cfeval_cli.statistics.hierarchical import MIN_FACTOR_LEVELS
from cfeval_cli.study.atlas.summary import AtlasSummary, MetricSummary, Pair, QuestionSummary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_ANNOTATED_METRICS = 1  # in the figure of costs: more names would overlap
_RESIDUAL_COLOUR = "#bbbbbb"
_MARKERS = "os^Dv*"


def draw_figures(summary: AtlasSummary) -> dict[str, Plot]:
    """Draw all figures, by name."""
    with apply_style():
        plots = {"forest": _plot_forest(summary)}
        if len(summary.variance):
            plots["shares"] = _plot_variance(summary)
        plots["cost"] = _plot_cost(summary)
    return plots


def _plot_forest(summary: AtlasSummary) -> Plot:
    """Draw a line for each compared metric and a panel for each question."""
    questions = summary.questions
    titles: dict[Pair, str] = {}
    for question in questions:
        titles |= {metric.pair: metric.title for metric in question.compared if metric.pair not in titles}
    row_of = {pair: row for row, pair in enumerate(titles)}
    figure = make_figure(PAGE_WIDTH, 0.9 + 0.19 * max(1, len(row_of)))
    axes = np.atleast_1d(np.asarray(figure.subplots(1, len(questions), sharey=True)))
    for axis, question in zip(axes, questions, strict=True):
        metrics = question.compared
        rows = np.array([row_of[metric.pair] for metric in metrics], dtype=float)
        for shift, colour, marker, label, estimates in (
            (-0.15, COLOURS[0], "o", "without controls", [metric.tau for metric in metrics]),
            (0.2, COLOURS[3], "D", "without circular", [metric.tau_without_circular for metric in metrics]),
        ):
            means = np.array([tau.mean for tau in estimates], dtype=float)
            errors = np.array([(tau.mean - tau.low, tau.high - tau.mean) for tau in estimates], dtype=float)
            errors, has_mean = errors.reshape(-1, 2).T, ~np.isnan(means)
            axis.errorbar(
                means[has_mean], rows[has_mean] + shift, xerr=np.nan_to_num(np.maximum(errors[:, has_mean], 0)),
                fmt=marker, ms=3, lw=1.1, color=colour, label=label,
            )  # fmt: skip
        axis.axvline(0, color=INK, lw=0.6)
        axis.grid(axis="x")
        axis.set_xlim(-1.05, 1.05)
        n_rows = max((metric.n_rows for metric in metrics), default=0)
        axis.set_xlabel(f"{question.question}: mean τ\nn up to {n_rows:,} rows", parse_math=False)
    axes[0].set_yticks(range(len(row_of)), [escape_controls(title) for title in titles.values()], parse_math=False)
    axes[0].set_ylim(max(1, len(row_of)) - 0.4, -0.6)
    add_legend(figure, axes[0])
    caption = (
        "Mean τ of each metric with the ground truth, by question, with 95 % CI over data sets, judges, truths and "
        "seeds: without controls, and also without circular rows and explainers (optimal by construction). Metrics are "
        f"in the order of the first question. No bar: fewer than {MIN_FACTOR_LEVELS} data sets or judges have it."
    )
    return Plot(figure, "Agreement of each metric with the ground truth", caption)


def _plot_variance(summary: AtlasSummary) -> Plot:
    shares = summary.variance[~summary.variance["factor"].str.contains("×")]
    questions = list(dict.fromkeys(shares["question"]))
    figure = make_figure(PAGE_WIDTH, 0.9 + 0.35 * len(questions))
    axis = figure.subplots(1, 1)
    offsets = np.zeros(len(questions))
    colours = [*COLOURS[:6], _RESIDUAL_COLOUR]
    for colour, factor in zip(colours, dict.fromkeys(shares["factor"]), strict=False):
        by_question = shares[shares["factor"] == factor].set_index("question")["share"].reindex(questions)
        widths = np.maximum(by_question.to_numpy(float), 0)
        axis.barh(range(len(questions)), widths, left=offsets, color=colour, label=factor, height=0.6)
        offsets += widths
    axis.set_yticks(range(len(questions)), questions)
    axis.set_ylim(len(questions) - 0.4, -0.6)
    axis.set_xlim(0, 1)
    axis.set_xlabel("share of the variance of τ")
    add_legend(figure, axis)
    counts = shares.groupby("question", sort=False)["rows"].max()
    rows = ", ".join(f"{question}: {int(counts[question]):,} rows" for question in questions)
    return Plot(
        figure, "What τ depends on", f"Share of the variance of τ without controls that each factor explains ({rows})."
    )


def _plot_cost(summary: AtlasSummary) -> Plot:
    """Draw τ against model evaluations."""
    specific = [question for question in summary.questions if question.question != "either"]
    questions = specific or summary.questions
    figure = make_figure(PAGE_WIDTH, 3.1)
    axes = np.atleast_1d(np.asarray(figure.subplots(1, len(questions), sharey=True)))
    for axis, question in zip(axes, questions, strict=True):
        _plot_cost_panel(axis, question)
        axis.set_xscale("symlog", linthresh=1)
        axis.set_xlim(left=-0.6)
        axis.xaxis.set_major_formatter("{x:g}")
        axis.axhline(0, color=INK, lw=0.6)
        axis.grid()
        axis.set_xlabel(f"{question.question}: model evaluations for one explanation", parse_math=False)
    axes[0].set_ylabel("mean τ without controls")
    add_legend(figure, axes[0])
    n_rows = sum(metric.n_rows for question in questions for metric in question.compared)
    caption = (
        f"Mean τ of a metric with the ground truth against its model evaluations ({n_rows:,} rows), without those that "
        "another metric already made; a metric without evaluations of its own is not shown. The upper left is best; "
        "the best metric is named."
    )
    return Plot(figure, "Agreement against cost", caption)


def _plot_cost_panel(axis: Axes, question: QuestionSummary) -> None:
    metrics: list[MetricSummary] = [metric for metric in question.compared if metric.model_evaluations]
    blocks = sorted({metric.block for metric in metrics})
    for number, block in enumerate(blocks):
        of_block = [metric for metric in metrics if metric.block == block]
        axis.plot(
            [metric.model_evaluations for metric in of_block], [metric.tau.mean for metric in of_block],
            _MARKERS[number % len(_MARKERS)], ms=4, mew=0, color=COLOURS[number % len(COLOURS)], label=block,
        )  # fmt: skip
    for metric in metrics[:_MAX_ANNOTATED_METRICS]:
        axis.annotate(
            escape_controls(metric.title), (metric.model_evaluations, metric.tau.mean), xytext=(4, 2),
            textcoords="offset points", fontsize=6, color=INK, parse_math=False,
        )  # fmt: skip
