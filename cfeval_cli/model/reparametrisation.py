"""Other parameters for the same predictions, of a logit that is linear in embeddings: b + Σ_j w_j · e_j(x_j)."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from cfeval_cli.core import ABSENT, Codes, Dataset, Floats, Ints, ParameterChange

MAX_SCALE_FACTOR = 2.0  # embeddings are multiplied or divided by at most this factor


@dataclass(frozen=True)
class Group:
    """Features that share a table of embeddings: all features of a text, or one feature of a table."""

    features: Ints  # (m,)
    table: Floats  # (V, d)
    weights: Floats  # (m, d)
    means: Floats  # (m, d) of the embeddings over the training set

    @staticmethod
    def from_tables(tables: Sequence[Floats], weights: Floats, means: Floats) -> list[Group]:
        """Return the groups of the features of a model."""
        members: dict[int, list[int]] = {}
        for j, table in enumerate(tables):
            members.setdefault(id(table), []).append(j)
        return [Group(np.array(js), tables[js[0]], weights[js], means[js]) for js in members.values()]

    @property
    def has_own_table(self) -> bool:
        """Whether the table belongs to a single feature, with weights other than zero."""
        return len(self.features) == 1 and bool(self.weights.any())

    @cached_property
    def null_directions(self) -> Floats:
        """Orthonormal directions (d, d - r) that are orthogonal to all weights."""
        _, sizes, directions = np.linalg.svd(self.weights)
        rank_tolerance = max(self.weights.shape) * np.finfo(float).eps * max(sizes[0], np.finfo(float).tiny)
        return np.asarray(directions[int((sizes > rank_tolerance).sum()) :].T)


@dataclass(frozen=True)
class RedrawnGroup:
    """The new parameters of a group."""

    table: Floats  # (V, d)
    weights: Floats  # (m, d)
    means: Floats  # (m, d)
    constant: float  # added to the logit of every input


def list_changes(groups: Sequence[Group], *, padded: bool) -> tuple[ParameterChange, ...]:
    """Return the possible changes; with inputs of different lengths, a constant would depend on the length."""
    is_possible: dict[ParameterChange, bool] = {
        "constant": not padded and any(group.has_own_table for group in groups),
        "orthogonal": any(group.null_directions.size for group in groups),
        "scale": True,
    }
    return tuple(change for change, possible in is_possible.items() if possible)


def redraw_group(
    group: Group, changes: Collection[ParameterChange], rng: np.random.Generator, dataset: Dataset
) -> RedrawnGroup:
    """Return the group with other parameters; each change is the same whichever others are applied with it."""
    position = rng.random()
    vector_of = _index_vectors(group, dataset)
    noise = rng.normal(size=(int(vector_of.max()) + 1, group.null_directions.shape[1]))[vector_of]
    stretch = _draw_stretch(group, rng)
    table, weights, means, constant = group.table, group.weights, group.means, 0.0
    if "constant" in changes and group.has_own_table:
        effects = table @ weights[0]
        constant = -float(effects.min() + position * (effects.max() - effects.min()))
        shift = constant * weights[0] / (weights[0] @ weights[0])
        table, means = table + shift, means + shift
    if "orthogonal" in changes and group.null_directions.size:
        orthogonal = table @ group.null_directions
        table = table + (noise * np.sqrt((orthogonal**2).mean()) - orthogonal) @ group.null_directions.T
        if len(group.features) == 1:  # from the shares of its few values, which is faster
            means = dataset.frequencies[group.features[0]][None] @ table
        else:
            means = compute_mean_vectors([table] * len(group.features), dataset.train.codes[:, group.features])
    if "scale" in changes:
        weights = np.asarray(np.linalg.solve(stretch, weights.T).T, dtype=np.float64)
        table, means = table @ stretch, means @ stretch
    return RedrawnGroup(table, weights, means, constant)


def _index_vectors(group: Group, dataset: Dataset) -> Ints:
    """Return the index (V,) of the vector of each value; numbers in the same bin share a vector."""
    if dataset.features[group.features[0]].kind != "number":
        return np.arange(len(group.table))
    _, first, inverse = np.unique(group.table, axis=0, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[inverse.ravel()])  # in the order of first occurrence


def compute_mean_vectors(tables: Sequence[Floats], codes: Codes) -> Floats:
    """Return the mean embedding (M, d) of each feature over the rows where it is present."""
    means = np.zeros((len(tables), tables[0].shape[1]))
    for j, table in enumerate(tables):
        present = codes[:, j][codes[:, j] != ABSENT]
        if len(present):
            means[j] = table[present].mean(axis=0)
    return means


def _draw_stretch(group: Group, rng: np.random.Generator) -> Floats:
    """Draw a symmetric matrix (d, d): one factor for the table of a single feature, else one for each direction.

    With one factor for a table that all features share, the order of distances would stay the same.
    """
    dim = group.table.shape[1]
    if len(group.features) == 1:
        return np.asarray(MAX_SCALE_FACTOR ** rng.uniform(-1.0, 1.0) * np.eye(dim))
    orthogonal, upper = np.linalg.qr(rng.normal(size=(dim, dim)))
    directions = orthogonal * np.sign(np.diag(upper))  # uniform among all rotations
    return np.asarray((directions * MAX_SCALE_FACTOR ** rng.uniform(-1.0, 1.0, dim)) @ directions.T)
