"""Euclidean distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Access, Codes, Dataset, FittedDistance, Floats, Ints, Model
from cfeval_cli.core.space import Space, VectorDistance, choose_space


@dataclass(frozen=True)
class Euclidean(VectorDistance):
    """Length of the difference between two inputs."""

    def __post_init__(self) -> None:
        self.check_space()

    @property
    def label(self) -> str:
        """The name of the distance in captions."""
        return f"euclidean distance (space: {self.space})"

    def fit(self, dataset: Dataset, model: Model, access: Access) -> FittedDistance:
        """Choose the space for the model and the access level."""
        return _Euclidean(choose_space(self, dataset, model, access))


@dataclass(frozen=True)
class _Euclidean:
    space: Space

    def compute_distances(self, codes: Codes, edited: Codes) -> Floats:
        return np.sqrt(self.space.compute_squared_distances(codes, edited))

    def compute_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        return np.sqrt(self.space.compute_squared_distance_matrix(codes, features, values))

    def compute_embedding_distances(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        return np.asarray(np.sqrt((self.space.compute_differences(codes, features, vectors) ** 2).sum(axis=(1, 2))))
