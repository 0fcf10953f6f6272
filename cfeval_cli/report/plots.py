"""Plots of a run: values, agreement with the ground truth, counterfactuals and costs, with their intervals.

matplotlib is imported when a plot is drawn: a run that draws none does not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Quantity
from cfeval_cli.errors import escape_controls
from cfeval_cli.report.table import ARROWS
from cfeval_cli.report.titles import (
    Pair,
    is_truth,
    list_leading_truths,
    list_truth_metrics,
    make_metric_title,
    name_truths,
    select_quantity,
)
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.correlation import GRADED
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, has_controls, select_subset

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cfeval_cli.statistics.recommendation import Recommendation
    from cfeval_cli.statistics.run_statistics import RunStatistics

# the colours of Okabe and Ito, for all kinds of colour vision, with a darker yellow for white paper
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#B8A800")
MARKS = "os^Dv*PX<>"  # for print in black
INK = "#444444"
GRID = "#dddddd"
_DPI = 200  # dots per inch of a png
PAGE_WIDTH, COLUMN_WIDTH = 7.0, 3.3  # inches: two columns of a paper, and one
_MAX_DRAWN_EXPLAINERS = 12
_STYLE = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK,
    "grid.color": GRID, "grid.linewidth": 0.5, "axes.axisbelow": True,
    # text stays text: it can be searched, edited and read aloud
    "svg.hashsalt": "cfeval", "svg.fonttype": "none",
}  # fmt: skip


@dataclass(frozen=True)
class Plot:
    """A figure with its title and its caption, which are text, not part of the picture."""

    figure: Figure
    title: str
    caption: str
    part: str = "trust"  # of a report, as for tables
    description: str = ""  # the values in words, for screen readers; empty: the caption
    _rendered: dict[str, bytes] = field(default_factory=dict)  # by format

    def render(self, kind: str) -> bytes:
        """Return the figure as png, svg or pdf; it contains no date, so that the same figure has the same bytes."""
        if kind not in self._rendered:
            metadata = {
                "png": {"Title": self.title, "Description": self.caption},
                "svg": {"Title": self.title, "Description": self.caption, "Date": None},
                "pdf": {"Title": self.title, "Subject": self.caption, "CreationDate": None},
            }
            stream = BytesIO()
            with apply_style():
                if not self._rendered:
                    # A second layout would start from the first: a format would depend on those before it.
                    self.figure.draw_without_rendering()
                    self.figure.set_layout_engine("none")
                options: dict[str, Any] = {"pil_kwargs": {"compress_level": 4}} if kind == "png" else {}
                self.figure.savefig(stream, format=kind, metadata=metadata[kind], **options)
            self._rendered[kind] = stream.getvalue()
        return self._rendered[kind]


@dataclass(frozen=True)
class Look:
    """The colour and the mark of an explainer."""

    colour: str
    mark: str

    @property
    def marker_options(self) -> dict[str, Any]:
        """The arguments for matplotlib."""
        return {"color": self.colour, "marker": self.mark}


def assign_looks(names: Iterable[str]) -> dict[str, Look]:
    """Return the look of each explainer of a run by its position; the first 40 all differ."""
    return {name: Look(COLOURS[i % len(COLOURS)], MARKS[i % len(MARKS)]) for i, name in enumerate(names)}


@contextmanager
def apply_style() -> Iterator[None]:
    """Give all plots the same look, whatever a matplotlibrc says."""
    if "matplotlib" not in sys.modules:
        with chdir(Path(__file__).parent):  # a matplotlibrc in the working directory may be someone else's
            import_module("matplotlib")
    from matplotlib import rc_context, rcParamsDefault

    settings: Any = {name: value for name, value in rcParamsDefault.items() if name != "backend"} | _STYLE
    with rc_context(settings):
        yield


def draw_plots(
    statistics: RunStatistics, costs: pd.DataFrame, record: RunRecord, recommendation: Recommendation | None = None
) -> dict[str, Plot]:
    """Return the plots of explainers, counterfactuals, agreement and costs, by file name."""
    ungraded = statistics.metrics[statistics.metrics["quality_level"].isna()]
    with_values = set(_list_pairs(ungraded[ungraded["value"].notna()]))
    truths = [truth for truth in list_leading_truths(record) if truth in with_values]
    figures = {}
    with apply_style():
        if panels := _list_panels(ungraded, record, recommendation):
            figures["explainers"] = _draw_explainers(panels, record)
        flips, distances = (
            select_quantity(ungraded[ungraded["value"].notna()], quantity, record)
            for quantity in (Quantity.FLIPPED, Quantity.DISTANCE)
        )
        if len(flips) and len(distances):
            figures["counterfactuals"] = _draw_counterfactuals(flips, distances, record)
        if statistics.correlations["tau"].notna().any():
            figures["correlations"] = draw_correlations(statistics.correlations, record)
        if truths:
            figures["costs"] = _draw_costs(ungraded, costs, record, truths)
    return figures


def _list_pairs(metrics: pd.DataFrame) -> list[Pair]:
    return list(dict.fromkeys(zip(metrics["metric"], metrics["variant"], strict=True)))


def _group_by_metric(metrics: pd.DataFrame, record: RunRecord) -> list[tuple[Pair, pd.DataFrame]]:
    """Return the lines of each metric that has values; of the ground truths only the leading ones."""
    lines_with_value = metrics[(metrics["better"] != "none") & metrics["value"].notna()]
    pairs = [
        pair
        for pair in _list_pairs(lines_with_value)
        if not is_truth(pair[0], record) or pair in list_leading_truths(record)
    ]
    return [
        (pair, lines_with_value[(lines_with_value["metric"] == pair[0]) & (lines_with_value["variant"] == pair[1])])
        for pair in pairs
    ]


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, whose parts are laid out when it is drawn."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


def make_panels(size: int, height: float) -> tuple[Figure, list[Axes]]:
    """Return a figure with so many small panels, four in a row."""
    n_columns = min(4, max(1, size))
    n_rows = max(1, -(-size // n_columns))
    figure = make_figure(PAGE_WIDTH, 0.3 + height * n_rows)
    axes = np.atleast_1d(np.asarray(figure.subplots(n_rows, n_columns))).ravel().tolist()
    for axis in axes[size:]:
        axis.set_visible(False)
    return figure, axes[:size]


def describe_data(record: RunRecord, bars: str = "") -> str:
    """Write the end of a caption: what error bars are, data, instances, k and seed."""
    settings, count = record.settings, record.instances
    instances = f"{count:,} instance{'s' * (count != 1)}"
    data = f"{record.data.name}, {instances}, k = {settings.k}, seed {settings.seed}"
    intervals = f" {bars}: {100 * settings.confidence:g} % CI." if bars and record.resampled else ""
    return escape_controls(f"{intervals} {data[:1].upper() + data[1:]}.")


def add_legend(figure: Figure, axis: Axes, location: str = "lower center") -> None:
    """Add a legend outside the panels; names are not parsed as formulas."""
    handles, labels = axis.get_legend_handles_labels()
    widths = [len(label) + 6 for label in labels]
    fits = sum(widths) < 16 * figure.get_figwidth()  # letters per inch
    n_fitting = len(labels) if fits else max(1, int(13 * figure.get_figwidth() / max(widths, default=1)))
    n_columns = 1 if "right" in location else n_fitting
    outside: Any = f"outside {location}"
    legend = figure.legend(handles, labels, loc=outside, frameon=False, ncols=n_columns, columnspacing=1.2)
    for text in legend.get_texts():
        text.set_parse_math(False)


def widen_limits(limits: tuple[float, float]) -> tuple[float, float]:
    """Return limits of an axis on which values that differ by rounding alone look the same."""
    low, high = limits
    middle = (low + high) / 2
    scale = max(1.0, abs(middle))
    return limits if high - low > 1e-6 * scale else (middle - 0.1 * scale, middle + 0.1 * scale)


def _compute_error_bars(lines: pd.DataFrame, name: str) -> Any:
    """Return the distances from values to both ends of their intervals; 0 without an interval."""
    ends = np.stack([lines[name] - lines[f"{name}_low"], lines[f"{name}_high"] - lines[name]])
    return np.nan_to_num(np.maximum(ends.astype(float), 0))


def _draw_crosses(
    axis: Axes, x_lines: pd.DataFrame, y_lines: pd.DataFrame, names: Sequence[str], record: RunRecord
) -> None:
    """Draw a mark with horizontal and vertical error bars for each explainer that has both values.

    Lines are indexed by explainer.
    """
    looks = assign_looks(record.explainers)
    common = [name for name in names if name in x_lines.index and name in y_lines.index]
    x_lines, y_lines = x_lines.loc[common], y_lines.loc[common]
    x, y = x_lines["value"], y_lines["value"]
    left_errors, right_errors = _compute_error_bars(x_lines, "value")
    below, above = _compute_error_bars(y_lines, "value")
    colours = [looks[name].colour for name in common]
    axis.hlines(y, x - left_errors, x + right_errors, colors=colours, lw=0.9)
    axis.vlines(x, y - below, y + above, colors=colours, lw=0.9)
    for name in common:
        title = escape_controls(record.explainers[name])
        axis.plot(x[name], y[name], ls="", ms=4, label=title, **looks[name].marker_options)


@dataclass(frozen=True)
class _Panel:
    """A score of all explainers, as it is drawn."""

    title: str
    lines: pd.DataFrame  # value, value_low and value_high by explainer
    is_share: bool = False


def _list_panels(metrics: pd.DataFrame, record: RunRecord, recommendation: Recommendation | None) -> list[_Panel]:
    """Return the agreement with the reference for each question, and the first erasure and counterfactual metric."""
    panels = []
    if recommendation is not None and recommendation.is_computed:
        k = recommendation.k
        for question, answer in recommendation.answers.items():
            values = {
                score.explainer: {"value": score.recall[k - 1], "value_low": score.low, "value_high": score.high}
                for score in answer.scores
            }
            if values:
                lines = pd.DataFrame.from_dict(values, orient="index").astype(float)
                panels.append(_Panel(f"{question}:\nrecall@{k} ↑", lines, is_share=True))
    by_metric = {pair: lines.set_index("explainer") for pair, lines in _group_by_metric(metrics, record)}
    if not panels:
        panels = [
            _Panel(f"{truth[1]}:\n{truth[0]} ↑", by_metric[truth], is_share=True)
            for truth in list_leading_truths(record)[:2]
            if truth in by_metric
        ]
    for block in ("erasure", "counterfactual"):
        pairs = [pair for pair in by_metric if record.metrics[pair[0]].block == block and not is_truth(pair[0], record)]
        pairs.sort(key=lambda pair: pair[1] in record.arbitrary_removals)
        panels += [_Panel(_write_panel_title(pair, record), by_metric[pair]) for pair in pairs[:1]]
    return panels


def _write_panel_title(pair: Pair, record: RunRecord) -> str:
    title = make_metric_title(*pair, record)
    return f"{title.name}\n{title.bracket[1:]} {ARROWS[title.direction]}".rstrip() if title.details else title.text


def _draw_explainers(panels: Sequence[_Panel], record: RunRecord) -> Plot:
    """Draw a panel for each score with a dot and an interval for each explainer, the best of the first score first."""
    looks = assign_looks(record.explainers)
    order = panels[0].lines["value"].sort_values(ascending=False, kind="stable").index
    names = [name for name in order if name in looks][:_MAX_DRAWN_EXPLAINERS]
    titles = [escape_controls(record.explainers[name]) for name in names]
    n_rows = -(-len(panels) // 2)
    figure = make_figure(COLUMN_WIDTH, 0.1 + n_rows * (0.48 + 0.145 * max(2, len(names))))
    axes = np.asarray(figure.subplots(n_rows, min(2, len(panels)), squeeze=False)).ravel().tolist()
    texts = []
    for i, (axis, panel) in enumerate(zip(axes, panels, strict=False)):
        lines = panel.lines.reindex(names)
        left_errors, right_errors = _compute_error_bars(lines, "value")
        colours = [looks[name].colour for name in names]
        axis.hlines(
            range(len(names)), lines["value"] - left_errors, lines["value"] + right_errors, colors=colours, lw=1.2
        )
        for height, name in enumerate(names):
            axis.plot(lines["value"][name], height, ls="", ms=3.5, **looks[name].marker_options)
        axis.set_yticks(range(len(names)), titles if i % 2 == 0 else [""] * len(names), parse_math=False)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.grid(axis="x")
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlim(*((-0.03, 1.03) if panel.is_share else widen_limits(axis.get_xlim())))
        title = escape_controls(panel.title, keep="\n")
        axis.set_title(title, parse_math=False)
        values = ", ".join(
            f"{record.explainers[str(name)]} {value:.2f}" for name, value in lines["value"].dropna().items()
        )
        texts.append(f"{' '.join(title.split())}: {values}.")
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    has_reference = panels[0].is_share
    caption = "Right is better (↓: left)."
    if has_reference and len(panels) > 2:
        caption += " Top: agreement with the reference. Bottom: metrics, which agree with it if the order is the same."
    return Plot(
        figure, "How faithful is each explainer?", f"{caption}{describe_data(record, 'Bars')}", part="answer",
        description=escape_controls(" ".join(texts)),
    )  # fmt: skip


def _draw_counterfactuals(flips: pd.DataFrame, distances: pd.DataFrame, record: RunRecord) -> Plot:
    """Draw the share of flips against the distance, a panel for each level of access."""
    names = [name for name in record.explainers if name in set(flips["explainer"])]
    levels = [level for level in record.levels if level in set(flips["variant"])]
    flips_title, distances_title = (record.metrics[frame["metric"].iloc[0]].title for frame in (flips, distances))
    figure = make_figure(COLUMN_WIDTH if len(levels) == 1 else PAGE_WIDTH, 2.7)
    axes = np.atleast_1d(np.asarray(figure.subplots(1, len(levels), sharey=True)))
    for axis, level in zip(axes, levels, strict=True):
        x_lines, y_lines = (frame[frame["variant"] == level].set_index("explainer") for frame in (distances, flips))
        _draw_crosses(axis, x_lines, y_lines, names, record)
        axis.set_ylim(-0.06, 1.06)
        axis.set_xlim(*widen_limits(axis.get_xlim()))
        axis.grid()
        axis.set_xlabel(f"{distances_title} ({level}), lower is better")
    axes[0].set_ylabel(flips_title)
    add_legend(figure, max(axes, key=lambda axis: len(axis.lines)))
    caption = (
        "Share of instances whose prediction changes when the search edits the selected features, against the mean "
        "distance of the edit. In the upper left, small edits of the selected features change most predictions."
        f"{describe_data(record, 'Bars')}"
    )
    return Plot(figure, "Do edits of the selected features change the prediction?", caption, part="scores")


@dataclass(frozen=True)
class _Coefficient:
    """How a coefficient of correlations.csv is drawn."""

    subset: str  # of the explainers
    column: str
    sign: str
    label: str
    shift: float  # from the line of the metric
    mark: str
    colour: str
    p_offset: int  # of its column of p from the axis, in points


_COEFFICIENTS = (
    _Coefficient(ALL_EXPLAINERS, "tau", "τ", "Kendall's τ", -0.2, "o", COLOURS[0], 4),
    _Coefficient(WITHOUT_CONTROLS, "tau", "τ′", "Kendall's τ without controls (τ′)", 0.0, "^", COLOURS[2], 30),
    _Coefficient(ALL_EXPLAINERS, "rho", "ρ", "Spearman's ρ", 0.2, "s", COLOURS[3], 56),
)


def draw_correlations(correlations: pd.DataFrame, record: RunRecord) -> Plot:
    """Draw τ and ρ of each metric with their p, for each leading ground truth and for graded controls."""
    agreement = record.settings.agreement
    judged = correlations[correlations["agreement"] == agreement]
    panels = [
        (
            f"explainers, {agreement}, {truth}" if name == truth else f"{name} ({truth})",
            judged[judged["truth"] == truth],
        )
        for truth, name in name_truths(record.settings.truth, record).items()
    ]
    panels.append((GRADED, correlations[correlations["family"] == GRADED]))
    panels = [(title, lines[~lines["metric"].isin(list_truth_metrics(record))]) for title, lines in panels]
    panels = [(title, lines) for title, lines in panels if lines["tau"].notna().any()]
    pairs = list(dict.fromkeys(pair for _, lines in panels for pair in _list_pairs(lines[lines["tau"].notna()])))
    figure = make_figure(PAGE_WIDTH, 0.9 + 0.25 * len(pairs))
    axes = np.atleast_1d(np.asarray(figure.subplots(1, max(1, len(panels)), sharey=True)))
    for axis, (title, lines) in zip(axes, panels, strict=False):
        for coefficient in _COEFFICIENTS:
            if coefficient.subset != WITHOUT_CONTROLS or has_controls(lines):
                _draw_coefficient(
                    axis, select_subset(lines[lines["tau"].notna()], coefficient.subset), coefficient, pairs
                )
        axis.set_xlim(-1.05, 1.05)
        axis.axvline(0, color=INK, lw=0.6)
        axis.grid(axis="x")
        count, n_contenders = lines["explainers"].max(), select_subset(lines, WITHOUT_CONTROLS)["explainers"].max()
        without_controls = f", {n_contenders:g} without controls" if n_contenders < count else ""
        axis.set_xlabel(f"{title}\n{count:g} ranked{without_controls}", parse_math=False)
    axes[0].set_yticks(
        range(len(pairs)), [escape_controls(make_metric_title(*pair, record).text) for pair in pairs], parse_math=False
    )
    axes[0].set_ylim(len(pairs) - 0.5, -0.6)
    add_legend(figure, axes[0])
    caption = (
        "The further right, the better the metric ranks the explainers. Kendall's τ, with and without controls "
        "(explainers that select random features or the reference features), and Spearman's ρ between the ranking by "
        "each metric and by the ground truth. p: probability that a random ordering agrees with the ground truth as "
        "well (one-sided, unadjusted; exact for up to eight explainers)."
        f"{describe_data(record, 'Bars')}"
    )
    return Plot(figure, "Which metric ranks the explainers as the ground truth does?", caption)


def _draw_coefficient(axis: Axes, lines: pd.DataFrame, coefficient: _Coefficient, pairs: Sequence[Pair]) -> None:
    """Draw one coefficient of each metric, and its p in a column beside the axis."""
    column = coefficient.column
    if lines[column].isna().all():
        return
    heights = np.array([pairs.index(pair) for pair in _list_pairs(lines)])
    axis.errorbar(
        lines[column], heights + coefficient.shift, xerr=_compute_error_bars(lines, column), fmt=coefficient.mark,
        ms=3.8, lw=1.2, color=coefficient.colour, label=coefficient.label,
    )  # fmt: skip
    texts = ["" if pd.isna(p) else "<.001" if p < 0.001 else f"{p:.3f}" for p in lines[f"p_{column}"]]
    heading = (-0.85, f"p({coefficient.sign})")
    for height, text in [heading, *zip(heights, texts, strict=True)]:
        axis.annotate(  # in points from the edge, so that the layout leaves room for it
            text, (1, height), xycoords=axis.get_yaxis_transform(), xytext=(coefficient.p_offset, 0),
            textcoords="offset points", va="center", fontsize=6.5, color=INK,
        )  # fmt: skip


def _draw_costs(metrics: pd.DataFrame, costs: pd.DataFrame, record: RunRecord, truths: Sequence[Pair]) -> Plot:
    """Draw the agreement of each explainer with the ground truth against its cost."""
    looks = assign_looks(record.explainers)
    costs_of = costs[costs["part"] == "explainer"].set_index("name")
    figure = make_figure(PAGE_WIDTH, 0.6 + 2.2 * len(truths))
    kinds = (
        ("seconds", "milliseconds of one core per instance", 1000, 0.01),
        ("model_rows", "model evaluations per instance", 1, 1.0),
    )
    rows = figure.subplots(len(truths), 2, sharex="col", sharey=True, squeeze=False)
    for axes, truth in zip(rows, truths, strict=True):
        lines = metrics[(metrics["metric"] == truth[0]) & (metrics["variant"] == truth[1]) & metrics["value"].notna()]
        axes[0].set_ylabel(f"{truth[0]} ({truth[1]})", parse_math=False)
        for axis, (column, label, unit, smallest) in zip(axes, kinds, strict=True):
            for line, error in zip(lines.to_dict("records"), _compute_error_bars(lines, "value").T, strict=True):
                name = line["explainer"]
                cost = float(costs_of.loc[name, column]) / record.instances * unit
                options: dict[str, Any] = {"ls": "", "ms": 4.5, "elinewidth": 1.2, **looks[name].marker_options}
                title = escape_controls(record.explainers[name])
                axis.errorbar(cost, line["value"], yerr=error[:, None], label=title, **options)
            axis.set_xscale("symlog", linthresh=smallest)  # some explainers cost nothing
            axis.set_xlim(left=-0.6 * smallest)
            axis.xaxis.set_major_formatter("{x:g}")  # powers would be set as formulas, which takes long
            axis.set_ylim(-0.1, 1.12)
            axis.grid()
            if truth == truths[-1]:
                axis.set_xlabel(label)
    add_legend(figure, figure.axes[0])
    caption = "In the upper left, an explainer agrees with the ground truth at a low cost."
    return Plot(figure, "What do faithful explanations cost?", f"{caption}{describe_data(record, 'Bars')}", part="cost")
