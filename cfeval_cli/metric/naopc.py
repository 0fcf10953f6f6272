"""AOPC between what the worst and the best order of the features would have (Edin et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

import numpy as np

from cfeval_cli.core import ABSENT, Bools, FittedRemoval, Floats, Ints, MetricInput, Replacement, Score
from cfeval_cli.core.memory import keys_of
from cfeval_cli.errors import check_int
from cfeval_cli.metric.curve import Curve, places
from cfeval_cli.metric.erasure import erased
from cfeval_cli.metric.lattice import Lattice, count_sets
from cfeval_cli.seeding import draw_uniforms

_LAST = 1 << 30  # the place of a feature that an order does not come to
_FEW = 64  # instances whose orders are searched at a time
_SAME = 1e-12  # a best and a worst order that differ by no more do not differ
MIN_EXACT_INSTANCES = 5  # on average at least, where all subsets of one instance fit `rows`


@dataclass(frozen=True)
class Naopc(Curve):
    """(AOPC - worst) / (best - worst), for each instance by itself, so that models can be compared.

    Best and worst are exact where the logit is a linear sum and one value stands for what is removed, and where `rows`
    allows all subsets of the features of an instance. Otherwise they come from a beam search: an order that beats what
    it finds counts more than 1, and the remark gives the number of such values. So does an explanation of too few
    features for a complete order, where removing others would raise the prediction again.
    """

    width: int = 5  # orders that the beam search keeps
    draws: int = 10  # by which it tells orders apart, where a removal draws; what it finds is scored with all of them
    rows: int = 1_000_000  # model evaluations for each way of removing; of more instances, a sample
    seed: int = 0  # of that sample

    name = "naopc"
    title = "NAOPC"
    better = "higher"
    range = (float("-inf"), float("inf"))
    place = 35
    empty = "all orders are alike"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_int("width", self.width, 1)
        check_int("draws", self.draws, 1)
        check_int("rows", self.rows, 1)
        check_int("seed", self.seed, 0)

    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """On all instances if the ends are known exactly, or cheap enough to find."""
        stand_ins = way.stand_ins
        if stand_ins is None:
            raise ValueError(way.reason)
        linear = inputs.model.has_linear_logit and (stand_ins.value is not None or stand_ins.vectors is not None)
        lattice = None if linear else self._lattice(inputs, way, stand_ins)
        search = way if linear or lattice is not None else self._coarse(inputs, way)
        some = np.arange(len(inputs)) if linear else self._sample(inputs, search, lattice)

        def ends(new: Ints) -> Floats:
            mine = some[new]
            if lattice is not None:
                return lattice.extremes(inputs, way, mine, self.sizes(inputs, mine))
            orders = self._sorted(inputs, stand_ins, mine) if linear else self._searched(inputs, search, mine)
            return np.stack([self.drops(inputs, way, mine, order) for order in orders], axis=1)

        worst, best = inputs.memory.ask(f"{self!r}, {way.removal!r}", inputs.ids[some], ends).T
        order = places(inputs)[some]
        value = self.drops(inputs, way, some, order)
        for end in (worst, best):  # the same sum in another order differs by rounding
            value = np.where(np.abs(value - end) <= _SAME, end, value)
        if lattice is not None:  # a complete order is beyond the ends by rounding only
            longest = self.sizes(inputs, some).max(axis=1, initial=0)
            is_complete = (order < longest[:, None]).sum(axis=1) >= longest
            value = np.where(is_complete, np.clip(value, worst, best), value)
        apart = best - worst > _SAME
        values = np.where(apart, value - worst, 0.0) / np.where(apart, best - worst, 1.0)
        counts = {"sampled": len(some), "above": int(np.count_nonzero(values > 1))}
        how = ""
        if lattice is not None:
            how = "worst and best order exact, by all subsets"
        elif not linear:
            how = f"worst and best order approximated by beam search (width {self.width}"
            how += f", {self.draws} draws)" if search is not way else ")"
        how += ", on a sample of {sampled} instances" * (len(some) < len(inputs))
        above = "{above} of {sampled} values exceed 1"
        if linear or lattice is not None:
            above = f"{above} (incomplete orders)" if counts["above"] else ""
        return Score(
            way.removal.variant, values, apart.astype(np.float64), some=some, method=how, remark=above, counts=counts,
        )  # fmt: skip

    def _longest_prefix(self, inputs: MetricInput) -> int:
        """Return how many features the longest prefix of an order has, at most."""
        width = inputs.dataset.width
        return ceil(max(self.shares) * width) if inputs.dataset.padded else min(self.longest, width)

    def _lattice(self, inputs: MetricInput, way: FittedRemoval, stand_ins: Replacement) -> Lattice | None:
        """Return all sets of features, if `rows` allows to evaluate them for an instance."""
        longest, width = self._longest_prefix(inputs), inputs.dataset.width
        if count_sets(width, longest) * _draws(stand_ins, width) > self.rows:
            return None
        return inputs.memory.once(
            f"{self!r}, {way.removal!r}, lattice", lambda: Lattice.of(inputs.dataset, stand_ins, longest)
        )

    def _sorted(self, inputs: MetricInput, stand_ins: Replacement, rows: Ints) -> list[Ints]:
        """At which place (n, M) each feature stands in the worst and in the best order, where the logit is a sum.

        Proof: p(ŷ|x without S) = σ(z - Σ_S δ_j), δ_j being what the stand-in takes from the logit of ŷ. σ grows, so of
        all sets of i features the one with the largest Σ δ drops p most: the i largest δ. These sets lie in each other,
        and so one order, by falling δ, has the largest drop at every i at once, and the largest mean of them, whichever
        i are counted. By rising δ it has the smallest. (A mean of several σ, as with `marginal`, has no such order.)
        """
        codes, width = inputs.codes[rows], inputs.dataset.width
        _, slopes = inputs.model.compute_linear_logits(codes[:0])
        instead = stand_ins.vectors
        if instead is None:
            instead = inputs.model.embed_rows(np.full((1, width), stand_ins.value, dtype=np.int32))[0]
        sign = np.where(inputs.labels[rows] == 1, 1.0, -1.0)[:, None]
        taken = np.stack(
            [(inputs.model.embed_values(j, codes[:, j]) - instead[j]) @ slopes[j] for j in range(width)], axis=1
        )
        there = codes != ABSENT
        effects = [np.where(there, towards * sign * taken, -np.inf) for towards in (-1.0, 1.0)]
        orders = [np.argsort(-effect, axis=1, kind="stable") for effect in effects]
        return [np.argsort(order, axis=1, kind="stable") for order in orders]

    def _coarse(self, inputs: MetricInput, way: FittedRemoval) -> FittedRemoval:
        """The same removal with few draws."""
        coarse = way.removal.coarser(self.draws)
        if coarse == way.removal:
            return way
        return inputs.memory.once(repr(coarse), lambda: FittedRemoval(coarse, coarse.fit(inputs.dataset, inputs.model)))

    def _searched(self, inputs: MetricInput, way: FittedRemoval, rows: Ints) -> list[Ints]:
        """The same by beam search, a few instances at a time."""
        parts = [rows[start : start + _FEW] for start in range(0, len(rows), _FEW)]
        nothing = np.zeros((0, inputs.dataset.width), dtype=np.int64)
        return [
            np.concatenate([nothing, *(self._beam(inputs, way, part, sign) for part in parts)]) for sign in (-1.0, 1.0)
        ]

    def _beam(self, inputs: MetricInput, way: FittedRemoval, rows: Ints, sign: float) -> Ints:
        """The places (n, M) of the order of largest AOPC, or with sign -1 of smallest, among those that are kept."""
        if inputs.probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        sizes, before = self.sizes(inputs, rows), inputs.probability
        # a line for each order that is kept: its instance, at which place it removes what, and its drops so far
        member = np.arange(len(rows))
        placed = np.full((len(rows), inputs.dataset.width), _LAST)
        total, best, found = np.zeros(len(rows)), np.full(len(rows), -np.inf), placed.copy()
        for size in range(1, int(sizes.max(initial=0)) + 1):
            on = sizes.max(axis=1)[member] >= size
            member, placed, total = member[on], placed[on], total[on]
            line, feature = np.nonzero((placed == _LAST) & (inputs.codes[rows[member]] != ABSENT))
            member, placed, total = member[line], placed[line], total[line]
            placed[np.arange(len(line)), feature] = size - 1
            kept = erased(inputs, way, rows[member], placed != _LAST).left
            if kept is None:
                raise ValueError("a drop needs probabilities before and after the edit")
            drop = sign * (before[rows[member]] - kept)
            counted = (sizes[member] == size).sum(axis=1)
            some = _widest(self.width, member, placed != _LAST, total + np.maximum(1, counted) * drop)
            member, placed, total = member[some], placed[some], (total + counted * drop)[some]
            last = np.flatnonzero(sizes.max(axis=1)[member] == size)
            last = last[np.lexsort((-total[last], member[last]))]  # the best of each instance comes first
            whose, first = np.unique(member[last], return_index=True)
            better = total[last[first]] > best[whose]
            best[whose[better]], found[whose[better]] = total[last[first[better]]], placed[last[first[better]]]
        return found

    def _sample(self, inputs: MetricInput, way: FittedRemoval, lattice: Lattice | None) -> Ints:
        """Return the instances whose ends are computed: all, or those that draw a small number, whoever explains them.

        Those that are explained a second time are fewer: their share is that of all.
        """
        stand_ins, total = way.stand_ins, inputs.total or len(inputs.complete)
        if stand_ins is None:
            raise ValueError(way.reason)

        def share() -> float:
            if lattice is not None:
                many = max(MIN_EXACT_INSTANCES, self.rows / lattice.evaluations(inputs.dataset, stand_ins))
                return many / max(1, total)
            width, longest = inputs.dataset.width, self._longest_prefix(inputs)
            grown = 2 * self.width * sum(width - size for size in range(longest))
            return self.rows / max(1, grown * _draws(stand_ins, width) * total)

        drawn = inputs.memory.once(f"{self!r}, {way.removal!r}, share", share)
        if drawn >= 1:
            return np.arange(len(inputs))
        return np.flatnonzero(draw_uniforms(self.seed, "metric.naopc", inputs.ids, 1)[:, 0] < drawn)


def _draws(stand_ins: Replacement, width: int) -> int:
    """Return how many rows stand for one without some features, at most."""
    return len(stand_ins.sample(np.arange(width))[1])


def _widest(width: int, member: Ints, gone: Bools, worth: Floats) -> Ints:
    """The lines of each instance's best orders so far, of those that remove the same features the best one."""
    alike = keys_of(gone)
    order = np.lexsort((-worth, alike, member))
    same = np.zeros(len(order), dtype=bool)
    same[1:] = (np.diff(member[order]) == 0) & (alike[order][1:] == alike[order][:-1])
    order = order[~same]
    order = order[np.lexsort((-worth[order], member[order]))]
    starts = np.flatnonzero(np.diff(member[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    return order[place < width]
