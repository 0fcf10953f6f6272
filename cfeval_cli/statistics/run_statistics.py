"""All statistics that follow from the scores of a run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import numpy as np
import pandas as pd

from cfeval_cli.statistics import correlation, instance_agreement, metric_agreement, tau_differences
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.correlation import RankCorrelations, RankedFamily
from cfeval_cli.statistics.invariance import (
    ReparametrisedValues,
    build_tau_ranges,
    mark_changed_taus,
    mark_changed_values,
)
from cfeval_cli.statistics.metric_summary import summarise_scores
from cfeval_cli.statistics.resampled_values import ResampledValues, insert_intervals
from cfeval_cli.statistics.scores import Scores


class ScoreBounds(Protocol):
    """The best and the worst score that any explanation could get."""

    def tabulate(self) -> pd.DataFrame:
        """Return bounds.csv."""
        ...

    def tabulate_truth(self) -> pd.DataFrame:
        """Return bounds_truth.csv."""
        ...

    def compute_normalised(self, scores: Scores, metrics: pd.DataFrame) -> list[float]:
        """Return for each row of metrics.csv where its value lies between the worst (0) and the best (1)."""
        ...


@dataclass(frozen=True)
class RunStatistics:
    """The tables of statistics that a run writes, in fields named as their files."""

    metrics: pd.DataFrame
    correlations: pd.DataFrame
    differences: pd.DataFrame
    instance_agreement: pd.DataFrame
    metric_agreement: pd.DataFrame
    bounds: pd.DataFrame | None = None
    bounds_truth: pd.DataFrame | None = None
    invariance: pd.DataFrame | None = None
    explainer_stability: pd.DataFrame | None = None
    explainer_stability_metrics: pd.DataFrame | None = None
    tau_resamples: pd.DataFrame | None = None


@dataclass(frozen=True)
class CircularMetrics:
    """Metrics that are optimal at a truth by construction; the summary has the circular explainers."""

    pairs: Collection[tuple[str, str, str]] = ()  # metric, variant and truth
    # The share of the truth's top k features in the best sets of the metric, where it was measured.
    measured: Mapping[tuple[str, str, str], float] = field(default_factory=dict)
    drop: bool = False  # whether circular metrics and explainers are left out of every τ


def compute_statistics(
    scores: Scores,
    summary: pd.DataFrame,
    bootstrap: Bootstrap,
    graded_truth: str = "",
    bounds: ScoreBounds | None = None,
    reparametrised: ReparametrisedValues | None = None,
    circular: CircularMetrics | None = None,
    *,
    common: bool = False,
) -> RunStatistics:
    """Return values with intervals, normalised by their bounds, and the agreement of each metric with the truth.

    `summary` has the rows of metrics.csv without their values. Graded controls were made from the truth `graded_truth`.
    With `common` only the instances count that every explainer covers; metrics.csv then also has the values of each
    explainer on all of its instances (`own_value`).
    """
    circular = circular or CircularMetrics()
    common_scores = scores.select_common() if common else None
    included_scores = scores.drop_unscored_instances() if common_scores is None else common_scores
    metrics = summarise_scores(included_scores, summary, None if common_scores is None else scores)
    all_values = ResampledValues.compute(included_scores, metrics, bootstrap)
    dropped = metrics[metrics["circular"] & circular.drop]
    resampled = all_values.drop(dropped) if len(dropped) else all_values

    families = [family for family in correlation.list_families(resampled, graded_truth) if family.judged]
    if circular.drop:
        families = [family.exclude_circular(circular.pairs, resampled) for family in families]
    by_family = [_correlate_subsets(family, resampled, bootstrap) for family in families if family.references]
    ranked = [correlations for by_subset in by_family for correlations in by_subset]
    explainer_families = [family for family in families if family.name == correlation.EXPLAINERS]
    ranges = None
    if reparametrised is not None:
        ranges = build_tau_ranges(reparametrised, resampled, [correlations.family for correlations in ranked])

    insert_intervals(metrics, all_values, bootstrap)
    if bounds is not None:
        metrics.insert(list(metrics).index("rank"), "normalised", bounds.compute_normalised(included_scores, metrics))
    metrics.insert(list(metrics).index("note"), "not_identifiable", mark_changed_values(metrics, reparametrised))
    return RunStatistics(
        metrics=metrics,
        correlations=_build_correlations(ranked, resampled, bootstrap, circular, ranges),
        differences=pd.DataFrame(
            [
                row
                for by_subset in by_family
                for row in tau_differences.tabulate_tau_differences(by_subset, resampled, bootstrap)
            ],
            columns=tau_differences.COLUMNS,
        ),
        instance_agreement=pd.DataFrame(
            [
                row
                for family in explainer_families
                if family.references
                for row in instance_agreement.tabulate_instance_agreement(
                    included_scores.drop(dropped), resampled, family, bootstrap.for_intervals
                )
            ],
            columns=instance_agreement.COLUMNS,
        ),
        metric_agreement=pd.DataFrame(
            [
                row
                for family in explainer_families
                for row in metric_agreement.tabulate_metric_agreement(
                    resampled.take_resamples(bootstrap.for_intervals.n_resamples), family, bootstrap.for_intervals
                )
            ],
            columns=metric_agreement.COLUMNS,
        ),
        bounds=None if bounds is None else bounds.tabulate(),
        bounds_truth=None if bounds is None else bounds.tabulate_truth(),
        invariance=ranges,
        tau_resamples=_build_tau_resamples(by_family, resampled),
    )


def _correlate_subsets(
    family: RankedFamily, resampled: ResampledValues, bootstrap: Bootstrap
) -> list[RankCorrelations]:
    """Return the correlations over all explainers, then without the controls; graded controls have the first only."""
    over_all = RankCorrelations.compute(resampled, family, bootstrap)
    if family.name == correlation.GRADED:
        return [over_all]
    contenders = family.drop_controls(resampled.controls)
    if not len(contenders.controls):
        return [over_all, replace(over_all, family=contenders)]
    return [over_all, RankCorrelations.compute(resampled, contenders, bootstrap)]


def _build_correlations(
    ranked: Sequence[RankCorrelations],
    resampled: ResampledValues,
    bootstrap: Bootstrap,
    circular: CircularMetrics,
    ranges: pd.DataFrame | None,
) -> pd.DataFrame:
    """Return correlations.csv."""
    rows = [row for correlations in ranked for row in correlations.tabulate(resampled, bootstrap)]
    table = pd.DataFrame(rows, columns=correlation.COLUMNS)
    is_circular = correlation.find_circular_rows(table, circular.pairs)
    table.insert(list(table).index("note"), "circular", is_circular)
    pairs = table[["metric", "variant", "truth"]].itertuples(index=False, name=None)
    table.insert(list(table).index("note"), "circular_share", [circular.measured.get(pair, np.nan) for pair in pairs])
    table.insert(list(table).index("note"), "not_identifiable", mark_changed_taus(table, ranges))
    return table


def _build_tau_resamples(
    by_family: Sequence[Sequence[RankCorrelations]], resampled: ResampledValues
) -> pd.DataFrame | None:
    """Return tau_resamples.parquet; None if the explainers have no τ in any resample."""
    for by_subset in by_family:
        if by_subset[0].family.name == correlation.EXPLAINERS:
            table = correlation.tabulate_tau_resamples(by_subset, resampled)
            return table if len(table) else None
    return None
