"""A constant, for when only the number of flips should count."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Codes, Dataset, Distance, Floats, Ints, Measure, Model
from cfeval_cli.errors import number


@dataclass(frozen=True)
class Constant(Distance):
    """The same for every edit."""

    value: float = 1.0

    def __post_init__(self) -> None:
        number("value", self.value, 0, open_low=True)

    @property
    def label(self) -> str:
        """What captions say of it."""
        return f"constant distance ({self.value:g})"

    def fit(self, dataset: Dataset, model: Model, access: Access) -> Measure:
        """Nothing to prepare."""
        return Same(float(self.value))


@dataclass(frozen=True)
class Same:
    """One distance for all."""

    value: float

    def between(self, codes: Codes, edited: Codes) -> Floats:
        """Of every pair."""
        return np.full(len(codes), self.value)

    def matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Of every row and edit."""
        return np.full((len(codes), len(values)), self.value)

    def moved(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """However far."""
        return np.full(len(codes), self.value)
