"""Cosine distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NO_FEATURE, Access, Codes, Dataset, FittedDistance, Floats, Ints, Model
from cfeval_cli.core.space import Space, VectorDistance, choose_space


@dataclass(frozen=True)
class Cosine(VectorDistance):
    """One minus the cosine of the angle between two inputs."""

    def __post_init__(self) -> None:
        self.check_space()

    @property
    def label(self) -> str:
        """The name of the distance in captions."""
        return f"cosine distance (space: {self.space})"

    def fit(self, dataset: Dataset, model: Model, access: Access) -> FittedDistance:
        """Choose the space for the model and the access level."""
        return _Cosine(choose_space(self, dataset, model, access))


@dataclass(frozen=True)
class _Cosine:
    space: Space

    def compute_distances(self, codes: Codes, edited: Codes) -> Floats:
        return _compute_cosine(
            self.space.compute_squared_norms(codes),
            self.space.compute_squared_norms(edited),
            self.space.compute_squared_distances(codes, edited),
        )

    def compute_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        edited = self.space.compute_squared_norm_matrix(codes, features, values)
        return _compute_cosine(
            self.space.compute_squared_norms(codes)[:, None],
            edited,
            self.space.compute_squared_distance_matrix(codes, features, values),
        )

    def compute_embedding_distances(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        gap = self.space.compute_differences(codes, features, vectors)
        is_feature = (features != NO_FEATURE)[:, :, None]
        before = np.where(is_feature, vectors - gap, 0.0)
        norms = self.space.compute_squared_norms(codes)
        after = norms - (before**2).sum(axis=(1, 2)) + (np.where(is_feature, vectors, 0.0) ** 2).sum(axis=(1, 2))
        return _compute_cosine(norms, after, (gap**2).sum(axis=(1, 2)))


def _compute_cosine(a: Floats, b: Floats, squared: Floats) -> Floats:
    """Return the cosine distance from squared norms and the squared distance: 2 a·b = |a|² + |b|² - |a - b|²."""
    size = 2.0 * np.sqrt(a * b)
    return 1.0 - np.divide(a + b - squared, size, out=np.zeros_like(squared), where=size > 0)
