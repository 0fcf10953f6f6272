"""AOPC between what the worst and the best order of the features would have (Edin et al. 2025)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.errors import whole
from cfeval_cli.metric.aopc import Curve, places
from cfeval_cli.metric.erasure import erased
from cfeval_cli.seeding import uniforms
from cfeval_cli.types import ABSENT, Bools, Case, Floats, Ints, Removed, Score, StandIns
from cfeval_cli.types.memory import keys_of

_FEW = 64  # instances whose orders are searched at a time
_SAME = 1e-12  # a best and a worst order that differ by no more do not differ


@dataclass(frozen=True)
class Naopc(Curve):
    """(AOPC - worst) / (best - worst), for each instance by itself, so that models can be compared.

    Best and worst are exact where the logit is a linear sum and one value stands for what is removed; else a beam
    search finds them, which the tables say. An order that beats what it found counts more than 1.
    """

    width: int = 5  # orders that the beam search keeps
    rows: int = 10_000_000  # model rows at most that it takes for each way of removing; of more instances, a sample
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
        whole("rows", self.rows, 1)
        whole("seed", self.seed, 0)

    def of(self, case: Case, way: Removed) -> Score:
        """On all instances if the ends are known exactly, or cheap enough to find."""
        stand_ins = way.stand_ins
        if stand_ins is None:
            raise ValueError(way.reason)
        exact = case.model.linear and (stand_ins.value is not None or stand_ins.vectors is not None)
        some = np.arange(len(case)) if exact else self._sample(case, stand_ins)

        def ends(new: Ints) -> Floats:
            mine = some[new]
            return self._sorted(case, way, stand_ins, mine) if exact else self._searched(case, way, mine)

        worst, best = case.memory.ask(f"{self!r}, {way.removal!r}", case.ids[some], ends).T
        value = self.drops(case, way, some, places(case)[some])
        apart = best - worst > _SAME
        remark = ""
        if not exact:
            remark = f"best and worst order by beam search of width {self.width}"
            remark += f", on a sample of {len(some):,} instances" * (len(some) < len(case))
        return Score(
            way.removal.variant, np.where(apart, value - worst, 0.0) / np.where(apart, best - worst, 1.0),
            apart.astype(np.float64), some=some, remark=remark,
        )  # fmt: skip

    def _sorted(self, case: Case, way: Removed, stand_ins: StandIns, rows: Ints) -> Floats:
        """The AOPC (n, 2) of the worst and of the best order, where the logit is a sum.

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
        ends = []
        for towards in (-1.0, 1.0):
            effect = np.where(there, towards * sign * taken, -np.inf)
            order = np.argsort(-effect, axis=1, kind="stable")
            ends.append(self.drops(case, way, rows, np.argsort(order, axis=1, kind="stable")))
        return np.stack(ends, axis=1)

    def _searched(self, case: Case, way: Removed, rows: Ints) -> Floats:
        """The same by beam search, a few instances at a time."""
        parts = [rows[start : start + _FEW] for start in range(0, len(rows), _FEW)]
        ends = [np.stack([self._beam(case, way, part, sign) for sign in (-1.0, 1.0)], axis=1) for part in parts]
        return np.concatenate([np.zeros((0, 2)), *ends])

    def _beam(self, case: Case, way: Removed, rows: Ints, sign: float) -> Floats:
        """The largest AOPC (n,), or with sign -1 the smallest, of orders that grow by one feature."""
        if case.probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        sizes, before = self.sizes(case, rows), case.probability
        # a line for each order that is kept: its instance, what it removes, and its drops so far
        member = np.arange(len(rows))
        gone = np.zeros((len(rows), case.dataset.width), dtype=bool)
        total, best = np.zeros(len(rows)), np.full(len(rows), -np.inf)
        for size in range(1, int(sizes.max(initial=0)) + 1):
            on = sizes.max(axis=1)[member] >= size
            member, gone, total = member[on], gone[on], total[on]
            line, feature = np.nonzero(~gone & (case.codes[rows[member]] != ABSENT))
            member, gone, total = member[line], gone[line], total[line]
            gone[np.arange(len(line)), feature] = True
            kept = erased(case, way, rows[member], gone).left
            if kept is None:
                raise ValueError("a drop needs probabilities before and after the edit")
            drop = sign * (before[rows[member]] - kept)
            counted = (sizes[member] == size).sum(axis=1)
            member, gone, total, drop, counted = _widest(self.width, member, gone, total, drop, counted)
            total = total + counted * drop
            last = sizes.max(axis=1)[member] == size
            np.maximum.at(best, member[last], total[last])
        best = np.where(np.isfinite(best), best, 0.0)  # an instance without features has no order
        return np.asarray(sign * best / np.maximum(1, np.count_nonzero(sizes, axis=1)))

    def _sample(self, case: Case, stand_ins: StandIns) -> Ints:
        """The instances whose orders are searched: all, or those that draw a small number, whoever explains them."""
        width = case.dataset.width
        deep = int(np.ceil(max(self.shares) * width)) if case.dataset.padded else min(self.longest, width)
        tries = 2 * self.width * sum(width - i for i in range(deep))
        each = tries * len(stand_ins.instead(np.arange(width))[1])
        share = self.rows / max(1, each * len(case.complete))
        if share >= 1:
            return np.arange(len(case))
        return np.flatnonzero(uniforms(self.seed, "metric.naopc", case.ids, 1)[:, 0] < share)


def _widest(
    width: int, member: Ints, gone: Bools, total: Floats, drop: Floats, counted: Ints
) -> tuple[Ints, Bools, Floats, Floats, Ints]:
    """Of each instance the best orders so far, of those that remove the same features the best one."""
    worth = total + np.maximum(1, counted) * drop
    order = np.lexsort((-worth, keys_of(gone), member))
    same = np.zeros(len(order), dtype=bool)
    alike = keys_of(gone)[order]
    same[1:] = (member[order][1:] == member[order][:-1]) & (alike[1:] == alike[:-1])
    order = order[~same]
    order = order[np.lexsort((-worth[order], member[order]))]
    starts = np.flatnonzero(np.diff(member[order], prepend=-1))
    place = np.arange(len(order)) - np.repeat(starts, np.diff([*starts, len(order)]))
    order = order[place < width]
    return member[order], gone[order], total[order], drop[order], counted[order]
