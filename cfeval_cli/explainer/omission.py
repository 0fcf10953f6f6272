"""Omission: remove one feature at a time and see what is lost."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.errors import one_of
from cfeval_cli.model.gate import probability_of
from cfeval_cli.types import ABSENT, Access, Batch, Dataset, Explanation, Floats

_DEFAULT = {"tabular": "marginal", "text": "mask"}


@dataclass(frozen=True)
class Omission:
    """The drop in p(ŷ) when a feature is removed."""

    removal: str = "auto"  # marginal, mask, zero, or auto: marginal for tables, mask for text

    access = Access.PROBABILITY
    title = "Omission"
    place = 20

    def __post_init__(self) -> None:
        one_of("removal", self.removal, ("auto", "marginal", "mask", "zero"))

    def check(self, dataset: Dataset) -> None:
        """Refuse a mask where there is none."""
        if self.removal == "mask" and dataset.unknown is None:
            raise ValueError(f"removal=mask needs a mask token, and {dataset.name} has none. Use marginal or zero.")

    def fit(self, dataset: Dataset, model: Any) -> Callable[[Batch], Explanation]:
        """Settle which values stand for a removed feature, and with which weights."""
        removal = _DEFAULT[dataset.kind] if self.removal == "auto" else self.removal
        stand_ins = [_stand_ins(removal, dataset, j) for j in range(dataset.width)]

        def explain(batch: Batch) -> Explanation:
            before = probability_of(batch.labels, model.proba(batch.codes))
            drops = np.zeros(batch.codes.shape)
            for j, (values, weights) in enumerate(stand_ins):
                rows = np.flatnonzero(batch.codes[:, j] != ABSENT)
                n, size = len(rows), len(values)
                after = model.edited_proba(
                    batch.codes[rows], np.full((n, 1), j), np.repeat(np.arange(n), size), np.tile(values, n)[:, None]
                ).reshape(n, size)
                weighted = probability_of(batch.labels[rows], after) * weights
                expected = np.ascontiguousarray(weighted).sum(axis=1)  # each row by itself, unlike a matrix product
                drops[rows, j] = before[rows] - expected
            return Explanation.ranked(drops, batch.codes != ABSENT)

        return explain


def _stand_ins(removal: str, dataset: Dataset, feature: int) -> tuple[Any, Floats]:
    """Values that take a removed feature's place, and the weight of each."""
    if removal == "marginal":
        seen = np.flatnonzero(dataset.frequencies[feature])
        return seen.astype(np.int32), dataset.frequencies[feature][seen]
    value = ABSENT if removal == "zero" else dataset.unknown
    return np.array([value], dtype=np.int32), np.ones(1)
