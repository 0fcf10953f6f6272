"""The summary of the atlas: which metrics agree with the ground truth, by question."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats
from cfeval_cli.statistics.hierarchical import FACTORS as NESTED_FACTORS
from cfeval_cli.statistics.hierarchical import (
    N_RESAMPLES,
    CrossedValues,
    FactorLevels,
    HierarchicalMean,
    list_factor_levels,
)
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL, adjust_holm
from cfeval_cli.statistics.ranking import compute_rank_correlations, compute_ranks
from cfeval_cli.statistics.student_t import compute_t_interval
from cfeval_cli.statistics.variance_decomposition import compute_interaction_share, decompose_variance
from cfeval_cli.study.atlas.rows import TAUS, TYPES
from cfeval_cli.study.atlas.store import Atlas
from cfeval_cli.study.definitions import load_definitions

LEADING_TAU = "tau_without_controls"
QUESTIONS = ("contribution", "change", "either")
RUN_KEYS = [*NESTED_FACTORS, "k"]  # of a run and a truth
MIN_CELL_SHARE = 0.9  # of the cells of a question, for a metric to be compared with the others
_VARIANCE_FACTORS = ("metric", "data", "judge", "truth", "seed", "k")

Pair = tuple[str, str]  # metric and variant


@dataclass(frozen=True)
class CircularIdentity:
    """A metric that is optimal for a truth by construction, for some judges and at every k."""

    metric: str
    variant: str
    truth: str
    judges: tuple[str, ...]
    why: str


_IDENTITIES = load_definitions("cfeval_cli.study.atlas", "circular_identities.json", tuple[CircularIdentity, ...])


@dataclass(frozen=True)
class MetricSummary:
    """The agreement of one metric with the ground truth, for one question."""

    pair: Pair
    title: str
    block: str
    is_arbitrary: bool  # not identifiable: it depends on the parametrisation of the model
    is_compared: bool  # it is identifiable, and has nearly all cells of the question
    taus: dict[str, HierarchicalMean]  # by column of the atlas
    tau_without_circular: HierarchicalMean  # without circular rows and explainers, and without controls
    diagnosticity: HierarchicalMean
    agreement: HierarchicalMean
    model_evaluations: float  # for one explanation
    n_circular: int  # rows in which the metric is circular
    n_rows: int

    @property
    def tau(self) -> HierarchicalMean:
        """The τ that metrics are ranked by."""
        return self.taus[LEADING_TAU]


@dataclass(frozen=True)
class DifferenceToBest:
    """How much lower the τ of a metric is than that of the best one, with a t-interval and Holm-adjusted p."""

    mean: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class QuestionSummary:
    """The metrics for one question, the metric with the highest τ first."""

    question: str
    metrics: list[MetricSummary]
    differences: dict[Pair, DifferenceToBest]

    @cached_property
    def compared(self) -> list[MetricSummary]:
        """The metrics that are compared with each other."""
        return [metric for metric in self.metrics if metric.is_compared]

    @property
    def best(self) -> MetricSummary | None:
        """The metric with the highest mean τ; None if there are too few data sets or judges for an interval."""
        return next((metric for metric in self.compared if metric.tau.has_interval), None)

    @property
    def tied(self) -> list[MetricSummary]:
        """The metrics that are not significantly different from the best one."""
        return [
            metric for metric in self.compared
            if metric.pair in self.differences and not self.differences[metric.pair].p < SIGNIFICANCE_LEVEL
        ]  # fmt: skip

    @property
    def best_without_circular(self) -> MetricSummary | None:
        """The metric with the highest mean τ without circular rows and explainers."""
        metrics_with_interval = [metric for metric in self.compared if metric.tau_without_circular.has_interval]
        return max(metrics_with_interval, key=lambda metric: metric.tau_without_circular.mean, default=None)

    @property
    def is_conclusive(self) -> bool:
        """Whether the interval of the best metric excludes chance."""
        return self.best is not None and self.best.tau.low > 0


@dataclass(frozen=True)
class AtlasSummary:
    """The summary of all rows of an atlas."""

    atlas: Atlas

    @cached_property
    def rows(self) -> pd.DataFrame:
        """The rows of the atlas, with the circular identities."""
        words = [name for name, kind in TYPES.items() if kind == "str"]
        rows = self.atlas.rows.astype(dict.fromkeys(words, object))  # pandas groups Python strings far faster
        circular = rows["circular"]
        for identity in _IDENTITIES:
            names = ("metric", "variant", "truth")
            is_identity = np.logical_and.reduce([rows[name] == getattr(identity, name) for name in names])
            circular = circular | (rows["judge"].isin(identity.judges) & is_identity)
        return rows.assign(circular=circular)

    def select_question(self, question: str) -> pd.DataFrame:
        """Select the rows with truths of a question."""
        return self.rows[self.rows["question"] == question]

    @cached_property
    def questions(self) -> list[QuestionSummary]:
        """One summary for each question that has rows."""
        return [self._summarise(question) for question in QUESTIONS if len(self.select_question(question))]

    def get_question(self, question: str) -> QuestionSummary:
        """Return the summary of one question."""
        return next(summary for summary in self.questions if summary.question == question)

    def _summarise(self, question: str) -> QuestionSummary:
        rows = self.select_question(question)
        levels, n_cells = list_factor_levels(rows), rows.groupby(RUN_KEYS).ngroups
        metrics = [
            _summarise_metric(part, levels, n_cells, (str(metric), str(variant)))
            for (metric, variant), part in rows.groupby(["metric", "variant"], sort=False)
        ]
        metrics.sort(key=lambda metric: (not metric.is_compared, -metric.tau.mean, metric.pair))
        best = next((metric for metric in metrics if metric.is_compared and metric.tau.has_interval), None)
        return QuestionSummary(question, metrics, {} if best is None else _compare_with_best(rows, best, metrics))

    @cached_property
    def variance(self) -> pd.DataFrame:
        """The share of the variance of τ that each factor explains, by question."""
        lines = []
        for question in QUESTIONS:
            rows = self.select_question(question)
            if len(rows) < 2:
                continue
            rows = rows.assign(metric=rows["metric"] + " " + rows["variant"])
            shares = decompose_variance(rows, LEADING_TAU, _VARIANCE_FACTORS)
            lines += [(question, factor, share, len(rows)) for factor, share in shares.items()]
            for factor in ("judge", "data"):
                share = compute_interaction_share(rows, LEADING_TAU, _VARIANCE_FACTORS, ("metric", factor))
                lines.append((question, f"metric × {factor}", share, len(rows)))
            lines.append((question, "residual", 1 - sum(shares.values()), len(rows)))
        return pd.DataFrame(lines, columns=["question", "factor", "share", "rows"])

    def compute_means(self, question: str, factor: str) -> pd.DataFrame:
        """Return the mean τ of each metric for each value of a factor, and the number of rows."""
        rows = self.select_question(question)
        rows = rows.assign(value=rows[factor])
        keys = ["metric", "variant", "value"]
        # nested means: over data sets, of means over judges, over truths, over seeds, over the rest
        means = rows.groupby([*keys, *NESTED_FACTORS], sort=False)[LEADING_TAU].mean()
        for depth in range(len(NESTED_FACTORS) - 1, -1, -1):
            means = means.groupby([*keys, *NESTED_FACTORS[:depth]], sort=False).mean()
        counts = rows.groupby(keys, sort=False)[LEADING_TAU].count()
        return pd.DataFrame({"mean": means, "rows": counts}).reset_index().rename(columns={"value": factor})

    @cached_property
    def truth_agreement(self) -> pd.DataFrame:
        """Kendall's τ between the rankings of the identifiable metrics by two truths."""
        identifiable = self.rows[~self.rows["arbitrary"]]
        means = {
            str(truth): {
                pair: CrossedValues.from_rows(part, LEADING_TAU).compute_mean()
                for pair, part in rows.groupby(["metric", "variant"])
            }
            for truth, rows in identifiable.groupby("truth")
        }  # fmt: skip
        lines = []
        for first, second in combinations(sorted(means), 2):
            common = sorted(set(means[first]) & set(means[second]))
            if len(common) > 1:
                sides = [np.array([means[truth][pair] for pair in common]) for truth in (first, second)]
                lines.append((first, second, _correlate(*sides), len(common)))
        return pd.DataFrame(lines, columns=["truth", "other", "tau", "metrics"])

    @cached_property
    def circular_metrics(self) -> pd.DataFrame:
        """The circular metrics, and in how many rows they are."""
        rows = self.rows[self.rows["circular"]]
        counts = rows.groupby(["metric", "variant", "title", "truth"]).agg(
            rows=("k", "size"), k=("k", lambda values: ", ".join(map(str, sorted(set(values)))))
        )
        return counts.reset_index()


def _summarise_metric(rows: pd.DataFrame, levels: FactorLevels, n_cells: int, pair: Pair) -> MetricSummary:
    is_arbitrary = bool(rows["arbitrary"].any())
    not_circular = rows[~rows["circular"]]
    n_resamples = dict.fromkeys(TAUS, 0) | {LEADING_TAU: N_RESAMPLES}
    taus = {
        name: CrossedValues.from_rows(rows, name, levels).estimate_mean(n_resamples=n_resamples[name]) for name in TAUS
    }
    return MetricSummary(
        pair=pair,
        title=str(rows["title"].iloc[0]),
        block=str(rows["block"].iloc[0]),
        is_arbitrary=is_arbitrary,
        is_compared=not is_arbitrary and len(rows) >= MIN_CELL_SHARE * n_cells,
        taus=taus,
        tau_without_circular=CrossedValues.from_rows(not_circular, "tau_without_circular", levels).estimate_mean(),
        diagnosticity=CrossedValues.from_rows(rows, "diagnosticity", levels).estimate_mean(),
        agreement=CrossedValues.from_rows(rows, "agreement", levels).estimate_mean(n_resamples=0),
        model_evaluations=float(rows["model_rows"].mean()),
        n_circular=int(rows["circular"].sum()),
        n_rows=len(rows),
    )


def pivot_runs(rows: pd.DataFrame, column: str) -> pd.DataFrame:
    """Return a column of the atlas by run and truth (rows) and metric and variant (columns)."""
    return rows.groupby([*RUN_KEYS, "metric", "variant"])[column].mean().unstack(["metric", "variant"])


def compute_differences(
    values: pd.DataFrame, pairs: Sequence[Pair], reference_pairs: Sequence[Pair], column: str
) -> pd.DataFrame:
    """Return the mean of some metrics less that of others, in each run and truth that has both."""
    first, second = (values[list(side)].mean(axis=1) for side in (pairs, reference_pairs))
    return (first - second).dropna().rename(column).reset_index()


def _compare_with_best(
    rows: pd.DataFrame, best: MetricSummary, metrics: Sequence[MetricSummary]
) -> dict[Pair, DifferenceToBest]:
    """Compare each other metric with the best one, by a t-test over data sets.

    Rows in which the best metric is circular are no evidence of its lead and are left out.
    """
    is_best_circular = (rows["metric"] == best.pair[0]) & (rows["variant"] == best.pair[1]) & rows["circular"]
    values = pivot_runs(rows[~is_best_circular], LEADING_TAU)
    other_pairs = [metric.pair for metric in metrics if metric.is_compared and metric is not best]
    tests = [compute_t_interval(_average_by_data_set(values, best.pair, pair)) for pair in other_pairs]
    p: Floats = adjust_holm(np.array([1.0 if np.isnan(test.p) else test.p for test in tests])) if tests else np.zeros(0)
    return {
        pair: DifferenceToBest(test.mean, test.low, test.high, float(adjusted))
        for pair, test, adjusted in zip(other_pairs, tests, p, strict=True)
    }


def _average_by_data_set(values: pd.DataFrame, first: Pair, second: Pair) -> Floats:
    """Return the mean difference of two metrics for each data set: over judges, truths, seeds and the rest, nested."""
    if first not in values or second not in values:
        return np.zeros(0)
    differences = (values[first] - values[second]).dropna()
    for depth in range(len(NESTED_FACTORS), 0, -1):
        differences = differences.groupby(level=NESTED_FACTORS[:depth]).mean()
    return differences.to_numpy(float)


def _correlate(first: Floats, second: Floats) -> float:
    sides = [compute_ranks(side, "higher")[None] for side in (first, second)]
    return float(compute_rank_correlations(*sides)[0][0, 0])
