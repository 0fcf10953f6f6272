"""What the rows of the atlas say together: how far each metric may be believed, by question."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.statistics.hierarchical import FACTORS as NESTED
from cfeval_cli.statistics.hierarchical import (
    N_RESAMPLES,
    CrossedValues,
    FactorLevels,
    HierarchicalMean,
    list_factor_levels,
)
from cfeval_cli.statistics.hypothesis_tests import adjust_holm
from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks
from cfeval_cli.statistics.student_t import compute_t_interval
from cfeval_cli.statistics.variance_decomposition import compute_interaction_share, decompose_variance
from cfeval_cli.study.atlas.rows import TAUS, TYPES
from cfeval_cli.study.atlas.store import Atlas

LEAD = "tau_without_controls"  # what the atlas leads with
QUESTIONS = ("contribution", "change", "either")
FACTORS = ("metric", "data", "judge", "truth", "seed", "k")
RUN = [*NESTED, "k"]  # and the truth that a figure is of
SURE = 0.05  # the p below which something is told
WHOLE = 0.9  # of the cells of a question that a metric must have to be compared with the others

# Metrics that are best at a truth by construction for some judges, at every k.
_IDENTITIES: list[dict[str, Any]] = json.loads(
    resources.files("cfeval_cli.study.atlas").joinpath("identities.json").read_text(encoding="utf-8")
)

Pair = tuple[str, str]  # metric and variant


@dataclass(frozen=True)
class Metric:
    """What is known of one metric for one question."""

    pair: Pair
    title: str
    block: str
    arbitrary: bool  # it depends on a constant that no prediction depends on
    compared: bool  # it has nearly all cells of the question, and depends on no such constant
    taus: dict[str, HierarchicalMean]  # by column
    clean: HierarchicalMean  # without controls and without what is so by construction: cells, and explainers
    diagnosticity: HierarchicalMean
    agreement: HierarchicalMean
    model_rows: float
    circular: int  # rows in which it is the best by construction
    rows: int

    @property
    def lead(self) -> HierarchicalMean:
        """What it is ranked by."""
        return self.taus[LEAD]


@dataclass(frozen=True)
class Answer:
    """Which metric to use for one question."""

    question: str
    metrics: list[Metric]  # the best first
    behind: dict[Pair, tuple[float, float, float, float]]  # less than the best: difference, interval, p after Holm

    @cached_property
    def compared(self) -> list[Metric]:
        """Those that can be compared with each other."""
        return [one for one in self.metrics if one.compared]

    @property
    def best(self) -> Metric | None:
        """The one with the highest mean; None where no other data sets or judges can be spoken of."""
        return next((one for one in self.compared if one.lead.known), None)

    @property
    def tied(self) -> list[Metric]:
        """Those that are not significantly different from the best."""
        return [one for one in self.compared if one.pair in self.behind and not self.behind[one.pair][3] < SURE]

    @property
    def clean(self) -> Metric | None:
        """The one with the highest mean of those left without what is so by construction."""
        left = [one for one in self.compared if one.clean.known]
        return max(left, key=lambda one: one.clean.mean, default=None)

    @property
    def sure(self) -> bool:
        """Whether the best agrees with the truth better than chance, whichever data sets and judges are drawn."""
        return self.best is not None and self.best.lead.low > 0


@dataclass(frozen=True)
class Summary:
    """All of it."""

    atlas: Atlas

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The rows of the atlas."""
        words = [name for name, kind in TYPES.items() if kind == "str"]
        rows = self.atlas.rows.astype(dict.fromkeys(words, object))  # by which it is grouped far faster
        circular = rows["circular"]
        for identity in _IDENTITIES:
            same = [rows[name] == identity[name] for name in ("metric", "variant", "truth")]
            circular = circular | (rows["judge"].isin(identity["judges"]) & np.logical_and.reduce(same))
        return rows.assign(circular=circular)

    def asked(self, question: str) -> pd.DataFrame:
        """The rows that answer a question."""
        return self.rows[self.rows["question"] == question]

    @cached_property
    def answers(self) -> list[Answer]:
        """For each question that any truth answers."""
        return [self._answer(question) for question in QUESTIONS if len(self.asked(question))]

    def _answer(self, question: str) -> Answer:
        mine = self.asked(question)
        among, cells = list_factor_levels(mine), mine.groupby(RUN).ngroups
        found = [
            _metric(part, among, cells, (str(metric), str(variant)))
            for (metric, variant), part in mine.groupby(["metric", "variant"], sort=False)
        ]
        found.sort(key=lambda one: (not one.compared, -one.lead.mean, one.pair))
        best = next((one for one in found if one.compared and one.lead.known), None)
        return Answer(question, found, {} if best is None else _behind(mine, best, found))

    @cached_property
    def variance(self) -> pd.DataFrame:
        """For each question, the share of the variance of τ that each factor explains, alone and by metric."""
        lines = []
        for question in QUESTIONS:
            mine = self.asked(question)
            if len(mine) < 2:
                continue
            mine = mine.assign(metric=mine["metric"] + " " + mine["variant"])
            alone = decompose_variance(mine, LEAD, FACTORS)
            rest = 1 - sum(alone.values())
            lines += [(question, factor, share, len(mine)) for factor, share in alone.items()]
            for factor in ("judge", "data"):
                more = compute_interaction_share(mine, LEAD, FACTORS, ("metric", factor))
                lines.append((question, f"metric × {factor}", more, len(mine)))
            lines.append((question, "all else", rest, len(mine)))
        return pd.DataFrame(lines, columns=["question", "factor", "share", "rows"])

    def means(self, question: str, by: str) -> pd.DataFrame:
        """The mean τ of each metric (rows) within each value of a factor, and how many rows each is of."""
        mine = self.asked(question)
        mine = mine.assign(value=mine[by])
        keys = ["metric", "variant", "value"]
        # of data sets' means over judges, of their means over truths, of their means over seeds, of those over all else
        means = mine.groupby([*keys, *NESTED], sort=False)[LEAD].mean()
        for left in range(len(NESTED) - 1, -1, -1):
            means = means.groupby([*keys, *NESTED[:left]], sort=False).mean()
        counts = mine.groupby(keys, sort=False)[LEAD].count()
        return pd.DataFrame({"mean": means, "rows": counts}).reset_index().rename(columns={"value": by})

    @cached_property
    def stability(self) -> pd.DataFrame:
        """For every two truths, how alike they rank the metrics that both rank, and that depend on no constant."""
        free = self.rows[~self.rows["arbitrary"]]
        means = {
            str(truth): {key: CrossedValues.of(part, LEAD).mean() for key, part in mine.groupby(["metric", "variant"])}
            for truth, mine in free.groupby("truth")
        }
        lines = []
        for one, two in combinations(sorted(means), 2):
            both = sorted(set(means[one]) & set(means[two]))
            if len(both) > 1:
                sides = [np.array([means[truth][key] for key in both]) for truth in (one, two)]
                lines.append((one, two, _alike(*sides), len(both)))
        return pd.DataFrame(lines, columns=["truth", "other", "tau", "metrics"])

    @cached_property
    def circular(self) -> pd.DataFrame:
        """The metrics that are best at a truth by construction, and in how many rows."""
        mine = self.rows[self.rows["circular"]]
        keys = ["metric", "variant", "title", "truth"]
        counted = mine.groupby(keys).agg(
            rows=("k", "size"), k=("k", lambda some: ", ".join(map(str, sorted(set(some)))))
        )
        return counted.reset_index()


def _metric(part: pd.DataFrame, among: FactorLevels, cells: int, pair: Pair) -> Metric:
    arbitrary = bool(part["arbitrary"].any())
    free = part[~part["circular"]]
    return Metric(
        pair=pair,
        title=str(part["title"].iloc[0]),
        block=str(part["block"].iloc[0]),
        arbitrary=arbitrary,
        compared=not arbitrary and len(part) >= WHOLE * cells,
        taus={
            name: CrossedValues.of(part, name, among).told(draws=N_RESAMPLES if name == LEAD else 0) for name in TAUS
        },
        clean=CrossedValues.of(free, "tau_without_circular", among).told(),
        diagnosticity=CrossedValues.of(part, "diagnosticity", among).told(),
        agreement=CrossedValues.of(part, "agreement", among).told(draws=0),
        model_rows=float(part["model_rows"].mean()),
        circular=int(part["circular"].sum()),
        rows=len(part),
    )


def by_run(mine: pd.DataFrame, name: str) -> pd.DataFrame:
    """A figure of all metrics (columns, by name and variant) in each run and truth (rows)."""
    return mine.groupby([*RUN, "metric", "variant"])[name].mean().unstack(["metric", "variant"])


def differences(figures: pd.DataFrame, one: Sequence[Pair], two: Sequence[Pair], name: str) -> pd.DataFrame:
    """In each run and truth, the mean figure of some metrics less that of others; where both have one."""
    left, right = (figures[list(some)].mean(axis=1) for some in (one, two))
    return (left - right).dropna().rename(name).reset_index()


def _behind(mine: pd.DataFrame, best: Metric, found: Sequence[Metric]) -> dict[Pair, tuple[float, float, float, float]]:
    """How much less than the best each other one agrees with the truth: difference, t-interval, p after Holm.

    Data sets are the units. Rows in which the best is right by construction are no evidence of its lead.
    """
    by_construction = (mine["metric"] == best.pair[0]) & (mine["variant"] == best.pair[1]) & mine["circular"]
    figures = by_run(mine[~by_construction], LEAD)
    told, p = {}, []
    for one in found:
        if one.compared and one is not best:
            gap = compute_t_interval(_of_data(figures, best.pair, one.pair))
            told[one.pair] = (gap.mean, gap.low, gap.high)
            p.append(1.0 if np.isnan(gap.p) else gap.p)
    adjusted: Floats = adjust_holm(np.array(p)) if p else np.zeros(0)
    return {pair: (*gap, float(one)) for (pair, gap), one in zip(told.items(), adjusted, strict=True)}


def _of_data(figures: pd.DataFrame, one: Pair, two: Pair) -> Floats:
    """The mean difference of two metrics on each data set: over judges, over truths, over seeds, over all else."""
    if one not in figures or two not in figures:
        return np.zeros(0)
    gaps = (figures[one] - figures[two]).dropna()
    for left in range(len(NESTED), 0, -1):
        gaps = gaps.groupby(level=NESTED[:left]).mean()
    return gaps.to_numpy(float)


def _alike(one: Floats, two: Floats) -> float:
    sides = [compute_ranks(side, "higher")[None] for side in (one, two)]
    return float(compute_rank_correlations(*sides)[0][0, 0])
