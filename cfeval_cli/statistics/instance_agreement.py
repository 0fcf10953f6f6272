"""Agreement of each metric with each truth within instances.

The explainers of an instance are ranked by a metric and by a truth. τ is the mean over instances of Kendall's τ between
both rankings. d is Somers' d over all pairs of explainers within instances: the excess of concordant over discordant
pairs, as a share of the pairs that the truth does not tie.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.core.scratch import Scratch, ScratchArrays, iterate_slabs
from cfeval_cli.statistics.bootstrap import Bootstrap, compute_resampled_sums, divide_halves
from cfeval_cli.statistics.correlation import RankedFamily
from cfeval_cli.statistics.ranking import compute_ranks
from cfeval_cli.statistics.resampled_values import ResampledValues
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS

_KEYS = ("metric", "variant", "better", "truth", "agreement", "subset")
_VALUE_COLUMNS = ("instances", "tau", "tau_low", "tau_high", "ordered", "pairs", "d", "d_low", "d_high")
COLUMNS = [*_KEYS, *_VALUE_COLUMNS]

_COUNTS = ("concordance", "compared_pairs", "untied_pairs")
_MAX_PAIRS_PER_BLOCK = 1 << 20  # pairs of explainers held at once
_INSTANCES_PER_SLAB = 1 << 16


def tabulate_instance_agreement(
    scores: Scores,
    resampled: ResampledValues,
    family: RankedFamily,
    bootstrap: Bootstrap,
    max_pairs: int = _MAX_PAIRS_PER_BLOCK,
) -> Iterator[dict[str, Any]]:
    """Yield rows of instance_agreement.csv, by subset of the explainers.

    Without controls there is no row where fewer than two explainers are left.
    """
    if len(family.explainers) < 2 or not family.judged or not family.references or not scores.n_instances:
        return
    is_contender = np.isin(family.explainers, family.drop_controls(resampled.controls).explainers)
    subsets = [np.ones(len(is_contender), dtype=bool), *([] if is_contender.all() else [is_contender])]
    agreements = _estimate_agreement(_PairCounts.count(scores, resampled, family, subsets, max_pairs), bootstrap)
    for subset, agreement in ((ALL_EXPLAINERS, agreements[0]), (WITHOUT_CONTROLS, agreements[-1])):
        for j, metric in enumerate(family.judged):
            for t, reference in enumerate(family.references):
                if agreement.is_defined(j, t) and (j, t) not in family.excluded:
                    keys = (
                        *resampled.metrics[metric], resampled.directions[metric], reference.name, reference.agreement,
                        subset,
                    )  # fmt: skip
                    yield dict(zip(_KEYS, keys, strict=True)) | agreement.to_row(j, t)


@dataclass(frozen=True)
class _PairCounts:
    """Numbers of pairs of explainers for each instance and metric (N, J), by kind of pair and truth.

    concordance: concordant minus discordant pairs; compared_pairs: pairs scored by both metric and truth; untied_pairs:
    those of them that the truth does not tie.
    """

    counts: Mapping[tuple[str, int], NDArray[Any]]
    n_truths: int
    scratch: Scratch

    @staticmethod
    def count(
        scores: Scores, resampled: ResampledValues, family: RankedFamily, subsets: list[Bools], max_pairs: int
    ) -> list[_PairCounts]:
        """Count the pairs among each subset (E,) of the explainers, by blocks of instances: memory stays bounded."""
        first, second = np.triu_indices(len(family.explainers), 1)
        truths = [reference.metric for reference in family.references if reference.metric is not None]
        indices = [*family.judged, *truths]
        metrics, names = [resampled.metrics[i] for i in indices], [resampled.explainers[e] for e in family.explainers]
        is_lower_better = np.array([resampled.directions[i] == "lower" for i in indices])[:, None]
        arrays = [ScratchArrays[tuple[str, int]](scores.scratch, scores.n_instances) for _ in subsets]
        step = max(1, max_pairs // (len(metrics) * len(first)))
        for start in range(0, scores.n_instances, step):
            values = scores.compute_values(start, start + step, metrics, names)
            ranks = compute_ranks(np.where(is_lower_better, values, -values), "lower")
            signs = np.sign(ranks[..., first] - ranks[..., second]).astype(np.float32)
            for array, subset in zip(arrays, subsets, strict=True):
                counts = _count_pairs(signs[..., subset[first] & subset[second]], len(family.judged))
                for name, count in counts.items():
                    for t in range(count.shape[2]):
                        array.add((name, t), count[:, :, t])
        return [_PairCounts(array.get_arrays(), len(truths), scores.scratch) for array in arrays]

    @property
    def n_instances(self) -> int:
        """The number of instances."""
        return len(self.counts["concordance", 0])

    def iterate_slabs(self) -> Iterator[slice]:
        """Yield slices of all instances, and release the memory of a slice when the next is requested."""
        for slab in iterate_slabs(self.n_instances, _INSTANCES_PER_SLAB):
            yield slab
            self.scratch.release()

    def stack_columns(self, t: int, part: slice) -> Floats:
        """Return columns (n, 4J): J numerators of τ, J numerators of d, then the J denominators of τ and the J of d."""
        concordance, compared_pairs, untied_pairs = (self.counts[name, t][part].astype(float) for name in _COUNTS)
        self.scratch.release()
        tau = concordance / np.maximum(compared_pairs, 1)
        return np.concatenate([tau, concordance, compared_pairs > 0, untied_pairs], axis=1)

    def compute_values(self, t: int) -> Floats:
        """Return the mean τ of each metric, then its d (2J,)."""
        return divide_halves(np.sum([self.stack_columns(t, slab).sum(axis=0) for slab in self.iterate_slabs()], axis=0))

    def count_instances(self, name: str) -> Ints:
        """Return the number of instances (J, T) with at least one pair of a kind."""
        counts = [
            [(self.counts[name, t][slab] > 0).sum(axis=0) for slab in self.iterate_slabs()]
            for t in range(self.n_truths)
        ]
        return np.asarray(np.sum(counts, axis=1).T)

    def count_untied_pairs(self) -> Ints:
        """Return the number of pairs (J, T) that the truth does not tie, of all instances."""
        counts = [
            [self.counts["untied_pairs", t][slab].sum(axis=0, dtype=np.int64) for slab in self.iterate_slabs()]
            for t in range(self.n_truths)
        ]
        return np.asarray(np.sum(counts, axis=1).T)

    def find_identical_truths(self) -> list[int]:
        """Return for each truth the first with the same counts: with k = 1 recall and hit are the same."""
        first: list[int] = []
        for t in range(self.n_truths):
            first.append(next((other for other in dict.fromkeys(first) if self._has_same_counts(other, t)), t))
        return first

    def _has_same_counts(self, first: int, second: int) -> bool:
        return all(
            (self.counts[name, first][slab] == self.counts[name, second][slab]).all()
            for slab in self.iterate_slabs()
            for name in _COUNTS
        )


def _count_pairs(signs: NDArray[np.float32], n_metrics: int) -> dict[str, NDArray[Any]]:
    """Return the counts (n, J, T), by name, from the order (n, J + T, P) of the explainers of each pair."""
    is_present = ~np.isnan(signs)
    signs, present = np.where(is_present, signs, np.float32(0)), is_present.astype(np.float32)
    truth_signs, truth_present = (array[:, n_metrics:].swapaxes(-1, -2) for array in (signs, present))
    counts = (
        signs[:, :n_metrics] @ truth_signs,
        present[:, :n_metrics] @ truth_present,
        present[:, :n_metrics] @ np.abs(truth_signs),
    )
    smallest = np.min_scalar_type(-signs.shape[-1] - 1)
    return {name: count.astype(smallest) for name, count in zip(_COUNTS, counts, strict=True)}


@dataclass(frozen=True)
class _Agreement:
    """Agreement by metric (J) and truth (T) within one subset of the explainers."""

    values: Floats  # (T, 2J): the mean τ of each metric, then its d
    intervals: list[tuple[Floats, Floats]]  # of each truth, both ends (2J,)
    n_instances: Ints  # (J, T)
    n_untied_instances: Ints  # (J, T) with a pair that the truth does not tie
    n_untied_pairs: Ints  # (J, T) that the truth does not tie

    def is_defined(self, j: int, t: int) -> bool:
        """Return whether any instance has two explainers to compare."""
        return not np.isnan(self.values[t, j])

    def to_row(self, j: int, t: int) -> dict[str, Any]:
        """Return the values of one metric with one truth."""
        n_metrics, (low, high) = len(self.n_instances), self.intervals[t]
        tau, d = ((self.values[t, i], low[i], high[i]) for i in (j, n_metrics + j))
        counts = (self.n_instances, self.n_untied_instances, self.n_untied_pairs)
        n_instances, n_untied_instances, n_untied_pairs = (int(count[j, t]) for count in counts)
        row = (n_instances, *tau, n_untied_instances, n_untied_pairs, *d)
        return dict(zip(_VALUE_COLUMNS, row, strict=True))


def _estimate_agreement(subsets: Sequence[_PairCounts], bootstrap: Bootstrap) -> list[_Agreement]:
    """Return the agreement within each subset, with intervals over the same resamples of all instances."""
    identical = [pair_counts.find_identical_truths() for pair_counts in subsets]
    matrices = [
        partial(pair_counts.stack_columns, t)
        for pair_counts, truths in zip(subsets, identical, strict=True)
        for t in dict.fromkeys(truths)
    ]
    sums = iter(compute_resampled_sums(matrices, subsets[0].n_instances, bootstrap.n_resamples, bootstrap.seed))
    agreements = []
    for pair_counts, truths in zip(subsets, identical, strict=True):
        n_instances = pair_counts.count_instances("compared_pairs")
        values, intervals = {}, {}
        for t in dict.fromkeys(truths):
            is_sufficient = np.tile(n_instances[:, t] >= bootstrap.min_instances, 2)
            intervals[t] = bootstrap.compute_interval(divide_halves(next(sums)), is_sufficient)[:2]
            values[t] = pair_counts.compute_values(t)
        agreements.append(
            _Agreement(
                np.stack([values[t] for t in truths]),
                [intervals[t] for t in truths],
                n_instances,
                pair_counts.count_instances("untied_pairs"),
                pair_counts.count_untied_pairs(),
            )
        )
    return agreements
