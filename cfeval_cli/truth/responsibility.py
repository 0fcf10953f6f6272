"""What the decision hangs on."""

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
from cfeval_cli.truth.alternatives import cost, tried

_CELLS = 1 << 22  # numbers of a table in memory
_PAIRS = 2  # features of the largest sets that are tried


@dataclass(frozen=True)
class Responsibility(Truth):
    """1 / size of the smallest set with the feature that can flip the prediction, none of its parts can; else 0.

    Of a number: by the values that a search tries. Exact for trees. Of other models only single features and
    pairs are searched: a feature that flips in larger sets only counts 0.
    """

    budget: int = 50_000  # model rows an instance at most; a tree costs none

    name = "responsibility"
    question = "change"

    def __post_init__(self) -> None:
        check_int("budget", self.budget, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Any model, if the values are not too many."""
        rows = cost(spec.dataset)
        if spec.supports(HasLeaves) or rows <= self.budget:
            return None
        return f"needs {rows:,} model rows an instance, more than truth.responsibility.budget={self.budget}"

    def asks(self, spec: ModelSpec) -> bool:
        """Where nothing is known but predictions."""
        return not spec.supports(HasLeaves)

    def cost(self, spec: ModelSpec) -> int:
        """Every other value of every feature, and of two if that is allowed."""
        single, both = cost(spec.dataset), cost(spec.dataset, _PAIRS)
        return single + both if single + both <= self.budget else single

    def importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """The value alone."""
        return self.found(dataset, model, rows).importance

    def found(self, dataset: Dataset, model: ModelClient, rows: Rows) -> TruthEstimate:
        """From the leaves of a tree, or by trying every value."""
        if model.has_leaves:
            return TruthEstimate(of_tree(dataset, model.get_leaves(), rows))
        alone = _alone(dataset, model, rows)
        values = alone.astype(np.float64)
        pairs = cost(dataset) + cost(dataset, _PAIRS) <= self.budget
        if pairs:
            _add_pairs(dataset, model, rows, alone, values)
        importance = np.where(rows.codes == ABSENT, -np.inf, values)
        if np.count_nonzero(dataset.is_changeable) <= (_PAIRS if pairs else 1):
            return TruthEstimate(importance)
        # a larger set can give a feature of value 0 a positive value: by how much is not known
        unknown = np.full(len(rows), np.nan)
        return TruthEstimate(
            importance, unknown, "searched up to sets of two" if pairs else "searched single features only"
        )


def _alone(dataset: Dataset, model: ModelClient, rows: Rows) -> Bools:
    """Whether each feature (n, M) can flip the prediction by itself."""
    alone = np.zeros(rows.codes.shape, dtype=bool)
    for j in np.flatnonzero(dataset.is_changeable).tolist():
        for some, _, flips, _ in tried(dataset, model, rows, (j,)):
            alone[some, j] = flips.any(axis=1)
    return alone


def _add_pairs(dataset: Dataset, model: ModelClient, rows: Rows, alone: Bools, values: Floats) -> None:
    """Write 1/2 for features that flip with another one, neither of which flips alone."""
    for pair in combinations(np.flatnonzero(dataset.is_changeable).tolist(), _PAIRS):
        open_to = np.flatnonzero(~alone[:, pair].any(axis=1))
        for some, _, flips, _ in tried(dataset, model, rows.take(open_to), pair):
            both = open_to[some][flips.any(axis=1)]
            values[both[:, None], pair] = 1 / _PAIRS


def of_tree(dataset: Dataset, leaves: Leaves, rows: Rows) -> Floats:
    """From the contrastive explanations: minimal ones among the sets in which x disagrees with another class's leaf."""
    classes, width = leaves.probabilities.argmax(axis=1), dataset.n_features
    values = np.zeros(rows.codes.shape)
    step = max(1, _CELLS // (len(classes) * max(len(classes), width)))
    for start in range(0, len(rows), step):
        some = rows.take(slice(start, start + step))
        apart = np.stack([~leaves.accepts(j, some.codes[:, j]) for j in range(width)], axis=2)  # (n, L, M)
        open_to = np.stack([_reachable(dataset, leaves, j, some) for j in range(width)], axis=2)
        can = (classes != some.labels[:, None]) & (open_to | ~apart).all(axis=2)
        sets = apart.astype(np.float32)
        sizes = sets.sum(axis=2)
        beyond = sets @ (1 - sets).transpose(0, 2, 1)  # (n, L, L): how much of the first is not in the second
        inside = (beyond == 0) & (sizes[:, :, None] < sizes[:, None, :]) & can[:, :, None]
        minimal = can & ~inside.any(axis=1)
        share = np.where(minimal, 1.0 / np.maximum(sizes, 1.0), 0.0)
        values[start : start + step] = (apart * share[:, :, None]).max(axis=1, initial=0.0)
    return values


def _reachable(dataset: Dataset, leaves: Leaves, feature: int, rows: Rows) -> Bools:
    """Whether each leaf (n, L) takes a value that a row's may be exchanged for."""
    allowed = dataset.find_allowed(feature, rows.codes[:, feature])
    taken = leaves.boxes[feature][:, dataset.get_alternatives(feature)]
    return np.asarray(allowed.astype(np.float32) @ taken.T.astype(np.float32) > 0)
