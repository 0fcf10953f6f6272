"""Plots of single counterfactuals: their distance, what they do to the prediction, whether the search came to rest."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

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

_MOST = 400  # dots of a panel


def draw_distributions(
    instances: pd.DataFrame, counterfactuals: Iterable[pd.DataFrame], names: Sequence[str], record: RunRecord
) -> dict[str, Plot]:
    """By the names of their files, from the counterfactuals part by part."""
    found = _Found.of(instances, counterfactuals)
    drawn = {}
    with apply_style():
        if found.values:
            drawn["distributions"] = _spread(found, names, record)
        if len(found.iterated):
            drawn["convergence"] = _convergence(found.iterated, names, record)
    return drawn


@dataclass(frozen=True)
class _Found:
    """What is drawn of all counterfactuals, of which there may be many."""

    values: Mapping[tuple[str, str, str], Sequence[Floats]]  # by what it is, level of access and explainer, in parts
    iterated: pd.DataFrame  # those whose search came to rest, or did not

    @staticmethod
    def of(instances: pd.DataFrame, parts: Iterable[pd.DataFrame]) -> _Found:
        before = instances.set_index("instance")["predicted_probability"]
        values: dict[tuple[str, str, str], list[Floats]] = {}
        iterated = [pd.DataFrame({"converged": []})]
        for part in parts:
            told = part.assign(drop=part["instance"].map(before) - part["probability"])
            for (level, name), mine in told.groupby(["access", "explainer"], observed=True, sort=False):
                for what in ("distance", "drop"):
                    known = mine[what].dropna().to_numpy(float)
                    values.setdefault((what, str(level), str(name)), []).append(known)
            some = told[told["converged"].notna()]
            if len(some):
                iterated.append(some.astype({"explainer": object, "access": object}))
        return _Found(values, pd.concat(iterated[1:] or iterated, ignore_index=True))

    def of_one(self, what: str, level: str, name: str) -> Floats:
        """Distances or drops of one explainer's counterfactuals."""
        return np.concatenate([np.zeros(0), *self.values.get((what, level, name), ())])

    def has(self, what: str, level: str) -> bool:
        """Whether there is any for anybody."""
        return any(key[:2] == (what, level) and any(map(len, parts)) for key, parts in self.values.items())


def _spread(found: _Found, names: Sequence[str], record: RunRecord) -> Plot:
    """Boxes for each explainer: distances, and drops of the probability where a search saw them."""
    panels = [("distance", level) for level in record.levels]
    panels += [("drop", level) for level in record.levels if found.has("drop", level)]
    titles, seen = {"distance": "distance", "drop": "drop of P(ŷ)"}, assign_looks(names)
    figure = make_figure(WIDE, 0.6 + 0.26 * max(3, len(names)))
    axes: list[Axes] = np.atleast_1d(np.asarray(figure.subplots(1, len(panels), sharey=True))).tolist()
    for axis, (what, level) in zip(axes, panels, strict=True):
        for place, name in enumerate(names):
            values = found.of_one(what, level, name)
            if len(values):
                _box(axis, values, place, seen[name].colour)
        axis.grid(axis="x")
        axis.locator_params(axis="x", nbins=4)
        axis.set_xlabel(f"{titles[what]} ({level})")
    axes[0].set_yticks(
        range(len(names)), [escape_controls(record.explainers[name]) for name in names], parse_math=False
    )
    axes[0].set_ylim(len(names) - 0.5, -0.5)
    caption = (
        "Of single counterfactuals: their distance, and by how much they lower the probability of the class predicted "
        "before. Boxes hold the middle half, whiskers the middle 90 %, the line is the median and the dot the mean."
        + describe_data(record)
    )
    return Plot(figure, "Distances and drops of the probability", caption)


def _box(axis: Axes, values: Any, place: int, colour: str) -> None:
    low, first, middle, third, high = np.percentile(values, (5, 25, 50, 75, 95))
    axis.plot([low, high], [place, place], color=colour, lw=1)
    axis.barh(place, third - first, left=first, height=0.55, color=colour, alpha=0.45, lw=0)
    axis.plot([middle, middle], [place - 0.28, place + 0.28], color=colour, lw=1.6)
    axis.plot(values.mean(), place, "o", ms=3, color=INK)


def _convergence(mine: pd.DataFrame, names: Sequence[str], record: RunRecord) -> Plot:
    """The share of searches that came to rest by their steps, and where those that did and did not ended."""
    figure = make_figure(WIDE, 2.7)
    left, right = figure.subplots(1, 2)
    for name in names:
        mine_too = mine[mine["explainer"] == name]
        steps = np.sort(mine_too.loc[mine_too["converged"].astype(bool), "steps"].dropna().to_numpy(float))
        if len(steps):
            shares = np.arange(1, len(steps) + 1) / len(mine_too)
            drawn = np.linspace(0, len(steps) - 1, min(len(steps), _MOST)).round().astype(int)
            left.step(
                [0, *steps[drawn]], [0, *shares[drawn]], where="post", lw=1.3, color=assign_looks(names)[name].colour,
                label=f"{escape_controls(record.explainers[name])} ({len(steps) / len(mine_too):.1%})",
            )  # fmt: skip
    left.set_xlim(left=0)
    left.set_ylim(0, 1.03)
    left.grid()
    left.set_xlabel("steps")
    left.set_ylabel("share of searches that converged")
    if left.get_legend_handles_labels()[0]:  # somebody converged
        for text in left.legend(frameon=False, fontsize=6, loc="upper left").get_texts():
            text.set_parse_math(False)
    for rest, label, colour, mark in (
        (True, "converged", COLOURS[0], "o"),
        (False, "not converged", COLOURS[3], "x"),
    ):
        dots = mine[mine["converged"].astype(bool) == rest].sort_values(["instance", "explainer"], kind="stable")
        if dots.empty:
            continue
        some = dots.iloc[np.linspace(0, len(dots) - 1, min(len(dots), _MOST)).round().astype(int)]
        right.plot(
            some["distance"], some["probability"], mark, ms=2.2, mew=0.7, alpha=0.6, color=colour, rasterized=True,
            label=f"{label} ({len(dots):,})",
        )  # fmt: skip
    right.axhline(0.5, color=INK, lw=0.6, ls=":")
    right.set_xlabel("distance from the instance")
    right.set_ylabel("P(ŷ) after the search")
    right.set_ylim(-0.03, 1.03)
    right.grid()
    add_legend(figure, right)
    caption = (
        "How many searches came to rest after so many steps, by explainer, and where they ended: below the dotted "
        "line the prediction has flipped. At "
        f"most {_MOST} dots of each kind are drawn." + describe_data(record)
    )
    return Plot(figure, "Convergence of the search", caption)
