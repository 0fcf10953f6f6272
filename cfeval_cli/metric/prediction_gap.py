"""Prediction gaps: how far the probability moves when features take the values of training rows (Agarwal et al. 2022).

Unlike in comprehensiveness, a change of p(ŷ) in either direction counts, for each draw.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Bools, FittedRemoval, Metric, MetricInput, Removal, Score
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.metric.erasure import compute_erasure


@dataclass(frozen=True)
class PredictionGap(Metric):
    """Base of both gaps: the mean of |p(ŷ|x) - p(ŷ|x′)|, where some features of x′ have values of training rows."""

    removal: Removal  # replaces features by the values of training rows

    block = "erasure"
    range = (0.0, 1.0)
    access = Access.PROBABILITY

    def score(self, inputs: MetricInput) -> Iterator[Score]:
        """Yield the mean gap of each instance."""
        is_replaced = self.select_features_to_replace(mark_selected(inputs.codes, inputs.features))
        effect = compute_erasure(inputs, self._fit_removal(inputs), np.arange(len(inputs)), is_replaced)
        if effect.absolute_drop is None:
            raise ValueError("a prediction gap needs probabilities")
        yield Score(self.removal.variant, effect.absolute_drop, np.ones(len(inputs)))

    @abstractmethod
    def select_features_to_replace(self, is_selected: Bools) -> Bools:
        """Return which features (n, M) are replaced, given the selected features (n, M)."""

    def _fit_removal(self, inputs: MetricInput) -> FittedRemoval:
        """Return the equal removal of the run, if it has one, so that both share model evaluations."""
        for fitted in inputs.removals.values():
            if fitted.removal == self.removal and fitted.replacement is not None:
                return fitted
        return inputs.memory.get_or_create(
            repr(self.removal),
            lambda: FittedRemoval(self.removal, self.removal.fit(inputs.dataset, inputs.model)),
        )


@dataclass(frozen=True)
class Pgi(PredictionGap):
    """Mean change in probability when the selected features take the values of training rows."""

    name = "pgi"
    title = "PGI"
    better = "higher"
    display_order = 31

    def select_features_to_replace(self, is_selected: Bools) -> Bools:
        """Return the selected features."""
        return is_selected


@dataclass(frozen=True)
class Pgu(PredictionGap):
    """Mean change in probability when all features but the selected ones take the values of training rows."""

    name = "pgu"
    title = "PGU"
    better = "lower"
    display_order = 32

    def select_features_to_replace(self, is_selected: Bools) -> Bools:
        """Return all features but the selected ones."""
        return ~is_selected
