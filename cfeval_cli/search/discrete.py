"""Algorithm 1 of the paper: try every combination of the explained features' values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod

import numpy as np

from cfeval_cli.errors import UserError, one_of, whole
from cfeval_cli.model.gate import probability_of
from cfeval_cli.search.edit import exchanged
from cfeval_cli.types import NONE, Access, Bools, Codes, Counterfactuals, Dataset, Floats, Ints, Quest


@dataclass(frozen=True)
class Discrete:
    """Exhaustive search. Which of the combinations is taken:

    first         the first that flips, fewest changed features first, then in the order of values
    largest_drop  the one with the largest drop in p(ŷ)
    nearest       the flip at the smallest distance
    auto          first with label access, largest_drop with probabilities

    Where none flips: the largest drop, or a random one where there are only labels.
    """

    pick: str = "auto"
    max_candidates: int = 1_000_000
    max_batch_rows: int = 1_000_000

    title = "disc."

    def __post_init__(self) -> None:
        one_of("pick", self.pick, ("auto", "first", "largest_drop", "nearest"))
        whole("max_candidates", self.max_candidates, 1)
        whole("max_batch_rows", self.max_batch_rows, 1)

    @property
    def label(self) -> str:
        """What captions say of it."""
        return f"discrete search (pick: {self.pick})"

    @property
    def levels(self) -> tuple[Access, ...]:
        """A largest drop cannot be told from labels."""
        if self.pick == "largest_drop":
            return (Access.PROBABILITY,)
        return (Access.LABEL, Access.PROBABILITY)

    def check(self, dataset: Dataset, k: int) -> None:
        """Refuse a product that could exceed `max_candidates`, whichever features get explained."""
        sizes = sorted(((len(values), j) for j, values in enumerate(dataset.candidates)), reverse=True)[:k]
        needed = prod(size for size, _ in sizes)
        if needed > self.max_candidates:
            factors = " × ".join(f"{size:,} ({dataset.features[j].name})" for size, j in sizes)
            raise UserError(
                f"search.max_candidates={self.max_candidates:,} is too small: k={k} can need {needed:,} candidates "
                f"an instance, {factors}. Raise it to {needed}, lower k, or, for text, let "
                "fewer words be tried with dataset.search_words."
            )

    def find(self, quest: Quest) -> Counterfactuals:
        """Group by explained features, so that all instances of a group share their candidates."""
        edited = quest.codes.copy()
        groups, member = np.unique(quest.features, axis=0, return_inverse=True)
        for number, group in enumerate(groups):
            features = group[group != NONE]
            rows = np.flatnonzero(member.ravel() == number)
            if len(features):
                edited[np.ix_(rows, features)] = self._best(quest, rows, features)
            quest.advance(len(rows))
        return exchanged(quest, edited, self.max_batch_rows)

    def _best(self, quest: Quest, rows: Ints, features: Ints) -> Codes:
        """The chosen values (n, k) for instances that share their explained features."""
        product = _Product(tuple(quest.dataset.candidates[j] for j in features))
        own = quest.codes[np.ix_(rows, features)]
        best = _Best.none(len(rows))
        few = max(1, min(len(product), self.max_batch_rows))  # candidates in a batch
        many = max(1, self.max_batch_rows // few)  # instances in a batch
        for part in (slice(start, start + many) for start in range(0, len(rows), many)):
            for start, values in product.parts(few):
                best.improve(part, *self._judge(quest, rows[part], features, values), start, len(product))
        values = product.values(best.index)
        # drawn in the order of the features, so that it does not depend on which was explained first
        order = np.argsort(features)
        sorted_product = _Product(tuple(product.axes[i] for i in order))
        for i in np.flatnonzero(best.tier == _UNDECIDED):
            values[i, order] = sorted_product.random_other(own[i, order], quest.rng(int(rows[i])))
        return values

    def _judge(self, quest: Quest, rows: Ints, features: Ints, values: Codes) -> tuple[Ints, Floats, Ints]:
        """For each instance its best tier, and for each candidate its cost (inf if outside the tier) and changes."""
        codes = quest.codes[rows]
        changed = np.zeros((len(rows), len(values)), dtype=np.int64)
        for i, j in enumerate(features):
            changed += codes[:, j, None] != values[:, i]
        allowed = changed > 0
        if quest.access >= Access.PROBABILITY:
            positive = quest.model.edited_proba(codes, features, values)
            remaining = probability_of(quest.labels[rows], positive)
            flips = allowed & ((positive > 0.5) != (quest.labels[rows] == 1)[:, None])
        else:
            remaining = None
            flips = allowed & (quest.model.edited_labels(codes, features, values) != quest.labels[rows][:, None])
        return (*self._costs(quest, codes, features, values, allowed, flips, remaining), changed)

    def _costs(
        self, quest: Quest, codes: Codes, features: Ints, values: Codes,
        allowed: Bools, flips: Bools, remaining: Floats | None,
    ) -> tuple[Ints, Floats]:  # fmt: skip
        pick = self.pick
        if pick == "auto":
            pick = "first" if remaining is None else "largest_drop"
        if pick == "largest_drop" and remaining is not None:
            return np.full(len(codes), _FLIP), np.where(allowed, remaining, np.inf)
        any_flip = np.asarray(flips.any(axis=1))
        cost = quest.measure.matrix(codes, features, values) if pick == "nearest" else np.zeros(flips.shape)
        cost = np.where(flips, cost, np.inf)
        if remaining is None:
            return np.where(any_flip, _FLIP, _UNDECIDED), cost
        fallback = np.where(allowed, remaining, np.inf)
        return np.where(any_flip, _FLIP, _DROP), np.where(any_flip[:, None], cost, fallback)


# Tiers of a candidate: a better tier wins at any cost.
_FLIP, _DROP, _UNDECIDED = 0, 1, 2


@dataclass
class _Best:
    """The best candidate so far of each instance: by tier, then cost, then changes, then order."""

    tier: Ints
    cost: Floats
    key: Ints
    index: Ints = field(init=False)

    def __post_init__(self) -> None:
        self.index = np.zeros(len(self.tier), dtype=np.int64)

    @staticmethod
    def none(size: int) -> _Best:
        return _Best(np.full(size, _UNDECIDED), np.full(size, np.inf), np.full(size, np.iinfo(np.int64).max))

    def improve(self, part: slice, tier: Ints, cost: Floats, changed: Ints, start: int, total: int) -> None:
        """Take what is better among candidates `start`… of `total`."""
        lowest = cost.min(axis=1)
        keys = changed * total + np.arange(start, start + cost.shape[1])
        keys = np.where(cost == lowest[:, None], keys, np.iinfo(np.int64).max)
        key = keys.min(axis=1)
        better = (tier < self.tier[part]) | (
            (tier == self.tier[part])
            & ((lowest < self.cost[part]) | ((lowest == self.cost[part]) & (key < self.key[part])))
        )
        for mine, new in ((self.tier, tier), (self.cost, lowest), (self.key, key), (self.index, key % total)):
            mine[part] = np.where(better, new, mine[part])


@dataclass(frozen=True)
class _Product:
    """The Cartesian product of values, the last feature turning fastest, never held in memory at once."""

    axes: tuple[Codes, ...]

    def __len__(self) -> int:
        return prod(len(axis) for axis in self.axes)

    def values(self, index: Ints) -> Codes:
        """Combinations (n, k) by number."""
        places = np.unravel_index(index, [len(axis) for axis in self.axes])
        return np.stack([axis[place] for axis, place in zip(self.axes, places, strict=True)], axis=1)

    def parts(self, size: int) -> Iterator[tuple[int, Codes]]:
        """All combinations in order, `size` at a time, each part with its first number."""
        for start in range(0, len(self), size):
            yield start, self.values(np.arange(start, min(start + size, len(self))))

    def random_other(self, own: Codes, rng: np.random.Generator) -> Codes:
        """A random combination that is not `own`."""
        drawn = int(rng.integers(len(self)))
        places = [np.flatnonzero(axis == value) for axis, value in zip(self.axes, own, strict=True)]
        if all(len(place) for place in places):
            here = int(np.ravel_multi_index([int(place[0]) for place in places], [len(axis) for axis in self.axes]))
            drawn = int(rng.integers(len(self) - 1))
            drawn += drawn >= here
        return np.asarray(self.values(np.array([drawn]))[0])
