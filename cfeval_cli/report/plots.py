"""Plots of a run: values, ranks, agreement with the truth and costs, with their intervals.

matplotlib is imported when a plot is drawn: a run that draws none does not wait for it.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import chdir, contextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
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
    is_truth,
    list_leading_truths,
    list_truth_metrics,
    make_metric_title,
    name_truths,
    select_quantity,
)
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.correlation import GRADED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cfeval_cli.statistics.findings import Findings
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, has_controls, select_subset

# Okabe and Ito's colours, which the colour-blind can tell apart; their yellow darker, so that white paper shows it
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#B8A800")
MARKS = "os^Dv*PX<>"  # for those who print in black
_SALT = 121835  # with which no two of the explainers that there are look alike, and the paper's six differ in both
INK = "#444444"
GRID = "#dddddd"
_DPI = 200  # dots per inch of a png
WIDE, NARROW = 7.0, 3.3  # inches: two columns of a paper, and one
_BROAD = 28  # letters above a panel that have room
_SLANTED = 24  # names below an axis at most that have room to be slanted
_STYLE = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "legend.fontsize": 7, "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": INK,
    "grid.color": GRID, "grid.linewidth": 0.5, "axes.axisbelow": True,
    # text stays text: it can be searched, edited and read aloud
    "svg.hashsalt": "cfeval", "svg.fonttype": "none",
}  # fmt: skip
_SMOOTH = 101  # points of a line at most: more rungs than that are thinned out


@dataclass(frozen=True)
class Plot:
    """A figure and what is to be said of it: in a paper titles stand below."""

    figure: Figure
    title: str
    caption: str
    _known: dict[str, bytes] = field(default_factory=dict)  # formats that were drawn

    def render(self, kind: str) -> bytes:
        """Return the figure as png, svg or pdf; it contains no date, so that the same figure has the same bytes."""
        if kind not in self._known:
            metadata = {
                "png": {"Title": self.title, "Description": self.caption},
                "svg": {"Title": self.title, "Description": self.caption, "Date": None},
                "pdf": {"Title": self.title, "Subject": self.caption, "CreationDate": None},
            }
            stream = BytesIO()
            with apply_style():
                if not self._known:
                    # A second layout would start from the first: a format would depend on those before it.
                    self.figure.draw_without_rendering()
                    self.figure.set_layout_engine("none")
                more: dict[str, Any] = {"pil_kwargs": {"compress_level": 4}} if kind == "png" else {}
                self.figure.savefig(stream, format=kind, metadata=metadata[kind], **more)
            self._known[kind] = stream.getvalue()
        return self._known[kind]


@dataclass(frozen=True)
class Look:
    """The colour and the mark of an explainer."""

    colour: str
    mark: str
    hollow: bool = False

    @property
    def line(self) -> str:
        """Whole or dashed, so that two lines of one colour differ too."""
        return "-" if MARKS.index(self.mark) < len(MARKS) // 2 else "--"

    @property
    def marked(self) -> dict[str, Any]:
        """As matplotlib is told."""
        return {"color": self.colour, "marker": self.mark} | ({"markerfacecolor": "white"} if self.hollow else {})


def assign_looks(names: Sequence[str]) -> dict[str, Look]:
    """How explainers look: by their names, whoever else is there.

    A user's own may by chance look as another does: then the later name is hollow.
    """
    known: dict[str, Look] = {}
    for name in sorted(names):
        number = int.from_bytes(blake2b(f"{_SALT} {name}".encode(), digest_size=8).digest(), "big")
        place, colour = divmod(number, len(COLOURS))
        mine = Look(COLOURS[colour], MARKS[place % len(MARKS)])
        known[name] = replace(mine, hollow=mine in known.values())
    return known


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


def draw_plots(findings: Findings, costs: pd.DataFrame, record: RunRecord) -> dict[str, Plot]:
    """All plots of values and their agreement, by the names of their files."""
    rungs = findings.metrics["rung"].notna()
    named = findings.metrics[~rungs]
    valued = set(_list_pairs(named[named["value"].notna()]))
    known = [truth for truth in list_leading_truths(record) if truth in valued]
    drawn = {}
    with apply_style():
        if findings.correlations["tau"].notna().any():
            drawn["correlations"] = _draw_correlations(findings.correlations, record)
        if known and any(not is_truth(pair[0], record) for pair, _ in _group_by_metric(named, record)):
            for place, truth in enumerate(known):
                name = "truth" if place == 0 else f"truth_{truth[1]}"
                drawn[name] = _draw_against_truth(named, select_subset(findings.correlations), record, truth)
        if named["rank"].notna().any() and named["explainer"].nunique() > 1:
            drawn["ranks"] = _draw_ranks(named, record)
        if len(named) and "truth" not in drawn:  # which shows the same values
            drawn["scores"] = _draw_scores(named, record)
        if rungs.any():
            drawn["graded"] = _draw_graded(findings.metrics[rungs], record)
        flips, distances = (
            select_quantity(named[named["value"].notna()], quantity, record)
            for quantity in (Quantity.FLIPPED, Quantity.DISTANCE)
        )
        if len(flips) and len(distances):
            drawn["counterfactuals"] = _draw_counterfactuals(flips, distances, record)
        if known:
            drawn["costs"] = _draw_costs(named, costs, record, known)
    return drawn


def _list_pairs(metrics: pd.DataFrame) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(metrics["metric"], metrics["variant"], strict=True)))


def _group_by_metric(metrics: pd.DataFrame, record: RunRecord) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """The rows of Table 1 that have values: of the truths only the leading ones."""
    shown = metrics[(metrics["better"] != "none") & metrics["value"].notna()]
    pairs = [
        pair for pair in _list_pairs(shown) if not is_truth(pair[0], record) or pair in list_leading_truths(record)
    ]
    return [(pair, shown[(shown["metric"] == pair[0]) & (shown["variant"] == pair[1])]) for pair in pairs]


def make_figure(width: float, height: float) -> Figure:
    """Return an empty figure of a size in inches, whose parts are laid out when it is drawn."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), dpi=_DPI, layout="constrained")


def make_panels(size: int, height: float) -> tuple[Figure, list[Axes]]:
    """So many small panels, four in a row."""
    across = min(4, max(1, size))
    down = -(-size // across)
    figure = make_figure(WIDE, 0.3 + height * max(1, down))
    axes = np.atleast_1d(np.asarray(figure.subplots(max(1, down), across))).ravel().tolist()
    for axis in axes[size:]:
        axis.set_visible(False)
    return figure, axes[:size]


def describe_data(record: RunRecord, bars: str = "") -> str:
    """What every caption ends with."""
    settings, count = record.settings, record.instances
    some = f"{count:,} instance{'s' * (count != 1)}"
    where = f"{record.data.name}, {some}, k = {settings.k}, seed {settings.seed}"
    told = f" {bars}: {100 * settings.confidence:g} % intervals." if bars and record.resampled else ""
    return escape_controls(f"{told} {where[:1].upper() + where[1:]}.")


def add_legend(figure: Figure, axis: Axes, where: str = "lower center") -> None:
    """Outside the panels; names are no formulas."""
    handles, labels = axis.get_legend_handles_labels()
    wide = [len(label) + 6 for label in labels]
    fits = sum(wide) < 16 * figure.get_figwidth()  # letters to the inch
    room = len(labels) if fits else max(1, int(13 * figure.get_figwidth() / max(wide, default=1)))
    across = 1 if "right" in where else room
    place: Any = f"outside {where}"
    made = figure.legend(handles, labels, loc=place, frameon=False, ncols=across, columnspacing=1.2)
    for text in made.get_texts():
        text.set_parse_math(False)


def _set_title(axis: Axes, pair: tuple[str, str], record: RunRecord, more: str = "") -> None:
    """A panel's metric, on two lines if it has details."""
    title = make_metric_title(*pair, record)
    lines = [title.name, f"{title.bracket[1:]} {ARROWS[title.direction]}".strip()] if title.details else [title.text]
    lines = [escape_controls(line) for line in lines]
    place = 0 if title.details and len(lines[1] + more) + 1 > _BROAD else -1
    lines[place] += more
    axis.set_title("\n".join(lines), parse_math=False)


def _widen_limits(limits: tuple[float, float]) -> tuple[float, float]:
    """Limits of an axis on which values that differ by rounding alone look the same."""
    low, high = limits
    middle = (low + high) / 2
    least = 1e-6 * max(1.0, abs(middle))
    return (
        limits if high - low > least else (middle - 0.1 * max(1.0, abs(middle)), middle + 0.1 * max(1.0, abs(middle)))
    )


def _compute_error_bars(lines: pd.DataFrame, name: str) -> Any:
    """Distances from a value to both ends of its interval; none where there is none."""
    ends = np.stack([lines[name] - lines[f"{name}_low"], lines[f"{name}_high"] - lines[name]])
    return np.nan_to_num(np.maximum(ends.astype(float), 0))


def _draw_crosses(axis: Axes, x: Any, y: Any, across: Any, up: Any, names: Sequence[str], record: RunRecord) -> None:
    """A mark for each explainer, by which x and y are indexed, with bars both ways."""
    seen = assign_looks(names)
    colours = [seen[name].colour for name in x.index]
    axis.hlines(y, x - across[0], x + across[1], colors=colours, lw=0.9)
    axis.vlines(x, y - up[0], y + up[1], colors=colours, lw=0.9)
    for name in x.index:
        axis.plot(x[name], y[name], ls="", ms=4, label=escape_controls(record.explainers[name]), **seen[name].marked)


def _draw_scores(metrics: pd.DataFrame, record: RunRecord) -> Plot:
    """A panel for each metric, a dot for each explainer."""
    names = list(dict.fromkeys(metrics["explainer"]))
    titles = [escape_controls(record.explainers[name]) for name in names]
    shown, seen = _group_by_metric(metrics, record), assign_looks(names)
    figure, axes = make_panels(len(shown), 0.6 + 0.16 * max(2, len(names)))
    for i, (axis, (pair, lines)) in enumerate(zip(axes, shown, strict=True)):
        places = [names.index(name) for name in lines["explainer"]]
        colours = [seen[name].colour for name in lines["explainer"]]
        below, above = _compute_error_bars(lines, "value")
        axis.hlines(places, lines["value"] - below, lines["value"] + above, colors=colours, lw=1.2)
        for place, value, name in zip(places, lines["value"], lines["explainer"], strict=True):
            axis.plot(value, place, ls="", ms=3.5, **seen[name].marked)
        axis.set_yticks(range(len(names)), titles if i % 4 == 0 else [""] * len(names), parse_math=False)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.margins(x=0.12)
        axis.grid(axis="x")
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlim(*_widen_limits(axis.get_xlim()))
        _set_title(axis, pair, record)
    return Plot(
        figure, "Scores of the explainers", "Each metric's value for each explainer." + describe_data(record, "Bars")
    )


def _draw_against_truth(
    metrics: pd.DataFrame, correlations: pd.DataFrame, record: RunRecord, truth: tuple[str, str]
) -> Plot:
    """A panel for each metric: its value for each explainer against how much of the truth that explainer finds."""
    agreement, name = truth
    names = list(dict.fromkeys(metrics["explainer"]))
    shown = {pair: lines.set_index("explainer") for pair, lines in _group_by_metric(metrics, record)}
    true = shown[truth]
    shown = {pair: lines for pair, lines in shown.items() if pair not in list_leading_truths(record)}
    lead = correlations[(correlations["truth"] == name) & (correlations["agreement"] == agreement)]
    tau = lead.set_index(["metric", "variant"])["tau"].to_dict()
    figure, axes = make_panels(len(shown), 1.35)
    for axis, (pair, lines) in zip(axes, shown.items(), strict=True):
        both = [name for name in names if name in lines.index and name in true.index]
        across, up = _compute_error_bars(true.loc[both], "value"), _compute_error_bars(lines.loc[both], "value")
        _draw_crosses(axis, true.loc[both, "value"], lines.loc[both, "value"], across, up, names, record)
        axis.set_xlim(-0.06, 1.06)
        axis.grid()
        axis.locator_params(axis="y", nbins=4)
        axis.set_ylim(*_widen_limits(axis.get_ylim()))
        if record.metrics[pair[0]].better == "lower":
            axis.invert_yaxis()  # up is better everywhere
        _set_title(axis, pair, record, "" if pd.isna(tau.get(pair, np.nan)) else f", τ = {tau[pair]:.2f}")
    figure.supxlabel(f"ground truth ({agreement}, truth: {name})", fontsize=8, parse_math=False)
    add_legend(figure, max(axes, key=lambda axis: len(axis.lines)), "upper center")
    caption = (
        "What each metric says of an explainer, against how much of the truth that explainer finds. Up is better in "
        "every panel (axes of metrics that should be low are turned over): a metric that tells the truth rises from "
        "left to right." + describe_data(record, "Bars")
    )
    asked = name_truths([name], record)[name]
    return Plot(figure, f"Metric against ground truth{'' if asked == name else f': {asked}'}", caption)


def _draw_ranks(metrics: pd.DataFrame, record: RunRecord) -> Plot:
    """A line for each explainer through its ranks by all metrics, the truth first."""
    truths = list_leading_truths(record)
    names = list(dict.fromkeys(metrics["explainer"]))
    shown = sorted((pair for pair, lines in _group_by_metric(metrics, record)), key=lambda pair: pair not in truths)
    ranks = metrics.set_index(["metric", "variant", "explainer"])["rank"].to_dict()
    high = 1.5 + 0.22 * min(len(names), 20) + (len(shown) > _SLANTED)
    figure = make_figure(WIDE, high)
    axis = figure.subplots()
    first = sum(pair in truths for pair in shown)
    if first:
        axis.axvspan(-0.4, first - 0.6, color=GRID, lw=0, zorder=0)
    seen = assign_looks(names)
    for place, name in enumerate(names):
        mine = [ranks.get((*pair, name), np.nan) for pair in shown]
        shift = 0.09 * (place % 5 - 2) * min(1, len(names) / 6)  # tied explainers stay apart
        axis.plot(
            range(len(shown)), np.array(mine) + shift, ms=4.5, lw=1.3, label=escape_controls(record.explainers[name]),
            alpha=0.9, ls=seen[name].line, **seen[name].marked,
        )  # fmt: skip
    axis.set_xticks(
        range(len(shown)),
        [escape_controls(make_metric_title(*pair, record, star=pair in truths).text) for pair in shown],
        rotation=35 if len(shown) <= _SLANTED else 90, ha="right", va="top" if len(shown) <= _SLANTED else "center",
        rotation_mode="anchor", parse_math=False,
    )  # fmt: skip
    axis.set_ylim(len(names) + 0.5, 0.5)
    axis.set_yticks(range(1, len(names) + 1, max(1, len(names) // 10)))
    axis.set_ylabel("rank")
    axis.grid(axis="y")
    add_legend(figure, axis, "right center")
    told = "the shaded truth comes first" if first else "there is no truth among them"
    caption = (
        f"Rank of each explainer (1 is the best) under each metric; {told}. A metric that agrees with the truth has "
        "its lines in the same order; tied explainers share the mean of their places." + describe_data(record)
    )
    return Plot(figure, "Ranks across metrics", caption)


def _draw_counterfactuals(flips: pd.DataFrame, distances: pd.DataFrame, record: RunRecord) -> Plot:
    """Draw the share of flips against the distance, a panel for each level of access."""
    names = [name for name in record.explainers if name in set(flips["explainer"])]
    levels = [level for level in record.levels if level in set(flips["variant"])]
    flips_title, distances_title = (record.metrics[frame["metric"].iloc[0]].title for frame in (flips, distances))
    figure = make_figure(NARROW if len(levels) == 1 else WIDE, 2.7)
    axes = np.atleast_1d(np.asarray(figure.subplots(1, len(levels), sharey=True)))
    for axis, level in zip(axes, levels, strict=True):
        valid, near = (frame[frame["variant"] == level].set_index("explainer") for frame in (flips, distances))
        both = [name for name in names if name in valid.index and name in near.index]
        across, up = _compute_error_bars(near.loc[both], "value"), _compute_error_bars(valid.loc[both], "value")
        _draw_crosses(axis, near.loc[both, "value"], valid.loc[both, "value"], across, up, names, record)
        axis.set_ylim(-0.06, 1.06)
        axis.set_xlim(*_widen_limits(axis.get_xlim()))
        axis.grid()
        axis.set_xlabel(f"{distances_title} ({level}), lower is better")
    axes[0].set_ylabel(flips_title)
    add_legend(figure, max(axes, key=lambda axis: len(axis.lines)))
    caption = (
        "Share of instances with a counterfactual that flips the label, against its mean distance: the upper left is "
        "best." + describe_data(record, "Bars")
    )
    return Plot(figure, f"{flips_title} against {distances_title.lower()}", caption)


def _draw_graded(metrics: pd.DataFrame, record: RunRecord) -> Plot:
    """A panel for each metric: its value against how often a rung names the truth."""
    shown = _group_by_metric(metrics, record)
    figure, axes = make_panels(len(shown), 1.3)
    for axis, (pair, lines) in zip(axes, shown, strict=True):
        lines = lines.sort_values("rung")
        if len(lines) > _SMOOTH:
            lines = lines.iloc[np.linspace(0, len(lines) - 1, _SMOOTH).round().astype(int)]
        low, high = (lines[f"value_{end}"].to_numpy(float) for end in ("low", "high"))
        axis.fill_between(lines["rung"], low, high, color=COLOURS[5], alpha=0.5, lw=0)
        axis.plot(lines["rung"], lines["value"], "o-" if len(lines) < 30 else "-", ms=2, lw=1, color=COLOURS[0])
        axis.grid()
        axis.locator_params(axis="y", nbins=4)
        axis.set_ylim(*_widen_limits(axis.get_ylim()))
        _set_title(axis, pair, record)
    figure.supxlabel("share of instances for which the truth is named", fontsize=8)
    rungs = metrics["explainer"].nunique()
    some = f", of which {_SMOOTH} are drawn" if rungs > _SMOOTH else ""
    caption = (
        f"Each metric's value for {rungs} explainers of known order{some}, against how often they name the truth."
        + describe_data(record, "Bands")
    )
    return Plot(figure, "Score against how often the truth is named", caption)


def _draw_correlations(correlations: pd.DataFrame, record: RunRecord) -> Plot:
    """τ and ρ of each metric with their p, against the leading truths and on a ladder."""
    agreement = record.settings.agreement
    chosen = correlations[correlations["agreement"] == agreement]
    names = name_truths(record.settings.truth, record)
    told = {
        truth: f"explainers, {agreement}, truth: {truth}" if name == truth else f"{name} ({truth})"
        for truth, name in names.items()
    }
    sides = [(told[truth], chosen[chosen["truth"] == truth]) for truth in names]
    sides.append((GRADED, correlations[correlations["family"] == GRADED]))
    sides = [(title, side[~side["metric"].isin(list_truth_metrics(record))]) for title, side in sides]
    sides = [(title, side) for title, side in sides if side["tau"].notna().any()]
    pairs = list(dict.fromkeys(pair for _, side in sides for pair in _list_pairs(side[side["tau"].notna()])))
    figure = make_figure(WIDE, 0.9 + 0.25 * len(pairs))
    axes = np.atleast_1d(np.asarray(figure.subplots(1, max(1, len(sides)), sharey=True)))
    for axis, (title, side) in zip(axes, sides, strict=False):
        ranked = side[side["tau"].notna()]
        for subset, of, sign, name, shift, mark, colour, edge in _COEFFICIENTS:
            lines = select_subset(ranked, subset)
            if lines[of].isna().all() or (subset == WITHOUT_CONTROLS and not has_controls(side)):
                continue
            place, bars = np.array([pairs.index(pair) for pair in _list_pairs(lines)]), _compute_error_bars(lines, of)
            axis.errorbar(lines[of], place + shift, xerr=bars, fmt=mark, ms=3.8, lw=1.2, color=colour, label=name)
            column = [(-0.85, f"p({sign})")]
            for at, p in zip(place, lines[f"p_{of}"], strict=True):
                text = "" if pd.isna(p) else "<.001" if p < 0.001 else f"{p:.3f}"
                column.append((at, text))
            for at, text in column:  # points from the edge, so that room is kept for them whatever the axis is
                axis.annotate(
                    text, (1, at), xycoords=axis.get_yaxis_transform(), xytext=(edge, 0), textcoords="offset points",
                    va="center", fontsize=6.5, color=INK,
                )  # fmt: skip
        axis.set_xlim(-1.05, 1.05)
        axis.axvline(0, color=INK, lw=0.6)
        axis.grid(axis="x")
        rest = select_subset(side, WITHOUT_CONTROLS)["explainers"].max()
        some = f", {rest:g} without controls" if rest < side["explainers"].max() else ""
        axis.set_xlabel(f"{title}\n{side['explainers'].max():g} ranked{some}", parse_math=False)
    axes[0].set_yticks(
        range(len(pairs)), [escape_controls(make_metric_title(*pair, record).text) for pair in pairs], parse_math=False
    )
    axes[0].set_ylim(len(pairs) - 0.5, -0.6)
    add_legend(figure, axes[0])
    caption = (
        "Kendall's τ, with and without controls (explainers that name chance or the truth itself), and Spearman's ρ "
        "between each metric's ranking and the truth. p: how often a random order "
        "would agree with the truth as well (all orders are tried for up to eight explainers; one-sided, for each "
        "metric by itself)." + describe_data(record, "Bars")
    )
    return Plot(figure, "Agreement of each metric with the truth", caption)


# subset, column, sign, name, place above or below the line of the metric, mark, colour, distance of its p from the axis
_COEFFICIENTS = (
    (ALL_EXPLAINERS, "tau", "τ", "Kendall's τ", -0.2, "o", COLOURS[0], 4),
    (WITHOUT_CONTROLS, "tau", "τ′", "Kendall's τ without controls (τ′)", 0.0, "^", COLOURS[2], 30),
    (ALL_EXPLAINERS, "rho", "ρ", "Spearman's ρ", 0.2, "s", COLOURS[3], 56),
)


def _draw_costs(
    metrics: pd.DataFrame, costs: pd.DataFrame, record: RunRecord, truths: Sequence[tuple[str, str]]
) -> Plot:
    """How much of the truth an explainer finds, against what it costs."""
    seen = assign_looks(list(dict.fromkeys(metrics["explainer"])))
    spent = costs[costs["part"] == "explainer"].set_index("name")
    figure = make_figure(WIDE, 0.6 + 2.2 * len(truths))
    kinds = (
        ("seconds", "milliseconds of one core for each instance", 0.01),
        ("model_rows", "model rows for each instance", 1.0),
    )
    grid = figure.subplots(len(truths), 2, sharex="col", sharey=True, squeeze=False)
    for row, truth in zip(grid, truths, strict=True):
        mine = metrics[(metrics["metric"] == truth[0]) & (metrics["variant"] == truth[1]) & metrics["value"].notna()]
        row[0].set_ylabel(f"{truth[0]} (truth: {truth[1]})", parse_math=False)
        for axis, (of, label, least) in zip(row, kinds, strict=True):
            for line, bar in zip(mine.to_dict("records"), _compute_error_bars(mine, "value").T, strict=True):
                cost = float(spent.loc[line["explainer"], of]) / record.instances * (1000 if of == "seconds" else 1)
                look: dict[str, Any] = {"ls": "", "ms": 4.5, "elinewidth": 1.2, **seen[line["explainer"]].marked}
                title = escape_controls(record.explainers[line["explainer"]])
                axis.errorbar(cost, line["value"], yerr=bar[:, None], label=title, **look)
            axis.set_xscale("symlog", linthresh=least)  # some cost nothing
            axis.set_xlim(left=-0.6 * least)
            axis.xaxis.set_major_formatter("{x:g}")  # powers would be set as formulas, which takes long
            axis.set_ylim(-0.1, 1.12)
            axis.grid()
            if truth == truths[-1]:
                axis.set_xlabel(label)
    add_legend(figure, figure.axes[0])
    caption = "How much of the truth an explainer finds, against what its explanations cost." + describe_data(
        record, "Bars"
    )
    return Plot(figure, "Cost against faithfulness", caption)
