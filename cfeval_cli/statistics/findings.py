"""All that follows from the scores of a run."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import pandas as pd

from cfeval_cli.statistics import correlation, instance_agreement, invariance, metric_agreement, tau_differences
from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.correlation import RankCorrelations, RankedFamily, list_families
from cfeval_cli.statistics.invariance import ReparametrisedValues
from cfeval_cli.statistics.metric_summary import summarise_scores
from cfeval_cli.statistics.resampled_values import ResampledValues, insert_intervals
from cfeval_cli.statistics.scores import Scores


class ScoreBounds(Protocol):
    """The best and the worst that any explanation could get."""

    def table(self) -> pd.DataFrame:
        """Rows of bounds.csv."""
        ...

    def places(self, scores: Scores, metrics: pd.DataFrame) -> list[float]:
        """For each row of the summary, how far its value lies from the worst (0) to the best (1)."""
        ...


@dataclass(frozen=True)
class Findings:
    """Tables of the run folder, by the names of their files."""

    metrics: pd.DataFrame
    correlations: pd.DataFrame
    differences: pd.DataFrame
    instance_agreement: pd.DataFrame
    metric_agreement: pd.DataFrame
    bounds: pd.DataFrame | None = None
    invariance: pd.DataFrame | None = None
    noise: pd.DataFrame | None = None
    noise_metrics: pd.DataFrame | None = None
    tau_resamples: pd.DataFrame | None = None


@dataclass(frozen=True)
class CircularRelations:
    """What is so by construction; which explainers are made for which metric or truth, the summary tells."""

    pairs: Collection[tuple[str, str, str]] = ()  # metrics and variants with the truths that they are best at
    drop: bool = False  # whether all of it is left out of every τ


def compute_findings(
    scores: Scores,
    order: pd.DataFrame,
    how: Bootstrap,
    graded_truth: str = "",
    bounds: ScoreBounds | None = None,
    reparametrised: ReparametrisedValues | None = None,
    circular: CircularRelations | None = None,
    *,
    common: bool = False,
) -> Findings:
    """Values, their uncertainty, their place between the bounds, and how well each metric agrees with the truth.

    `order` has the rows that the summary should have; a ladder's rungs were made from that truth.
    Of the scores only those that are `common` count, if that is wanted; each explainer's own are told beside them.
    """
    shared = scores.shared if common else None
    arrays = scores.numbered() if shared is None else shared
    metrics = summarise_scores(arrays, order, None if shared is None else scores)
    circular = circular or CircularRelations()
    whole, gone = ResampledValues.of(arrays, metrics, how), metrics[metrics["circular"] & circular.drop]
    drawn = whole.without(gone) if len(gone) else whole
    everyone = [family for family in list_families(drawn, graded_truth) if family.judged]
    if circular.drop:
        everyone = [family.barring(circular.pairs, drawn) for family in everyone]
    groups = [family for family in everyone if family.truths]
    by_subset = [_judge_subsets(family, drawn, how) for family in groups]
    ranked = [one for agreements in by_subset for one in agreements]
    insert_intervals(metrics, whole, how)
    if bounds is not None:
        metrics.insert(list(metrics).index("rank"), "place", bounds.places(arrays, metrics))
    others = [family for family in everyone if family.name == "explainers"]
    named = [family for family in others if family.truths]
    fewer = drawn.first(how.for_intervals.resamples)
    metrics.insert(list(metrics).index("note"), "moves", invariance.find_moved_values(metrics, reparametrised))
    correlations = pd.DataFrame([line for one in ranked for line in one.lines(drawn, how)], columns=correlation.COLUMNS)
    correlations.insert(
        list(correlations).index("note"), "circular", correlation.find_circular_rows(correlations, circular.pairs)
    )
    ranges = None
    if reparametrised is not None:
        ranges = invariance.build_tau_ranges(reparametrised, drawn, [one.family for one in ranked])
    correlations.insert(list(correlations).index("note"), "moves", invariance.find_moved_taus(correlations, ranges))
    return Findings(
        metrics=metrics,
        correlations=correlations,
        differences=pd.DataFrame(
            [
                line
                for agreements in by_subset
                for line in tau_differences.tabulate_tau_differences(agreements, drawn, how)
            ],
            columns=tau_differences.COLUMNS,
        ),
        instance_agreement=pd.DataFrame(
            [
                line
                for family in named
                for line in instance_agreement.tabulate_instance_agreement(
                    arrays.without(gone), drawn, family, how.for_intervals
                )
            ],
            columns=instance_agreement.COLUMNS,
        ),
        metric_agreement=pd.DataFrame(
            [
                line
                for family in others
                for line in metric_agreement.tabulate_metric_agreement(fewer, family, how.for_intervals)
            ],
            columns=metric_agreement.COLUMNS,
        ),
        bounds=None if bounds is None else bounds.table(),
        invariance=ranges,
        tau_resamples=_draws(by_subset, drawn),
    )


def _draws(by_subset: Sequence[Sequence[RankCorrelations]], drawn: ResampledValues) -> pd.DataFrame | None:
    """Every τ of the explainers in some resamples; None if there is none."""
    parts = [correlation.tabulate_tau_resamples(of, drawn) for of in by_subset if of[0].family.name == "explainers"]
    return parts[0] if parts and len(parts[0]) else None


def _judge_subsets(family: RankedFamily, drawn: ResampledValues, how: Bootstrap) -> list[RankCorrelations]:
    """Return the agreements of all explainers and of those that are not controls; a ladder has no controls."""
    of_all = RankCorrelations.of(drawn, family, how)
    if family.name == correlation.GRADED:
        return [of_all]
    rest = family.without(drawn.controls)
    return [of_all, RankCorrelations.of(drawn, rest, how) if len(rest.controls) else replace(of_all, family=rest)]
