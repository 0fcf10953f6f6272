"""How well each metric ranks the explainers as the truth does, with intervals and p-values."""

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

GRADED = "graded"  # the family of the graded control explainers
BY_CONSTRUCTION = "best at this truth by construction"
_BLOCK = 1 << 19  # pairs of explainers held at once
_ALL_CONTROLS = "without controls fewer than two explainers are left"


@dataclass(frozen=True)
class ReferenceRanking:
    """What metrics are judged by."""

    name: str
    agreement: str
    row: int | None  # of the metric that is the truth; None: the known order of a ladder


@dataclass(frozen=True)
class RankedFamily:
    """Explainers that are ranked among themselves, and the metrics that are judged by how they do it."""

    name: str
    explainers: Ints
    judged: list[int]  # rows
    truths: list[ReferenceRanking]
    barred: frozenset[tuple[int, int]] = frozenset()  # places among the judged and the truths that have no τ
    subset: str = ALL_EXPLAINERS
    controls: Ints = field(default_factory=lambda: np.array([], dtype=int))  # explainers that the subset leaves out

    def barring(self, pairs: Collection[tuple[str, str, str]], drawn: ResampledValues) -> RankedFamily:
        """The same without the τ of metrics with truths that they are best at by construction."""
        if self.name == GRADED:  # whose order is known, whatever it is made from
            return self
        return replace(self, barred=frozenset(
            (j, t) for j, row in enumerate(self.judged) for t, truth in enumerate(self.truths)
            if (*drawn.rows[row], truth.name) in pairs
        ))  # fmt: skip

    def without(self, controls: Bools) -> RankedFamily:
        """The same without the explainers that name chance or the truth itself."""
        left_out = controls[self.explainers]
        return replace(
            self,
            explainers=self.explainers[~left_out],
            subset=WITHOUT_CONTROLS,
            controls=self.explainers[left_out],
        )


def list_families(drawn: ResampledValues, graded_truth: str) -> Iterator[RankedFamily]:
    """The explainers, and the rungs of a ladder."""
    ranked = [row for row, better in enumerate(drawn.better) if better != "none"]
    truths = [
        ReferenceRanking(drawn.rows[row][1], drawn.rows[row][0], row) for row in ranked if drawn.roles[row] == "truth"
    ]
    judged = [row for row in ranked if drawn.roles[row] == "judged"]
    rung = ~np.isnan(drawn.rungs)
    if not rung.all():
        yield RankedFamily("explainers", np.flatnonzero(~rung), judged, truths)
    if rung.any():
        yield RankedFamily(GRADED, np.flatnonzero(rung), ranked, [ReferenceRanking(graded_truth, "order", None)])


@dataclass(frozen=True)
class RankCorrelations:
    """τ and ρ of every metric with every truth of a family."""

    family: RankedFamily
    there: Bools  # (J, T, E) explainers that have a value on both sides
    tau: Floats  # (1 + B, J, T): the real one, then those of every resample
    rho: Floats
    p_tau: Floats  # (J, T)
    p_rho: Floats
    enough: Bools  # (J, T) every explainer was scored on as many instances as intervals need

    @staticmethod
    def of(drawn: ResampledValues, family: RankedFamily, how: Bootstrap, *, chance: bool = True) -> RankCorrelations:
        """Metrics that lack the same explainers are judged together; p, what `chance` would give, on demand."""
        there = _there(drawn, family)
        shape = there.shape[:2]
        tau, rho = (np.full((len(drawn.values), *shape), np.nan) for _ in range(2))
        p_tau, p_rho = np.full(shape, np.nan), np.full(shape, np.nan)
        for mine, draws, sides in _ranked(drawn, family, there):
            for whole, part in zip((tau, rho), compute_rank_correlations(*sides), strict=True):
                whole[draws, mine] = part[:, mine]
            if chance and draws.start == 0:
                p = compute_permutation_p_values(sides[0][0], sides[1][0])
                p_tau[mine], p_rho[mine] = p[0][mine], p[1][mine]
        many = drawn.instances[:, family.explainers][family.judged] >= how.min_instances
        return RankCorrelations(family, there, tau, rho, p_tau, p_rho, np.asarray((many[:, None] | ~there).all(axis=2)))

    def lines(self, drawn: ResampledValues, how: Bootstrap) -> Iterator[dict[str, Any]]:
        """Rows of correlations.csv; ρ is reported of all explainers only."""
        coefficients = {"tau": (self.tau, self.p_tau)}
        if self.family.subset == ALL_EXPLAINERS:
            coefficients["rho"] = (self.rho, self.p_rho)
        spreads = {name: how.compute_interval(values[1:], self.enough) for name, (values, _) in coefficients.items()}
        for j, row in enumerate(self.family.judged):
            for t, truth in enumerate(self.family.truths):
                told: dict[str, Any] = {
                    "metric": drawn.rows[row][0], "variant": drawn.rows[row][1], "better": drawn.better[row],
                    "family": self.family.name, "truth": truth.name, "agreement": truth.agreement,
                    "subset": self.family.subset, "explainers": int(self.there[j, t].sum()),
                    "note": self._note(drawn, j, t),
                }  # fmt: skip
                for name, (values, p) in coefficients.items():
                    if not np.isnan(values[0, j, t]):
                        told |= {name: values[0, j, t], f"p_{name}": p[j, t]}
                        ends = zip(("low", "high", "se"), spreads[name], strict=True)
                        told |= {f"{name}_{end}": of[j, t] for end, of in ends}
                yield told

    def _note(self, drawn: ResampledValues, j: int, t: int) -> str:
        """Which explainers are left out, or why there is no figure."""
        there, row = self.there[j, t], self.family.truths[t].row
        if (j, t) in self.family.barred:
            return BY_CONSTRUCTION
        if there.sum() < 2:
            everyone = np.concatenate([self.family.explainers, self.family.controls])
            if len(everyone) > len(there) and _there(drawn, replace(self.family, explainers=everyone))[j, t].sum() > 1:
                return _ALL_CONTROLS
            reasons = drawn.notes[self.family.judged[j]] | (set() if row is None else drawn.notes[row])
            return "; ".join(sorted(reasons)) or "a ranking needs two explainers"
        absent = sorted(drawn.explainers[e] for e in self.family.explainers[~there])
        notes = [f"without {', '.join(absent)}"] if absent else []
        if self.family.subset == ALL_EXPLAINERS and np.isnan(self.rho[0, j, t]):
            notes.append("all tied, ρ undefined")
        return "; ".join(notes)


TAU_RESAMPLES_COLUMNS = ["draw", "metric", "variant", "truth", "agreement", "subset", "tau"]
_KEPT = 500  # resamples, of which seeds are put together


def tabulate_tau_resamples(agreements: Sequence[RankCorrelations], drawn: ResampledValues) -> pd.DataFrame:
    """Return tau_resamples.parquet: every τ of a family in the first resamples, by subset of its explainers.

    A resample in which τ over all explainers, the first of the subsets, is undefined counts in none of them.
    """
    family, subsets = agreements[0].family, [one.family.subset for one in agreements]
    truths, rows = family.truths, [drawn.rows[row] for row in family.judged]
    tau = np.stack([one.tau[1 : 1 + _KEPT] for one in agreements])
    tau[:, np.isnan(tau[0])] = np.nan
    subset, draw, j, t = (place.ravel() for place in np.indices(tau.shape))
    columns: dict[str, Any] = {"draw": draw.astype(np.int32), "tau": tau.ravel()}
    for name, labels, codes in (
        ("subset", subsets, subset),
        ("metric", [row[0] for row in rows], j), ("variant", [row[1] for row in rows], j),
        ("truth", [truth.name for truth in truths], t), ("agreement", [truth.agreement for truth in truths], t),
    ):  # fmt: skip
        names = list(dict.fromkeys(labels))
        columns[name] = pd.Categorical.from_codes(
            np.array([names.index(label) for label in labels])[codes], pd.Index(names)
        )
    table = pd.DataFrame(columns)[TAU_RESAMPLES_COLUMNS]
    return pd.DataFrame(table[table["tau"].notna()]).reset_index(drop=True)


def find_circular_rows(correlations: pd.DataFrame, pairs: Collection[tuple[str, str, str]]) -> list[bool]:
    """For each row of correlations.csv whether the metric is best at the truth by construction."""
    keys = correlations[["metric", "variant", "truth"]].itertuples(index=False, name=None)
    return [tuple(key) in pairs for key in keys]


def compute_kendall_tau(drawn: ResampledValues, family: RankedFamily) -> Floats:
    """Kendall's τ alone (draws, J, T); explainers without a value on either side are left out, by the first draw."""
    there = _there(drawn, family)
    tau = np.full((len(drawn.values), *there.shape[:2]), np.nan)
    for mine, draws, sides in _ranked(drawn, family, there):
        tau[draws, mine] = compute_rank_correlations(*sides)[0][:, mine]
    return tau


def _ranked(
    drawn: ResampledValues, family: RankedFamily, there: Bools
) -> Iterator[tuple[Bools, slice, tuple[Floats, Floats]]]:
    """Metrics and truths (J, T) that lack the same explainers, some draws, and the ranks of both sides in these."""
    for pattern in np.unique(there.reshape(-1, there.shape[2]), axis=0) if there.size else ():
        if pattern.sum() < 2:
            continue
        explainers = family.explainers[pattern]
        step = max(1, _BLOCK // (sum(there.shape[:2]) * len(explainers) ** 2))
        for start in range(0, len(drawn.values), step):
            draws = slice(start, start + step)
            yield (there == pattern).all(axis=2), draws, _standings(drawn, family, explainers, draws)


def _there(drawn: ResampledValues, family: RankedFamily) -> Bools:
    value = drawn.values[0][:, family.explainers]
    known = drawn.rungs[family.explainers]
    truths = np.stack([known if truth.row is None else value[truth.row] for truth in family.truths])
    there = np.asarray(~np.isnan(value[family.judged])[:, None] & ~np.isnan(truths)[None])
    for place in family.barred:
        there[place] = False
    return there


def _standings(drawn: ResampledValues, family: RankedFamily, explainers: Ints, draws: slice) -> tuple[Floats, Floats]:
    """Ranks by the metrics (b, J, E) and by the truths (b, T, E) among some explainers."""
    ours = drawn.standing(family.judged, explainers, draws)
    rows = [truth.row for truth in family.truths if truth.row is not None]
    if rows:
        return ours, drawn.standing(rows, explainers, draws)
    known = compute_ranks(drawn.rungs[explainers], "higher")
    return ours, np.broadcast_to(known, (len(ours), 1, len(known)))
