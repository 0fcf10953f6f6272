"""Discrete search (Algorithm 1 of the paper): evaluate every combination of values of the selected features."""

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
from cfeval_cli.search.edit import evaluate_edited_values
from cfeval_cli.seeding import draw_uniforms

# Tiers of candidates: a candidate in a lower tier is better at any cost.
_FLIP_TIER, _DROP_TIER, _UNDECIDED_TIER = 0, 1, 2
_NO_POSITION = -1  # of an own value that is one of the candidates already

_CHUNK_CANDIDATES = 1_000_000  # candidates of the instances in one call, about
_MIN_SPLIT_CANDIDATES = 4096  # an instance with at least so many candidates has batches of its own


@dataclass(frozen=True)
class Discrete(Search):
    """Evaluate all combinations of values of the selected features, and pick one of them.

    first         the first that flips: fewest changed features, then the order of the values
    largest_drop  the combination with the largest drop in p(ŷ)
    nearest       the combination that flips at the smallest distance
    auto          first with label access, largest_drop with probabilities

    If no combination flips, the one with the largest drop is picked, or a random one with label access.
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
        """The name of the search in captions."""
        return f"discrete search (pick: {self.pick})"

    @property
    def levels(self) -> tuple[Access, ...]:
        """The access levels of the search; a largest drop needs probabilities."""
        if self.pick == "largest_drop":
            return (Access.PROBABILITY,)
        return (Access.LABEL, Access.PROBABILITY)

    @property
    def uses_distance(self) -> bool:
        """Whether distances decide which combination is picked."""
        return self.pick == "nearest"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models without the lowest access level of the search."""
        reason = spec.missing_access_reason(min(self.levels))
        return f"{reason}. Use search.pick=auto" if reason else None

    def check(self, dataset: Dataset, k: int) -> None:
        """Raise a UserError if an explanation of k features could have more than `max_candidates` combinations."""
        sizes = sorted(((_count_values(dataset, j, k), j) for j in range(dataset.n_features)), reverse=True)[:k]
        needed = prod(size for size, _ in sizes)
        if needed > self.max_candidates:
            factors = " × ".join(f"{size:,} ({dataset.features[j].name})" for size, j in sizes)
            raise UserError(
                f"search.max_candidates={self.max_candidates:,} is too small: k={k} can need {needed:,} candidates "
                f"per instance, {factors}. Raise it to {needed}, lower k, or, for text, lower dataset.search_words."
            )

    def estimate_workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return the mean number of combinations."""
        k = features.shape[1]
        sizes = np.array(
            [*(_count_values(dataset, j, k) for j in range(dataset.n_features)), 1]
        )  # NO_FEATURE indexes the last entry
        settings = ["dataset.search_words"] if dataset.padded else []
        settings += ["dataset.candidates"] if any(feature.kind == "number" for feature in dataset.features) else []
        settings += ["k"] if k > 1 else []
        return Workload(float(sizes[features].prod(axis=1).mean()) if len(features) else 0.0, tuple(settings))

    def choose_chunk_size(self, dataset: Dataset, k: int) -> int:
        """Return the number of instances in one call, which have about a million candidates."""
        sizes = sorted((_count_values(dataset, j, k) for j in range(dataset.n_features)), reverse=True)
        return int(min(4096, max(16, _CHUNK_CANDIDATES // prod(sizes[:k]))))

    def find(self, task: SearchTask) -> Counterfactuals:
        """Return the best combination of each instance; candidates are evaluated in batches."""
        candidates = _Candidates.from_task(task)
        best = _BestCandidates.make_initial(len(task.ids))
        for batch in candidates.split(self.max_batch_rows):
            best.update(candidates, batch, *self._rate_candidates(task, candidates, batch))
        values = candidates.compute_values(np.arange(len(best.index)), best.index)
        undecided = np.flatnonzero(best.tier == _UNDECIDED_TIER)
        if len(undecided):
            values[undecided] = candidates.draw_other_values(task, undecided)
        edited = task.codes.copy()
        for i, column in enumerate(task.features.T):
            rows = np.flatnonzero(column != NO_FEATURE)
            edited[rows, column[rows]] = values[rows, i]
        return evaluate_edited_values(task, edited, self.max_batch_rows)

    def _rate_candidates(
        self, task: SearchTask, candidates: _Candidates, batch: _CandidateBatch
    ) -> tuple[Ints, Floats, Codes]:
        """Return the best tier of each instance, and the cost (inf outside this tier) and values of each candidate."""
        rows = batch.rows
        values = candidates.compute_values(rows, batch.index)
        is_changed = values[:, 0] != candidates.own[0].take(rows)  # an instance is not its own counterfactual
        for i in range(1, values.shape[1]):
            is_changed |= values[:, i] != candidates.own[i].take(rows)
        instances = batch.instances
        is_flip, probability = task.model.evaluate_edits(
            task.codes[instances], task.features[instances], batch.members, values, task.predicted_classes[instances]
        )
        pick = self.pick
        if pick == "auto":
            pick = "first" if probability is None else "largest_drop"
        tier = np.full(len(batch.starts), _FLIP_TIER)
        if pick == "largest_drop" and probability is not None:
            cost = np.where(is_changed, probability, np.inf)
        else:
            flips = is_changed & is_flip
            any_flip = np.logical_or.reduceat(flips, batch.starts)
            distances = self._compute_distances(task, candidates, batch, values) if pick == "nearest" else 0.0
            cost = np.where(flips, distances, np.inf)
            tier[~any_flip] = _UNDECIDED_TIER if probability is None else _DROP_TIER
            if probability is not None:
                cost = np.where(any_flip.take(batch.members), cost, np.where(is_changed, probability, np.inf))
        return tier, cost, values

    def _compute_distances(
        self, task: SearchTask, candidates: _Candidates, batch: _CandidateBatch, values: Codes
    ) -> Floats:
        """Return the distance of each candidate; instances with the same features may share their candidates."""
        if candidates.own_position is not None:
            rows = np.broadcast_to(batch.rows, len(values))
            return task.distance.compute_distances(
                task.codes[rows], apply_edits(task.codes, task.features, rows, values)
            )
        distances = np.zeros(len(values))
        features = task.features[batch.instances]
        groups, group_numbers = np.unique(features, axis=0, return_inverse=True)
        for number, group in enumerate(groups):
            members = np.flatnonzero(group_numbers.ravel() == number)
            is_member = np.isin(np.broadcast_to(batch.members, len(values)), members)
            size = np.count_nonzero(is_member) // len(members)
            is_feature = group != NO_FEATURE
            if is_feature.any():
                shared = values[is_member][:size, is_feature]
                codes = task.codes[batch.instances][members]
                distances[is_member] = task.distance.compute_distance_matrix(codes, group[is_feature], shared).ravel()
        return distances


@dataclass(frozen=True)
class _CandidateBatch:
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


@dataclass(frozen=True)
class _Candidates:
    """All candidates of all instances, numbered per instance; the value of the last feature changes fastest.

    They are computed in batches, because all of them would not fit into memory.
    """

    own: Codes  # (k, n) the values of the instances, ABSENT where an explanation has fewer than k features
    begin: Ints  # (k, n) where the values of a feature begin in `table`
    sizes: Ints  # (k, n) number of values, with the own value
    table: Codes
    # (k, n) The position at which the own value is added to the candidates, _NO_POSITION where it is one of them. None:
    # no own value is added, and instances with the same features have the same candidates.
    own_position: Ints | None = None

    @staticmethod
    def from_task(task: SearchTask) -> _Candidates:
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
        return _Candidates(own, begin, sizes, table, own_position)

    @cached_property
    def counts(self) -> Ints:
        """The number of candidates (n,) of each instance."""
        return np.asarray(self.sizes.prod(axis=0))

    def split(self, size: int) -> Iterator[_CandidateBatch]:
        """Yield batches of at most `size` candidates."""
        ends = np.cumsum(self.counts)
        first = 0
        while first < len(ends):
            before = int(ends[first - 1]) if first else 0
            count = int(self.counts[first])
            if count >= min(size, _MIN_SPLIT_CANDIDATES):
                zero = np.zeros(1, dtype=np.int64)
                for start in range(0, count, size):
                    index = np.arange(start, min(start + size, count))
                    yield _CandidateBatch(first, zero, zero, index)
                first += 1
                continue
            last = int(np.searchsorted(ends, before + size, side="right"))
            starts = ends[first:last] - self.counts[first:last] - before
            members = np.repeat(np.arange(last - first), self.counts[first:last])
            yield _CandidateBatch(first, starts, members, np.arange(len(members)) - starts.take(members))
            first = last

    def compute_values(self, rows: Ints, index: Ints) -> Codes:
        """Return the values (m, k) of candidates by instance and number; `rows` may be (1,)."""
        values = np.empty((len(self.sizes), len(index)), dtype=np.int32).T
        for i in reversed(range(len(self.sizes))):
            position = index
            if i:
                size = self.sizes[i].take(rows)
                index = ((index + 0.5) / size).astype(np.int64)  # exact for these sizes, and faster than divmod
                position = position - index * size
            if self.own_position is None:
                values[:, i] = self.table.take(self.begin[i].take(rows) + position)
                continue
            own_position = self.own_position[i].take(rows)
            is_behind_own = (own_position != _NO_POSITION) & (position > own_position)
            other_values = self.table.take(self.begin[i].take(rows) + position - is_behind_own)
            values[:, i] = np.where(position == own_position, self.own[i].take(rows), other_values)
        return values

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
        ordered = _Candidates(own, begin, sizes, self.table, own_position)
        uniforms = draw_uniforms(task.seed, task.component, task.ids[rows], 2)
        instances = np.arange(len(rows))
        index = (uniforms[:, 0] * ordered.counts).astype(np.int64)
        is_own = (ordered.compute_values(instances, index) == own.T).all(axis=1)
        n_others = np.maximum(ordered.counts - 1, 1)
        other = (index + 1 + (uniforms[:, 1] * n_others).astype(np.int64)) % ordered.counts
        index = np.where(is_own, other, index)
        values = np.empty_like(own.T)
        np.put_along_axis(values, order.T, ordered.compute_values(instances, index), axis=1)
        return values


@dataclass
class _BestCandidates:
    """The best candidate of each instance so far: lowest tier, then lowest cost, fewest changes, and first in order."""

    tier: Ints
    cost: Floats
    key: Ints  # number of changes times number of candidates, plus the index: breaks ties of the cost
    index: Ints

    @staticmethod
    def make_initial(size: int) -> _BestCandidates:
        """Return a state without candidates."""
        last = np.iinfo(np.int64).max
        return _BestCandidates(
            np.full(size, _UNDECIDED_TIER), np.full(size, np.inf), np.full(size, last), np.zeros(size, np.int64)
        )

    def update(self, candidates: _Candidates, batch: _CandidateBatch, tier: Ints, cost: Floats, values: Codes) -> None:
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


def _count_values(dataset: Dataset, feature: int, k: int) -> int:
    """Return the largest number of values of a feature that the search evaluates; of several, one may keep its own."""
    if not dataset.is_changeable[feature]:
        return 1
    size = len(dataset.candidates[feature])
    return size if k == 1 else min(size + 1, len(dataset.features[feature].values))


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
