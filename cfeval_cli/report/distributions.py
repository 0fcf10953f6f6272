"""Plots of single counterfactuals: their distance, the change of the prediction, and convergence of the search."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.errors import escape_controls
from cfeval_cli.report.plots import (
    COLOURS,
    INK,
    WIDE,
    Plot,
    add_legend,
    apply_style,
    assign_looks,
    describe_data,
    make_figure,
)
from cfeval_cli.results.record import RunRecord

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_MAX_DOTS = 400  # of a panel
_QUANTITIES = {"distance": "distance", "drop": "drop of P(ŷ)"}


def draw_distributions(
    instances: pd.DataFrame, counterfactuals: Iterable[pd.DataFrame], names: Sequence[str], record: RunRecord
) -> dict[str, Plot]:
    """Return the plots by the names of their files, from parts of the table of counterfactuals."""
    values = _CounterfactualValues.from_parts(instances, counterfactuals)
    figures = {}
    with apply_style():
        if values.arrays:
            figures["distributions"] = _draw_boxes(values, names, record)
        if len(values.iterated):
            figures["convergence"] = _draw_convergence(values.iterated, names, record)
    return figures


@dataclass(frozen=True)
class _CounterfactualValues:
    """The values of all counterfactuals that are drawn."""

    arrays: Mapping[tuple[str, str, str], Sequence[Floats]]  # by quantity, access level and explainer, in parts
    iterated: pd.DataFrame  # counterfactuals of searches that iterate

    @staticmethod
    def from_parts(instances: pd.DataFrame, parts: Iterable[pd.DataFrame]) -> _CounterfactualValues:
        before = instances.set_index("instance")["predicted_probability"]
        arrays: dict[tuple[str, str, str], list[Floats]] = {}
        iterated = [pd.DataFrame({"converged": []})]
        for part in parts:
            edits = part.assign(drop=part["instance"].map(before) - part["probability"])
            for (level, name), lines in edits.groupby(["access", "explainer"], observed=True, sort=False):
                for quantity in _QUANTITIES:
                    array = lines[quantity].dropna().to_numpy(float)
                    arrays.setdefault((quantity, str(level), str(name)), []).append(array)
            of_iterating = edits[edits["converged"].notna()]
            if len(of_iterating):
                iterated.append(of_iterating.astype({"explainer": object, "access": object}))
        return _CounterfactualValues(arrays, pd.concat(iterated[1:] or iterated, ignore_index=True))

    def join(self, quantity: str, level: str, name: str) -> Floats:
        """Return a quantity of the counterfactuals of one explainer."""
        return np.concatenate([np.zeros(0), *self.arrays.get((quantity, level, name), ())])

    def has(self, quantity: str, level: str) -> bool:
        """Return whether any explainer has values."""
        return any(key[:2] == (quantity, level) and any(map(len, parts)) for key, parts in self.arrays.items())


def _draw_boxes(values: _CounterfactualValues, names: Sequence[str], record: RunRecord) -> Plot:
    """Draw boxes for each explainer: distances, and drops of the probability where the search has access to it."""
    panels = [("distance", level) for level in record.levels]
    panels += [("drop", level) for level in record.levels if values.has("drop", level)]
    looks = assign_looks(names)
    figure = make_figure(WIDE, 0.6 + 0.26 * max(3, len(names)))
    axes: list[Axes] = np.atleast_1d(np.asarray(figure.subplots(1, len(panels), sharey=True))).tolist()
    for axis, (quantity, level) in zip(axes, panels, strict=True):
        for height, name in enumerate(names):
            array = values.join(quantity, level, name)
            if len(array):
                _draw_box(axis, array, height, looks[name].colour)
        axis.grid(axis="x")
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlabel(f"{_QUANTITIES[quantity]} ({level})")
    axes[0].set_yticks(
        range(len(names)), [escape_controls(record.explainers[name]) for name in names], parse_math=False
    )
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    caption = (
        "Distances of single counterfactuals, and by how much they lower the probability of the class predicted "
        "before. Boxes: middle half; whiskers: middle 90 %; line: median; dot: mean." + describe_data(record)
    )
    return Plot(figure, "Distances and drops of the probability", caption)


def _draw_box(axis: Axes, values: Floats, height: int, colour: str) -> None:
    low, first, middle, third, high = np.percentile(values, (5, 25, 50, 75, 95))
    axis.plot([low, high], [height, height], color=colour, lw=1)
    axis.barh(height, third - first, left=first, height=0.55, color=colour, alpha=0.45, lw=0)
    axis.plot([middle, middle], [height - 0.28, height + 0.28], color=colour, lw=1.6)
    axis.plot(values.mean(), height, "o", ms=3, color=INK)


def _draw_convergence(edits: pd.DataFrame, names: Sequence[str], record: RunRecord) -> Plot:
    """Draw the share of searches that converged by their steps, and the ends of all searches."""
    looks = assign_looks(names)
    figure = make_figure(WIDE, 2.7)
    left, right = figure.subplots(1, 2)
    for name in names:
        lines = edits[edits["explainer"] == name]
        steps = np.sort(lines.loc[lines["converged"].astype(bool), "steps"].dropna().to_numpy(float))
        if len(steps):
            shares = np.arange(1, len(steps) + 1) / len(lines)
            shown = _select_evenly(len(steps))
            left.step(
                [0, *steps[shown]], [0, *shares[shown]], where="post", lw=1.3, color=looks[name].colour,
                label=f"{escape_controls(record.explainers[name])} ({len(steps) / len(lines):.1%})",
            )  # fmt: skip
    left.set_xlim(left=0)
    left.set_ylim(0, 1.03)
    left.grid()
    left.set_xlabel("steps")
    left.set_ylabel("share of searches that converged")
    if left.get_legend_handles_labels()[0]:
        for text in left.legend(frameon=False, fontsize=6, loc="upper left").get_texts():
            text.set_parse_math(False)
    for converged, label, colour, mark in (
        (True, "converged", COLOURS[0], "o"),
        (False, "not converged", COLOURS[3], "x"),
    ):
        ends = edits[edits["converged"].astype(bool) == converged].sort_values(["instance", "explainer"], kind="stable")
        if ends.empty:
            continue
        dots = ends.iloc[_select_evenly(len(ends))]
        right.plot(
            dots["distance"], dots["probability"], mark, ms=2.2, mew=0.7, alpha=0.6, color=colour, rasterized=True,
            label=f"{label} ({len(ends):,})",
        )  # fmt: skip
    right.axhline(0.5, color=INK, lw=0.6, ls=":")
    right.set_xlabel("distance from the instance")
    right.set_ylabel("P(ŷ) after the search")
    right.set_ylim(-0.03, 1.03)
    right.grid()
    add_legend(figure, right)
    caption = (
        "Share of searches that converged within so many steps, by explainer, and the ends of all searches: below the "
        f"dotted line the prediction has flipped. At most {_MAX_DOTS} dots of each kind are drawn."
        + describe_data(record)
    )
    return Plot(figure, "Convergence of the search", caption)


def _select_evenly(count: int) -> list[int]:
    """Return at most _MAX_DOTS of so many rows, evenly spread."""
    rows: list[int] = np.linspace(0, count - 1, min(count, _MAX_DOTS)).round().astype(int).tolist()
    return rows
