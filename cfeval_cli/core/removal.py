"""Removal of features: the values or embeddings that replace them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Protocol

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.data import Codes, Dataset, Floats, Ints
from cfeval_cli.core.model import ModelSpec


class Replacement(Protocol):
    """A removal fitted to a dataset and a model.

    Features are replaced by one value, by an embedding for each feature (`vectors`), or by a weighted sample.
    """

    @property
    def value(self) -> int | None:
        """The value that replaces every removed feature; None if there is no single one."""
        ...

    @property
    def vectors(self) -> Floats | None:
        """The embeddings (M, d) that replace the features' own; None if values replace them."""
        ...

    def sample(self, features: Ints) -> tuple[Codes, Floats]:
        """Return joint values (s, k) that replace features (k,), and their weights (s,)."""
        ...


@dataclass(frozen=True)
class SingleValue:
    """A replacement by the same value for every feature."""

    value: int
    vectors: None = None

    def sample(self, features: Ints) -> tuple[Codes, Floats]:
        """Return the value for each feature, as one joint value (1, k) with weight 1."""
        return np.full((1, len(features)), self.value, dtype=np.int32), np.ones(1)


class Removal(ABC):
    """A method to remove features; its fields are its settings."""

    name: ClassVar[str]
    variant: ClassVar[str]  # the variant of scores that use it
    title: ClassVar[str]  # in the tables
    display_order: ClassVar[int] = 50  # its order in the tables
    arbitrary: ClassVar[bool] = False  # whether results depend on the parametrisation of the model
    cost_settings: ClassVar[tuple[str, ...]] = ()  # settings that reduce the number of evaluations if they are lower
    circular_truth: ClassVar[str] = ""  # the truth that is approximated by probability drops under this removal

    @abstractmethod
    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason why the removal does not apply to the data or the model; None if it does."""

    @abstractmethod
    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """Fit the removal to a dataset and a model."""

    def count_replacements(self, dataset: Dataset, size: int) -> float:
        """Return the mean number of joint values that replace `size` features."""
        return 1.0

    def with_max_draws(self, draws: int) -> Removal:
        """Return the removal with at most this number of draws, if it samples."""
        return self
