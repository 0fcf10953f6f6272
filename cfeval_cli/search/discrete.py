"""Discrete search (Algorithm 1 of the paper): evaluate all combinations of values of the features, or a beam."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import NamedTuple

import numpy as np

from cfeval_cli.core import (
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
from cfeval_cli.errors import check_int, check_option
from cfeval_cli.search.candidates import (
    DROP_TIER,
    FLIP_TIER,
    UNDECIDED_TIER,
    BestCandidates,
    CandidateBatch,
    Candidates,
    Combinations,
    ExtendedEdits,
    RankedCandidates,
    draw_other_values,
    split_into_batches,
)
from cfeval_cli.search.edit import evaluate_edited_values
from cfeval_cli.seeding import draw_uniforms, hash_uniforms

_CHUNK_CANDIDATES = 1_000_000  # candidates of the instances in one call, about
# Besides the edits with the best priority, a beam has the unchanged instance and the best candidate so far.
_N_ADDED_EDITS = 2
_FIRST_PRIORITY, _LAST_PRIORITY = -1.0, 2.0  # before and after all probabilities


class _EvaluatedCandidates(NamedTuple):
    """The candidates of a batch and their predictions."""

    values: Codes  # (m, k)
    is_changed: Bools  # (m,) an instance is not its own counterfactual
    is_flip: Bools  # (m,)
    probability: Floats | None  # (m,) of the predicted class; None with label access


@dataclass(frozen=True)
class Discrete(Search):
    """Evaluate all combinations of values of the selected features, and pick one of them.

    first         the first that flips: fewest changed features, then the order of the values
    largest_drop  the combination with the largest drop in p(ŷ)
    nearest       the combination that flips at the smallest distance
    auto          first with label access, largest_drop with probabilities

    If no combination flips, the one with the largest drop is picked, or a random one with label access.

    An instance with more than `max_candidates` combinations is searched by a beam: feature by feature, in the order of
    the explanation, all values of the next feature are combined with the `beam` best edits of the features before it.
    """

    pick: str = "auto"
    max_candidates: int = 10_000
    beam: int = 100
    max_batch_rows: int = 65_536

    title = "disc."

    def __post_init__(self) -> None:
        check_option("pick", self.pick, ("auto", "first", "largest_drop", "nearest"))
        check_int("max_candidates", self.max_candidates, 1)
        check_int("beam", self.beam, 1)
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

    def estimate_workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return the mean number of candidates."""
        k = features.shape[1]
        sizes = np.array(
            [*(_count_values(dataset, j, k) for j in range(dataset.n_features)), 1]
        )  # NO_FEATURE indexes the last entry
        counts = self._count_candidates(sizes[features.T])
        settings = ["dataset.search_words"] if dataset.padded else []
        settings += ["dataset.candidates"] if any(feature.kind == "number" for feature in dataset.features) else []
        settings += ["k"] if k > 1 else []
        return Workload(float(counts.mean()) if len(features) else 0.0, tuple(settings))

    def choose_chunk_size(self, dataset: Dataset, k: int) -> int:
        """Return the number of instances in one call, which have about a million candidates."""
        sizes = sorted((_count_values(dataset, j, k) for j in range(dataset.n_features)), reverse=True)
        count = prod(sizes[:k])
        if count > self.max_candidates:
            count = int(self._count_candidates(np.array(sizes[:k])[:, None])[0])
        return int(min(4096, max(16, _CHUNK_CANDIDATES // count)))

    def _count_candidates(self, sizes: Ints) -> Floats:
        """Return the largest number of candidates (n,) that are evaluated, given the sizes (k, n) of features."""
        n_edits, n_extended = np.ones(sizes.shape[1]), np.zeros(sizes.shape[1])
        for row in sizes:
            n_extended += n_edits * row
            n_edits = np.minimum(n_edits * row, self.beam + _N_ADDED_EDITS)
        return np.where(self._needs_beam(sizes), n_extended, sizes.prod(axis=0, dtype=float))

    def _needs_beam(self, sizes: Ints) -> Bools:
        """Return whether features with sizes (k, n) have too many combinations (n,); a single feature never has."""
        is_large = sizes.prod(axis=0, dtype=float) > self.max_candidates  # floats, because the product may overflow
        return np.asarray(is_large & ((sizes > 1).sum(axis=0) > 1) if is_large.any() else is_large)

    def find(self, task: SearchTask) -> Counterfactuals:
        """Return the best combination of each instance; candidates are evaluated in batches."""
        combinations = Combinations.from_task(task)
        is_large = self._needs_beam(combinations.sizes)
        if not is_large.any():
            values = self._search_all(task, combinations)
        else:
            values = np.empty_like(combinations.own.T)
            for is_part, search in ((~is_large, self._search_all), (is_large, self._search_by_beam)):
                part = task.select_instances(np.flatnonzero(is_part))
                values[is_part] = search(part, Combinations.from_task(part))
        edited = task.codes.copy()
        for i, column in enumerate(task.features.T):
            rows = np.flatnonzero(column != NO_FEATURE)
            edited[rows, column[rows]] = values[rows, i]
        return replace(evaluate_edited_values(task, edited, self.max_batch_rows), is_exhaustive=~is_large)

    def _search_all(self, task: SearchTask, combinations: Combinations) -> Codes:
        """Return the values (n, k) of the best of all combinations."""
        best = BestCandidates.make_initial(len(task.ids))
        for batch in split_into_batches(combinations.counts, self.max_batch_rows):
            candidates = self._evaluate_candidates(task, combinations, batch)
            best.update(combinations, batch, *self._rate_candidates(task, combinations, batch, candidates))
        values = combinations.compute_values(np.arange(len(best.index)), best.index)
        undecided = np.flatnonzero(best.tier == UNDECIDED_TIER)
        if len(undecided):
            values[undecided] = combinations.draw_other_values(task, undecided)
        return values

    def _search_by_beam(self, task: SearchTask, combinations: Combinations) -> Codes:
        """Return the values (n, k) of the best candidates of a beam search.

        A beam keeps the best candidate so far, and the unchanged instance, so that later features may change alone.
        """
        extended = ExtendedEdits.make_initial(combinations)
        instances = np.arange(len(task.ids))
        while True:
            best, parts = BestCandidates.make_initial(len(instances)), []
            for batch in split_into_batches(extended.counts, self.max_batch_rows):
                candidates = self._evaluate_candidates(task, extended, batch)
                best.update(extended, batch, *self._rate_candidates(task, extended, batch, candidates))
                rows = np.broadcast_to(batch.rows, len(batch.index))
                priority = self._compute_priority(task, extended, batch, candidates)
                parts.append(RankedCandidates(rows, batch.index, priority).select_first(self.beam + 1))
            if extended.feature == task.features.shape[1] - 1:
                break
            ranked = RankedCandidates.concatenate(parts).select_first(self.beam + 1)
            extended = extended.extend(*ranked.add(instances, best.index))
        values = extended.compute_values(instances, best.index)
        undecided = np.flatnonzero(best.tier == UNDECIDED_TIER)
        values[undecided] = draw_other_values(extended, task, undecided, undecided)
        return values

    def _evaluate_candidates(
        self, task: SearchTask, candidates: Candidates, batch: CandidateBatch
    ) -> _EvaluatedCandidates:
        """Return the candidates of a batch with their predictions."""
        rows = batch.rows
        values = candidates.compute_values(rows, batch.index)
        is_changed = values[:, 0] != candidates.own[0].take(rows)
        for i in range(1, values.shape[1]):
            is_changed |= values[:, i] != candidates.own[i].take(rows)
        instances = batch.instances
        is_flip, probability = task.model.evaluate_edits(
            task.codes[instances], task.features[instances], batch.members, values, task.predicted_classes[instances]
        )
        return _EvaluatedCandidates(values, is_changed, is_flip, probability)

    def _resolve_pick(self, probability: Floats | None) -> str:
        """Return the criterion, which may depend on whether there are probabilities."""
        if self.pick == "auto":
            return "first" if probability is None else "largest_drop"
        return self.pick

    def _rate_candidates(
        self, task: SearchTask, candidates: Candidates, batch: CandidateBatch, evaluated: _EvaluatedCandidates
    ) -> tuple[Ints, Floats, Codes]:
        """Return the best tier of each instance, and the cost (inf outside this tier) and values of each candidate."""
        values, is_changed, is_flip, probability = evaluated
        pick = self._resolve_pick(probability)
        tier = np.full(len(batch.starts), FLIP_TIER)
        if pick == "largest_drop" and probability is not None:
            cost = np.where(is_changed, probability, np.inf)
        else:
            flips = is_changed & is_flip
            any_flip = np.logical_or.reduceat(flips, batch.starts)
            distances = self._compute_distances(task, candidates, batch, values) if pick == "nearest" else 0.0
            cost = np.where(flips, distances, np.inf)
            tier[~any_flip] = UNDECIDED_TIER if probability is None else DROP_TIER
            if probability is not None:
                cost = np.where(any_flip.take(batch.members), cost, np.where(is_changed, probability, np.inf))
        return tier, cost, values

    def _compute_priority(
        self, task: SearchTask, extended: ExtendedEdits, batch: CandidateBatch, evaluated: _EvaluatedCandidates
    ) -> Floats:
        """Return the priority (m,) of each candidate to be combined with the next feature, the lowest first.

        The unchanged instance comes first. Unless the largest drop is searched, candidates that flip come last.
        """
        priority = evaluated.probability
        if priority is None:
            uniforms = draw_uniforms(task.seed, f"{task.component}.beam", task.ids[batch.instances], 1)[:, 0]
            numbers = batch.index * task.features.shape[1] + extended.feature
            priority = hash_uniforms(uniforms.take(batch.members), numbers)
        if self._resolve_pick(evaluated.probability) != "largest_drop":
            priority = np.where(evaluated.is_flip, _LAST_PRIORITY, priority)
        return np.where(evaluated.is_changed, priority, _FIRST_PRIORITY)

    def _compute_distances(
        self, task: SearchTask, candidates: Candidates, batch: CandidateBatch, values: Codes
    ) -> Floats:
        """Return the distance of each candidate; instances with the same features may share their candidates."""
        if not candidates.is_shared:
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


def _count_values(dataset: Dataset, feature: int, k: int) -> int:
    """Return the largest number of values that the search evaluates for a feature; with k > 1, with the own value."""
    if not dataset.is_changeable[feature]:
        return 1
    size = len(dataset.candidates[feature])
    return size if k == 1 else min(size + 1, len(dataset.features[feature].values))
