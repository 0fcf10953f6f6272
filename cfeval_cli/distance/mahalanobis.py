"""Mahalanobis distance."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NO_FEATURE, Access, Codes, Dataset, FittedDistance, Floats, Ints, Model
from cfeval_cli.core.space import Embedding, OneHot, VectorDistance, choose_space
from cfeval_cli.errors import UserError, check_float

_MAX_DIMENSIONS = 5000  # a covariance matrix of 200 MB


@dataclass(frozen=True)
class Mahalanobis(VectorDistance):
    """Length of the difference between two inputs, scaled by the inverse covariance of the training set.

    The covariance S of the training rows is shrunk towards a multiple of the identity,
    (1 - shrinkage)·S + shrinkage·(trace S / D)·I, since one-hot rows and small tables do not fill their space.
    """

    shrinkage: float = 0.01

    def __post_init__(self) -> None:
        self.check_space()
        check_float("shrinkage", self.shrinkage, 0, 1, open_low=True)

    @property
    def label(self) -> str:
        """The name of the distance in captions."""
        return f"mahalanobis distance (space: {self.space}, shrinkage: {self.shrinkage:g})"

    def estimate_fit_cost(self, dataset: Dataset, model: Model, access: Access) -> int:
        """Return the cost of the covariance and its inverse."""
        size = len(choose_space(self, dataset, model, access).get_columns(np.arange(dataset.n_features)))
        return size * size * (len(dataset.train) + size)

    def fit(self, dataset: Dataset, model: Model, access: Access) -> FittedDistance:
        """Invert the covariance of the training rows."""
        space = choose_space(self, dataset, model, access)
        size = len(space.get_columns(np.arange(dataset.n_features)))
        if size > _MAX_DIMENSIONS:
            raise UserError(
                f"distance=mahalanobis would need a covariance of {size:,} dimensions, over {_MAX_DIMENSIONS:,}. "
                "Use distance=euclidean or distance=cosine, or distance.space=embedding."
            )
        covariance = np.atleast_2d(np.cov(space.flatten_rows(dataset.train.codes), rowvar=False))
        target = np.eye(size) * np.trace(covariance) / size
        shrunk = (1.0 - self.shrinkage) * covariance + self.shrinkage * target
        return _Mahalanobis(space, np.linalg.inv(shrunk))


@dataclass(frozen=True)
class _Mahalanobis:
    space: OneHot | Embedding
    precision: Floats  # (D, D)

    def compute_distances(self, codes: Codes, edited: Codes) -> Floats:
        gap = self.space.flatten_rows(edited) - self.space.flatten_rows(codes)
        return np.asarray(np.sqrt(np.einsum("nd,de,ne->n", gap, self.precision, gap, optimize=True)))

    def compute_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        before, after = (
            self.space.flatten_values(features, codes[:, features]),
            self.space.flatten_values(features, values),
        )
        columns = self.space.get_columns(features)
        precision = self.precision[np.ix_(columns, columns)]
        squared = ((before @ precision) * before).sum(axis=1)[:, None] - 2.0 * before @ precision @ after.T
        return np.asarray(np.sqrt(np.maximum(squared + ((after @ precision) * after).sum(axis=1), 0.0)))

    def compute_embedding_distances(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        gap = self.space.compute_differences(codes, features, vectors)
        n, _, dim = gap.shape
        full = np.zeros((n, self.precision.shape[0] // dim, dim))
        rows, positions = np.nonzero(features != NO_FEATURE)
        full[rows, features[rows, positions]] = gap[rows, positions]
        flat = full.reshape(n, -1)
        return np.asarray(np.sqrt(((flat @ self.precision) * flat).sum(axis=1)))
