"""Counterfactual metrics: whether editing the selected features changes the prediction, and at what distance."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    Access,
    CircularRelation,
    Counterfactuals,
    Floats,
    Metric,
    MetricInput,
    ModelSpec,
    Quantity,
    Removal,
    Score,
)


@dataclass(frozen=True)
class CounterfactualMetric(Metric):
    """Base of the metrics that are a mean or a ratio over the counterfactuals of a search."""

    access = Access.LABEL
    needs = "counterfactual"

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield a score for each access level of the search that has the inputs of the metric."""
        for level, counterfactuals in inputs.counterfactuals.items():
            if self.access < Access.PROBABILITY or counterfactuals.probability is not None:
                yield Score(level.name.lower(), *self.compute_ratio(inputs, counterfactuals))

    @abstractmethod
    def compute_ratio(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> tuple[Floats, Floats]:
        """Return the numerator and the denominator of each instance."""


@dataclass(frozen=True)
class Validity(CounterfactualMetric):
    """Share of instances whose label changes when a search edits the selected features."""

    name = "validity"
    title = "Validity"
    better = "higher"
    range = (0.0, 1.0)
    display_order = 40
    quantity = Quantity.FLIPPED

    def compute_ratio(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> tuple[Floats, Floats]:
        """Return whether each label changes."""
        return counterfactuals.flipped.astype(float), np.ones(len(inputs))


@dataclass(frozen=True)
class Proximity(CounterfactualMetric):
    """Mean distance between an instance and its counterfactual."""

    name = "proximity"
    title = "Proximity"
    better = "lower"
    range = (0.0, float("inf"))
    display_order = 50
    quantity = Quantity.DISTANCE

    def compute_ratio(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> tuple[Floats, Floats]:
        """Return the distances."""
        return counterfactuals.distance, np.ones(len(inputs))


@dataclass(frozen=True)
class ProximityOfFlips(CounterfactualMetric):
    """Mean distance of the counterfactuals that change the label.

    A search that does not flip stops early, which lowers the mean distance of all counterfactuals.
    """

    name = "proximity_flips"
    title = "Proximity of flips"
    better = "lower"
    range = (0.0, float("inf"))
    display_order = 51
    zero_denominator_note = "no counterfactual flips"

    def compute_ratio(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> tuple[Floats, Floats]:
        """Return the distances of counterfactuals that change the label, and whether each does."""
        flipped = counterfactuals.flipped.astype(float)
        return flipped * counterfactuals.distance, flipped


@dataclass(frozen=True)
class C(CounterfactualMetric):
    """Number of label changes per unit of distance."""

    name = "c"
    title = "C"
    latex = r"$\mathcal{C}$"
    title_details = ("{search}", "{variant}")
    better = "higher"
    range = (0.0, float("inf"))
    display_order = 60

    def compute_ratio(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> tuple[Floats, Floats]:
        """Return whether each label changes, and the distances."""
        return counterfactuals.flipped.astype(float), counterfactuals.distance


@dataclass(frozen=True)
class ValiditySoft(CounterfactualMetric):
    """Mean drop in the probability of the predicted class when a search edits the selected features."""

    name = "validity_soft"
    title = "Validity_soft"
    latex = r"Validity$_{\mathrm{soft}}$"
    better = "higher"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    display_order = 40

    def circular_with(self, spec: ModelSpec, k: int, variant: str, removals: Mapping[str, Removal]) -> CircularRelation:
        """Return contrast for k = 1, which is the largest drop that another value of the feature causes."""
        return CircularRelation(truths={"contrast"} if k == 1 else set())

    def compute_ratio(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> tuple[Floats, Floats]:
        """Return the drops in probability."""
        return inputs.compute_drops(counterfactuals.probability), np.ones(len(inputs))


@dataclass(frozen=True)
class CSoft(CounterfactualMetric):
    """Drop in the probability of the predicted class per unit of distance."""

    name = "c_soft"
    title = "C_soft"
    latex = r"$\mathcal{C}_{\mathrm{soft}}$"
    title_details = ("{search}", "{variant}")
    better = "higher"
    range = (float("-inf"), float("inf"))
    access = Access.PROBABILITY
    display_order = 60

    def compute_ratio(self, inputs: MetricInput, counterfactuals: Counterfactuals) -> tuple[Floats, Floats]:
        """Return the drops in probability, and the distances."""
        return inputs.compute_drops(counterfactuals.probability), counterfactuals.distance
