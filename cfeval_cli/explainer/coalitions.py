"""Shapley values by sampling: rows in which some features are the instance's and the others those of background rows.

Orders and sets of features are drawn and weighted as in the shap package.
"""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from cfeval_cli.core import ABSENT, Bools, Codes, Dataset, Floats, Ints, ModelClient
from cfeval_cli.seeding import make_stream

_MAX_NUMBERED_FEATURES = 40  # differing features whose sets can be numbered
_MAX_BATCH_ROWS = 1 << 18
_MAX_ENUMERATED_FEATURES = 30  # as in the package: of more features the sets are not counted
_DRAWS_PER_BATCH = 512
_ROUNDING_ERROR = 1e-10  # of the regression; smaller values are zero, as in the package


def draw_background(dataset: Dataset, size: int, seed: int) -> Codes:
    """Return background rows (B, M): training rows, the same for all instances; of a text the mask token alone."""
    if dataset.padded:
        return np.full((1, dataset.n_features), dataset.mask, dtype=np.int32)
    train = dataset.train.codes
    rows = make_stream(seed, "background").choice(len(train), min(size, len(train)), replace=False)
    return train[np.sort(rows)]


def pad_background(codes: Codes, rows: Codes) -> Codes:
    """Return the background (B, M) of one instance: features that are absent in the instance are absent in it."""
    return np.where(codes == ABSENT, ABSENT, rows)


def find_differing_features(codes: Codes, rows: Codes) -> Ints:
    """Return the features that are not the same in the instance and all of its background."""
    return np.flatnonzero((rows != codes).any(axis=0))


def compute_set_values(
    model: ModelClient, codes: Codes, label: int, rows: Codes, features: Ints, sets: Bools
) -> Floats:
    """Return the mean of p(label) over the background (B, M) for each set (S, m) of features taken from the instance.

    A background row that shares values with the instance makes fewer different rows than there are sets. The model is
    then evaluated on each of these once.
    """
    n_differing = (rows[:, features] != codes[features]).sum(axis=1)
    is_shared = (1 << np.minimum(n_differing, _MAX_NUMBERED_FEATURES)) <= len(sets)
    step = max(1, _MAX_BATCH_ROWS // len(sets))
    parts = [
        evaluate(model, codes, label, group[start : start + step], features, sets)
        for evaluate, group in ((_evaluate_distinct_rows, rows[is_shared]), (_evaluate_all_rows, rows[~is_shared]))
        for start in range(0, len(group), step)
    ]
    return np.asarray(np.concatenate(parts, axis=1).mean(axis=1))


def _evaluate_all_rows(
    model: ModelClient, codes: Codes, label: int, rows: Codes, features: Ints, sets: Bools
) -> Floats:
    """Return p(label) (S, B) for every set and background row."""
    is_own = np.repeat(sets.T, len(rows), axis=1)
    columns = np.tile(rows.T, len(sets))
    return _evaluate_columns(model, codes, label, columns, features, is_own).reshape(len(sets), -1)


def _evaluate_distinct_rows(
    model: ModelClient, codes: Codes, label: int, rows: Codes, features: Ints, sets: Bools
) -> Floats:
    """Return the same, after evaluating each row that a set of differing features makes of a background row once."""
    differs = (rows[:, features] != codes[features]).T  # (m, B)
    bits = np.where(differs, np.cumsum(differs, axis=0) - 1, 0).astype(np.int32)  # position among those that differ
    sizes = 1 << differs.sum(axis=0)
    starts = np.cumsum(sizes) - sizes
    number = np.arange(sizes.sum(), dtype=np.int32) - np.repeat(starts.astype(np.int32), sizes)
    is_own = ((number >> np.repeat(bits, sizes, axis=1)) & 1).astype(bool)
    probability = _evaluate_columns(model, codes, label, np.repeat(rows.T, sizes, axis=1), features, is_own)
    # The number of the row that a set makes of a background row. Products of floats are fast, and here exact.
    numbers = sets.astype(np.float64) @ np.where(differs, 2.0**bits, 0.0)
    return np.asarray(probability.take(numbers.astype(np.int64) + starts))


def _evaluate_columns(
    model: ModelClient, codes: Codes, label: int, columns: Codes, features: Ints, is_own: Bools
) -> Floats:
    """Return p(label) (n,) of rows, given as columns (M, n), in which some features (m, n) become the instance's."""
    for j, where in zip(features.tolist(), is_own, strict=True):
        np.copyto(columns[j], codes[j], where=where)
    return model.predict_class_proba(columns.T, np.full(columns.shape[1], label))


def estimate_by_permutations(
    model: ModelClient, n_permutations: int, codes: Codes, label: int, rows: Codes, random: Any
) -> Floats:
    """Return Shapley values (M,) from random orders of the features, each forwards and backwards, drawn as by shap."""
    scores, features = np.zeros(len(codes)), find_differing_features(codes, rows)
    size = len(features)
    if not size:
        return scores
    order, orders = np.arange(size), np.empty((n_permutations, size), dtype=np.int64)
    for row in orders:
        random.shuffle(order)
        row[:] = order
    positions = np.argsort(orders, axis=1)  # of each feature in each order
    forwards = positions[:, None] < np.arange(size + 1)[:, None]  # (n_permutations, size + 1, size): after each step
    inner = np.concatenate([forwards[:, 1:-1], ~forwards[:, 1:-1]]).reshape(-1, size)
    values = compute_set_values(model, codes, label, rows, features, np.concatenate([_list_ends(size), inner]))
    walks = np.empty((2, n_permutations, size + 1))
    walks[0, :, 0] = walks[1, :, -1] = values[0]
    walks[0, :, -1] = walks[1, :, 0] = values[1]
    walks[:, :, 1:-1] = values[2:].reshape(2, n_permutations, size - 1)
    gains = np.take_along_axis(np.diff(walks[0]) - np.diff(walks[1]), positions, axis=1)
    scores[features] = gains.sum(axis=0) / (2 * n_permutations)
    return scores


def estimate_by_regression(
    model: ModelClient, n_samples: int | None, codes: Codes, label: int, rows: Codes, random: Any
) -> Floats:
    """Return Shapley values (M,) by a weighted regression on sets of features, drawn and weighted as by shap."""
    scores, features = np.zeros(len(codes)), find_differing_features(codes, rows)
    size = len(features)
    if not size:
        return scores
    sets, weights = (
        (np.zeros((0, size), dtype=bool), np.zeros(0)) if size == 1 else _sample_sets(size, n_samples, random)
    )
    values = compute_set_values(model, codes, label, rows, features, np.concatenate([_list_ends(size), sets]))
    total = values[1] - values[0]
    scores[features] = total if size == 1 else _solve_regression(sets, weights, values[2:] - values[0], total)
    return scores


def _list_ends(size: int) -> Bools:
    """Return the set of no feature and that of all."""
    return np.stack([np.zeros(size, dtype=bool), np.ones(size, dtype=bool)])


def _sample_sets(size: int, n_samples: int | None, random: Any) -> tuple[Bools, Floats]:
    """Return sets (S, m) and weights: all sets of the smallest and largest sizes, then random ones of the others."""
    n_wanted = 2 * size + 2**11 if n_samples is None else n_samples
    if size <= _MAX_ENUMERATED_FEATURES:
        n_wanted = min(n_wanted, 2**size - 2)
    n_sizes, n_paired = -(-(size - 1) // 2), (size - 1) // 2  # a set of a paired size comes with its complement
    shares = np.array([(size - 1.0) / (i * (size - i)) for i in range(1, n_sizes + 1)])
    shares[:n_paired] *= 2
    shares /= shares.sum()
    n_full, n_left, remaining = 0, float(n_wanted), shares.copy()
    enumerated, weights = [np.zeros((0, size), dtype=bool)], [np.zeros(0)]
    for i in range(1, n_sizes + 1):
        n_sets = comb(size, i) * (1 + (i <= n_paired))
        if n_left * remaining[i - 1] / n_sets < 1.0 - 1e-8:
            break
        n_full += 1
        n_left -= n_sets
        if remaining[i - 1] < 1.0:
            remaining /= 1 - remaining[i - 1]
        enumerated.append(_enumerate_sets(size, i, with_complements=i <= n_paired))
        weights.append(np.full(len(enumerated[-1]), shares[i - 1] / n_sets))
    sets = np.concatenate(enumerated)
    if n_full == n_sizes:
        return sets, np.concatenate(weights)
    odds = shares.copy()
    odds[:n_paired] /= 2  # each draw of a paired size adds two sets
    odds = odds[n_full:] / odds[n_full:].sum()
    random_sets, counts = _draw_sets(size, n_full, n_paired, n_wanted - len(sets), odds, random)
    weights.append(counts * (shares[n_full:].sum() / counts.sum()))
    return np.concatenate([sets, random_sets]), np.concatenate(weights)


def _enumerate_sets(size: int, n_members: int, *, with_complements: bool) -> Bools:
    """Return all sets of a number of features, each followed by its complement if requested."""
    members = np.array(list(combinations(range(size), n_members)))
    sets = np.zeros((len(members), size), dtype=bool)
    np.put_along_axis(sets, members, True, axis=1)
    return np.stack([sets, ~sets], axis=1).reshape(-1, size) if with_complements else sets


def _draw_sets(size: int, n_full: int, n_paired: int, n_left: int, odds: Floats, random: Any) -> tuple[Bools, Floats]:
    """Return random sets of the sizes that were not enumerated, and how often each was drawn."""
    all_sizes = random.choice(len(odds), 4 * n_left, p=odds) + n_full + 1
    positions: dict[bytes, int] = {}  # of a set, by its bits
    batches: list[Bools] = []
    draws: list[int] = []  # for each set, the number of its draw; of a complement, the bitwise inverse of that number
    repeated: list[int] = []  # positions of sets that were drawn again
    for start in range(0, len(all_sizes), _DRAWS_PER_BATCH):
        if n_left <= 0:
            break
        sizes = all_sizes[start : start + _DRAWS_PER_BATCH]
        orders = np.tile(np.arange(size), (len(sizes), 1))
        for row in orders:  # the same numbers as `permutation` draws, without its overhead
            random.shuffle(row)
        batch = np.zeros(orders.shape, dtype=bool)
        np.put_along_axis(batch, orders, np.arange(size) < sizes[:, None], axis=1)
        batches.append(batch)
        packed = np.packbits(batch, axis=1)
        keys = packed.view(f"V{packed.shape[1]}").ravel().tolist()
        for draw, (key, is_paired) in enumerate(zip(keys, (sizes <= n_paired).tolist(), strict=True), start):
            if n_left <= 0:
                break
            position = positions.get(key)
            if position is not None:
                repeated += (position, position + 1) if is_paired else (position,)
                continue
            positions[key] = len(draws)
            draws.append(draw)
            n_left -= 1
            if is_paired and n_left > 0:
                draws.append(~draw)
                n_left -= 1
    numbers = np.array(draws)
    is_complement = numbers < 0
    sets = np.concatenate(batches)[np.where(is_complement, ~numbers, numbers)] ^ is_complement[:, None]
    return sets, np.bincount(repeated, minlength=len(draws)) + np.ones(len(draws))


def _solve_regression(sets: Bools, weights: Floats, gains: Floats, total: float) -> Floats:
    """Return the coefficients of weighted least squares under the condition that they sum to the total."""
    last = sets[:, -1].astype(float)
    design = sets[:, :-1] - last[:, None]
    weighted = weights[:, None] * design
    target = gains - last * total
    try:
        coefficients = np.linalg.solve(design.T @ weighted, weighted.T @ target)
    except np.linalg.LinAlgError:  # fewer sets than features
        root = np.sqrt(weights)
        coefficients = np.linalg.lstsq(root[:, None] * design, root * target, rcond=None)[0]
    coefficients = np.append(coefficients, total - coefficients.sum())
    return np.where(np.abs(coefficients) < _ROUNDING_ERROR, 0.0, coefficients)
