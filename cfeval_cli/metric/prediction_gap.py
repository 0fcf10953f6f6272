"""Prediction gaps: how far the prediction moves when the named features, or all others, take what others have.

Agarwal et al. 2022. Unlike comprehensiveness, a move of p(ŷ) in either direction counts, draw by draw.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Bools, FittedRemoval, Metric, MetricInput, Removal, Score
from cfeval_cli.core.explanation import named
from cfeval_cli.metric.erasure import erased


@dataclass(frozen=True)
class PredictionGap(Metric):
    """What both share: the mean of |p(ŷ|x) - p(ŷ|x′)|, features of x′ taken from training rows together."""

    removal: Removal  # by values of training rows

    block = "erasure"
    range = (0.0, 1.0)
    access = Access.PROBABILITY

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """By training rows; the draws are those of the same removal in the run, if it has that."""
        taken = erased(
            inputs, self._way(inputs), np.arange(len(inputs)), self.exchanged(named(inputs.codes, inputs.features))
        )
        if taken.apart is None:
            raise ValueError("a prediction gap needs probabilities")
        yield Score(self.removal.variant, taken.apart, np.ones(len(inputs)))

    @abstractmethod
    def exchanged(self, explained: Bools) -> Bools:
        """Which features (n, M) are exchanged, from which are explained."""

    def _way(self, inputs: MetricInput) -> FittedRemoval:
        """The run's own removal, if it draws the same."""
        same = self.removal
        ways = [way for way in inputs.removals.values() if way.removal == same and way.stand_ins is not None]
        if ways:
            return ways[0]
        return inputs.memory.once(repr(same), lambda: FittedRemoval(same, same.fit(inputs.dataset, inputs.model)))


@dataclass(frozen=True)
class Pgi(PredictionGap):
    """The gap that the explained features make."""

    name = "pgi"
    title = "PGI"
    better = "higher"
    place = 31

    def exchanged(self, explained: Bools) -> Bools:
        """The explained features."""
        return explained


@dataclass(frozen=True)
class Pgu(PredictionGap):
    """The gap that all other features make."""

    name = "pgu"
    title = "PGU"
    better = "lower"
    place = 32

    def exchanged(self, explained: Bools) -> Bools:
        """All others."""
        return ~explained
