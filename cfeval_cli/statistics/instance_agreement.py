"""Agreement instance by instance: thousands of small comparisons instead of one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.core.scratch import Scratch, ScratchArrays, slabs
from cfeval_cli.statistics.bootstrap import Bootstrap, compute_resampled_sums, divide_halves
from cfeval_cli.statistics.correlation import RankedFamily
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.resampled_values import ResampledValues
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS

_KEYS = ("metric", "variant", "better", "truth", "agreement", "subset")
_FIGURES = ("instances", "tau", "tau_low", "tau_high", "ordered", "d", "d_low", "d_high")
_BLOCK = 1 << 20  # pairs of explainers held at once
_SLAB = 1 << 16  # instances looked at at once


COLUMNS = [*_KEYS, *_FIGURES]


def tabulate_instance_agreement(
    scores: Scores, drawn: ResampledValues, family: RankedFamily, how: Bootstrap
) -> Iterator[dict[str, Any]]:
    """Rows of instance_agreement.csv: its order of an instance's explainers and the truth's, with and without controls.

    Without controls there is no row where fewer than two explainers are left.
    """
    if len(family.explainers) < 2 or not family.judged or not family.truths or not scores.size:
        return
    left = np.isin(family.explainers, family.without(drawn.controls).explainers)
    sides = _Pairs.of(scores, drawn, family, [np.ones(len(left), dtype=bool), *([] if left.all() else [left])])
    found = _Figures.of(sides, how)
    for subset, figures in ((ALL_EXPLAINERS, found[0]), (WITHOUT_CONTROLS, found[-1])):
        for j, row in enumerate(family.judged):
            for t, truth in enumerate(family.truths):
                if figures.there(j, t) and (j, t) not in family.barred:
                    keys = (*drawn.rows[row], drawn.better[row], truth.name, truth.agreement, subset)
                    yield dict(zip(_KEYS, keys, strict=True)) | figures.line(j, t)


_COUNTED = ("gain", "pairs", "ordered")


@dataclass(frozen=True)
class _Pairs:
    """Pairs of explainers, counted for each instance and metric (N, J), by what is counted and by truth.

    The gain is concordant pairs less discordant ones; pairs have scores on both sides; ordered ones of them are those
    that the truth does not tie.
    """

    counts: Mapping[tuple[str, int], NDArray[Any]]
    truths: int
    scratch: Scratch  # where they are

    @staticmethod
    def of(scores: Scores, drawn: ResampledValues, family: RankedFamily, sides: list[Bools]) -> list[_Pairs]:
        """Among some of the explainers (E,) on each side; by slabs of instances, so that memory stays bounded."""
        first, second = np.triu_indices(len(family.explainers), 1)
        numbers = [*family.judged, *(truth.row for truth in family.truths if truth.row is not None)]
        rows, names = [drawn.rows[row] for row in numbers], [drawn.explainers[e] for e in family.explainers]
        lower = np.array([drawn.better[row] == "lower" for row in numbers])[:, None]
        rooms = [ScratchArrays[tuple[str, int]](scores.scratch, scores.size) for _ in sides]
        step = max(1, _BLOCK // (len(rows) * len(first)))
        for start in range(0, scores.size, step):
            values = scores.values(start, start + step, rows, names)
            places = compute_ranks(np.where(lower, values, -values), "lower")
            signs = np.sign(places[..., first] - places[..., second]).astype(np.float32)
            for room, some in zip(rooms, sides, strict=True):
                for name, part in _counted(signs[..., some[first] & some[second]], len(family.judged)).items():
                    for t in range(part.shape[2]):
                        room.add((name, t), part[:, :, t])
        return [_Pairs(room.arrays(), len(numbers) - len(family.judged), scores.scratch) for room in rooms]

    @property
    def size(self) -> int:
        """Instances."""
        return len(self.counts["gain", 0])

    @property
    def slabs(self) -> Iterator[slice]:
        """All instances; what was read of one slab is given back before the next."""
        for slab in slabs(self.size, _SLAB):
            yield slab
            self.scratch.release()

    def columns(self, t: int, some: slice) -> Floats:
        """Numerators, then denominators (n, 4J): of the mean τ, and of d over all pairs that the truth orders."""
        gain, pairs, ordered = (self.counts[name, t][some].astype(float) for name in _COUNTED)
        self.scratch.release()
        return np.concatenate([gain / np.maximum(pairs, 1), gain, pairs > 0, ordered], axis=1)

    def real(self, t: int) -> Floats:
        """What the columns add up to, and so both figures (2J,)."""
        return divide_halves(np.sum([self.columns(t, slab).sum(axis=0) for slab in self.slabs], axis=0))

    def there(self, name: str) -> Ints:
        """For how many instances something is counted (J, T)."""
        found = [[(self.counts[name, t][slab] > 0).sum(axis=0) for slab in self.slabs] for t in range(self.truths)]
        return np.asarray(np.sum(found, axis=1).T)

    def alike(self) -> list[int]:
        """For each truth the first that counts the same: with k = 1 a share of the truth is a hit or none."""
        found: list[int] = []
        for t in range(self.truths):
            found.append(next((one for one in dict.fromkeys(found) if self._same(one, t)), t))
        return found

    def _same(self, one: int, other: int) -> bool:
        return all(
            (self.counts[name, one][slab] == self.counts[name, other][slab]).all()
            for slab in self.slabs for name in _COUNTED
        )  # fmt: skip


def _counted(signs: NDArray[np.float32], size: int) -> dict[str, NDArray[Any]]:
    """Gain, pairs and ordered pairs (n, J, T) from the order (n, J + T, P) of the explainers of each pair."""
    there = ~np.isnan(signs)
    signs, both = np.where(there, signs, np.float32(0)), there.astype(np.float32)
    truth, present = (side[:, size:].swapaxes(-1, -2) for side in (signs, both))
    found = (signs[:, :size] @ truth, both[:, :size] @ present, both[:, :size] @ np.abs(truth))
    smallest = np.min_scalar_type(-signs.shape[-1] - 1)
    return {name: part.astype(smallest) for name, part in zip(_COUNTED, found, strict=True)}


@dataclass(frozen=True)
class _Figures:
    """What follows from the counts, by metric and truth."""

    real: Floats  # (T, 2J): the mean τ of each metric, then its d
    ends: list[tuple[Floats, Floats]]  # of each truth, both ends of the intervals (2J,)
    instances: Ints  # (J, T)
    ordered: Ints  # (J, T)

    @staticmethod
    def of(sides: Sequence[_Pairs], how: Bootstrap) -> list[_Figures]:
        """Of each side, with intervals over the same resamples of all instances."""
        alike = [side.alike() for side in sides]
        wanted = [(side, t) for side, some in zip(sides, alike, strict=True) for t in dict.fromkeys(some)]
        makers = [partial(side.columns, t) for side, t in wanted]
        drawn = iter(compute_resampled_sums(makers, sides[0].size, how.resamples, how.seed))
        found = []
        for side, some in zip(sides, alike, strict=True):
            there = side.there("pairs")
            truths = dict.fromkeys(some)
            ends = {
                t: how.compute_interval(divide_halves(next(drawn)), np.tile(there[:, t] >= how.min_instances, 2))[:2]
                for t in truths
            }
            real = {t: side.real(t) for t in truths}
            told = np.stack([real[t] for t in some]), [ends[t] for t in some]
            found.append(_Figures(*told, there, side.there("ordered")))
        return found

    def there(self, j: int, t: int) -> bool:
        """Whether any instance has two explainers to compare."""
        return not np.isnan(self.real[t, j])

    def line(self, j: int, t: int) -> dict[str, Any]:
        """The figures of one metric with one truth."""
        size, (low, high) = len(self.instances), self.ends[t]
        of_tau, of_d = ((self.real[t, at], low[at], high[at]) for at in (j, size + j))
        figures = (int(self.instances[j, t]), *of_tau, int(self.ordered[j, t]), *of_d)
        return dict(zip(_FIGURES, figures, strict=True))
