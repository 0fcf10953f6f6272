"""What a value contributes, as the Shapley value has it."""

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
from cfeval_cli.core.memory import numbers_of
from cfeval_cli.errors import check_float, check_int
from cfeval_cli.seeding import make_stream

_FIRST = 32  # pairs of orders before an error is believed; then twice as many each time
_ROWS = 1 << 16  # rows that a model is asked about at once
_CELLS = 1 << 22  # numbers of a table in memory
_BITS = 62  # answers that one whole number can hold
_NOISE = 1e-12  # of sums of probabilities
_MOST = 10  # features whose coalitions are all tried


@dataclass(frozen=True)
class Shapley(Truth):
    """How much a value adds to the prediction, on average over the orders in which features could become known.

    What is not known yet is as in a training row. Of the logit for additive models, where it is the effect less its
    mean; of the predicted class's probability for all others.
    """

    seed: int = 0
    background: int = 1000  # training rows that stand for what is not known, where no formula takes all
    error: float = 0.005  # the standard error that is good enough
    budget: int = 20_000  # model rows an instance at most

    name = "shapley"
    question = "contribution"

    def __post_init__(self) -> None:
        check_int("background", self.background, 1)
        check_float("error", self.error, 0, open_low=True)
        check_int("budget", self.budget, 1)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Any model that tells probabilities of tables."""
        if spec.supports(HasAdditiveEffects) or spec.supports(HasLeaves):
            return None
        if spec.dataset.kind == "text":
            return "would put words of one text into another, of which only a sum or a tree can be asked"
        return spec.missing_ability_reason(Probabilistic)

    def asks(self, spec: ModelSpec) -> bool:
        """Where nothing is known but predictions."""
        return not spec.supports(HasAdditiveEffects) and not spec.supports(HasLeaves)

    def cost(self, spec: ModelSpec) -> int:
        """What it may take."""
        return self.budget

    def importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """The value alone."""
        return self.found(dataset, model, rows).importance

    def found(self, dataset: Dataset, model: ModelClient, rows: Rows) -> TruthEstimate:
        """By the cheapest way that is exact, else from a sample of orders."""
        if model.has_effects:
            centred = model.compute_effects(rows.codes, rows.labels) - model.compute_mean_effects()[rows.labels]
            return TruthEstimate(np.where(rows.codes == ABSENT, -np.inf, centred))
        if model.has_leaves:
            return TruthEstimate(_without_noise(of_tree(model.get_leaves(), dataset.train.codes, rows)))
        background = self._background(dataset)
        reads = model.get_used_features()
        players = np.arange(dataset.n_features) if reads is None else np.flatnonzero(reads)
        values = np.zeros(rows.codes.shape)
        cost = _coalition_rows(background, players) if len(players) <= _MOST else self.budget + 1
        if cost <= self.budget:
            values[:, players] = of_coalitions(model, background, players, rows)
            return TruthEstimate(
                _without_noise(values), method=f"exact, {len(background):,} training rows as background"
            )
        values[:, players], errors = self._sampled(model, background, players, rows)
        return TruthEstimate(
            _without_noise(values),
            errors.max(axis=1, initial=0.0),
            f"sampled, {len(background):,} training rows as background",
        )

    def _background(self, dataset: Dataset) -> Codes:
        """Training rows, the same for all instances."""
        train = dataset.train.codes
        size = min(self.background, len(train))
        return train[np.sort(make_stream(self.seed, "truth.shapley").choice(len(train), size, replace=False))]

    def _sampled(self, model: ModelClient, background: Codes, players: Ints, rows: Rows) -> tuple[Floats, Floats]:
        """Values (n, P) and their standard errors, from pairs of an order and its reverse, until they are small."""
        draws = [make_stream(self.seed, "truth.shapley", one) for one in rows.ids.tolist()]
        most = max(2, self.budget // (2 * len(players) - 1))  # pairs
        total, squares = np.zeros((len(rows), len(players))), np.zeros((len(rows), len(players)))
        done = np.zeros(len(rows), dtype=np.int64)
        waiting, wanted = np.arange(len(rows)), min(_FIRST, most)
        while len(waiting):
            size = max(1, _ROWS // (wanted * 2 * len(players)))
            for start in range(0, len(waiting), size):
                some = waiting[start : start + size]
                rounds = int(wanted - done[some[0]])  # those that still wait have had the same number
                found = _pairs(model, background, players, rows.take(some), [draws[i] for i in some], rounds)
                total[some] += found.sum(axis=1)
                squares[some] += (found**2).sum(axis=1)
            done[waiting] = wanted
            errors = _errors(total[waiting], squares[waiting], wanted)
            waiting = waiting[errors.max(axis=1) > self.error] if wanted < most else waiting[:0]
            wanted = min(2 * wanted, most)
        return total / done[:, None], _errors(total, squares, done[:, None])


def _without_noise(values: Floats) -> Floats:
    """Zero where nothing is added but the noise of a sum, so that a model that does not care has real ties."""
    return np.where(np.abs(values) < _NOISE, 0.0, values)


def _errors(total: Floats, squares: Floats, size: int | Ints) -> Floats:
    """Standard errors of means from sums and sums of squares."""
    variance = np.maximum(squares - total**2 / size, 0.0) / (size - 1)
    return np.asarray(np.sqrt(variance / size))


def _pairs(
    model: ModelClient, background: Codes, players: Ints, rows: Rows, draws: list[np.random.Generator], rounds: int
) -> Floats:
    """What each feature adds (n, rounds, P), the mean over a random order and its reverse, from one training row."""
    size, many = len(players), len(rows)
    orders = np.stack([rng.random((rounds, size)).argsort(axis=1, kind="stable") for rng in draws])
    others = np.stack([rng.integers(len(background), size=rounds) for rng in draws])
    place = np.argsort(orders, axis=2)  # of each feature in the order
    there = np.arange(1, size)[:, None]
    forth = place[:, :, None, :] < there  # (n, rounds, size - 1, P): known after so many steps
    back = place[:, :, None, :] >= size - there
    known = np.stack([forth, back], axis=2)
    shape = known.shape[:-1]
    hybrids = np.broadcast_to(background[others][:, :, None, None], (*shape, background.shape[1])).copy()
    own = np.broadcast_to(rows.codes[:, None, None, None], hybrids.shape)
    hybrids[..., players] = np.where(known, own[..., players], hybrids[..., players])
    of = np.broadcast_to(rows.labels[:, None, None, None], shape).ravel()
    inner = model.predict_class_proba(hybrids.reshape(-1, background.shape[1]), of).reshape(shape)
    first = model.predict_class_proba(
        background[others].reshape(-1, background.shape[1]), np.repeat(rows.labels, rounds)
    )
    last = model.predict_class_proba(rows.codes, rows.labels)
    ends = np.broadcast_to(first.reshape(many, rounds, 1, 1), (many, rounds, 2, 1))
    goal = np.broadcast_to(last.reshape(many, 1, 1, 1), (many, rounds, 2, 1))
    steps = np.diff(np.concatenate([ends, inner, goal], axis=3), axis=3)
    forward = np.take_along_axis(steps[:, :, 0], place, axis=2)
    backward = np.take_along_axis(steps[:, :, 1], size - 1 - place, axis=2)
    return np.asarray((forward + backward) / 2)


def _coalition_rows(background: Codes, players: Ints) -> int:
    """How many rows all coalitions of some features take for one instance."""
    return sum(len(_unknown(background, players, coalition)[1]) for coalition in range(1 << len(players)))


def _unknown(background: Codes, players: Ints, coalition: int) -> tuple[Codes, Floats]:
    """The training rows that differ in what a coalition does not know, and the share of each."""
    outside = [int(j) for place, j in enumerate(players) if not coalition >> place & 1]
    numbers = numbers_of(background[:, outside])
    if numbers is None:
        _, first, counts = np.unique(background[:, outside], axis=0, return_index=True, return_counts=True)
    else:  # the same, faster
        _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
    return background[first], counts / len(background)


def of_coalitions(model: ModelClient, background: Codes, players: Ints, rows: Rows) -> Floats:
    """Shapley values (n, P) of the predicted class's probability from the worth of all coalitions of some features."""
    size = len(players)
    worth = np.empty((1 << size, len(rows)))
    for coalition in range(1 << size):
        inside = players[[place for place in range(size) if coalition >> place & 1]]
        others, shares = _unknown(background, players, coalition)
        step = max(1, _ROWS // len(others))
        for start in range(0, len(rows), step):
            some = rows.take(slice(start, start + step))
            mixed = np.repeat(others[None], len(some), axis=0)
            mixed[:, :, inside] = some.codes[:, None, inside]
            told = model.predict_class_proba(mixed.reshape(-1, others.shape[1]), np.repeat(some.labels, len(others)))
            worth[coalition, start : start + step] = told.reshape(len(some), -1) @ shares
    every = np.arange(1 << size)
    sizes = np.array([bin(coalition).count("1") for coalition in every.tolist()])
    values = np.empty((len(rows), size))
    for place in range(size):
        without = every[every >> place & 1 == 0]
        weights = np.array([1 / (size * comb(size - 1, count)) for count in range(size)])[sizes[without]]
        values[:, place] = weights @ (worth[without | 1 << place] - worth[without])
    return values


def of_tree(leaves: Leaves, background: Codes, rows: Rows) -> Floats:
    """Shapley values (n, M) of the predicted class's probability, against all rows of a background.

    A leaf is reached by a mixture of x and z exactly if x has the features in which only x fits, and z those in which
    only z does: of the orders, those in which one group comes before the other. Rows that fit alike are counted once.
    """
    values = np.zeros(rows.codes.shape)
    for leaf, probabilities in enumerate(leaves.probabilities):
        tested = [j for j, box in enumerate(leaves.boxes) if not box[leaf].all()]
        if not tested:  # a tree that is one leaf
            continue
        ours, whose, _ = _patterns(leaves, leaf, tested, rows.codes)
        theirs, _, shares = _patterns(leaves, leaf, tested, background)
        step = max(1, _CELLS // theirs.size)
        parts = [_of_leaf(ours[i : i + step], theirs, shares) for i in range(0, len(ours), step)]
        values[:, tested] += probabilities[rows.labels, None] * np.concatenate(parts)[whose]
    return values


def _patterns(leaves: Leaves, leaf: int, tested: list[int], codes: Codes) -> tuple[Floats, Ints, Floats]:
    """In which of the tested features rows fit a leaf: the different answers (U, t), whose each is, and the shares."""
    fits = np.stack([leaves.boxes[j][leaf][codes[:, j]] for j in tested], axis=1)
    if len(tested) <= _BITS:
        keys = fits @ (1 << np.arange(len(tested), dtype=np.int64))
    else:
        keys = np.unique(np.packbits(fits, axis=1), axis=0, return_inverse=True)[1].ravel()
    _, first, whose, counts = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
    return fits[first].astype(np.float64), whose.ravel(), counts / len(codes)


def _of_leaf(ours: Floats, theirs: Floats, shares: Floats) -> Floats:
    """Shapley values (U, t) of reaching one leaf."""
    most = ours.shape[1]
    a, b = ours @ (1 - theirs).T, (1 - ours) @ theirs.T  # (U, W) features in which only x, or only z, fits
    reachable = ((1 - ours) @ (1 - theirs).T == 0) * shares
    plus, minus = np.zeros((most + 1, most + 1)), np.zeros((most + 1, most + 1))
    for one in range(most + 1):
        for two in range(most + 1 - one):
            whole_orders = factorial(one + two)
            plus[one, two] = factorial(one - 1) * factorial(two) / whole_orders if one else 0.0
            minus[one, two] = factorial(one) * factorial(two - 1) / whole_orders if two else 0.0
    places = a.astype(np.int64), b.astype(np.int64)
    gain, loss = reachable * plus[places], reachable * minus[places]
    # only x fits: ours and not theirs; only z: theirs and not ours
    return np.asarray(ours * (gain @ (1 - theirs)) - (1 - ours) * (loss @ theirs))
