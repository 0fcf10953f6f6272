"""Other parameters for the same predictions, of a logit that is linear in embeddings: b + Σ_j w_j · e_j(x_j)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cfeval_cli.core import ABSENT, Codes, Dataset, Floats, Ints, ParameterChange

FACTOR = 2.0  # embeddings become up to so much larger, or smaller


@dataclass(frozen=True)
class Group:
    """Features that share a table of embeddings; on tables each has its own, on text all share one."""

    features: Ints  # (m,)
    table: Floats  # (V, d)
    weights: Floats  # (m, d)
    means: Floats  # (m, d) of the embeddings over the training set

    @staticmethod
    def all(tables: Sequence[Floats], weights: Floats, means: Floats) -> list[Group]:
        """The features of a model by the table that they have."""
        members: dict[int, list[int]] = {}
        for j, table in enumerate(tables):
            members.setdefault(id(table), []).append(j)
        return [Group(np.array(some), tables[some[0]], weights[some], means[some]) for some in members.values()]

    @property
    def alone(self) -> bool:
        """Whether the table is one feature's own, and that is read."""
        return len(self.features) == 1 and bool(self.weights.any())

    @cached_property
    def unseen(self) -> Floats:
        """Orthonormal directions (d, d - r) that no weight looks at."""
        _, sizes, directions = np.linalg.svd(self.weights)
        least = max(self.weights.shape) * np.finfo(float).eps * max(sizes[0], np.finfo(float).tiny)
        return np.asarray(directions[int((sizes > least).sum()) :].T)


@dataclass(frozen=True)
class Redrawn:
    """What became of a group."""

    table: Floats  # (V, d)
    weights: Floats  # (m, d)
    means: Floats  # (m, d)
    constant: float  # that was added to the logit of every input


def changes(groups: Sequence[Group], *, padded: bool) -> tuple[ParameterChange, ...]:
    """What can be changed. Where inputs differ in length, a constant would count as often as there are features."""
    there: dict[ParameterChange, bool] = {
        "constant": not padded and any(group.alone for group in groups),
        "orthogonal": any(group.unseen.size for group in groups),
        "scale": True,
    }
    return tuple(change for change, can in there.items() if can)


def redraw(group: Group, wanted: Collection[ParameterChange], rng: np.random.Generator, dataset: Dataset) -> Redrawn:
    """The group in other parameters; all is drawn, so that a change is the same whichever others are wanted."""
    place = rng.random()
    vector_of = _vectors(group, dataset)
    noise = rng.normal(size=(int(vector_of.max()) + 1, group.unseen.shape[1]))[vector_of]
    stretch = _stretch(group, rng)
    table, weights, means, constant = group.table, group.weights, group.means, 0.0
    if "constant" in wanted and group.alone:
        effects = table @ weights[0]
        constant = -float(effects.min() + place * (effects.max() - effects.min()))
        shift = constant * weights[0] / (weights[0] @ weights[0])
        table, means = table + shift, means + shift
    if "orthogonal" in wanted and group.unseen.size:
        part = table @ group.unseen
        table = table + (noise * np.sqrt((part**2).mean()) - part) @ group.unseen.T
        if len(group.features) == 1:  # the same mean from the shares of its values, of which there are few
            means = dataset.frequencies[group.features[0]][None] @ table
        else:
            means = compute_mean_vectors([table] * len(group.features), dataset.train.codes[:, group.features])
    if "scale" in wanted:
        weights = np.asarray(np.linalg.solve(stretch, weights.T).T, dtype=np.float64)
        table, means = table @ stretch, means @ stretch
    return Redrawn(table, weights, means, constant)


def _vectors(group: Group, dataset: Dataset) -> Ints:
    """Which vector (V,) each value has: its own, but the numbers of a bin share one."""
    if dataset.features[group.features[0]].kind != "number":
        return np.arange(len(group.table))
    _, first, same = np.unique(group.table, axis=0, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[same.ravel()])  # in the order in which they come


def compute_mean_vectors(tables: Sequence[Floats], codes: Codes) -> Floats:
    """The mean embedding (M, d) of each feature over the rows that have it."""
    means = np.zeros((len(tables), tables[0].shape[1]))
    for j, table in enumerate(tables):
        there = codes[:, j][codes[:, j] != ABSENT]
        if len(there):
            means[j] = table[there].mean(axis=0)
    return means


def _stretch(group: Group, rng: np.random.Generator) -> Floats:
    """A symmetric matrix (d, d): one factor for a table of one feature; for a shared one, one for each direction.

    Weights at different places look in different directions, and one factor for all would change no order of distances.
    """
    dim = group.table.shape[1]
    if len(group.features) == 1:
        return np.asarray(FACTOR ** rng.uniform(-1.0, 1.0) * np.eye(dim))
    turned, upper = np.linalg.qr(rng.normal(size=(dim, dim)))
    directions = turned * np.sign(np.diag(upper))  # uniform among all rotations
    return np.asarray((directions * FACTOR ** rng.uniform(-1.0, 1.0, dim)) @ directions.T)
