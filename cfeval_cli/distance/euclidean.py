"""Euclidean distance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from cfeval_cli.distance.space import SPACES, Space, choose
from cfeval_cli.errors import one_of
from cfeval_cli.types import Access, Codes, Dataset, Floats, Ints, Measure


@dataclass(frozen=True)
class Euclidean:
    """The length of the difference."""

    space: str = "auto"

    def __post_init__(self) -> None:
        one_of("space", self.space, SPACES)

    @property
    def label(self) -> str:
        """What captions say of it."""
        return f"euclidean distance (space: {self.space})"

    def fit(self, dataset: Dataset, model: Any, access: Access) -> Measure:
        """Settle the space."""
        return _Euclidean(choose(self.space, dataset, model, access))


@dataclass(frozen=True)
class _Euclidean:
    space: Space

    def between(self, codes: Codes, edited: Codes) -> Floats:
        return np.sqrt(self.space.squared(codes, edited))

    def matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        return np.sqrt(self.space.squared_matrix(codes, features, values))

    def moved(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        return np.asarray(np.sqrt((self.space.gap(codes, features, vectors) ** 2).sum(axis=(1, 2))))
