"""What a model says of rows in which one or two features have every other value that they may have."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, product

import numpy as np

from cfeval_cli.core import ABSENT, Bools, Dataset, Floats, ModelClient, Rows

_ROWS = 1 << 16  # that a model is asked about at once


def cost(dataset: Dataset, size: int = 1) -> int:
    """How many rows an instance takes for all sets of so many features."""
    sizes = [len(dataset.get_alternatives(j)) for j in range(dataset.n_features) if dataset.is_changeable[j]]
    if size == 1:
        return sum(sizes)
    return sum(int(np.prod(some)) for some in combinations(sizes, size))


def tried(
    dataset: Dataset, model: ModelClient, rows: Rows, features: tuple[int, ...]
) -> Iterator[tuple[slice, Bools, Bools, Floats]]:
    """For some rows at a time: which combinations (n, V) all differ and are allowed, which flip, and p(ŷ) after each.

    Of a model that tells labels only, 1 where it says the same and 0 where it does not.
    """
    values = np.array(list(product(*(dataset.get_alternatives(j) for j in features))), dtype=np.int32)
    step = max(1, _ROWS // max(1, len(values)))
    for start in range(0, len(rows), step):
        part = slice(start, min(start + step, len(rows)))
        some = rows.take(part)
        allowed = np.ones((len(some), len(values)), dtype=bool)
        for place, j in enumerate(features):
            own = some.codes[:, j][:, None]
            allowed &= dataset.features[j].allows(own, values[None, :, place]) & (own != values[None, :, place])
            allowed &= own != ABSENT  # padding of a text is not a feature
        # only what is allowed is asked
        who, which = np.nonzero(allowed)
        named = np.broadcast_to(np.array(features), (len(some), len(features)))
        flips, after = model.evaluate_edits(some.codes, named, who, values[which], some.labels)
        flipped, kept = np.zeros(allowed.shape, dtype=bool), np.ones(allowed.shape)
        flipped[who, which] = flips
        kept[who, which] = 1.0 - flips if after is None else after
        yield part, allowed, flipped, kept
