"""What a model says when some features are an instance's own and the others those of background rows."""

from __future__ import annotations

from itertools import combinations
from math import comb
from typing import Any

import numpy as np

from cfeval_cli.core import ABSENT, Bools, Codes, Dataset, Floats, Ints, ModelClient
from cfeval_cli.seeding import make_stream

_MOST = 40  # differing features whose sets can be numbered
_AT_ONCE = 1 << 18  # rows put before the model at once
_DRAWS = 512  # sets drawn at a time


def background(dataset: Dataset, size: int, seed: int) -> Codes:
    """Training rows (B, M) that stand for what is usual, the same for all who ask; of a text the mask token alone."""
    if dataset.padded:
        return np.full((1, dataset.n_features), dataset.mask, dtype=np.int32)
    train = dataset.train.codes
    rows = make_stream(seed, "background").choice(len(train), min(size, len(train)), replace=False)
    return train[np.sort(rows)]


def behind(codes: Codes, rows: Codes) -> Codes:
    """The background (B, M) of one instance: where it has ended, so have they."""
    return np.where(codes == ABSENT, ABSENT, rows)


def differing(codes: Codes, rows: Codes) -> Ints:
    """The features that are not the same in the instance and all of its background."""
    return np.flatnonzero((rows != codes).any(axis=0))


def values(model: ModelClient, codes: Codes, label: int, rows: Codes, features: Ints, sets: Bools) -> Floats:
    """The mean of p(label) over the background (B, M) for each set (S, m) of those features that are the instance's.

    A background row that shares values with the instance makes fewer rows than there are sets: then the model is asked
    about each of those once.
    """
    differ = (rows[:, features] != codes[features]).sum(axis=1)
    few = (1 << np.minimum(differ, _MOST)) <= len(sets)
    step = max(1, _AT_ONCE // len(sets))
    parts = [
        asked(model, codes, label, some[start : start + step], features, sets)
        for asked, some in ((_shared, rows[few]), (_each, rows[~few]))
        for start in range(0, len(some), step)
    ]
    return np.asarray(np.concatenate(parts, axis=1).mean(axis=1))


def _each(model: ModelClient, codes: Codes, label: int, rows: Codes, features: Ints, sets: Bools) -> Floats:
    """The answers (S, B) for every set and background row."""
    own = np.repeat(sets.T, len(rows), axis=1)
    return _answers(model, codes, label, np.tile(rows.T, len(sets)), features, own).reshape(len(sets), -1)


def _shared(model: ModelClient, codes: Codes, label: int, rows: Codes, features: Ints, sets: Bools) -> Floats:
    """The same from the rows that all sets of the differing features make of each background row, each asked once."""
    apart = (rows[:, features] != codes[features]).T  # (m, B)
    bits = np.where(apart, np.cumsum(apart, axis=0) - 1, 0).astype(np.int32)  # the place of each among what differs
    sizes = 1 << apart.sum(axis=0)
    starts = np.cumsum(sizes) - sizes
    number = np.arange(sizes.sum(), dtype=np.int32) - np.repeat(starts.astype(np.int32), sizes)
    own = ((number >> np.repeat(bits, sizes, axis=1)) & 1).astype(bool)
    told = _answers(model, codes, label, np.repeat(rows.T, sizes, axis=1), features, own)
    # which of its rows a set makes of a background row; in floats, whose products are fast and here exact
    which = sets.astype(np.float64) @ np.where(apart, 2.0**bits, 0.0)
    return np.asarray(told.take(which.astype(np.int64) + starts))


def _answers(model: ModelClient, codes: Codes, label: int, columns: Codes, features: Ints, own: Bools) -> Floats:
    """p(label) (n,) of rows, given as columns (M, n), in which some features (m, n) become the instance's own."""
    for j, mine in zip(features.tolist(), own, strict=True):
        np.copyto(columns[j], codes[j], where=mine)
    return model.predict_class_proba(columns.T, np.full(columns.shape[1], label))


def permutation(model: ModelClient, codes: Codes, label: int, rows: Codes, times: int, random: Any) -> Floats:
    """Shapley values (M,) from so many random orders of the features, each there and back, as shap draws them."""
    scores, features = np.zeros(len(codes)), differing(codes, rows)
    size = len(features)
    if not size:
        return scores
    order, orders = np.arange(size), np.empty((times, size), dtype=np.int64)
    for one in orders:
        random.shuffle(order)
        one[:] = order
    places = np.argsort(orders, axis=1)  # of each feature in each order
    forth = places[:, None] < np.arange(size + 1)[:, None]  # (times, size + 1, size): after so many steps
    inner = np.concatenate([forth[:, 1:-1], ~forth[:, 1:-1]]).reshape(-1, size)
    ends = np.stack([np.zeros(size, dtype=bool), np.ones(size, dtype=bool)])
    told = values(model, codes, label, rows, features, np.concatenate([ends, inner]))
    walks = np.empty((2, times, size + 1))
    walks[0, :, 0] = walks[1, :, -1] = told[0]
    walks[0, :, -1] = walks[1, :, 0] = told[1]
    walks[:, :, 1:-1] = told[2:].reshape(2, times, size - 1)
    gains = np.take_along_axis(np.diff(walks[0]) - np.diff(walks[1]), places, axis=1)
    scores[features] = gains.sum(axis=0) / (2 * times)
    return scores


def kernel(model: ModelClient, codes: Codes, label: int, rows: Codes, samples: int | None, random: Any) -> Floats:
    """Shapley values (M,) by a weighted regression on sets of features, as shap draws and weighs them."""
    scores, features = np.zeros(len(codes)), differing(codes, rows)
    size = len(features)
    if not size:
        return scores
    sets, weights = (np.zeros((0, size), dtype=bool), np.zeros(0)) if size == 1 else _drawn(size, samples, random)
    ends = np.stack([np.zeros(size, dtype=bool), np.ones(size, dtype=bool)])
    told = values(model, codes, label, rows, features, np.concatenate([ends, sets]))
    whole = told[1] - told[0]
    scores[features] = whole if size == 1 else _regressed(sets, weights, told[2:] - told[0], whole)
    return scores


def _drawn(size: int, samples: int | None, random: Any) -> tuple[Bools, Floats]:
    """Sets (S, m) and their weights: sizes of which all sets can be had, the smallest and largest first, then draws."""
    wanted = 2 * size + 2**11 if samples is None else samples
    if size <= 30:
        wanted = min(wanted, 2**size - 2)
    sizes, paired = -(-(size - 1) // 2), (size - 1) // 2  # of paired sizes a set comes with its complement
    shares = np.array([(size - 1.0) / (i * (size - i)) for i in range(1, sizes + 1)])
    shares[:paired] *= 2
    shares /= shares.sum()
    full, left, remaining = 0, float(wanted), shares.copy()
    fixed, weights = [np.zeros((0, size), dtype=bool)], [np.zeros(0)]
    for i in range(1, sizes + 1):
        many = comb(size, i) * (1 + (i <= paired))
        if left * remaining[i - 1] / many < 1.0 - 1e-8:
            break
        full += 1
        left -= many
        if remaining[i - 1] < 1.0:
            remaining /= 1 - remaining[i - 1]
        fixed.append(_all_of(size, i, both=i <= paired))
        weights.append(np.full(len(fixed[-1]), shares[i - 1] / many))
    enumerated = np.concatenate(fixed)
    if full == sizes:
        return enumerated, np.concatenate(weights)
    odds = shares.copy()
    odds[:paired] /= 2  # two are drawn at a time
    drawn, counts = _at_random(size, full, paired, wanted - len(enumerated), odds[full:] / odds[full:].sum(), random)
    weights.append(counts * (shares[full:].sum() / counts.sum()))
    return np.concatenate([enumerated, drawn]), np.concatenate(weights)


def _all_of(size: int, many: int, *, both: bool) -> Bools:
    """All sets of so many features, each followed by its complement if `both`."""
    chosen = np.array(list(combinations(range(size), many)))
    sets = np.zeros((len(chosen), size), dtype=bool)
    np.put_along_axis(sets, chosen, True, axis=1)
    return np.stack([sets, ~sets], axis=1).reshape(-1, size) if both else sets


def _at_random(size: int, full: int, paired: int, left: int, odds: Floats, random: Any) -> tuple[Bools, Floats]:
    """So many sets of the sizes that are left, and how often each was drawn; a set drawn again counts once more."""
    many = random.choice(len(odds), 4 * left, p=odds) + full + 1
    seen: dict[bytes, int] = {}
    drawn: list[Bools] = []  # draws so far
    made: list[int] = []  # of each set, the draw that it comes from; the complement of one: less, and one less
    again: list[int] = []  # sets that were drawn once more
    for start in range(0, len(many), _DRAWS):
        if left <= 0:
            break
        sizes = many[start : start + _DRAWS]
        orders = np.tile(np.arange(size), (len(sizes), 1))
        for row in orders:  # as permutation does it, without its overhead
            random.shuffle(row)
        masks = np.zeros(orders.shape, dtype=bool)
        np.put_along_axis(masks, orders, np.arange(size) < sizes[:, None], axis=1)
        drawn.append(masks)
        packed = np.packbits(masks, axis=1)
        keys = packed.view(f"V{packed.shape[1]}").ravel().tolist()
        for draw, (key, two) in enumerate(zip(keys, (sizes <= paired).tolist(), strict=True), start):
            if left <= 0:
                break
            at = seen.get(key)
            if at is not None:
                again += (at, at + 1) if two else (at,)
                continue
            seen[key] = len(made)
            made.append(draw)
            left -= 1
            if two and left > 0:
                made.append(~draw)
                left -= 1
    places = np.array(made)
    sets = np.concatenate(drawn)[np.where(places < 0, ~places, places)] ^ (places < 0)[:, None]
    return sets, np.bincount(again, minlength=len(made)) + np.ones(len(made))


def _regressed(sets: Bools, weights: Floats, gains: Floats, whole: float) -> Floats:
    """Weighted least squares under the condition that all values sum to the whole."""
    last = sets[:, -1].astype(float)
    design = sets[:, :-1] - last[:, None]
    weighted = weights[:, None] * design
    target = gains - last * whole
    try:
        found = np.linalg.solve(design.T @ weighted, weighted.T @ target)
    except np.linalg.LinAlgError:  # fewer sets than it takes
        root = np.sqrt(weights)
        found = np.linalg.lstsq(root[:, None] * design, root * target, rcond=None)[0]
    told = np.append(found, whole - found.sum())
    return np.where(np.abs(told) < 1e-10, 0.0, told)
