"""Predictions for rows with every other allowed value of one or two features."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations, product

import numpy as np

from cfeval_cli.core import ABSENT, Bools, Dataset, Floats, ModelClient, Rows

_MAX_BATCH_ROWS = 1 << 16


@dataclass(frozen=True)
class Alternatives:
    """What a model predicts if features of some rows take the values of each of V combinations."""

    rows: slice
    is_allowed: Bools  # (n, V) whether all features change, each in a permitted way
    is_flip: Bools  # (n, V)
    probability: Floats  # (n, V) p(ŷ); of a model without probabilities 1 where the label stays and else 0


def count_alternatives(dataset: Dataset, size: int = 1) -> int:
    """Return the number of model evaluations per instance for all sets of `size` features."""
    sizes = [len(dataset.get_alternatives(j)) for j in range(dataset.n_features) if dataset.is_changeable[j]]
    if size == 1:
        return sum(sizes)
    return sum(int(np.prod(chosen_sizes)) for chosen_sizes in combinations(sizes, size))


def evaluate_alternatives(
    dataset: Dataset, model: ModelClient, rows: Rows, features: tuple[int, ...]
) -> Iterator[Alternatives]:
    """Yield the predictions for all combinations of values of some features, in batches of rows."""
    values = np.array(list(product(*(dataset.get_alternatives(j) for j in features))), dtype=np.int32)
    step = max(1, _MAX_BATCH_ROWS // max(1, len(values)))
    for start in range(0, len(rows), step):
        part = slice(start, min(start + step, len(rows)))
        batch = rows.take(part)
        is_allowed = np.ones((len(batch), len(values)), dtype=bool)
        for position, j in enumerate(features):
            own, new = batch.codes[:, j][:, None], values[None, :, position]
            is_allowed &= dataset.features[j].allows(own, new) & (own != new) & (own != ABSENT)
        row_numbers, combination_numbers = np.nonzero(is_allowed)
        edited = np.broadcast_to(np.array(features), (len(batch), len(features)))
        flips, after = model.evaluate_edits(
            batch.codes, edited, row_numbers, values[combination_numbers], batch.predicted_classes
        )
        is_flip, probability = np.zeros(is_allowed.shape, dtype=bool), np.ones(is_allowed.shape)
        is_flip[row_numbers, combination_numbers] = flips
        probability[row_numbers, combination_numbers] = 1.0 - flips if after is None else after
        yield Alternatives(part, is_allowed, is_flip, probability)
