"""Ground truth `shapley`: the Shapley value of a feature."""

from __future__ import annotations

from dataclasses import dataclass
from math import comb, factorial

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    Codes,
    Dataset,
    Floats,
    HasAdditiveEffects,
    HasLeaves,
    Ints,
    Leaves,
    ModelClient,
    ModelSpec,
    Probabilistic,
    Rows,
    Truth,
    TruthEstimate,
)
from cfeval_cli.core.evaluation_cache import encode_rows
from cfeval_cli.core.model import ABILITY_DESCRIPTIONS
from cfeval_cli.errors import check_float, check_int
from cfeval_cli.seeding import make_stream

_FIRST_SAMPLE_SIZE = 32  # pairs of orders, before the first standard error; doubled each time
_MAX_BATCH_ROWS = 1 << 16
_MAX_ARRAY_SIZE = 1 << 22  # numbers in one array
_MAX_PACKED_FEATURES = 62  # booleans that one whole number can hold
_ROUNDING_ERROR = 1e-12  # of sums of probabilities
_MAX_EXACT_FEATURES = 10  # of more features not all coalitions are evaluated


@dataclass(frozen=True)
class Shapley(Truth):
    """Mean contribution of a feature over all orders of adding features, with training rows as background.

    It is the contribution to the logit for additive models, where it is the effect minus its mean, and to the
    probability of the predicted class for all others.
    """

    seed: int = 0
    background: int = 1000  # number of training rows, for models without a closed form, which uses all
    error: float = 0.005  # the standard error at which sampling stops
    budget: int = 20_000  # largest number of model evaluations per instance

    name = "shapley"
    question = "contribution"

    def __post_init__(self) -> None:
        check_int("background", self.background, 1)
        check_float("error", self.error, 0, open_low=True)
        check_int("budget", self.budget, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models without probabilities, and for texts unless there is a closed form."""
        if spec.supports(HasAdditiveEffects) or spec.supports(HasLeaves):
            return None
        if spec.dataset.kind == "text":
            abilities = " or ".join(ABILITY_DESCRIPTIONS[ability] for ability in (HasAdditiveEffects, HasLeaves))
            return f"needs {abilities} for texts, because other models would be evaluated on mixtures of two texts"
        return spec.missing_ability_reason(Probabilistic)

    def evaluates_model(self, spec: ModelSpec) -> bool:
        """Return whether the model has predictions only."""
        return not spec.supports(HasAdditiveEffects) and not spec.supports(HasLeaves)

    def count_evaluations(self, spec: ModelSpec) -> int:
        """Return the largest number of evaluations."""
        return self.budget

    def compute_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Return the importance without its error."""
        return self.estimate(dataset, model, rows).importance

    def estimate(self, dataset: Dataset, model: ModelClient, rows: Rows) -> TruthEstimate:
        """Compute the values by the cheapest exact algorithm, or estimate them from a sample of orders."""
        if model.has_effects:
            values = (
                model.compute_effects(rows.codes, rows.predicted_classes)
                - model.compute_mean_effects()[rows.predicted_classes]
            )
            return TruthEstimate(np.where(rows.codes == ABSENT, -np.inf, values))
        if model.has_leaves:
            return TruthEstimate(_round_to_zero(compute_tree_values(model.get_leaves(), dataset.train.codes, rows)))
        background = self._draw_background(dataset)
        is_used = model.get_used_features()
        players = np.arange(dataset.n_features) if is_used is None else np.flatnonzero(is_used)
        values = np.zeros(rows.codes.shape)
        is_exact = len(players) <= _MAX_EXACT_FEATURES and _count_coalition_rows(background, players) <= self.budget
        if is_exact:
            values[:, players] = compute_coalition_values(model, background, players, rows)
            return TruthEstimate(
                _round_to_zero(values), method=f"exact, {len(background):,} training rows as background"
            )
        values[:, players], errors = self._estimate(model, background, players, rows)
        return TruthEstimate(
            _round_to_zero(values),
            errors.max(axis=1, initial=0.0),
            f"sampled, {len(background):,} training rows as background",
        )

    def _draw_background(self, dataset: Dataset) -> Codes:
        """Return training rows, the same for all instances."""
        train = dataset.train.codes
        size = min(self.background, len(train))
        return train[np.sort(make_stream(self.seed, "truth.shapley").choice(len(train), size, replace=False))]

    def _estimate(self, model: ModelClient, background: Codes, players: Ints, rows: Rows) -> tuple[Floats, Floats]:
        """Return values (n, P) and standard errors, from pairs of an order and its reverse."""
        streams = [make_stream(self.seed, "truth.shapley", instance) for instance in rows.ids.tolist()]
        max_pairs = max(2, self.budget // (2 * len(players) - 1))
        sums, squares = np.zeros((len(rows), len(players))), np.zeros((len(rows), len(players)))
        n_pairs = np.zeros(len(rows), dtype=np.int64)
        active, target = np.arange(len(rows)), min(_FIRST_SAMPLE_SIZE, max_pairs)
        while len(active):
            size = max(1, _MAX_BATCH_ROWS // (target * 2 * len(players)))
            for start in range(0, len(active), size):
                batch = active[start : start + size]
                n_new = int(target - n_pairs[batch[0]])  # all active instances have had the same number of pairs
                gains = _sample_gains(model, background, players, rows.take(batch), [streams[i] for i in batch], n_new)
                sums[batch] += gains.sum(axis=1)
                squares[batch] += (gains**2).sum(axis=1)
            n_pairs[active] = target
            errors = _compute_standard_errors(sums[active], squares[active], target)
            active = active[errors.max(axis=1) > self.error] if target < max_pairs else active[:0]
            target = min(2 * target, max_pairs)
        return sums / n_pairs[:, None], _compute_standard_errors(sums, squares, n_pairs[:, None])


def _round_to_zero(values: Floats) -> Floats:
    """Return values without rounding errors around zero, so that features without any contribution are tied."""
    return np.where(np.abs(values) < _ROUNDING_ERROR, 0.0, values)


def _compute_standard_errors(sums: Floats, squares: Floats, size: int | Ints) -> Floats:
    """Return standard errors of means from sums and sums of squares."""
    variance = np.maximum(squares - sums**2 / size, 0.0) / (size - 1)
    return np.asarray(np.sqrt(variance / size))


def _sample_gains(
    model: ModelClient, background: Codes, players: Ints, rows: Rows, streams: list[np.random.Generator], n_pairs: int
) -> Floats:
    """Return gains (n, n_pairs, P) of each feature: means over a random order and its reverse, from a random row."""
    size, n = len(players), len(rows)
    orders = np.stack([rng.random((n_pairs, size)).argsort(axis=1, kind="stable") for rng in streams])
    background_rows = background[np.stack([rng.integers(len(background), size=n_pairs) for rng in streams])]
    positions = np.argsort(orders, axis=2)  # of each feature in the order
    steps = np.arange(1, size)[:, None]
    forwards = positions[:, :, None, :] < steps  # (n, n_pairs, size - 1, P): features that are added after each step
    backwards = positions[:, :, None, :] >= size - steps
    is_own = np.stack([forwards, backwards], axis=2)
    shape = is_own.shape[:-1]
    hybrids = np.broadcast_to(background_rows[:, :, None, None], (*shape, background.shape[1])).copy()
    own_codes = np.broadcast_to(rows.codes[:, None, None, None], hybrids.shape)
    hybrids[..., players] = np.where(is_own, own_codes[..., players], hybrids[..., players])
    labels = np.broadcast_to(rows.predicted_classes[:, None, None, None], shape).ravel()
    inner = model.predict_class_proba(hybrids.reshape(-1, background.shape[1]), labels).reshape(shape)
    first = model.predict_class_proba(
        background_rows.reshape(-1, background.shape[1]), np.repeat(rows.predicted_classes, n_pairs)
    )
    last = model.predict_class_proba(rows.codes, rows.predicted_classes)
    starts = np.broadcast_to(first.reshape(n, n_pairs, 1, 1), (n, n_pairs, 2, 1))
    ends = np.broadcast_to(last.reshape(n, 1, 1, 1), (n, n_pairs, 2, 1))
    gains = np.diff(np.concatenate([starts, inner, ends], axis=3), axis=3)
    forward = np.take_along_axis(gains[:, :, 0], positions, axis=2)
    backward = np.take_along_axis(gains[:, :, 1], size - 1 - positions, axis=2)
    return np.asarray((forward + backward) / 2)


def _count_coalition_rows(background: Codes, players: Ints) -> int:
    """Return the number of model evaluations for all coalitions of one instance."""
    return sum(len(_list_backgrounds(background, players, coalition)[1]) for coalition in range(1 << len(players)))


def _list_backgrounds(background: Codes, players: Ints, coalition: int) -> tuple[Codes, Floats]:
    """Return the background rows that differ in features outside a coalition, and the share of each."""
    outside = [int(j) for position, j in enumerate(players) if not coalition >> position & 1]
    numbers = encode_rows(background[:, outside])
    if numbers is None:
        _, first, counts = np.unique(background[:, outside], axis=0, return_index=True, return_counts=True)
    else:  # the same, faster
        _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    return background[first], counts / len(background)


def compute_coalition_values(model: ModelClient, background: Codes, players: Ints, rows: Rows) -> Floats:
    """Return Shapley values (n, P) of p(ŷ) from the values of all coalitions of some features."""
    size = len(players)
    coalition_values = np.empty((1 << size, len(rows)))
    for coalition in range(1 << size):
        inside = players[[position for position in range(size) if coalition >> position & 1]]
        background_rows, shares = _list_backgrounds(background, players, coalition)
        step = max(1, _MAX_BATCH_ROWS // len(background_rows))
        for start in range(0, len(rows), step):
            batch = rows.take(slice(start, start + step))
            hybrids = np.repeat(background_rows[None], len(batch), axis=0)
            hybrids[:, :, inside] = batch.codes[:, None, inside]
            labels = np.repeat(batch.predicted_classes, len(background_rows))
            probability = model.predict_class_proba(hybrids.reshape(-1, background_rows.shape[1]), labels)
            coalition_values[coalition, start : start + step] = probability.reshape(len(batch), -1) @ shares
    coalitions = np.arange(1 << size)
    sizes = np.array([coalition.bit_count() for coalition in range(1 << size)])
    values = np.empty((len(rows), size))
    for position in range(size):
        coalitions_without = coalitions[coalitions >> position & 1 == 0]
        weights = np.array([1 / (size * comb(size - 1, count)) for count in range(size)])[sizes[coalitions_without]]
        gains = coalition_values[coalitions_without | 1 << position] - coalition_values[coalitions_without]
        values[:, position] = weights @ gains
    return values


def compute_tree_values(leaves: Leaves, background: Codes, rows: Rows) -> Floats:
    """Return Shapley values (n, M) of p(ŷ) of a tree, with all rows of a background.

    A mixture takes each feature from x or from a background row z. It reaches a leaf exactly if it takes the features
    where only x fits the leaf from x, and the features where only z fits from z. The value of a feature follows from
    the share of orders in which one of these two groups comes before the other. Rows with the same pattern are
    counted together.
    """
    values = np.zeros(rows.codes.shape)
    for leaf, probabilities in enumerate(leaves.probabilities):
        tested_features = [j for j, box in enumerate(leaves.boxes) if not box[leaf].all()]
        if not tested_features:  # the tree has a single leaf
            continue
        row_fits, row_patterns, _ = _find_fit_patterns(leaves, leaf, tested_features, rows.codes)
        background_fits, _, shares = _find_fit_patterns(leaves, leaf, tested_features, background)
        step = max(1, _MAX_ARRAY_SIZE // background_fits.size)
        parts = [
            _compute_leaf_values(row_fits[i : i + step], background_fits, shares) for i in range(0, len(row_fits), step)
        ]
        values[:, tested_features] += probabilities[rows.predicted_classes, None] * np.concatenate(parts)[row_patterns]
    return values


def _find_fit_patterns(
    leaves: Leaves, leaf: int, tested_features: list[int], codes: Codes
) -> tuple[Floats, Ints, Floats]:
    """Return the different patterns (U, t) of features in which rows fit a leaf, that of each row, and shares."""
    fits = np.stack([leaves.boxes[j][leaf][codes[:, j]] for j in tested_features], axis=1)
    if len(tested_features) <= _MAX_PACKED_FEATURES:
        keys = fits @ (1 << np.arange(len(tested_features), dtype=np.int64))
    else:
        keys = np.unique(np.packbits(fits, axis=1), axis=0, return_inverse=True)[1].ravel()
    _, first, patterns, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return fits[first].astype(np.float64), patterns.ravel(), counts / len(codes)


def _compute_leaf_values(row_fits: Floats, background_fits: Floats, shares: Floats) -> Floats:
    """Return Shapley values (U, t) of reaching one leaf."""
    n_tested = row_fits.shape[1]
    # (U, W): the number of features in which only the row, or only the background, fits
    n_row_only = (row_fits @ (1 - background_fits).T).astype(np.int64)
    n_background_only = ((1 - row_fits) @ background_fits.T).astype(np.int64)
    reachable = ((1 - row_fits) @ (1 - background_fits).T == 0) * shares
    positive, negative = np.zeros((n_tested + 1, n_tested + 1)), np.zeros((n_tested + 1, n_tested + 1))
    for a in range(n_tested + 1):
        for b in range(n_tested + 1 - a):
            n_orders = factorial(a + b)
            positive[a, b] = factorial(a - 1) * factorial(b) / n_orders if a else 0.0
            negative[a, b] = factorial(a) * factorial(b - 1) / n_orders if b else 0.0
    gain = reachable * positive[n_row_only, n_background_only]
    loss = reachable * negative[n_row_only, n_background_only]
    return np.asarray(row_fits * (gain @ (1 - background_fits)) - (1 - row_fits) * (loss @ background_fits))
