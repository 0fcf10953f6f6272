"""The spaces in which inputs have positions: the model's embeddings, one-hot codes, and codes on their own scale."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import numpy as np

from cfeval_cli.errors import UserError, one_of
from cfeval_cli.types import (
    ABSENT,
    NONE,
    Access,
    Codes,
    Dataset,
    Distance,
    Embedded,
    Floats,
    Ints,
    Model,
    Search,
    Subject,
)
from cfeval_cli.types.gate import embed, pick

SPACES = ("auto", "embedding", "onehot", "scaled")

_ROWS = 4096  # rows embedded at a time, to bound memory


class Space(Protocol):
    """Squared Euclidean geometry on codes; (n,) for pairs of rows, (n, C) for rows and edits of them."""

    def squared(self, codes: Codes, edited: Codes) -> Floats:
        """Squared distances between rows and their edits."""
        ...

    def norms(self, codes: Codes) -> Floats:
        """Squared norms of rows."""
        ...

    def squared_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Squared distances from each row to each of C edits (C, k) of the same features."""
        ...

    def norms_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Squared norms of each row under each edit."""
        ...

    def gap(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """How far each feature (n, k) of each row has been moved: (n, k, d)."""
        ...


class OneHot:
    """Each value of a feature is a unit vector of its own; an absent feature is zero."""

    def __init__(self, dataset: Dataset) -> None:
        self.dataset = dataset

    def squared(self, codes: Codes, edited: Codes) -> Floats:
        """2 for every exchanged value, 1 where a feature came or went."""
        sides = (codes != ABSENT).astype(float) + (edited != ABSENT)
        return np.asarray(((codes != edited) * sides).sum(axis=1))

    def norms(self, codes: Codes) -> Floats:
        """The number of features that are there."""
        return np.asarray((codes != ABSENT).sum(axis=1), dtype=float)

    def squared_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """2 for every exchanged value, 1 where a feature came."""
        squared = np.zeros((len(codes), len(values)))
        for i, j in enumerate(features):
            own = codes[:, j, None]
            squared += (own != values[:, i]) * (1.0 + (own != ABSENT))
        return squared

    def norms_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """One for each feature that is there after the edit."""
        came = (codes[:, features] == ABSENT).sum(axis=1)
        return np.repeat((self.norms(codes) + came)[:, None], len(values), axis=1)

    def gap(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """There is no one-hot vector for an embedding that has been moved."""
        raise UserError("distance.space=onehot cannot measure moved embeddings. Use distance.space=embedding.")

    def rows(self, codes: Codes) -> Floats:
        """Rows as vectors (n, Σ V)."""
        blocks = [np.eye(len(feature.values) + 1)[codes[:, j], :-1] for j, feature in enumerate(self.dataset.features)]
        return np.concatenate(blocks, axis=1)

    def block(self, features: Ints, values: Codes) -> Floats:
        """Values of some features as vectors."""
        sizes = [len(self.dataset.features[j].values) for j in features]
        return np.concatenate([np.eye(size + 1)[values[:, i], :-1] for i, size in enumerate(sizes)], axis=1)

    def columns(self, features: Ints) -> Ints:
        """Where the vectors of some features stand in a row's."""
        ends = np.cumsum([len(feature.values) for feature in self.dataset.features])
        starts = np.concatenate([[0], ends[:-1]])
        return np.concatenate([np.arange(starts[j], ends[j]) for j in features])


class Scaled(OneHot):
    """One-hot for categories; values that stand in an order have their rank, so that two steps are further than one."""

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(dataset)
        self.ordered = np.array([feature.ordered for feature in dataset.features])

    def squared(self, codes: Codes, edited: Codes) -> Floats:
        """The squared difference of ranks, and 2 for every exchanged category."""
        rest = super().squared(codes[:, ~self.ordered], edited[:, ~self.ordered])
        steps = codes[:, self.ordered].astype(float) - edited[:, self.ordered]
        return np.asarray(rest + (steps**2).sum(axis=1))

    def norms(self, codes: Codes) -> Floats:
        """The squared ranks, and one for every category that is there."""
        return np.asarray(
            super().norms(codes[:, ~self.ordered]) + (codes[:, self.ordered].astype(float) ** 2).sum(axis=1)
        )

    def squared_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """As for pairs of rows."""
        places = np.flatnonzero(~self.ordered[features])
        squared = super().squared_matrix(codes, features[places], values[:, places])
        for i in np.flatnonzero(self.ordered[features]):
            squared += (codes[:, features[i], None].astype(float) - values[:, i]) ** 2
        return squared

    def norms_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """The row's, with the edited ranks exchanged."""
        there = np.flatnonzero(self.ordered[features])
        came = (codes[:, features[~self.ordered[features]]] == ABSENT).sum(axis=1)
        own = (codes[:, features[there]].astype(float) ** 2).sum(axis=1)
        new = (values[:, there].astype(float) ** 2).sum(axis=1)
        return np.asarray((self.norms(codes) + came - own)[:, None] + new)

    def rows(self, codes: Codes) -> Floats:
        """Rows as vectors."""
        return self.block(np.arange(codes.shape[1]), codes)

    def block(self, features: Ints, values: Codes) -> Floats:
        """Values of some features as vectors."""
        parts = []
        for i, j in enumerate(features):
            if self.ordered[j]:
                parts.append(values[:, i, None].astype(float))
            else:
                parts.append(np.eye(len(self.dataset.features[j].values) + 1)[values[:, i], :-1])
        return np.concatenate(parts, axis=1)

    def columns(self, features: Ints) -> Ints:
        """Where the vectors of some features stand in a row's."""
        sizes = [1 if feature.ordered else len(feature.values) for feature in self.dataset.features]
        ends = np.cumsum(sizes)
        return np.concatenate([np.arange(ends[j] - sizes[j], ends[j]) for j in features])


class Embedding:
    """The model's own embeddings, one after the other."""

    def __init__(self, dataset: Dataset, model: Embedded) -> None:
        self.dataset, self.model = dataset, model

    def squared(self, codes: Codes, edited: Codes) -> Floats:
        """The squared length of the difference, to which only exchanged values add."""
        rows, features = np.divmod(np.flatnonzero(codes != edited), codes.shape[1])
        gap = pick(self.model, features, edited[rows, features]) - pick(self.model, features, codes[rows, features])
        squared = np.einsum("nd,nd->n", gap, gap)
        return np.bincount(rows, squared, minlength=len(codes)).astype(np.float64, copy=False)

    def norms(self, codes: Codes) -> Floats:
        """The squared length."""
        return _in_parts(lambda a: (embed(self.model, a) ** 2).sum(axis=(1, 2)), codes)

    def squared_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """By matrix products, which may round to 1e-8 where vectors are nearly the same."""
        own, new = self.block(features, codes[:, features]), self.block(features, values)
        squared = (own**2).sum(axis=1)[:, None] - 2.0 * own @ new.T + (new**2).sum(axis=1)
        return np.asarray(np.maximum(squared, 0.0))

    def norms_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """The row's, with the edited features' part exchanged."""
        own, new = self.block(features, codes[:, features]), self.block(features, values)
        return np.asarray((self.norms(codes) - (own**2).sum(axis=1))[:, None] + (new**2).sum(axis=1))

    def gap(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """How far each feature (n, k) of each row has been moved: (n, k, d), zero where there is none."""
        own = pick(self.model, features.ravel(), np.take_along_axis(codes, features, axis=1).ravel())
        return np.where((features == NONE)[:, :, None], 0.0, vectors - own.reshape(vectors.shape))

    @property
    def dim(self) -> int:
        """The length of an embedding."""
        return int(self.model.vectors(0, np.zeros(1, dtype=np.int32)).shape[1])

    def rows(self, codes: Codes) -> Floats:
        """Rows as vectors (n, M·d)."""
        return embed(self.model, codes).reshape(len(codes), -1)

    def block(self, features: Ints, values: Codes) -> Floats:
        """Values of some features as vectors (n, k·d)."""
        return np.concatenate([self.model.vectors(int(j), values[:, i]) for i, j in enumerate(features)], axis=1)

    def columns(self, features: Ints) -> Ints:
        """Where the vectors of some features stand in a row's."""
        return np.asarray(features[:, None] * self.dim + np.arange(self.dim)).ravel()


class Spaced(Distance):
    """A distance that is measured in one of the spaces."""

    space: str

    def check_space(self) -> None:
        """Refuse a space that there is not."""
        one_of("space", self.space, SPACES)

    def refuses(self, subject: Subject, search: Search) -> str | None:
        """No embeddings, or embeddings that are moved and have no place in the other spaces."""
        if search.moves and self.space in ("onehot", "scaled"):
            return f"distance.space={self.space} cannot measure moved embeddings. Use distance.space=auto or embedding."
        if self.space == "embedding" and (reason := subject.lacks(Embedded)):
            return f"distance.space=embedding {reason}. Use distance.space=auto, scaled or onehot."
        return None

    def embeds(self, model: Model, access: Access) -> bool:
        """Whether it measures between embeddings, which depend on more than the predictions."""
        return isinstance(model, Embedded) and (
            self.space == "embedding" or (self.space == "auto" and access > Access.LABEL)
        )


def choose(distance: Spaced, dataset: Dataset, model: Model, access: Access) -> OneHot | Embedding:
    """The space that a setting means.

    auto: the model's embeddings; without them, or with nothing but labels, one-hot codes and, where there are no
    embeddings at all, the values' own scale.
    """
    if distance.embeds(model, access) and isinstance(model, Embedded):
        return Embedding(dataset, model)
    if distance.space == "embedding":
        raise UserError("distance.space=embedding needs a model with embeddings. Use distance.space=scaled.")
    if distance.space == "scaled" or (distance.space == "auto" and not isinstance(model, Embedded)):
        return Scaled(dataset)
    return OneHot(dataset)


def _in_parts(function: Callable[..., Floats], *arrays: Codes) -> Floats:
    parts = range(0, len(arrays[0]), _ROWS)
    done = [function(*(array[start : start + _ROWS] for array in arrays)) for start in parts]
    return np.concatenate(done) if done else np.zeros(0)
