"""What the erasure metrics share: removing features, and comparing the prediction before and after.

Removing features is an edit. For the edit that removes the selected features, comprehensiveness equals soft validity,
and the decision flip ratio equals validity. For the edit that removes all other features, sufficiency equals soft
validity.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, AbsentScore, Access, Bools, FittedRemoval, Floats, Ints, Metric, MetricInput, Score
from cfeval_cli.core.evaluation_cache import make_set_keys
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.removal_effect import RemovalEffect, compute_removal_effect

NO_ORDER = "the explainer selects a set of features, without an order or scores"


@dataclass(frozen=True)
class ErasureMetric(Metric):
    """Base of the metrics that have one score for each removal."""

    removals: Sequence[str] | None = None  # names of removals; None: all removals of the run

    block = "erasure"
    max_access = Access.GRADIENT  # removal by mean moves embeddings

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """Yield a score for each removal, or the reason why there is none."""
        for name, fitted in inputs.removals.items():
            if self.removals is not None and name not in self.removals:
                continue
            if fitted.replacement is None:
                yield AbsentScore(fitted.removal.variant, fitted.reason)
            elif fitted.replacement.vectors is not None and inputs.model.access < Access.GRADIENT:
                yield AbsentScore(fitted.removal.variant, "needs access to embeddings (access=gradient)")
            elif self.needs in ("order", "scores") and inputs.explanation is None:
                yield AbsentScore(fitted.removal.variant, NO_ORDER)
            else:
                yield self.score_removal(inputs, fitted)

    @abstractmethod
    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return the score of each instance with one removal."""


def make_mean_score(fitted: FittedRemoval, values: Floats) -> Score:
    """Return a score that is the mean of the values of all instances."""
    return Score(fitted.removal.variant, values, np.ones(len(values)))


def compute_effect_of_selected(inputs: MetricInput, fitted: FittedRemoval) -> RemovalEffect:
    """Return the effect of removing the selected features of each instance."""
    is_selected = mark_selected(inputs.codes, inputs.features)
    return compute_erasure(inputs, fitted, np.arange(len(inputs)), is_selected)


def compute_effect_of_others(inputs: MetricInput, fitted: FittedRemoval) -> RemovalEffect:
    """Return the effect of removing all features of each instance but the selected ones."""
    is_selected = mark_selected(inputs.codes, inputs.features)
    return compute_erasure(inputs, fitted, np.arange(len(inputs)), ~is_selected)


def compute_erasure(inputs: MetricInput, fitted: FittedRemoval, positions: Ints, is_removed: Bools) -> RemovalEffect:
    """Return the effect of removing some features (m, M) from the instances at some positions (m,).

    Results are cached per instance and feature set, so that metrics share them, also across the explanations of
    different explainers.
    """
    replacement = fitted.replacement
    if replacement is None:
        raise ValueError(fitted.reason)
    is_removed = is_removed & (inputs.codes[positions] != ABSENT)

    def evaluate(new_indices: Ints) -> Floats:
        rows = inputs.take(positions[new_indices])
        effect = compute_removal_effect(inputs.model, rows, is_removed[new_indices], replacement)
        unknown = np.full(len(rows), np.nan)
        columns = (effect.flip_rate, effect.probability, effect.absolute_drop)
        return np.stack([unknown if column is None else column for column in columns], axis=1)

    has_probability = inputs.probability is not None and inputs.model.access >= Access.PROBABILITY
    topic = f"{fitted.removal!r}, {'probabilities' if has_probability else 'labels'}"
    flips, probability, absolute_drop = inputs.memory.get_or_compute(
        topic, make_set_keys(is_removed, inputs.ids[positions]), evaluate
    ).T
    return RemovalEffect(flips, probability, absolute_drop) if has_probability else RemovalEffect(flips, None, None)
