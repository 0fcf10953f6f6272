"""Prediction gaps: how far the prediction moves when the named features, or all others, take what others have.

Agarwal et al. 2022. Unlike comprehensiveness, a move of p(ŷ) in either direction counts, draw by draw.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Bools, Case, Metric, Removed, Score
from cfeval_cli.core.explanation import named
from cfeval_cli.errors import whole
from cfeval_cli.metric.erasure import erased
from cfeval_cli.removal.marginal import Marginal


@dataclass(frozen=True)
class PredictionGap(Metric):
    """What both share: the mean of |p(ŷ|x) - p(ŷ|x′)|, features of x′ taken from training rows together."""

    draws: int = 100  # combinations of values at most; of more, so many training rows are drawn
    seed: int = 0

    block = "erasure"
    range = (0.0, 1.0)
    access = Access.PROBABILITY

    def __post_init__(self) -> None:
        whole("draws", self.draws, 1)
        whole("seed", self.seed, 0)

    def score(self, case: Case) -> Iterator[Score]:
        """By training rows; the draws are those of removal by `marginal` with the same settings."""
        taken = erased(case, self._way(case), np.arange(len(case)), self.exchanged(named(case.codes, case.features)))
        if taken.apart is None:
            raise ValueError("a prediction gap needs probabilities")
        yield Score(Marginal.variant, taken.apart, np.ones(len(case)))

    @abstractmethod
    def exchanged(self, explained: Bools) -> Bools:
        """Which features (n, M) are exchanged, from which are explained."""

    def _way(self, case: Case) -> Removed:
        """The run's own removal, if it draws the same."""
        same = Marginal(self.draws, self.seed)
        ways = [way for way in case.removals.values() if way.removal == same and way.stand_ins is not None]
        if ways:
            return ways[0]
        return case.memory.once(repr(same), lambda: Removed(same, same.fit(case.dataset, case.model)))


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
