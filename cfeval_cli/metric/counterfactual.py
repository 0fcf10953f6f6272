"""Counterfactual metrics: does editing the explained features change the prediction, and how far must one go?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Counterfactuals, Metric, MetricInput, Quantity, Removal, Score


@dataclass(frozen=True)
class Validity(Metric):
    """Share of instances whose label changed."""

    name = "validity"
    title = "Validity"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    place = 40
    needs = "counterfactual"
    quantity = Quantity.FLIPPED

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each level at which the search ran."""
        for level, found in inputs.counterfactuals.items():
            yield Score(_name(level), found.flipped.astype(float), np.ones(len(found.distance)))


@dataclass(frozen=True)
class Proximity(Metric):
    """Mean distance between an input and its counterfactual."""

    name = "proximity"
    title = "Proximity"
    better = "lower"
    range = (0.0, float("inf"))
    access = Access.LABEL
    place = 50
    needs = "counterfactual"
    quantity = Quantity.DISTANCE

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each level at which the search ran."""
        for level, found in inputs.counterfactuals.items():
            yield Score(_name(level), found.distance, np.ones(len(found.distance)))


@dataclass(frozen=True)
class ProximityOfFlips(Metric):
    """Mean distance of the counterfactuals that flip: a search that fails stops early, and flatters the mean of all."""

    name = "proximity_flips"
    title = "Proximity of flips"
    better = "lower"
    range = (0.0, float("inf"))
    access = Access.LABEL
    place = 51
    needs = "counterfactual"
    empty = "no counterfactual flips"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each level at which the search ran."""
        for level, found in inputs.counterfactuals.items():
            yield Score(_name(level), found.flipped.astype(float) * found.distance, found.flipped.astype(float))


@dataclass(frozen=True)
class C(Metric):
    """Label changes for each unit of distance."""

    name = "c"
    title = "C"
    latex = r"$\mathcal{C}$"
    detail = "{search}, {variant}"
    better = "higher"
    range = (0.0, float("inf"))
    access = Access.LABEL
    place = 60
    needs = "counterfactual"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each level at which the search ran."""
        for level, found in inputs.counterfactuals.items():
            yield Score(_name(level), found.flipped.astype(float), found.distance)


@dataclass(frozen=True)
class ValiditySoft(Metric):
    """Mean drop in the predicted class's probability."""

    name = "validity_soft"
    title = "Validity_soft"
    latex = r"Validity$_{\mathrm{soft}}$"
    better = "higher"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    place = 40
    needs = "counterfactual"

    def rewards(self, variant: str, k: int, removals: Mapping[str, Removal]) -> set[str]:
        """Of one feature it is the mean of the largest drop that another value causes."""
        return {"contrast"} if k == 1 else set()

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each level at which the search saw probabilities."""
        for level, found in _soft(inputs):
            yield Score(_name(level), inputs.drops(found.probability), np.ones(len(found.distance)))


@dataclass(frozen=True)
class CSoft(Metric):
    """Drop in probability for each unit of distance."""

    name = "c_soft"
    title = "C_soft"
    latex = r"$\mathcal{C}_{\mathrm{soft}}$"
    detail = "{search}, {variant}"
    better = "higher"
    range = (float("-inf"), float("inf"))
    access = Access.PROBABILITY
    place = 60
    needs = "counterfactual"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """One for each level at which the search saw probabilities."""
        for level, found in _soft(inputs):
            yield Score(_name(level), inputs.drops(found.probability), found.distance)


def _soft(inputs: MetricInput) -> Iterator[tuple[Access, Counterfactuals]]:
    return ((level, found) for level, found in inputs.counterfactuals.items() if found.probability is not None)


def _name(level: Access) -> str:
    return level.name.lower()
