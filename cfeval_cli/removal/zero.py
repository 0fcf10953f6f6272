"""Removal by deletion: the embedding becomes zero."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, Codes, Dataset, Embedded, Floats, Gate, Ints, Removal, StandIns, Subject


@dataclass(frozen=True)
class Fixed:
    """One value that stands for every feature that is removed."""

    value: int
    vectors: None = None

    def instead(self, features: Ints) -> tuple[Codes, Floats]:
        """That value."""
        return np.full((1, len(features)), self.value, dtype=np.int32), np.ones(1)


@dataclass(frozen=True)
class Zero(Removal):
    """The paper's deletion. What zero means is up to the training: a constant may be moved into it or out of it."""

    name = "zero"
    place = 10
    variant = "del"
    title = "del."
    arbitrary = True
    finds = "signed"

    def sits_out(self, subject: Subject) -> str | None:
        """A model without embeddings has no zero."""
        return subject.lacks(Embedded)

    def fit(self, dataset: Dataset, model: Gate) -> StandIns:
        """Nothing to prepare."""
        return Fixed(ABSENT)
