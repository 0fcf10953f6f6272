"""Algorithm 1 of the paper: try every combination of the explained features' values."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Access,
    Bools,
    Codes,
    Counterfactuals,
    Dataset,
    Floats,
    Ints,
    ModelSpec,
    Search,
    SearchTask,
    Workload,
)
from cfeval_cli.core.client import apply_edits
from cfeval_cli.errors import Failure, UserError, check_int, check_option
from cfeval_cli.search.edit import exchanged
from cfeval_cli.seeding import draw_uniforms


@dataclass(frozen=True)
class Discrete(Search):
    """Exhaustive search. Which of the combinations is taken:

    first         the first that flips, fewest changed features first, then in the order of values
    largest_drop  the one with the largest drop in p(ŷ)
    nearest       the flip at the smallest distance
    auto          first with label access, largest_drop with probabilities

    Where none flips: the largest drop, or a random one where there are only labels.
    """

    pick: str = "auto"
    max_candidates: int = 1_000_000
    max_batch_rows: int = 65_536

    title = "disc."

    def __post_init__(self) -> None:
        check_option("pick", self.pick, ("auto", "first", "largest_drop", "nearest"))
        check_int("max_candidates", self.max_candidates, 1)
        check_int("max_batch_rows", self.max_batch_rows, 1)

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

    @property
    def by_distance(self) -> bool:
        """Only the nearest is chosen by it."""
        return self.pick == "nearest"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """A largest drop needs probabilities; labels are enough for the rest."""
        reason = spec.missing_access_reason(min(self.levels))
        return f"{reason}. Use search.pick=auto" if reason else None

    def check(self, dataset: Dataset, k: int) -> None:
        """Refuse a product that could exceed `max_candidates`, whichever features get explained."""
        sizes = sorted(((_most(dataset, j, k), j) for j in range(dataset.width)), reverse=True)[:k]
        needed = prod(size for size, _ in sizes)
        if needed > self.max_candidates:
            factors = " × ".join(f"{size:,} ({dataset.features[j].name})" for size, j in sizes)
            raise UserError(
                f"search.max_candidates={self.max_candidates:,} is too small: k={k} can need {needed:,} candidates "
                f"an instance, {factors}. Raise it to {needed}, lower k, or, for text, let "
                "fewer words be tried with dataset.search_words."
            )

    def workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return the number of combinations of values."""
        k = features.shape[1]
        sizes = np.array([*(_most(dataset, j, k) for j in range(dataset.width)), 1])  # the last is that of no feature
        settings = ["dataset.search_words"] if dataset.padded else []
        settings += ["dataset.candidates"] if any(feature.kind == "number" for feature in dataset.features) else []
        settings += ["k"] if k > 1 else []
        return Workload(float(sizes[features].prod(axis=1).mean()) if len(features) else 0.0, tuple(settings))

    def chunk(self, dataset: Dataset, k: int) -> int:
        """Instances to be given at a time, such that they have about a million candidates."""
        sizes = sorted((_most(dataset, j, k) for j in range(dataset.width)), reverse=True)
        return int(min(4096, max(16, 1_000_000 // prod(sizes[:k]))))

    def find(self, task: SearchTask) -> Counterfactuals:
        """Lay out the candidates of all instances in one line, and judge it part by part."""
        line = _Line.of(task)
        best = _Best.none(len(task.ids))
        for part in line.parts(self.max_batch_rows):
            best.improve(line, part, *self._judge(task, line, part))
        values = line.values(np.arange(len(best.index)), best.index)
        undecided = np.flatnonzero(best.tier == _UNDECIDED)
        if len(undecided):
            values[undecided] = line.random_other(task, undecided)
        edited = task.codes.copy()
        for i, named in enumerate(task.features.T):
            rows = np.flatnonzero(named != NO_FEATURE)
            edited[rows, named[rows]] = values[rows, i]
        return exchanged(task, edited, self.max_batch_rows)

    def _judge(self, task: SearchTask, line: _Line, part: _Part) -> tuple[Ints, Floats, Codes]:
        """For each instance its best tier, for each candidate its cost (inf if outside the tier) and its values."""
        rows = part.rows
        values = line.values(rows, part.index)
        allowed = values[:, 0] != line.own[0].take(rows)  # x itself is not its own counterfactual
        for i in range(1, values.shape[1]):
            allowed |= values[:, i] != line.own[i].take(rows)
        asked = (task.codes[part.some], task.features[part.some], part.member, values)
        flipping, remaining = task.model.evaluate_edits(*asked, task.labels[part.some])
        pick = self.pick
        if pick == "auto":
            pick = "first" if remaining is None else "largest_drop"
        tier = np.full(len(part.starts), _FLIP)
        if pick == "largest_drop" and remaining is not None:
            cost = np.where(allowed, remaining, np.inf)
        else:
            flips = allowed & flipping
            any_flip = np.logical_or.reduceat(flips, part.starts)
            cost = np.where(flips, self._distances(task, line, part, values) if pick == "nearest" else 0.0, np.inf)
            tier[~any_flip] = _UNDECIDED if remaining is None else _DROP
            if remaining is not None:
                cost = np.where(any_flip.take(part.member), cost, np.where(allowed, remaining, np.inf))
        return tier, cost, values

    def _distances(self, task: SearchTask, line: _Line, part: _Part, values: Codes) -> Floats:
        """Of all candidates, for the instances with the same features at once if they share their candidates."""
        if line.stay is not None:
            everyone = np.broadcast_to(part.rows, len(values))
            return task.measure.between(task.codes[everyone], apply_edits(task.codes, task.features, everyone, values))
        distances = np.zeros(len(values))
        features = task.features[part.some]
        groups, group_of = np.unique(features, axis=0, return_inverse=True)
        for number, group in enumerate(groups):
            members = np.flatnonzero(group_of.ravel() == number)
            here = np.isin(np.broadcast_to(part.member, len(values)), members)
            size = np.count_nonzero(here) // len(members)
            there = group != NO_FEATURE
            if there.any():
                shared = values[here][:size, there]
                distances[here] = task.measure.matrix(task.codes[part.some][members], group[there], shared).ravel()
        return distances


# Tiers of a candidate: a better tier wins at any cost.
_FLIP, _DROP, _UNDECIDED = 0, 1, 2

_ALONE = 4096  # an instance with so many candidates makes a part of its own


@dataclass(frozen=True)
class _Part:
    """A stretch of the line: candidates of whole instances, or some of a single one's."""

    first: int  # instance
    starts: Ints  # (n,) where the candidates of each instance begin
    member: Ints  # (m,) which instance of the part each candidate belongs to, or (1,) if all are of one
    index: Ints  # (m,) the candidate's number among those of its instance

    @property
    def rows(self) -> Ints:
        """The instance of each candidate, or (1,) if all are of one."""
        return self.member + self.first

    @property
    def some(self) -> slice:
        """The instances."""
        return slice(self.first, self.first + len(self.starts))


@dataclass(frozen=True)
class _Line:
    """All candidates of all instances, never held in memory at once; the last feature's value turns fastest."""

    own: Codes  # (k, n) the instances' values, ABSENT where no feature is named
    begin: Ints  # (k, n) where a feature's values begin in `table`
    sizes: Ints  # (k, n) how many there are, with the own value
    table: Codes
    # (k, n) at which place the own value stands among others that lack it, -1 if they do not; None: nobody's do, and
    # instances with the same features have the same candidates
    stay: Ints | None = None

    @staticmethod
    def of(task: SearchTask) -> _Line:
        there = task.features.T != NO_FEATURE
        features = np.where(there, task.features.T, 0)
        own = np.where(there, task.codes[np.arange(len(task.codes)), features], np.int32(ABSENT))
        table, begin, sizes = task.dataset.candidate_table
        # where no feature is named, the one value is that of no feature
        table = np.concatenate([table, np.array([ABSENT], dtype=np.int32)])
        begin, sizes = np.where(there, begin[features], len(table) - 1), np.where(there, sizes[features], 1)
        stay = None
        if len(own) > 1 or task.dataset.constrained:
            begin, sizes, stay = _within(task.dataset, features, own, there, begin, sizes)
        return _Line(own, begin, sizes, table, stay)

    @cached_property
    def counts(self) -> Ints:
        """The number of candidates (n,) of each instance."""
        return np.asarray(self.sizes.prod(axis=0))

    def parts(self, size: int) -> Iterator[_Part]:
        """The line in stretches of at most `size` candidates."""
        ends = np.cumsum(self.counts)
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            count = int(self.counts[first])
            if count >= min(size, _ALONE):
                nil = np.zeros(1, dtype=np.int64)
                for start in range(0, count, size):
                    index = np.arange(start, min(start + size, count))
                    yield _Part(first, nil, nil, index)
                first += 1
                continue
            last = int(np.searchsorted(ends, before + size, side="right"))
            starts = ends[first:last] - self.counts[first:last] - before
            member = np.repeat(np.arange(last - first), self.counts[first:last])
            yield _Part(first, starts, member, np.arange(len(member)) - starts.take(member))
            first = last

    def values(self, rows: Ints, index: Ints) -> Codes:
        """The values (m, k) of candidates by instance and number; `rows` may be (1,)."""
        values = np.empty((len(self.sizes), len(index)), dtype=np.int32).T
        for i in reversed(range(len(self.sizes))):
            place = index
            if i:
                size = self.sizes[i].take(rows)
                index = ((index + 0.5) / size).astype(np.int64)  # whole numbers divided; exact, and faster than divmod
                place = place - index * size
            if self.stay is None:
                values[:, i] = self.table.take(self.begin[i].take(rows) + place)
                continue
            stay = self.stay[i].take(rows)
            behind = (stay >= 0) & (place > stay)
            found = self.table.take(self.begin[i].take(rows) + place - behind)
            values[:, i] = np.where(place == stay, self.own[i].take(rows), found)
        return values

    def random_other(self, task: SearchTask, rows: Ints) -> Codes:
        """For some instances the values (n, k) of a random candidate that is not the instance itself."""
        # numbered by feature, so that it does not depend on which feature was explained first
        order = np.argsort(task.features[rows].T, axis=0)
        own = np.take_along_axis(self.own[:, rows], order, axis=0)
        begin = np.take_along_axis(self.begin[:, rows], order, axis=0)
        sizes = np.take_along_axis(self.sizes[:, rows], order, axis=0)
        stay = None if self.stay is None else np.take_along_axis(self.stay[:, rows], order, axis=0)
        line = _Line(own, begin, sizes, self.table, stay)
        draws = draw_uniforms(task.seed, task.component, task.ids[rows], 2)
        everyone = np.arange(len(rows))
        drawn = (draws[:, 0] * line.counts).astype(np.int64)
        itself = (line.values(everyone, drawn) == own.T).all(axis=1)
        others = np.maximum(line.counts - 1, 1)
        drawn = np.where(itself, (drawn + 1 + (draws[:, 1] * others).astype(np.int64)) % line.counts, drawn)
        values = np.empty_like(own.T)
        np.put_along_axis(values, order.T, line.values(everyone, drawn), axis=1)
        return values


def _most(dataset: Dataset, feature: int, k: int) -> int:
    """How many values of a feature are tried at most; among several features one may keep its own."""
    if not dataset.free[feature]:
        return 1
    size = len(dataset.candidates[feature])
    return size if k == 1 else min(size + 1, len(dataset.features[feature].values))


def _within(
    dataset: Dataset, features: Ints, own: Codes, there: Bools, begin: Ints, sizes: Ints
) -> tuple[Ints, Ints, Ints | None]:
    """The candidates (k, n) of each instance: those that its own value may be exchanged for, and this itself.

    It is one of them where another feature may change instead, or nothing may.
    """
    begin, sizes, stay = begin.copy(), sizes.copy(), np.full(features.shape, -1)
    limited = False
    for j in np.unique(features[there]).tolist():
        here = there & (features == j)
        first, last = dataset.reach(j, own[here])
        place = np.searchsorted(dataset.candidates[j], own[here])
        among = dataset.candidates[j].take(place, mode="clip") == own[here]
        lacking = ~(among & (first <= place) & (place < last)) & ((len(own) > 1) | (first == last))
        begin[here] += first
        sizes[here] = last - first + lacking
        stay[here] = np.where(lacking, np.clip(place - first, 0, last - first), -1)
        limited |= dataset.features[j].moves != "any"
    return begin, sizes, stay if limited or (stay >= 0).any() else None


@dataclass
class _Best:
    """The best candidate so far of each instance: by tier, then cost, then changes, then order."""

    tier: Ints
    cost: Floats
    key: Ints
    index: Ints

    @staticmethod
    def none(size: int) -> _Best:
        last = np.iinfo(np.int64).max
        return _Best(np.full(size, _UNDECIDED), np.full(size, np.inf), np.full(size, last), np.zeros(size, np.int64))

    def improve(self, line: _Line, part: _Part, tier: Ints, cost: Floats, values: Codes) -> None:
        """Take what is better in a part of the line."""
        lowest = np.minimum.reduceat(cost, part.starts)
        if np.isnan(lowest).any():
            raise Failure(
                "the model's probabilities of some candidates, or the distances to them, are no numbers (NaN)"
            )
        ties = np.flatnonzero(cost == lowest.take(part.member))  # of every instance at least one
        rows = np.broadcast_to(part.rows, len(cost))[ties]
        keys = part.index.take(ties)
        for i in range(values.shape[1] if values.shape[1] > 1 else 0):  # one feature is changed or it is not allowed
            keys += line.counts.take(rows) * (values[:, i].take(ties) != line.own[i].take(rows))
        mine, key = part.some, keys
        if len(ties) > len(lowest):
            key = np.minimum.reduceat(keys, np.searchsorted(ties, part.starts))
        better = (tier < self.tier[mine]) | (
            (tier == self.tier[mine])
            & ((lowest < self.cost[mine]) | ((lowest == self.cost[mine]) & (key < self.key[mine])))
        )
        index = key % line.counts[mine]
        for kept, new in ((self.tier, tier), (self.cost, lowest), (self.key, key), (self.index, index)):
            kept[mine] = np.where(better, new, kept[mine])
