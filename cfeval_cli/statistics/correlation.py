"""Rank correlations of each metric with each truth over the explainers, with intervals and p-values.

τ is Kendall's τ-a: a tied pair counts in the denominator. ρ is Spearman's correlation of average ranks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Bools, Floats, Ints
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.permutation import compute_permutation_p_values
from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks
from cfeval_cli.statistics.resampled_values import ResampledValues
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS

COLUMNS = [
    "metric", "variant", "better", "family", "truth", "agreement", "subset", "explainers", "tau", "tau_low", "tau_high",
    "tau_se", "p_tau", "rho", "rho_low", "rho_high", "rho_se", "p_rho", "note",
]  # fmt: skip
TAU_RESAMPLES_COLUMNS = ["draw", "metric", "variant", "truth", "agreement", "subset", "tau"]

EXPLAINERS = "explainers"  # the family of the explainers that are no graded controls
GRADED = "graded"  # the family of the graded control explainers
CIRCULAR_NOTE = "best at this truth by construction"

_NO_EXPLAINERS_NOTE = "without controls fewer than two explainers are left"
_MAX_PAIRS_PER_BLOCK = 1 << 19  # pairs of explainers held at once
_STORED_RESAMPLES = 500  # resamples in tau_resamples.parquet, for combining several seeds


@dataclass(frozen=True)
class ReferenceRanking:
    """A ranking of the explainers that metrics are compared with."""

    name: str  # of the truth
    agreement: str  # the metric of agreement with this truth, such as recall; "order" for graded controls
    metric: int | None  # index of that metric; None: the known order of graded controls


@dataclass(frozen=True)
class RankedFamily:
    """Explainers that are ranked among themselves, the metrics that rank them, and the references."""

    name: str
    explainers: Ints
    judged: list[int]  # indices of the metrics
    references: list[ReferenceRanking]
    # Pairs (j, t) without a τ, because metric judged[j] is optimal at references[t] by construction.
    excluded: frozenset[tuple[int, int]] = frozenset()
    subset: str = ALL_EXPLAINERS
    controls: Ints = field(default_factory=lambda: np.array([], dtype=int))  # explainers that the subset leaves out

    def exclude_circular(self, pairs: Collection[tuple[str, str, str]], resampled: ResampledValues) -> RankedFamily:
        """Return the family without the τ of metrics (with variants) with truths at which they are optimal."""
        if self.name == GRADED:  # their order is known, whatever they are made from
            return self
        excluded = frozenset(
            (j, t)
            for j, metric in enumerate(self.judged)
            for t, reference in enumerate(self.references)
            if (*resampled.metrics[metric], reference.name) in pairs
        )
        return replace(self, excluded=excluded)

    def drop_controls(self, controls: Bools) -> RankedFamily:
        """Return the family without the explainers that select features by chance or by the truth itself."""
        is_control = controls[self.explainers]
        return replace(
            self,
            explainers=self.explainers[~is_control],
            subset=WITHOUT_CONTROLS,
            controls=self.explainers[is_control],
        )


def list_families(resampled: ResampledValues, graded_truth: str) -> Iterator[RankedFamily]:
    """Yield the families of a run: the explainers, and the graded controls, which are made from one truth."""
    ranked = [i for i, direction in enumerate(resampled.directions) if direction != "none"]
    truths = [
        ReferenceRanking(name=resampled.metrics[i][1], agreement=resampled.metrics[i][0], metric=i)
        for i in ranked
        if resampled.roles[i] == "truth"
    ]
    judged = [i for i in ranked if resampled.roles[i] == "judged"]
    is_graded = ~np.isnan(resampled.quality_levels)
    if not is_graded.all():
        yield RankedFamily(EXPLAINERS, np.flatnonzero(~is_graded), judged, truths)
    if is_graded.any():
        known_order = ReferenceRanking(graded_truth, "order", None)
        yield RankedFamily(GRADED, np.flatnonzero(is_graded), ranked, [known_order])


@dataclass(frozen=True)
class RankCorrelations:
    """τ and ρ of every metric (J) with every reference (T) of a family."""

    family: RankedFamily
    is_ranked: Bools  # (J, T, E) explainers that have a value on both sides
    tau: Floats  # (1 + B, J, T): index 0 has the observed τ, 1 to B those of the resamples
    rho: Floats
    p_tau: Floats  # (J, T)
    p_rho: Floats
    is_sufficient: Bools  # (J, T) every explainer was scored on as many instances as intervals need

    @staticmethod
    def compute(
        resampled: ResampledValues,
        family: RankedFamily,
        bootstrap: Bootstrap,
        *,
        with_p: bool = True,
        max_pairs: int = _MAX_PAIRS_PER_BLOCK,
    ) -> RankCorrelations:
        """Compute all correlations of a family, with permutation p-values on demand."""
        is_ranked = _find_ranked(resampled, family)
        shape = is_ranked.shape[:2]
        tau, rho = (np.full((len(resampled.values), *shape), np.nan) for _ in range(2))
        p_tau, p_rho = np.full(shape, np.nan), np.full(shape, np.nan)
        for mask, resample_slice, ranks in _iterate_ranks(resampled, family, is_ranked, max_pairs):
            for coefficients, part in zip((tau, rho), compute_rank_correlations(*ranks), strict=True):
                coefficients[resample_slice, mask] = part[:, mask]
            if with_p and resample_slice.start == 0:
                p = compute_permutation_p_values(ranks[0][0], ranks[1][0])
                p_tau[mask], p_rho[mask] = p[0][mask], p[1][mask]
        has_enough = resampled.n_instances[:, family.explainers][family.judged] >= bootstrap.min_instances
        is_sufficient = np.asarray((has_enough[:, None] | ~is_ranked).all(axis=2))
        return RankCorrelations(family, is_ranked, tau, rho, p_tau, p_rho, is_sufficient)

    def tabulate(self, resampled: ResampledValues, bootstrap: Bootstrap) -> Iterator[dict[str, Any]]:
        """Yield rows of correlations.csv; ρ is reported for all explainers only."""
        coefficients = {"tau": (self.tau, self.p_tau)}
        if self.family.subset == ALL_EXPLAINERS:
            coefficients["rho"] = (self.rho, self.p_rho)
        intervals = {
            name: bootstrap.compute_interval(values[1:], self.is_sufficient)
            for name, (values, _) in coefficients.items()
        }
        for j, metric in enumerate(self.family.judged):
            for t, reference in enumerate(self.family.references):
                row: dict[str, Any] = {
                    "metric": resampled.metrics[metric][0], "variant": resampled.metrics[metric][1],
                    "better": resampled.directions[metric], "family": self.family.name, "truth": reference.name,
                    "agreement": reference.agreement, "subset": self.family.subset,
                    "explainers": int(self.is_ranked[j, t].sum()), "note": self._make_note(resampled, j, t),
                }  # fmt: skip
                for name, (values, p) in coefficients.items():
                    if not np.isnan(values[0, j, t]):
                        row |= {name: values[0, j, t], f"p_{name}": p[j, t]}
                        ends = zip(("low", "high", "se"), intervals[name], strict=True)
                        row |= {f"{name}_{end}": array[j, t] for end, array in ends}
                yield row

    def _make_note(self, resampled: ResampledValues, j: int, t: int) -> str:
        """Return which explainers are left out, or why there is no coefficient."""
        is_ranked = self.is_ranked[j, t]
        if (j, t) in self.family.excluded:
            return CIRCULAR_NOTE
        if is_ranked.sum() < 2:
            return self._explain_missing(resampled, j, t)
        absent = sorted(resampled.explainers[e] for e in self.family.explainers[~is_ranked])
        notes = [f"without {', '.join(absent)}"] if absent else []
        if self.family.subset == ALL_EXPLAINERS and np.isnan(self.rho[0, j, t]):
            notes.append("all tied, ρ undefined")
        return "; ".join(notes)

    def _explain_missing(self, resampled: ResampledValues, j: int, t: int) -> str:
        """Return why fewer than two explainers are ranked."""
        if len(self.family.controls):
            with_controls = np.concatenate([self.family.explainers, self.family.controls])
            is_ranked = _find_ranked(resampled, replace(self.family, explainers=with_controls))
            if is_ranked[j, t].sum() > 1:
                return _NO_EXPLAINERS_NOTE
        reference = self.family.references[t].metric
        reasons = resampled.notes[self.family.judged[j]] | (set() if reference is None else resampled.notes[reference])
        return "; ".join(sorted(reasons)) or "a ranking needs two explainers"


def tabulate_tau_resamples(correlations: Sequence[RankCorrelations], resampled: ResampledValues) -> pd.DataFrame:
    """Return tau_resamples.parquet: every τ of a family in the first resamples, by subset of its explainers.

    A resample without τ over all explainers, the first of the subsets, is left out of all subsets.
    """
    family, subsets = correlations[0].family, [part.family.subset for part in correlations]
    references, metrics = family.references, [resampled.metrics[metric] for metric in family.judged]
    tau = np.stack([part.tau[1 : 1 + _STORED_RESAMPLES] for part in correlations])
    tau[:, np.isnan(tau[0])] = np.nan
    subset, draw, j, t = (index.ravel() for index in np.indices(tau.shape))
    columns: dict[str, Any] = {"draw": draw.astype(np.int32), "tau": tau.ravel()}
    for name, labels, codes in (
        ("subset", subsets, subset),
        ("metric", [metric for metric, _ in metrics], j),
        ("variant", [variant for _, variant in metrics], j),
        ("truth", [reference.name for reference in references], t),
        ("agreement", [reference.agreement for reference in references], t),
    ):
        categories = list(dict.fromkeys(labels))
        columns[name] = pd.Categorical.from_codes(
            np.array([categories.index(label) for label in labels])[codes], pd.Index(categories)
        )
    table = pd.DataFrame(columns)[TAU_RESAMPLES_COLUMNS]
    return pd.DataFrame(table[table["tau"].notna()]).reset_index(drop=True)


def find_circular_rows(correlations: pd.DataFrame, pairs: Collection[tuple[str, str, str]]) -> list[bool]:
    """Return for each row of correlations.csv whether the metric is optimal at the truth by construction."""
    keys = correlations[["metric", "variant", "truth"]].itertuples(index=False, name=None)
    return [tuple(key) in pairs for key in keys]


def compute_kendall_tau(resampled: ResampledValues, family: RankedFamily) -> Floats:
    """Return τ (1 + B, J, T) over the explainers that have a value on both sides."""
    is_ranked = _find_ranked(resampled, family)
    tau = np.full((len(resampled.values), *is_ranked.shape[:2]), np.nan)
    for mask, resample_slice, ranks in _iterate_ranks(resampled, family, is_ranked):
        tau[resample_slice, mask] = compute_rank_correlations(*ranks)[0][:, mask]
    return tau


def _iterate_ranks(
    resampled: ResampledValues, family: RankedFamily, is_ranked: Bools, max_pairs: int = _MAX_PAIRS_PER_BLOCK
) -> Iterator[tuple[Bools, slice, tuple[Floats, Floats]]]:
    """Yield metrics and references (J, T) that rank the same explainers, with the ranks of both in some resamples."""
    for pattern in np.unique(is_ranked.reshape(-1, is_ranked.shape[2]), axis=0) if is_ranked.size else ():
        if pattern.sum() < 2:
            continue
        explainers = family.explainers[pattern]
        step = max(1, max_pairs // (sum(is_ranked.shape[:2]) * len(explainers) ** 2))
        for start in range(0, len(resampled.values), step):
            resample_slice = slice(start, start + step)
            yield (
                (is_ranked == pattern).all(axis=2),
                resample_slice,
                _rank(resampled, family, explainers, resample_slice),
            )


def _find_ranked(resampled: ResampledValues, family: RankedFamily) -> Bools:
    """Return the explainers (J, T, E) that have a value of the metric and of the reference."""
    values = resampled.values[0][:, family.explainers]
    known_order = resampled.quality_levels[family.explainers]
    references = np.stack(
        [known_order if reference.metric is None else values[reference.metric] for reference in family.references]
    )
    is_ranked = np.asarray(~np.isnan(values[family.judged])[:, None] & ~np.isnan(references)[None])
    for pair in family.excluded:
        is_ranked[pair] = False
    return is_ranked


def _rank(
    resampled: ResampledValues, family: RankedFamily, explainers: Ints, resample_slice: slice
) -> tuple[Floats, Floats]:
    """Return the ranks of some explainers by the metrics (b, J, E) and by the references (b, T, E)."""
    by_metrics = resampled.rank_explainers(family.judged, explainers, resample_slice)
    references = [reference.metric for reference in family.references if reference.metric is not None]
    if references:
        return by_metrics, resampled.rank_explainers(references, explainers, resample_slice)
    known_order = compute_ranks(resampled.quality_levels[explainers], "higher")
    return by_metrics, np.broadcast_to(known_order, (len(by_metrics), 1, len(known_order)))
