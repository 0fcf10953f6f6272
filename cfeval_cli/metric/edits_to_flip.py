"""Edits to flip: how many of the first features of an explanation must be edited to change the label."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NO_FEATURE, AbsentScore, Access, Explanation, Floats, Metric, MetricInput, Score
from cfeval_cli.core.single_edit import find_best_edit, find_single_edit
from cfeval_cli.errors import check_int
from cfeval_cli.metric.erasure import NO_ORDER


@dataclass(frozen=True)
class EditsToFlip(Metric):
    """Smallest number i such that a greedy search over the first i features changes the label; K + 1 if none up to K.

    The search edits one feature after the other and sets each to the value with the lowest p(ŷ). If the logit is a sum
    of effects, this is the best edit of the first i features, because the best value of a feature does not depend on
    the other features.
    """

    max_features: int = 10  # K, the largest number of features
    values: int = 1000  # the largest number of values of a feature to evaluate, the most frequent ones

    name = "edits_to_flip"
    title = "Edits to flip"
    better = "lower"
    range = (1.0, float("inf"))
    access = Access.PROBABILITY
    needs = "order"
    block = "order"
    display_order = 36

    def __post_init__(self) -> None:
        check_int("max_features", self.max_features, 1)
        check_int("values", self.values, 1)

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """Yield the number of edits of each instance."""
        if inputs.explanation is None:
            yield AbsentScore("greedy", NO_ORDER)
            return
        max_edits = min(self.max_features, inputs.dataset.n_features)
        n_edits = self._count_edits(inputs, inputs.explanation, max_edits)
        n_without_flip = int((n_edits > max_edits).sum())
        remark = (
            f"no flip within {max_edits} features for {{never}} of {{all}} instances, which count {max_edits + 1}"
            if n_without_flip
            else ""
        )
        counts = {"never": n_without_flip, "all": len(inputs)}
        yield Score("greedy", n_edits, np.ones(len(inputs)), remark=remark, counts=counts)

    def _count_edits(self, inputs: MetricInput, explanation: Explanation, max_edits: int) -> Floats:
        """Return how many features (n,) the search edits until the label changes."""
        n_edits, codes = np.full(len(inputs), max_edits + 1.0), inputs.codes.copy()
        probability = np.array(inputs.probability)
        pending = np.arange(len(inputs))
        for step, column in enumerate(explanation.top_k(max_edits).T):
            pending = pending[column[pending] != NO_FEATURE]
            features = column[pending]
            if step:
                own_codes = inputs.codes[pending, features]
                labels = inputs.predicted_classes[pending]
                edit = find_best_edit(
                    inputs.dataset, inputs.model, codes[pending], labels, own_codes, features, self.values
                )
            else:
                edit = find_single_edit(inputs, pending, features, self.values)
            n_edits[pending[edit.flips]] = step + 1
            is_lower = edit.probability < probability[pending]
            positions = pending[is_lower]
            codes[positions, features[is_lower]], probability[positions] = (
                edit.value[is_lower],
                edit.probability[is_lower],
            )
            pending = pending[~edit.flips]
        return n_edits
