"""The candidates of a discrete search: combinations of values of the selected features, in batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np

from cfeval_cli.core import ABSENT, NO_FEATURE, Bools, Codes, Dataset, Floats, Ints, SearchTask
from cfeval_cli.errors import Failure
from cfeval_cli.seeding import draw_uniforms

# Tiers of candidates: any candidate of a lower tier is better than any of a higher tier, whatever their costs.
FLIP_TIER, DROP_TIER, UNDECIDED_TIER = 0, 1, 2
_NO_POSITION = -1  # where no own value is inserted

_MIN_SPLIT_CANDIDATES = 4096  # an instance with at least so many candidates has batches of its own


@dataclass(frozen=True)
class CandidateBatch:
    """Candidates of several instances, or some candidates of a single instance."""

    first: int  # number of the first instance
    starts: Ints  # (n,) where the candidates of each instance begin
    members: Ints  # (m,) the instance of each candidate, counted from the first; (1,) if all have the same
    index: Ints  # (m,) number of the candidate among those of its instance

    @property
    def rows(self) -> Ints:
        """The instance of each candidate, or (1,) if all have the same."""
        return self.members + self.first

    @property
    def instances(self) -> slice:
        """The instances of the batch."""
        return slice(self.first, self.first + len(self.starts))


class Candidates(Protocol):
    """Candidates of several instances, numbered per instance."""

    @property
    def own(self) -> Codes:
        """The values (k, n) of the instances, ABSENT where an explanation has fewer than k features."""
        ...

    @property
    def counts(self) -> Ints:
        """The number of candidates (n,) of each instance."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether instances with the same features have the same candidates."""
        ...

    def compute_values(self, rows: Ints, index: Ints) -> Codes:
        """Return the values (m, k) of candidates by instance and number; `rows` may be (1,)."""
        ...


@dataclass(frozen=True)
class Combinations:
    """All candidates of all instances, numbered per instance; the value of the last feature changes fastest.

    They are computed in batches, because all of them would not fit into memory.
    """

    own: Codes  # (k, n) the values of the instances, ABSENT where an explanation has fewer than k features
    begin: Ints  # (k, n) where the values of a feature begin in `table`
    sizes: Ints  # (k, n) number of candidate values, including the own value where it is added
    table: Codes
    # (k, n) The position at which the own value is inserted into the candidates, _NO_POSITION where none is inserted.
    # None: no own value is inserted, and instances with the same features have the same candidates.
    own_position: Ints | None = None

    @staticmethod
    def from_task(task: SearchTask) -> Combinations:
        """List the candidate values of a task."""
        is_feature = task.features.T != NO_FEATURE
        features = np.where(is_feature, task.features.T, 0)
        own = np.where(is_feature, task.codes[np.arange(len(task.codes)), features], np.int32(ABSENT))
        table, begin, sizes = task.dataset.candidate_table
        # Where there is no feature, ABSENT is the only value.
        table = np.concatenate([table, np.array([ABSENT], dtype=np.int32)])
        begin, sizes = np.where(is_feature, begin[features], len(table) - 1), np.where(is_feature, sizes[features], 1)
        own_position = None
        if len(own) > 1 or task.dataset.has_constraints:
            begin, sizes, own_position = _limit_to_permitted(task.dataset, features, own, is_feature, begin, sizes)
        return Combinations(own, begin, sizes, table, own_position)

    @cached_property
    def counts(self) -> Ints:
        """The number of candidates (n,) of each instance."""
        return np.asarray(self.sizes.prod(axis=0))

    @property
    def is_shared(self) -> bool:
        """Whether instances with the same features have the same candidates."""
        return self.own_position is None

    def compute_values(self, rows: Ints, index: Ints) -> Codes:
        """Return the values (m, k) of candidates by instance and number; `rows` may be (1,)."""
        values = np.empty((len(self.sizes), len(index)), dtype=np.int32).T
        for i in reversed(range(len(self.sizes))):
            position = index
            if i:
                size = self.sizes[i].take(rows)
                index = ((index + 0.5) / size).astype(np.int64)  # exact for these sizes, and faster than divmod
                position = position - index * size
            values[:, i] = self.get_feature_values(i, rows, position)
        return values

    def get_feature_values(self, feature: int, rows: Ints, position: Ints) -> Codes:
        """Return the values (m,) of a feature, given by its place in the explanation, at some positions."""
        if self.own_position is None:
            return np.asarray(self.table.take(self.begin[feature].take(rows) + position))
        own_position = self.own_position[feature].take(rows)
        is_behind_own = (own_position != _NO_POSITION) & (position > own_position)
        other_values = self.table.take(self.begin[feature].take(rows) + position - is_behind_own)
        return np.asarray(np.where(position == own_position, self.own[feature].take(rows), other_values))

    def draw_other_values(self, task: SearchTask, rows: Ints) -> Codes:
        """Return the values (n, k) of a random candidate of some instances, other than the instance itself."""
        # Candidates are numbered by feature, so that the draw does not depend on the order of the explanation.
        order = np.argsort(task.features[rows].T, axis=0)
        own = np.take_along_axis(self.own[:, rows], order, axis=0)
        begin = np.take_along_axis(self.begin[:, rows], order, axis=0)
        sizes = np.take_along_axis(self.sizes[:, rows], order, axis=0)
        own_position = (
            None if self.own_position is None else np.take_along_axis(self.own_position[:, rows], order, axis=0)
        )
        ordered = Combinations(own, begin, sizes, self.table, own_position)
        values = np.empty_like(own.T)
        np.put_along_axis(values, order.T, draw_other_values(ordered, task, rows, np.arange(len(rows))), axis=1)
        return values


def draw_other_values(candidates: Candidates, task: SearchTask, rows: Ints, instances: Ints) -> Codes:
    """Return the values (m, k) of a random candidate of some instances of a task, other than the instance itself.

    `rows` are positions in the task, `instances` are positions in `candidates`.
    """
    uniforms = draw_uniforms(task.seed, task.component, task.ids[rows], 2)
    counts = candidates.counts[instances]
    index = (uniforms[:, 0] * counts).astype(np.int64)
    is_own = (candidates.compute_values(instances, index) == candidates.own[:, instances].T).all(axis=1)
    other = (index + 1 + (uniforms[:, 1] * np.maximum(counts - 1, 1)).astype(np.int64)) % counts
    return candidates.compute_values(instances, np.where(is_own, other, index))


def split_into_batches(counts: Ints, size: int) -> Iterator[CandidateBatch]:
    """Yield batches of at most `size` candidates of instances with `counts` (n,) candidates."""
    ends = np.cumsum(counts)
    first = 0
    while first < len(ends):
        before = int(ends[first - 1]) if first else 0
        count = int(counts[first])
        if count >= min(size, _MIN_SPLIT_CANDIDATES):
            zero = np.zeros(1, dtype=np.int64)
            for start in range(0, count, size):
                index = np.arange(start, min(start + size, count))
                yield CandidateBatch(first, zero, zero, index)
            first += 1
            continue
        last = int(np.searchsorted(ends, before + size, side="right"))
        starts = ends[first:last] - counts[first:last] - before
        members = np.repeat(np.arange(last - first), counts[first:last])
        yield CandidateBatch(first, starts, members, np.arange(len(members)) - starts.take(members))
        first = last


@dataclass(frozen=True)
class ExtendedEdits:
    """Some edits of the first features of each instance, each with all values of the next feature."""

    combinations: Combinations
    feature: int  # the place of the next feature in the explanation
    edits: Codes  # (p, k) of all instances, in the order of their numbers; later features have their own values
    starts: Ints  # (n + 1,) where the edits of each instance begin

    @staticmethod
    def make_initial(combinations: Combinations) -> ExtendedEdits:
        """Return the values of the first feature; no other feature is changed."""
        return ExtendedEdits(combinations, 0, combinations.own.T, np.arange(combinations.own.shape[1] + 1))

    @property
    def own(self) -> Codes:
        """The values (k, n) of the instances, ABSENT where an explanation has fewer than k features."""
        return self.combinations.own

    @cached_property
    def counts(self) -> Ints:
        """The number of candidates (n,) of each instance."""
        return np.asarray(np.diff(self.starts) * self.combinations.sizes[self.feature])

    @property
    def is_shared(self) -> bool:
        """False: each instance extends its own edits."""
        return False

    def compute_values(self, rows: Ints, index: Ints) -> Codes:
        """Return the values (m, k) of candidates by instance and number; `rows` may be (1,)."""
        size = self.combinations.sizes[self.feature].take(rows)
        edit = index // size
        values: Codes = self.edits.take(self.starts.take(rows) + edit, axis=0)
        values[:, self.feature] = self.combinations.get_feature_values(self.feature, rows, index - edit * size)
        return values

    def extend(self, rows: Ints, index: Ints) -> ExtendedEdits:
        """Return some of the candidates, given by instance and number in ascending order, with the next feature."""
        starts = np.searchsorted(rows, np.arange(len(self.starts)))
        return ExtendedEdits(self.combinations, self.feature + 1, self.compute_values(rows, index), starts)


@dataclass
class BestCandidates:
    """The best candidate of each instance so far: lowest tier, then lowest cost, fewest changes, and first in order."""

    tier: Ints
    cost: Floats
    key: Ints  # number of changes times number of candidates, plus the index: breaks ties of the cost
    index: Ints

    @staticmethod
    def make_initial(size: int) -> BestCandidates:
        """Return a state without candidates."""
        last = np.iinfo(np.int64).max
        return BestCandidates(
            np.full(size, UNDECIDED_TIER), np.full(size, np.inf), np.full(size, last), np.zeros(size, np.int64)
        )

    def update(self, candidates: Candidates, batch: CandidateBatch, tier: Ints, cost: Floats, values: Codes) -> None:
        """Replace the best candidates by better ones of a batch."""
        lowest = np.minimum.reduceat(cost, batch.starts)
        if np.isnan(lowest).any():
            raise Failure(
                "the model's probabilities of some candidates, or the distances to them, are not numbers (NaN)"
            )
        ties = np.flatnonzero(cost == lowest.take(batch.members))  # at least one for each instance
        rows = np.broadcast_to(batch.rows, len(cost))[ties]
        keys = batch.index.take(ties)
        # With a single feature, every candidate with a finite cost has one change.
        for i in range(values.shape[1] if values.shape[1] > 1 else 0):
            keys += candidates.counts.take(rows) * (values[:, i].take(ties) != candidates.own[i].take(rows))
        instances, key = batch.instances, keys
        if len(ties) > len(lowest):
            key = np.minimum.reduceat(keys, np.searchsorted(ties, batch.starts))
        is_better = (tier < self.tier[instances]) | (
            (tier == self.tier[instances])
            & ((lowest < self.cost[instances]) | ((lowest == self.cost[instances]) & (key < self.key[instances])))
        )
        index = key % candidates.counts[instances]
        for best, new in ((self.tier, tier), (self.cost, lowest), (self.key, key), (self.index, index)):
            best[instances] = np.where(is_better, new, best[instances])


def _limit_to_permitted(
    dataset: Dataset, features: Ints, own: Codes, is_feature: Bools, begin: Ints, sizes: Ints
) -> tuple[Ints, Ints, Ints | None]:
    """Return where the permitted values (k, n) of each instance begin, how many there are, and the own position.

    The own value is a candidate if another feature may change instead, or if no change is permitted.
    """
    begin, sizes, own_position = begin.copy(), sizes.copy(), np.full(features.shape, _NO_POSITION)
    is_limited = False
    for j in np.unique(features[is_feature]).tolist():
        is_this_feature = is_feature & (features == j)
        first, last = dataset.find_reachable(j, own[is_this_feature])
        position = np.searchsorted(dataset.candidates[j], own[is_this_feature])
        is_candidate = dataset.candidates[j].take(position, mode="clip") == own[is_this_feature]
        is_reachable = is_candidate & (first <= position) & (position < last)
        adds_own = ~is_reachable & ((len(own) > 1) | (first == last))
        begin[is_this_feature] += first
        sizes[is_this_feature] = last - first + adds_own
        own_position[is_this_feature] = np.where(adds_own, np.clip(position - first, 0, last - first), _NO_POSITION)
        is_limited |= dataset.features[j].allowed_change != "any"
    return begin, sizes, own_position if is_limited or (own_position != _NO_POSITION).any() else None


@dataclass(frozen=True)
class RankedCandidates:
    """Candidates of several instances and their priorities, of which the lowest come first."""

    rows: Ints  # (m,) the instance of each candidate
    index: Ints  # (m,) number of the candidate among those of its instance
    priority: Floats  # (m,)

    @staticmethod
    def concatenate(parts: Sequence[RankedCandidates]) -> RankedCandidates:
        """Concatenate the candidates of all parts."""
        columns = ([getattr(part, name) for part in parts] for name in ("rows", "index", "priority"))
        return RankedCandidates(*map(np.concatenate, columns))

    def select_first(self, size: int) -> RankedCandidates:
        """Return the first candidates of each instance, at most `size`; equal ones in the order of their numbers."""
        order = np.lexsort((self.index, self.priority, self.rows))
        rows = self.rows[order]
        order = order[np.arange(len(rows)) - np.searchsorted(rows, rows) < size]
        return RankedCandidates(self.rows[order], self.index[order], self.priority[order])

    def add(self, rows: Ints, index: Ints) -> tuple[Ints, Ints]:
        """Return instance and number of these candidates and others, each once, in ascending order."""
        pairs = np.column_stack([np.concatenate([self.rows, rows]), np.concatenate([self.index, index])])
        rows, index = np.unique(pairs, axis=0).T
        return rows, index
