"""Vector spaces of inputs: embeddings of the model, one-hot codes, and codes on the scale of their values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np

from cfeval_cli.core.client import embed_features, embed_rows
from cfeval_cli.core.counterfactual import Distance, Search
from cfeval_cli.core.data import ABSENT, NO_FEATURE, Codes, Dataset, Floats, Ints
from cfeval_cli.core.model import Access, HasEmbeddings, Model, ModelSpec
from cfeval_cli.errors import UserError, check_option

SPACES = ("auto", "embedding", "onehot", "scaled")

_BATCH_ROWS = 4096  # rows embedded at a time, to bound the memory


class Space(Protocol):
    """Squared Euclidean distances and norms of codes: (n,) for pairs of rows, (n, C) for rows and edits of them."""

    def compute_squared_distances(self, codes: Codes, edited: Codes) -> Floats:
        """Return the squared distances between rows and their edits."""
        ...

    def compute_squared_norms(self, codes: Codes) -> Floats:
        """Return the squared norms of rows."""
        ...

    def compute_squared_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the squared distances from each row to each of C edits (C, k) of the same features."""
        ...

    def compute_squared_norm_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the squared norms of each row after each edit."""
        ...

    def compute_differences(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """Return the differences (n, k, d) between vectors and the embeddings of the features (n, k) of each row."""
        ...


class OneHot:
    """Each value of a feature is a unit vector of its own; an absent feature is zero."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def compute_squared_distances(self, codes: Codes, edited: Codes) -> Floats:
        """Return 2 for every different value, 1 for features that are absent on one side."""
        n_present = (codes != ABSENT).astype(float) + (edited != ABSENT)
        return np.asarray(((codes != edited) * n_present).sum(axis=1))

    def compute_squared_norms(self, codes: Codes) -> Floats:
        """Return the number of present features."""
        return np.asarray((codes != ABSENT).sum(axis=1), dtype=float)

    def compute_squared_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return 2 for every different value, 1 for features that were absent."""
        squared = np.zeros((len(codes), len(values)))
        for i, j in enumerate(features):
            own = codes[:, j, None]
            squared += (own != values[:, i]) * (1.0 + (own != ABSENT))
        return squared

    def compute_squared_norm_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the number of present features after each edit."""
        n_added = (codes[:, features] == ABSENT).sum(axis=1)
        return np.repeat((self.compute_squared_norms(codes) + n_added)[:, None], len(values), axis=1)

    def compute_differences(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """Raise an error: edited embeddings have no one-hot vector."""
        raise UserError("distance.space=onehot cannot measure edited embeddings. Use distance.space=embedding.")

    def flatten_rows(self, codes: Codes) -> Floats:
        """Return rows as vectors (n, Σ V)."""
        return self.flatten_values(np.arange(codes.shape[1]), codes)

    def flatten_values(self, features: Ints, values: Codes) -> Floats:
        """Return values of some features as vectors."""
        return np.concatenate([self._flatten_feature(int(j), values[:, i]) for i, j in enumerate(features)], axis=1)

    def get_columns(self, features: Ints) -> Ints:
        """Return the columns of some features in the vector of a row."""
        ends = np.cumsum([self._get_dimension(j) for j in range(self.dataset.n_features)])
        return np.concatenate([np.arange(ends[j] - self._get_dimension(int(j)), ends[j]) for j in features])

    def _get_dimension(self, feature: int) -> int:
        """Return the dimension of the vector of a feature."""
        return len(self.dataset.features[feature].values)

    def _flatten_feature(self, feature: int, codes: Codes) -> Floats:
        """Return values of one feature as vectors."""
        vectors = np.zeros((len(codes), self._get_dimension(feature)))
        present = np.flatnonzero(codes != ABSENT)
        vectors[present, codes[present]] = 1.0
        return vectors


class Scaled(OneHot):
    """One-hot for categories; ranks for ordered values; for numbers, the distance from the median in scaled units.

    The unit is the median absolute deviation of the training values, or their standard deviation if that is zero. A
    missing value has the coordinate of the median, and in a second dimension the distance between two categories.
    """

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)
        self.is_ordinal = np.array([feature.is_ordinal for feature in dataset.features])
        self.coordinates = {
            int(j): _compute_coordinates(dataset, int(j)) for j in np.flatnonzero(self.is_ordinal)
        }  # (V, 1) or (V, 2)

    def compute_squared_distances(self, codes: Codes, edited: Codes) -> Floats:
        """Return the squared differences of ordered values, plus 2 for every different category."""
        squared = super().compute_squared_distances(codes[:, ~self.is_ordinal], edited[:, ~self.is_ordinal])
        for j, coordinates in self.coordinates.items():
            squared += ((coordinates[codes[:, j]] - coordinates[edited[:, j]]) ** 2).sum(axis=1)
        return squared

    def compute_squared_norms(self, codes: Codes) -> Floats:
        """Return the squared coordinates of ordered values, plus 1 for every present category."""
        norms = super().compute_squared_norms(codes[:, ~self.is_ordinal])
        for j, coordinates in self.coordinates.items():
            norms += (coordinates**2).sum(axis=1)[codes[:, j]]
        return norms

    def compute_squared_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the squared distances as for pairs of rows."""
        categories = np.flatnonzero(~self.is_ordinal[features])
        squared = super().compute_squared_distance_matrix(codes, features[categories], values[:, categories])
        for i in np.flatnonzero(self.is_ordinal[features]):
            for axis in self.coordinates[int(features[i])].T:
                squared += (axis[codes[:, features[i]]][:, None] - axis[values[:, i]]) ** 2
        return squared

    def compute_squared_norm_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the norms of rows with the coordinates of edited values replaced."""
        n_added = (codes[:, features[~self.is_ordinal[features]]] == ABSENT).sum(axis=1)
        norms = np.repeat((self.compute_squared_norms(codes) + n_added)[:, None], len(values), axis=1)
        for i in np.flatnonzero(self.is_ordinal[features]):
            square = (self.coordinates[int(features[i])] ** 2).sum(axis=1)
            norms += square[values[:, i]] - square[codes[:, features[i]]][:, None]
        return norms

    def _get_dimension(self, feature: int) -> int:
        return self.coordinates[feature].shape[1] if feature in self.coordinates else super()._get_dimension(feature)

    def _flatten_feature(self, feature: int, codes: Codes) -> Floats:
        return (
            self.coordinates[feature][codes]
            if feature in self.coordinates
            else super()._flatten_feature(feature, codes)
        )


def _compute_coordinates(dataset: Dataset, feature: int) -> Floats:
    """Return the coordinates of each value of an ordinal feature: (V, 1), or (V, 2) if values may be missing.

    The first coordinate is the scaled number or the rank of the value. The second is zero except for the missing value,
    whose first coordinate is the median.
    """
    column = dataset.features[feature]
    raw = np.arange(len(column.values)) if column.numbers is None else column.numbers
    line = raw.astype(float)
    codes = dataset.train.codes[:, feature]
    present_values = line[codes[codes != column.missing_code]]
    median = float(np.median(present_values)) if len(present_values) else 0.0
    if column.numbers is not None:
        line = (line - median) / _compute_spread(present_values - median)
        median = 0.0
    if column.missing_code is None:
        return line[:, None]
    missing_axis = np.zeros_like(line)
    line[column.missing_code], missing_axis[column.missing_code] = median, np.sqrt(2.0)
    return np.stack([line, missing_axis], axis=1)


def _compute_spread(gaps: Floats) -> float:
    """Return the median absolute deviation, or the standard deviation if that is zero; 1 for constant values."""
    if not gaps.any():
        return 1.0
    largest = float(np.abs(gaps).max())  # scaled first, so that squares do not overflow
    return float(np.median(np.abs(gaps)) or largest * np.std(gaps / largest))


class Embedding:
    """The concatenated embeddings of the model."""

    def __init__(self, dataset: Dataset, model: HasEmbeddings) -> None:
        self.dataset, self.model = dataset, model

    def compute_squared_distances(self, codes: Codes, edited: Codes) -> Floats:
        """Return the squared length of the difference, to which only different values contribute."""
        rows, features = np.divmod(np.flatnonzero(codes != edited), codes.shape[1])
        gap = embed_features(self.model, features, edited[rows, features]) - embed_features(
            self.model, features, codes[rows, features]
        )
        squared = np.einsum("nd,nd->n", gap, gap)
        return np.bincount(rows, squared, minlength=len(codes)).astype(np.float64, copy=False)

    def compute_squared_norms(self, codes: Codes) -> Floats:
        """Return the squared lengths."""
        return _compute_in_batches(lambda a: (embed_rows(self.model, a) ** 2).sum(axis=(1, 2)), codes)

    def compute_squared_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the squared distances by matrix products, with an error of about 1e-8 for nearly equal vectors."""
        before, after = self.flatten_values(features, codes[:, features]), self.flatten_values(features, values)
        squared = (before**2).sum(axis=1)[:, None] - 2.0 * before @ after.T + (after**2).sum(axis=1)
        return np.asarray(np.maximum(squared, 0.0))

    def compute_squared_norm_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the norms of rows with the part of the edited features replaced."""
        before, after = self.flatten_values(features, codes[:, features]), self.flatten_values(features, values)
        return np.asarray(
            (self.compute_squared_norms(codes) - (before**2).sum(axis=1))[:, None] + (after**2).sum(axis=1)
        )

    def compute_differences(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """Return the differences (n, k, d), zero for NO_FEATURE."""
        before = embed_features(self.model, features.ravel(), np.take_along_axis(codes, features, axis=1).ravel())
        return np.where((features == NO_FEATURE)[:, :, None], 0.0, vectors - before.reshape(vectors.shape))

    @property
    def dim(self) -> int:
        """The dimension of an embedding."""
        return int(self.model.embed_values(0, np.zeros(1, dtype=np.int32)).shape[1])

    def flatten_rows(self, codes: Codes) -> Floats:
        """Return rows as vectors (n, M·d)."""
        return embed_rows(self.model, codes).reshape(len(codes), -1)

    def flatten_values(self, features: Ints, values: Codes) -> Floats:
        """Return values of some features as vectors (n, k·d)."""
        return np.concatenate([self.model.embed_values(int(j), values[:, i]) for i, j in enumerate(features)], axis=1)

    def get_columns(self, features: Ints) -> Ints:
        """Return the columns of some features in the vector of a row."""
        return np.asarray(features[:, None] * self.dim + np.arange(self.dim)).ravel()


@dataclass(frozen=True)
class VectorDistance(Distance):
    """A distance between vectors in one of the spaces."""

    space: str = "auto"

    def check_space(self) -> None:
        """Raise a ValueError for an unknown space."""
        check_option("space", self.space, SPACES)

    def not_applicable_reason(self, spec: ModelSpec, search: Search) -> str | None:
        """Return the reason for models without embeddings, or searches that edit embeddings in another space."""
        if search.moves_embeddings and self.space in ("onehot", "scaled"):
            return (
                f"distance.space={self.space} cannot measure edited embeddings. Use distance.space=auto or embedding."
            )
        if self.space == "embedding" and (reason := spec.missing_ability_reason(HasEmbeddings)):
            return f"distance.space=embedding {reason}. Use distance.space=auto, scaled or onehot."
        return None

    def uses_embeddings(self, model: Model, access: Access) -> bool:
        """Return whether it uses embeddings of the model, which predictions do not determine."""
        return isinstance(model, HasEmbeddings) and (
            self.space == "embedding" or (self.space == "auto" and access > Access.LABEL)
        )

    def make_judge_distance(self) -> VectorDistance:
        """Return the distance in the space `scaled`, unless the setting names a space."""
        return replace(self, space="scaled") if self.space == "auto" else self


def choose_space(distance: VectorDistance, dataset: Dataset, model: Model, access: Access) -> OneHot | Embedding:
    """Return the space of a setting.

    auto: the embeddings of the model; with label access, one-hot codes; for models without embeddings, `scaled`.
    """
    if distance.uses_embeddings(model, access) and isinstance(model, HasEmbeddings):
        return Embedding(dataset, model)
    if distance.space == "embedding":
        raise UserError("distance.space=embedding needs a model with embeddings. Use distance.space=scaled.")
    if distance.space == "scaled" or (distance.space == "auto" and not isinstance(model, HasEmbeddings)):
        return Scaled(dataset)
    return OneHot(dataset)


def _compute_in_batches(function: Callable[..., Floats], *arrays: Codes) -> Floats:
    parts = range(0, len(arrays[0]), _BATCH_ROWS)
    results = [function(*(array[start : start + _BATCH_ROWS] for array in arrays)) for start in parts]
    return np.concatenate(results) if results else np.zeros(0)
