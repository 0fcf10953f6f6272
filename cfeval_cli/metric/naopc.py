"""NAOPC: AOPC relative to those of the worst and the best order of the features (Edin et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from cfeval_cli.core import ABSENT, Bools, FittedRemoval, Floats, Ints, MetricInput, Replacement, Score
from cfeval_cli.core.evaluation_cache import make_set_keys
from cfeval_cli.errors import check_int
from cfeval_cli.metric.curve import ErasureCurveMetric, rank_features
from cfeval_cli.metric.erasure import compute_erasure
from cfeval_cli.metric.lattice import Lattice, count_sets
from cfeval_cli.seeding import draw_uniforms

_NOT_REMOVED = 1 << 30  # rank of a feature that an order does not remove
_BATCH_INSTANCES = 64  # instances in one beam search, to bound memory
_TIE_TOLERANCE = 1e-12  # AOPC values that differ by no more are equal
MIN_EXACT_INSTANCES = 5  # expected sample size at least, if all subsets of one instance fit `rows`


@dataclass(frozen=True)
class Naopc(ErasureCurveMetric):
    """AOPC normalised for each instance: (AOPC - worst) / (best - worst) over all orders of the features.

    Worst and best are exact if the logit is linear and one value replaces the removed features, or if `rows` allows all
    subsets of the features of an instance. Otherwise they come from a beam search. A better order than those of the
    beam search has a value above 1, and the remark states how many values exceed 1. An explanation with too few
    features for a complete order can also exceed 1, if removing more features would raise p(ŷ) again.
    """

    width: int = 5  # orders that the beam search keeps
    draws: int = 10  # draws of a sampling removal in the beam search; values use all draws
    rows: int = 1_000_000  # model evaluations for each removal; a sample of the instances is scored if they need more
    seed: int = 0  # of the sample of instances

    name = "naopc"
    title = "NAOPC"
    better = "higher"
    range = (float("-inf"), float("inf"))
    display_order = 35
    zero_denominator_note = "all orders have the same AOPC"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("width", self.width, 1)
        check_int("draws", self.draws, 1)
        check_int("rows", self.rows, 1)
        check_int("seed", self.seed, 0)

    def score_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> Score:
        """Return the scores of all instances, or of a sample if worst and best are too expensive for all."""
        replacement = fitted.replacement
        if replacement is None:
            raise ValueError(fitted.reason)
        is_linear = inputs.model.has_linear_logit and (replacement.value is not None or replacement.vectors is not None)
        lattice = None if is_linear else self._make_lattice(inputs, fitted, replacement)
        coarse = fitted if is_linear or lattice is not None else self._fit_coarse_removal(inputs, fitted)
        positions = np.arange(len(inputs)) if is_linear else self._sample_instances(inputs, coarse, lattice)

        def compute_extremes(new_indices: Ints) -> Floats:
            new_positions = positions[new_indices]
            if lattice is not None:
                return lattice.compute_extremes(
                    inputs, fitted, new_positions, self.count_removals_per_point(inputs, new_positions)
                )
            if is_linear:
                orders = self._sort_by_effect(inputs, replacement, new_positions)
            else:
                orders = self._search_orders(inputs, coarse, new_positions)
            return np.stack([self.compute_mean_drops(inputs, fitted, new_positions, ranks) for ranks in orders], axis=1)

        worst, best = inputs.memory.get_or_compute(
            f"{self!r}, {fitted.removal!r}", inputs.ids[positions], compute_extremes
        ).T
        ranks = rank_features(inputs)[positions]
        value = self.compute_mean_drops(inputs, fitted, positions, ranks)
        for extreme in (worst, best):  # the same sum in another order differs by rounding
            value = np.where(np.abs(value - extreme) <= _TIE_TOLERANCE, extreme, value)
        if lattice is not None:  # a complete order is outside the exact extremes by rounding only
            longest = self.count_removals_per_point(inputs, positions).max(axis=1, initial=0)
            is_complete = (ranks < longest[:, None]).sum(axis=1) >= longest
            value = np.where(is_complete, np.clip(value, worst, best), value)
        differs = best - worst > _TIE_TOLERANCE
        values = np.where(differs, value - worst, 0.0) / np.where(differs, best - worst, 1.0)
        counts = {"sampled": len(positions), "above": int(np.count_nonzero(values > 1))}
        method = ""
        if lattice is not None:
            method = "worst and best order exact, by all subsets"
        elif not is_linear:
            method = f"worst and best order approximated by beam search (width {self.width}"
            method += f", {self.draws} draws)" if coarse is not fitted else ")"
        if len(positions) < len(inputs):
            method += ", on a sample of {sampled} instances"
        remark = "{above} of {sampled} values exceed 1"
        if is_linear or lattice is not None:
            remark = f"{remark} (incomplete orders)" if counts["above"] else ""
        return Score(
            fitted.removal.variant, values, differs.astype(np.float64), positions=positions, method=method,
            remark=remark, counts=counts,
        )  # fmt: skip

    def _compute_longest_prefix(self, inputs: MetricInput) -> int:
        """Return the largest number of features that a point of the curve removes."""
        width = inputs.dataset.n_features
        return ceil(max(self.shares) * width) if inputs.dataset.padded else min(self.max_features, width)

    def _make_lattice(self, inputs: MetricInput, fitted: FittedRemoval, replacement: Replacement) -> Lattice | None:
        """Return the lattice of feature sets, or None if `rows` does not allow to evaluate it for one instance."""
        longest, width = self._compute_longest_prefix(inputs), inputs.dataset.n_features
        if count_sets(width, longest) * _count_draws(replacement, width) > self.rows:
            return None
        return inputs.memory.get_or_create(
            f"{self!r}, {fitted.removal!r}, lattice", lambda: Lattice.build(inputs.dataset, replacement, longest)
        )

    def _sort_by_effect(self, inputs: MetricInput, replacement: Replacement, positions: Ints) -> list[Ints]:
        """Return the rank (n, M) of each feature in the worst and in the best order, for a linear logit.

        Proof: p(ŷ|x without S) = σ(z - Σ_S δ_j), where δ_j is what the replacement takes from the logit of ŷ. σ is
        increasing, so of all sets of i features the one with the largest Σ δ, the i largest δ, drops p most. These sets
        are nested. One order, by decreasing δ, therefore has the largest drop at every i, and the largest mean of the
        drops at any points. The order by increasing δ has the smallest. (With `marginal`, p is a mean of several σ, and
        no order has this property.)
        """
        codes, width = inputs.codes[positions], inputs.dataset.n_features
        _, slopes = inputs.model.compute_linear_logits(codes[:0])
        vectors = replacement.vectors
        if vectors is None:
            vectors = inputs.model.embed_rows(np.full((1, width), replacement.value, dtype=np.int32))[0]
        sign = np.where(inputs.predicted_classes[positions] == 1, 1.0, -1.0)[:, None]
        is_taken = np.stack(
            [(inputs.model.embed_values(j, codes[:, j]) - vectors[j]) @ slopes[j] for j in range(width)], axis=1
        )
        is_present = codes != ABSENT
        effects = [np.where(is_present, direction * sign * is_taken, -np.inf) for direction in (-1.0, 1.0)]
        orders = [np.argsort(-effect, axis=1, kind="stable") for effect in effects]
        return [np.argsort(order, axis=1, kind="stable") for order in orders]

    def _fit_coarse_removal(self, inputs: MetricInput, fitted: FittedRemoval) -> FittedRemoval:
        """Return the same removal with fewer draws, if it draws."""
        coarse = fitted.removal.with_max_draws(self.draws)
        if coarse == fitted.removal:
            return fitted
        return inputs.memory.get_or_create(
            repr(coarse), lambda: FittedRemoval(coarse, coarse.fit(inputs.dataset, inputs.model))
        )

    def _search_orders(self, inputs: MetricInput, fitted: FittedRemoval, positions: Ints) -> list[Ints]:
        """Return the rank (n, M) of each feature in the worst and in the best order that beam search finds."""
        batches = [positions[start : start + _BATCH_INSTANCES] for start in range(0, len(positions), _BATCH_INSTANCES)]
        no_instances = np.zeros((0, inputs.dataset.n_features), dtype=np.int64)
        return [
            np.concatenate([no_instances, *(self._run_beam_search(inputs, fitted, batch, sign) for batch in batches)])
            for sign in (-1.0, 1.0)
        ]

    def _run_beam_search(self, inputs: MetricInput, fitted: FittedRemoval, positions: Ints, sign: float) -> Ints:
        """Return the ranks (n, M) of the order with the largest AOPC that the beam keeps; the smallest for sign -1."""
        if inputs.probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        n_removed, before = self.count_removals_per_point(inputs, positions), inputs.probability
        # The beam has one line per order: its instance, the ranks of its features, and its total drop.
        instances = np.arange(len(positions))
        ranks = np.full((len(positions), inputs.dataset.n_features), _NOT_REMOVED)
        totals, best_totals, best_ranks = np.zeros(len(positions)), np.full(len(positions), -np.inf), ranks.copy()
        for size in range(1, int(n_removed.max(initial=0)) + 1):
            continues = n_removed.max(axis=1)[instances] >= size
            instances, ranks, totals = instances[continues], ranks[continues], totals[continues]
            lines, features = np.nonzero((ranks == _NOT_REMOVED) & (inputs.codes[positions[instances]] != ABSENT))
            instances, ranks, totals = instances[lines], ranks[lines], totals[lines]
            ranks[np.arange(len(lines)), features] = size - 1
            probability = compute_erasure(inputs, fitted, positions[instances], ranks != _NOT_REMOVED).probability
            if probability is None:
                raise ValueError("a drop needs probabilities before and after the edit")
            drops = sign * (before[positions[instances]] - probability)
            multiplicity = (n_removed[instances] == size).sum(axis=1)
            beam = _select_beam(
                self.width, instances, ranks != _NOT_REMOVED, totals + np.maximum(1, multiplicity) * drops
            )
            instances, ranks, totals = instances[beam], ranks[beam], (totals + multiplicity * drops)[beam]
            ended = np.flatnonzero(n_removed.max(axis=1)[instances] == size)
            ended = ended[np.lexsort((-totals[ended], instances[ended]))]  # the best order of each instance comes first
            ended_instances, first = np.unique(instances[ended], return_index=True)
            is_better = totals[ended[first]] > best_totals[ended_instances]
            best_totals[ended_instances[is_better]] = totals[ended[first[is_better]]]
            best_ranks[ended_instances[is_better]] = ranks[ended[first[is_better]]]
        return best_ranks

    def _sample_instances(self, inputs: MetricInput, fitted: FittedRemoval, lattice: Lattice | None) -> Ints:
        """Return the instances whose extremes are computed: all, or a sample that is the same for all explainers.

        The share is that of all instances of the run, also for the fewer instances of a second explanation.
        """
        replacement, total = fitted.replacement, inputs.total or len(inputs.complete)
        if replacement is None:
            raise ValueError(fitted.reason)

        def compute_share() -> float:
            if lattice is not None:
                evaluations = lattice.estimate_evaluations(inputs.dataset, replacement)
                n_instances = max(MIN_EXACT_INSTANCES, self.rows / evaluations)
                return n_instances / max(1, total)
            width, longest = inputs.dataset.n_features, self._compute_longest_prefix(inputs)
            n_orders = 2 * self.width * sum(width - size for size in range(longest))
            return self.rows / max(1, n_orders * _count_draws(replacement, width) * total)

        share = inputs.memory.get_or_create(f"{self!r}, {fitted.removal!r}, share", compute_share)
        if share >= 1:
            return np.arange(len(inputs))
        return np.flatnonzero(draw_uniforms(self.seed, "metric.naopc", inputs.ids, 1)[:, 0] < share)


def _count_draws(replacement: Replacement, width: int) -> int:
    """Return the largest number of rows that replace a row without some features."""
    return len(replacement.sample(np.arange(width))[1])


def _select_beam(width: int, instances: Ints, is_removed: Bools, totals: Floats) -> Ints:
    """Return the lines of the best orders of each instance; of orders that remove the same features only the best."""
    keys = make_set_keys(is_removed)
    order = np.lexsort((-totals, keys, instances))
    is_duplicate = np.zeros(len(order), dtype=bool)
    is_duplicate[1:] = (np.diff(instances[order]) == 0) & (keys[order][1:] == keys[order][:-1])
    order = order[~is_duplicate]
    order = order[np.lexsort((-totals[order], instances[order]))]
    starts = np.flatnonzero(np.diff(instances[order], prepend=-1))
    positions = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    return order[positions < width]
