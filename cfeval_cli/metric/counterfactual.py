"""Counterfactual metrics: whether editing the selected features changes the prediction, and at what distance."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    Access,
    CircularRelation,
    Counterfactuals,
    Metric,
    MetricInput,
    ModelSpec,
    Quantity,
    Removal,
    Score,
)


@dataclass(frozen=True)
class Validity(Metric):
    """Share of instances whose label changes when a search edits the selected features."""

    name = "validity"
    title = "Validity"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    display_order = 40
    needs = "counterfactual"
    quantity = Quantity.FLIPPED

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each access level of the search."""
        for level, counterfactuals in inputs.counterfactuals.items():
            yield Score(_name_variant(level), counterfactuals.flipped.astype(float), np.ones(len(inputs)))


@dataclass(frozen=True)
class Proximity(Metric):
    """Mean distance between an instance and its counterfactual."""

    name = "proximity"
    title = "Proximity"
    better = "lower"
    range = (0.0, float("inf"))
    access = Access.LABEL
    display_order = 50
    needs = "counterfactual"
    quantity = Quantity.DISTANCE

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each access level of the search."""
        for level, counterfactuals in inputs.counterfactuals.items():
            yield Score(_name_variant(level), counterfactuals.distance, np.ones(len(inputs)))


@dataclass(frozen=True)
class ProximityOfFlips(Metric):
    """Mean distance of the counterfactuals that change the label.

    A search that does not flip stops early, which lowers the mean distance of all counterfactuals.
    """

    name = "proximity_flips"
    title = "Proximity of flips"
    better = "lower"
    range = (0.0, float("inf"))
    access = Access.LABEL
    display_order = 51
    needs = "counterfactual"
    zero_denominator_note = "no counterfactual flips"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each access level of the search."""
        for level, counterfactuals in inputs.counterfactuals.items():
            flipped = counterfactuals.flipped.astype(float)
            yield Score(_name_variant(level), flipped * counterfactuals.distance, flipped)


@dataclass(frozen=True)
class C(Metric):
    """Number of label changes per unit of distance."""

    name = "c"
    title = "C"
    latex = r"$\mathcal{C}$"
    title_detail = "{search}, {variant}"
    better = "higher"
    range = (0.0, float("inf"))
    access = Access.LABEL
    display_order = 60
    needs = "counterfactual"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each access level of the search."""
        for level, counterfactuals in inputs.counterfactuals.items():
            yield Score(_name_variant(level), counterfactuals.flipped.astype(float), counterfactuals.distance)


@dataclass(frozen=True)
class ValiditySoft(Metric):
    """Mean drop in the probability of the predicted class when a search edits the selected features."""

    name = "validity_soft"
    title = "Validity_soft"
    latex = r"Validity$_{\mathrm{soft}}$"
    better = "higher"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    display_order = 40
    needs = "counterfactual"

    def circular_with(self, spec: ModelSpec, k: int, variant: str, removals: Mapping[str, Removal]) -> CircularRelation:
        """Return contrast for k = 1, which is the largest drop that another value of the feature causes."""
        return CircularRelation(truths={"contrast"} if k == 1 else set())

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each access level at which the search uses probabilities."""
        for level, counterfactuals in _list_probabilistic(inputs):
            yield Score(_name_variant(level), inputs.compute_drops(counterfactuals.probability), np.ones(len(inputs)))


@dataclass(frozen=True)
class CSoft(Metric):
    """Drop in the probability of the predicted class per unit of distance."""

    name = "c_soft"
    title = "C_soft"
    latex = r"$\mathcal{C}_{\mathrm{soft}}$"
    title_detail = "{search}, {variant}"
    better = "higher"
    range = (float("-inf"), float("inf"))
    access = Access.PROBABILITY
    display_order = 60
    needs = "counterfactual"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each access level at which the search uses probabilities."""
        for level, counterfactuals in _list_probabilistic(inputs):
            yield Score(
                _name_variant(level), inputs.compute_drops(counterfactuals.probability), counterfactuals.distance
            )


def _list_probabilistic(inputs: MetricInput) -> Iterator[tuple[Access, Counterfactuals]]:
    for level, counterfactuals in inputs.counterfactuals.items():
        if counterfactuals.probability is not None:
            yield level, counterfactuals


def _name_variant(level: Access) -> str:
    return level.name.lower()
