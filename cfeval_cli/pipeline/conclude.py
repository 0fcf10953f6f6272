"""The conclude stage: statistics of the scores of a run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pandas as pd

from cfeval_cli.core import ExplainerResult
from cfeval_cli.pipeline.circularity import assess_circular_metrics
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.robustness import Robustness
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.bootstrap import DEFAULT_RESAMPLES, Bootstrap, choose_n_resamples
from cfeval_cli.statistics.explainer_stability import RepeatedExplanations
from cfeval_cli.statistics.run_statistics import RunStatistics, compute_statistics
from cfeval_cli.statistics.scores import Scores


def create_bootstrap(plan: Plan, scores: Scores, summary: pd.DataFrame) -> Bootstrap:
    """Return a bootstrap with as many resamples as the settings say, or as comparing the metrics requires."""
    settings = plan.settings
    if settings.resamples != "auto":
        return Bootstrap(settings.seed, settings.resamples, settings.confidence)
    is_compared = (summary["role"] == "judged") & (summary["note"] == "")
    n_metrics = summary[is_compared].groupby(["metric", "variant"]).ngroups
    n_resamples = choose_n_resamples(n_metrics, len(scores), len(summary))
    return Bootstrap(settings.seed, n_resamples, settings.confidence, max_interval_resamples=DEFAULT_RESAMPLES)


def draw_conclusions(
    context: RunContext,
    scores: Scores,
    summary: pd.DataFrame,
    explanations: Mapping[str, ExplainerResult],
    robustness: Robustness,
    bootstrap: Bootstrap,
) -> RunStatistics:
    """Return the tables that follow from the scores: values with intervals, correlations, differences, robustness."""
    plan, settings = context.plan, context.plan.settings
    measured = {} if robustness.bounds is None else robustness.bounds.measure_circularity()
    circular = assess_circular_metrics(plan, context.spec, summary, measured)
    statistics = compute_statistics(
        scores, summary, bootstrap, plan.graded_truth, robustness.bounds, robustness.reparametrised, circular,
        common=settings.support == "common",
    )  # fmt: skip
    if (second_seed_results := robustness.second_seed_results) is None:
        return statistics
    evaluated = second_seed_results.evaluated
    second = RepeatedExplanations(second_seed_results.positions, evaluated.explanations, evaluated.scores)
    return replace(statistics, **second.build_tables(explanations, scores, summary, settings.k, bootstrap))
