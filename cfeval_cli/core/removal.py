"""Removal: what stands in the place of features that are taken away."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.data import Codes, Dataset, Floats, Ints
from cfeval_cli.core.model import ModelSpec


class Replacement(Protocol):
    """A removal, ready for one dataset and model: one value for all, a vector for each feature, or several values."""

    @property
    def value(self) -> int | None:
        """The value that stands for every feature that is removed, if there is one."""
        ...

    @property
    def vectors(self) -> Floats | None:
        """The embedding (M, d) that stands for each feature, if it is no value's."""
        ...

    def sample(self, features: Ints) -> tuple[Codes, Floats]:
        """Values (s, k) that take the place of some features (k,) together, and the weight (s,) of each."""
        ...


@dataclass(frozen=True)
class SingleValue:
    """One value that stands for every feature that is removed."""

    value: int
    vectors: None = None

    def sample(self, features: Ints) -> tuple[Codes, Floats]:
        """Return that value, with all of the weight."""
        return np.full((1, len(features)), self.value, dtype=np.int32), np.ones(1)


class Removal(ABC):
    """A way to take features away; its fields are its settings."""

    name: ClassVar[str]
    variant: ClassVar[str]  # what scores that use it are called
    title: ClassVar[str]  # in the tables
    display_order: ClassVar[int] = 50  # its order in the tables
    arbitrary: ClassVar[bool] = False  # whether results depend on a constant that no prediction depends on
    cost_settings: ClassVar[tuple[str, ...]] = ()  # lower values take fewer model evaluations
    circular_truth: ClassVar[str] = ""  # the truth that drops in probability under this removal approximate

    @abstractmethod
    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Why features of such data, or for such a model, cannot be removed in this way; None if they can."""

    @abstractmethod
    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """Prepare for a dataset and a model."""

    def count_replacements(self, dataset: Dataset, size: int) -> float:
        """Return how many values on average take the place of so many features that are removed together."""
        return 1.0

    def with_max_draws(self, draws: int) -> Removal:
        """The same way with so many draws at most, where it draws."""
        return self
