"""AOPC between what the worst and the best order of the features would have (Edin et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations
from math import ceil, comb

import numpy as np

from cfeval_cli.core import ABSENT, Bools, Case, Floats, Ints, Removed, Score, StandIns
from cfeval_cli.core.memory import keys_of
from cfeval_cli.errors import whole
from cfeval_cli.metric.aopc import Curve, places
from cfeval_cli.metric.erasure import erased
from cfeval_cli.seeding import uniforms

_LAST = 1 << 30  # the place of a feature that an order does not come to
_FEW = 64  # instances whose orders are searched at a time
_SAME = 1e-12  # a best and a worst order that differ by no more do not differ
_CELLS = 1 << 22  # numbers of a table in memory
MIN_EXACT_INSTANCES = (
    30  # for so many, or all, every subset must fit `rows`; else more instances are searched by a beam
)


@dataclass(frozen=True)
class Naopc(Curve):
    """(AOPC - worst) / (best - worst), for each instance by itself, so that models can be compared.

    Best and worst are exact where the logit is a linear sum and one value stands for what is removed, and where all
    subsets of the features can be evaluated. Otherwise they come from a beam search: an order that beats what it finds
    counts more than 1, and the remark gives the share of such values.
    """

    width: int = 5  # orders that the beam search keeps
    draws: int = 10  # by which it tells orders apart, where a removal draws; what it finds is scored with all of them
    rows: int = 1_000_000  # model evaluations at most for each way of removing; of more instances, a sample
    seed: int = 0  # of that sample

    name = "naopc"
    title = "NAOPC"
    better = "higher"
    range = (float("-inf"), float("inf"))
    place = 35
    empty = "all orders are alike"

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("width", self.width, 1)
        whole("draws", self.draws, 1)
        whole("rows", self.rows, 1)
        whole("seed", self.seed, 0)

    def of(self, case: Case, way: Removed) -> Score:
        """On all instances if the ends are known exactly, or cheap enough to find."""
        stand_ins = way.stand_ins
        if stand_ins is None:
            raise ValueError(way.reason)
        linear = case.model.linear and (stand_ins.value is not None or stand_ins.vectors is not None)
        subsets = not linear and self._fits_subsets(case, way)
        search = way if linear or subsets else self._coarse(case, way)
        some = np.arange(len(case)) if linear else self._sample(case, search, self._evaluations(case, search, subsets))

        def ends(new: Ints) -> Floats:
            mine = some[new]
            if subsets:
                return self._extremes(case, way, mine)
            orders = self._sorted(case, stand_ins, mine) if linear else self._searched(case, search, mine)
            return np.stack([self.drops(case, way, mine, order) for order in orders], axis=1)

        worst, best = case.memory.ask(f"{self!r}, {way.removal!r}", case.ids[some], ends).T
        value = self.drops(case, way, some, places(case)[some])
        for end in (worst, best):  # the same sum in another order differs by rounding
            value = np.where(np.abs(value - end) <= _SAME, end, value)
        apart = best - worst > _SAME
        values = np.where(apart, value - worst, 0.0) / np.where(apart, best - worst, 1.0)
        counts = {"sampled": len(some)}
        remark = ""
        if subsets:
            remark = "best and worst order from all subsets"
        elif not linear:
            remark = f"best and worst order by beam search of width {self.width}"
            remark += f" on {self.draws} draws" * (search is not way)
        remark += ", on a sample of {sampled} instances" * (len(some) < len(case))
        if not linear and not subsets:
            remark += "; {above} of {sampled} values above 1"
            counts["above"] = int(np.count_nonzero(values > 1))
        return Score(
            way.removal.variant, values, apart.astype(np.float64), some=some, remark=remark, counts=counts,
        )  # fmt: skip

    def _longest_prefix(self, case: Case) -> int:
        """Return how many features the longest prefix of an order has, at most."""
        width = case.dataset.width
        return ceil(max(self.shares) * width) if case.dataset.padded else min(self.longest, width)

    def _evaluations(self, case: Case, way: Removed, subsets: bool) -> int:
        """Return how many model evaluations the two orders of an instance take at most."""
        if way.stand_ins is None:
            raise ValueError(way.reason)
        width, longest = case.dataset.width, self._longest_prefix(case)
        if subsets:
            sets = sum(comb(width, size) for size in range(1, longest + 1))
        else:
            sets = 2 * self.width * sum(width - size for size in range(longest))
        return sets * len(way.stand_ins.instead(np.arange(width))[1])

    def _fits_subsets(self, case: Case, way: Removed) -> bool:
        """Whether `rows` allows all subsets for all instances, or for enough of them."""
        instances = min(MIN_EXACT_INSTANCES, case.total or len(case.complete))
        fits = case.memory.once(
            f"{self!r}, {way.removal!r}, subsets",
            lambda: self._evaluations(case, way, subsets=True) * max(1, instances) <= self.rows,
        )
        return bool(fits)

    def _extremes(self, case: Case, way: Removed, rows: Ints) -> Floats:
        """Return the smallest and the largest AOPC (n, 2) of all orders.

        AOPC is a sum over the prefixes of an order, so that the best order of a set is the best order of one of its
        subsets with one feature less, and then that feature: dynamic programming over sets, size by size.
        """
        if case.probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        sizes = self.sizes(case, rows)
        longest, points = sizes.max(axis=1, initial=0), np.count_nonzero(sizes, axis=1)
        levels = [_subsets(case.dataset.width, size) for size in range(1, int(longest.max(initial=0)) + 1)]
        step = max(1, _CELLS // max([1, *(len(sets) * case.dataset.width for sets, _ in levels)]))
        totals = np.zeros((len(rows), 2))
        for start in range(0, len(rows), step):
            part = np.arange(start, min(start + step, len(rows)))
            absent = case.codes[rows[part]] == ABSENT
            low, high = np.zeros((len(part), 1)), np.zeros((len(part), 1))
            for size, (sets, parents) in enumerate(levels, start=1):
                gone = np.zeros((len(sets), case.dataset.width), dtype=bool)
                gone[np.arange(len(sets))[:, None], sets] = True
                possible = absent.astype(np.float32) @ gone.T.astype(np.float32) == 0
                counted = (sizes[part] == size).sum(axis=1)
                which, removed = np.nonzero(possible & (counted > 0)[:, None])
                left = erased(case, way, rows[part[which]], gone[removed]).left
                if left is None:
                    raise ValueError("a drop needs probabilities before and after the edit")
                drops = np.zeros(possible.shape)
                drops[which, removed] = counted[which] * (case.probability[rows[part[which]]] - left)
                low = np.where(possible, low[:, parents].min(axis=2) + drops, np.inf)
                high = np.where(possible, high[:, parents].max(axis=2) + drops, -np.inf)
                ends = longest[part] == size
                totals[part[ends]] = np.stack([low[ends].min(axis=1), high[ends].max(axis=1)], axis=1)
        return np.asarray(totals / np.maximum(1, points)[:, None])

    def _sorted(self, case: Case, stand_ins: StandIns, rows: Ints) -> list[Ints]:
        """At which place (n, M) each feature stands in the worst and in the best order, where the logit is a sum.

        Proof: p(ŷ|x without S) = σ(z - Σ_S δ_j), δ_j being what the stand-in takes from the logit of ŷ. σ grows, so of
        all sets of i features the one with the largest Σ δ drops p most: the i largest δ. These sets lie in each other,
        and so one order, by falling δ, has the largest drop at every i at once, and the largest mean of them, whichever
        i are counted. By rising δ it has the smallest. (A mean of several σ, as with `marginal`, has no such order.)
        """
        codes, width = case.codes[rows], case.dataset.width
        _, slopes = case.model.line(codes[:0])
        instead = stand_ins.vectors
        if instead is None:
            instead = case.model.embed(np.full((1, width), stand_ins.value, dtype=np.int32))[0]
        sign = np.where(case.labels[rows] == 1, 1.0, -1.0)[:, None]
        taken = np.stack([(case.model.vectors(j, codes[:, j]) - instead[j]) @ slopes[j] for j in range(width)], axis=1)
        there = codes != ABSENT
        effects = [np.where(there, towards * sign * taken, -np.inf) for towards in (-1.0, 1.0)]
        orders = [np.argsort(-effect, axis=1, kind="stable") for effect in effects]
        return [np.argsort(order, axis=1, kind="stable") for order in orders]

    def _coarse(self, case: Case, way: Removed) -> Removed:
        """The same removal with few draws."""
        coarse = way.removal.coarser(self.draws)
        if coarse == way.removal:
            return way
        return case.memory.once(repr(coarse), lambda: Removed(coarse, coarse.fit(case.dataset, case.model)))

    def _searched(self, case: Case, way: Removed, rows: Ints) -> list[Ints]:
        """The same by beam search, a few instances at a time."""
        parts = [rows[start : start + _FEW] for start in range(0, len(rows), _FEW)]
        nothing = np.zeros((0, case.dataset.width), dtype=np.int64)
        return [
            np.concatenate([nothing, *(self._beam(case, way, part, sign) for part in parts)]) for sign in (-1.0, 1.0)
        ]

    def _beam(self, case: Case, way: Removed, rows: Ints, sign: float) -> Ints:
        """The places (n, M) of the order of largest AOPC, or with sign -1 of smallest, among those that are kept."""
        if case.probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        sizes, before = self.sizes(case, rows), case.probability
        # a line for each order that is kept: its instance, at which place it removes what, and its drops so far
        member = np.arange(len(rows))
        placed = np.full((len(rows), case.dataset.width), _LAST)
        total, best, found = np.zeros(len(rows)), np.full(len(rows), -np.inf), placed.copy()
        for size in range(1, int(sizes.max(initial=0)) + 1):
            on = sizes.max(axis=1)[member] >= size
            member, placed, total = member[on], placed[on], total[on]
            line, feature = np.nonzero((placed == _LAST) & (case.codes[rows[member]] != ABSENT))
            member, placed, total = member[line], placed[line], total[line]
            placed[np.arange(len(line)), feature] = size - 1
            kept = erased(case, way, rows[member], placed != _LAST).left
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

    def _sample(self, case: Case, way: Removed, each: int) -> Ints:
        """The instances whose orders are searched: all, or those that draw a small number, whoever explains them."""
        # those that are explained a second time are fewer: their share is that of all
        about = f"{self!r}, {way.removal!r}, share"
        share = case.memory.once(about, lambda: self.rows / max(1, each * (case.total or len(case.complete))))
        if share >= 1:
            return np.arange(len(case))
        return np.flatnonzero(uniforms(self.seed, "metric.naopc", case.ids, 1)[:, 0] < share)


def _subsets(width: int, size: int) -> tuple[Ints, Ints]:
    """Return all sets (C, size) of features, and the places (C, size) of their subsets with one feature less.

    Sets are in colexicographic order, in which the place of a set {c_1 < c_2 < …} is the sum of all binomials (c_i, i).
    """
    binomials = np.array([[comb(feature, i + 1) for i in range(size)] for feature in range(width)])
    listed = np.fromiter(chain.from_iterable(combinations(range(width), size)), dtype=np.int64).reshape(-1, size)
    columns = np.arange(size)
    sets = listed[np.argsort(binomials[listed, columns].sum(axis=1))]
    smaller = [np.delete(sets, i, axis=1) for i in range(size)]
    return sets, np.stack([binomials[one, columns[:-1]].sum(axis=1) for one in smaller], axis=1)


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
