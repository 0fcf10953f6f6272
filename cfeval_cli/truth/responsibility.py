"""Ground truth `responsibility`: one over the size of the smallest set of features that flips the prediction."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Bools,
    Dataset,
    Floats,
    HasLeaves,
    Leaves,
    ModelClient,
    ModelSpec,
    Rows,
    Truth,
    TruthEstimate,
)
from cfeval_cli.errors import check_int
from cfeval_cli.truth.alternatives import count_alternatives, evaluate_alternatives

_MAX_ARRAY_SIZE = 1 << 22  # numbers in one array


@dataclass(frozen=True)
class Responsibility(Truth):
    """1 / size of the smallest set with the feature that can flip the prediction while no subset can; 0 if none can.

    Numbers take the candidate values of the searches. The values are exact for trees. For other models only single
    features and pairs are searched: a feature that flips the prediction only in larger sets has the value 0.
    """

    budget: int = 50_000  # largest number of model evaluations per instance; trees need none

    name = "responsibility"
    question = "change"

    def __post_init__(self) -> None:
        check_int("budget", self.budget, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models other than trees on data with too many values."""
        n_rows = count_alternatives(spec.dataset)
        if spec.supports(HasLeaves) or n_rows <= self.budget:
            return None
        return f"needs {n_rows:,} model evaluations per instance, more than truth.responsibility.budget={self.budget}"

    def evaluates_model(self, spec: ModelSpec) -> bool:
        """Return whether the model has predictions only."""
        return not spec.supports(HasLeaves)

    def count_evaluations(self, spec: ModelSpec) -> int:
        """Return the number of other values of all features, with those of all pairs if the budget suffices."""
        n_single = count_alternatives(spec.dataset)
        n_with_pairs = n_single + count_alternatives(spec.dataset, 2)
        return n_with_pairs if n_with_pairs <= self.budget else n_single

    def compute_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Return the importance without its error."""
        return self.estimate(dataset, model, rows).importance

    def estimate(self, dataset: Dataset, model: ModelClient, rows: Rows) -> TruthEstimate:
        """Compute the importance from the leaves of a tree, or by evaluating all values of features and pairs."""
        if model.has_leaves:
            return TruthEstimate(compute_tree_responsibility(dataset, model.get_leaves(), rows))
        flips_alone = _find_single_flips(dataset, model, rows)
        values = flips_alone.astype(np.float64)
        has_pairs = count_alternatives(dataset) + count_alternatives(dataset, 2) <= self.budget
        if has_pairs:
            _add_pairs(dataset, model, rows, flips_alone, values)
        importance = np.where(rows.codes == ABSENT, -np.inf, values)
        if np.count_nonzero(dataset.is_changeable) <= (2 if has_pairs else 1):
            return TruthEstimate(importance)
        # A larger set can give a feature of value 0 a positive value, so that the error is not known.
        unknown = np.full(len(rows), np.nan)
        return TruthEstimate(
            importance, unknown, "searched up to sets of two" if has_pairs else "searched single features only"
        )


def _find_single_flips(dataset: Dataset, model: ModelClient, rows: Rows) -> Bools:
    """Return whether each feature (n, M) can flip the prediction by itself."""
    flips_alone = np.zeros(rows.codes.shape, dtype=bool)
    for j in np.flatnonzero(dataset.is_changeable).tolist():
        for batch in evaluate_alternatives(dataset, model, rows, (j,)):
            flips_alone[batch.rows, j] = batch.is_flip.any(axis=1)
    return flips_alone


def _add_pairs(dataset: Dataset, model: ModelClient, rows: Rows, flips_alone: Bools, values: Floats) -> None:
    """Set the values of pairs that can flip the prediction, while neither feature can alone, to 1/2."""
    for pair in combinations(np.flatnonzero(dataset.is_changeable).tolist(), 2):
        candidates = np.flatnonzero(~flips_alone[:, pair].any(axis=1))
        for batch in evaluate_alternatives(dataset, model, rows.take(candidates), pair):
            flipped = candidates[batch.rows][batch.is_flip.any(axis=1)]
            values[flipped[:, None], pair] = 1 / 2


def compute_tree_responsibility(dataset: Dataset, leaves: Leaves, rows: Rows) -> Floats:
    """Return the responsibility (n, M) for a tree.

    The features that x must change to reach a leaf of another class are a set that flips the prediction; the minimal
    ones of these sets decide.
    """
    classes, n_features = leaves.probabilities.argmax(axis=1), dataset.n_features
    values = np.zeros(rows.codes.shape)
    step = max(1, _MAX_ARRAY_SIZE // (len(classes) * max(len(classes), n_features)))
    for start in range(0, len(rows), step):
        batch = rows.take(slice(start, start + step))
        # (n, L, M): whether x has to change a feature to reach a leaf, and whether it can.
        must_change = np.stack([~leaves.accepts(j, batch.codes[:, j]) for j in range(n_features)], axis=2)
        can_change = np.stack([_find_reachable_leaves(dataset, leaves, j, batch) for j in range(n_features)], axis=2)
        is_reachable = (classes != batch.predicted_classes[:, None]) & (can_change | ~must_change).all(axis=2)
        sets = must_change.astype(np.float32)
        sizes = sets.sum(axis=2)
        n_outside = sets @ (1 - sets).transpose(0, 2, 1)  # (n, L, L): features of the first set not in the second
        is_subset = (n_outside == 0) & (sizes[:, :, None] < sizes[:, None, :]) & is_reachable[:, :, None]
        is_minimal = is_reachable & ~is_subset.any(axis=1)
        share = np.where(is_minimal, 1.0 / np.maximum(sizes, 1.0), 0.0)
        values[start : start + step] = (must_change * share[:, :, None]).max(axis=1, initial=0.0)
    return values


def _find_reachable_leaves(dataset: Dataset, leaves: Leaves, feature: int, rows: Rows) -> Bools:
    """Return whether each leaf (n, L) accepts a value to which a feature of each row may change."""
    is_allowed = dataset.find_allowed(feature, rows.codes[:, feature])
    is_accepted = leaves.boxes[feature][:, dataset.get_alternatives(feature)]
    return np.asarray(is_allowed.astype(np.float32) @ is_accepted.T.astype(np.float32) > 0)
