"""Plots of a run: values, agreement with the truth and costs, with their intervals.

matplotlib is imported when a plot is drawn: a run that draws none does not wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from cfeval_cli.errors import visible
from cfeval_cli.report.tables import row_title
from cfeval_cli.statistics.summary import TRUTHS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from cfeval_cli.statistics.findings import Findings

# Okabe and Ito's colours, which the colour-blind can tell apart
_COLOURS = ("#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#000000", "#F0E442")
_MARKS = "os^Dv*Pp"  # for those who print in black
_INK = "#444444"
_STYLE = {
    "font.size": 8, "axes.titlesize": 8, "axes.labelsize": 8, "xtick.labelsize": 7, "ytick.labelsize": 7,
    "axes.spines.top": False, "axes.spines.right": False, "axes.edgecolor": _INK, "svg.hashsalt": "cfeval",
}  # fmt: skip
_WIDTH = 7.0  # inches: two columns of a paper


def draw(findings: Findings, costs: pd.DataFrame, record: Mapping[str, Any]) -> dict[str, Figure]:
    """All figures, by the names of their files."""
    from matplotlib import rc_context

    rungs = findings.metrics["rung"].notna()
    drawn = {}
    with rc_context(_STYLE):  # type: ignore[arg-type]
        if not rungs.all():
            drawn["scores"] = _scores(findings.metrics[~rungs], record)
        if rungs.any():
            drawn["ladder"] = _ladder(findings.metrics[rungs], record)
        if findings.correlations["tau"].notna().any():
            drawn["correlations"] = _correlations(findings.correlations, record)
        if not rungs.all() and _truth(record) in set(_pairs(findings.metrics)):
            drawn["costs"] = _costs(findings.metrics[~rungs], costs, record)
    return drawn


def save(figure: Figure, kind: str, path: Path) -> None:
    """Without the date, so that the same figure has the same bytes."""
    from matplotlib import rc_context

    dates: dict[str, dict[str, Any]] = {"png": {}, "svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with rc_context(_STYLE):  # type: ignore[arg-type]
        figure.savefig(path, format=kind, dpi=200, metadata=dates[kind])


def _pairs(metrics: pd.DataFrame) -> list[tuple[str, str]]:
    return list(dict.fromkeys(zip(metrics["metric"], metrics["variant"], strict=True)))


def _truth(record: Mapping[str, Any]) -> tuple[str, str]:
    return record["settings"]["agreement"], record["settings"]["gold"]


def _shown(metrics: pd.DataFrame, record: Mapping[str, Any]) -> list[tuple[tuple[str, str], pd.DataFrame]]:
    """The rows of Table 1 that have values: of the truths only the leading one."""
    shown = metrics[(metrics["better"] != "none") & metrics["value"].notna()]
    pairs = [pair for pair in _pairs(shown) if pair[0] not in TRUTHS or pair == _truth(record)]
    return [(pair, shown[(shown["metric"] == pair[0]) & (shown["variant"] == pair[1])]) for pair in pairs]


def _grid(size: int, height: float) -> tuple[Figure, list[Axes]]:
    """So many small panels, four in a row."""
    from matplotlib.figure import Figure

    across = min(4, max(1, size))
    down = -(-size // across)
    figure = Figure(figsize=(_WIDTH, 0.3 + height * max(1, down)), layout="constrained")
    axes = np.atleast_1d(np.asarray(figure.subplots(max(1, down), across))).ravel().tolist()
    for axis in axes[size:]:
        axis.set_visible(False)
    return figure, axes[:size]


def _about(figure: Figure, record: Mapping[str, Any], text: str) -> None:
    settings = record["settings"]
    where = f"{record['data']['name']}, {record['instances']:,} instances, k = {settings['k']}, seed {settings['seed']}"
    bars = f"; bars: {100 * settings['confidence']:g} % intervals" if settings["resamples"] else ""
    figure.suptitle(visible(f"{text} ({where}{bars})"), fontsize=8, color=_INK, parse_math=False)


def _name(axis: Axes, pair: tuple[str, str], record: Mapping[str, Any]) -> None:
    """A panel's metric, on two lines if it has details."""
    axis.set_title(visible(row_title(*pair, record).text).replace(" (", "\n(", 1), parse_math=False)


def _apart(limits: tuple[float, float]) -> tuple[float, float]:
    """Limits of an axis on which values that differ by rounding alone look the same."""
    low, high = limits
    middle = (low + high) / 2
    least = 1e-6 * max(1.0, abs(middle))
    return (
        limits if high - low > least else (middle - 0.1 * max(1.0, abs(middle)), middle + 0.1 * max(1.0, abs(middle)))
    )


def _bars(lines: pd.DataFrame, name: str) -> Any:
    """Distances from a value to both ends of its interval; none where there is none."""
    ends = np.stack([lines[name] - lines[f"{name}_low"], lines[f"{name}_high"] - lines[name]])
    return np.nan_to_num(np.maximum(ends.astype(float), 0))


def _scores(metrics: pd.DataFrame, record: Mapping[str, Any]) -> Figure:
    """A panel for each metric, a dot for each explainer."""
    names = list(dict.fromkeys(metrics["explainer"]))
    titles = [visible(record["explainers"][name]) for name in names]
    shown = _shown(metrics, record)
    figure, axes = _grid(len(shown), 0.6 + 0.16 * max(2, len(names)))
    for i, (axis, (pair, lines)) in enumerate(zip(axes, shown, strict=True)):
        for line, bar in zip(lines.to_dict("records"), _bars(lines, "value").T, strict=True):
            place = names.index(line["explainer"])
            colour = _COLOURS[place % len(_COLOURS)]
            axis.errorbar(line["value"], place, xerr=bar[:, None], fmt="o", ms=3.5, lw=1.2, color=colour)
        axis.set_yticks(range(len(names)), titles if i % 4 == 0 else [""] * len(names), parse_math=False)
        axis.set_ylim(len(names) - 0.5, -0.5)
        axis.margins(x=0.12)
        axis.grid(axis="x", color="#dddddd", lw=0.5)
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlim(*_apart(axis.get_xlim()))
        _name(axis, pair, record)
    _about(figure, record, "Scores of the explainers")
    return figure


def _ladder(metrics: pd.DataFrame, record: Mapping[str, Any]) -> Figure:
    """A panel for each metric: its value against how often a rung names the gold."""
    shown = _shown(metrics, record)
    figure, axes = _grid(len(shown), 1.3)
    for axis, (pair, lines) in zip(axes, shown, strict=True):
        lines = lines.sort_values("rung")
        low, high = (lines[f"value_{end}"].to_numpy(float) for end in ("low", "high"))
        axis.fill_between(lines["rung"], low, high, color=_COLOURS[5], alpha=0.5, lw=0)
        axis.plot(lines["rung"], lines["value"], "o-", ms=2, lw=1, color=_COLOURS[0])
        axis.grid(color="#dddddd", lw=0.5)
        axis.locator_params(axis="y", nbins=4)
        axis.set_ylim(*_apart(axis.get_ylim()))
        _name(axis, pair, record)
    figure.supxlabel("share of instances for which the gold is named", fontsize=8)
    _about(figure, record, "Score against how often the gold is named")
    return figure


def _correlations(correlations: pd.DataFrame, record: Mapping[str, Any]) -> Figure:
    """τ of each metric, against the leading truth and on a ladder."""
    from matplotlib.figure import Figure

    agreement, gold = _truth(record)
    lead = correlations[(correlations["agreement"] == agreement) & (correlations["gold"] == gold)]
    sides = [
        (f"explainers, {agreement}, gold: {gold}", lead),
        ("ladder", correlations[correlations["family"] == "ladder"]),
    ]
    sides = [(title, side[side["tau"].notna() & ~side["metric"].isin(TRUTHS)]) for title, side in sides]
    sides = [(title, side) for title, side in sides if len(side)]
    pairs = list(dict.fromkeys(pair for _, side in sides for pair in _pairs(side)))
    figure = Figure(figsize=(_WIDTH, 0.8 + 0.21 * len(pairs)), layout="constrained")
    axes = np.atleast_1d(np.asarray(figure.subplots(1, max(1, len(sides)), sharey=True)))
    for axis, (title, side) in zip(axes, sides, strict=False):
        place = np.array([pairs.index(pair) for pair in zip(side["metric"], side["variant"], strict=True)])
        axis.errorbar(side["tau"], place, xerr=_bars(side, "tau"), fmt="o", ms=4, lw=1.2, color=_COLOURS[0])
        for at, p in zip(place, side["p_tau"], strict=True):
            text = "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
            axis.text(1.08, at, text, va="center", fontsize=6.5, color=_INK)
        axis.set_xlim(-1.05, 1.05)
        axis.axvline(0, color=_INK, lw=0.6)
        axis.grid(axis="x", color="#dddddd", lw=0.5)
        axis.set_xlabel(f"Kendall's τ ({title}; {side['explainers'].max()} ranked)", parse_math=False)
    axes[0].set_yticks(range(len(pairs)), [visible(row_title(*pair, record).text) for pair in pairs], parse_math=False)
    axes[0].set_ylim(len(pairs) - 0.5, -0.5)
    _about(figure, record, "Agreement of each metric with the truth")
    return figure


def _costs(metrics: pd.DataFrame, costs: pd.DataFrame, record: Mapping[str, Any]) -> Figure:
    """How much of the gold an explainer finds, against what it costs."""
    from matplotlib.figure import Figure

    agreement, gold = _truth(record)
    mine = metrics[(metrics["metric"] == agreement) & (metrics["variant"] == gold) & metrics["value"].notna()]
    spent = costs[costs["part"] == "explainer"].set_index("name")
    figure = Figure(figsize=(_WIDTH, 2.6), layout="constrained")
    for axis, (of, label, least) in zip(
        np.asarray(figure.subplots(1, 2, sharey=True)).ravel(),
        (
            ("seconds", "milliseconds of one core for each instance", 0.01),
            ("model_rows", "model rows for each instance", 1.0),
        ),
        strict=True,
    ):
        for place, (line, bar) in enumerate(zip(mine.to_dict("records"), _bars(mine, "value").T, strict=True)):
            cost = float(spent.loc[line["explainer"], of]) / record["instances"] * (1000 if of == "seconds" else 1)
            colour = _COLOURS[place % len(_COLOURS)]
            title, mark = visible(record["explainers"][line["explainer"]]), _MARKS[place % len(_MARKS)]
            axis.errorbar(cost, line["value"], yerr=bar[:, None], fmt=mark, ms=4, lw=1.2, color=colour, label=title)
        axis.set_xscale("symlog", linthresh=least)  # some cost nothing
        axis.set_xlim(left=-0.6 * least)
        axis.set_ylim(-0.1, 1.12)
        axis.grid(color="#dddddd", lw=0.5)
        axis.set_xlabel(label)
    legend = figure.legend(*figure.axes[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    for text in legend.get_texts():
        text.set_parse_math(False)
    figure.axes[0].set_ylabel(f"{agreement} (gold: {gold})", parse_math=False)
    _about(figure, record, "Faithfulness against cost")
    return figure
