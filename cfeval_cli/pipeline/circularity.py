"""Circular pairs: explainers and metrics that are optimal by construction, as the components declare it.

Whether a metric is circular with a truth is measured where all explanations were scored (bounds).
"""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from cfeval_cli.core import Bools, ModelSpec
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.run_statistics import CircularMetrics

_MIN_SHARE = 0.95  # of a truth's features in the best sets of a metric that is circular with it


def mark_circular_rows(plan: Plan, spec: ModelSpec, summary: pd.DataFrame) -> Bools:
    """Return for each row of a summary whether its explainer is circular with its metric or truth."""
    relations = {name: explainer.circular_with(spec, plan.settings.k) for name, explainer in plan.explainers.items()}
    columns = (summary[name] for name in ("metric", "variant", "explainer", "role"))
    is_circular = [
        variant in relations[explainer].truths
        if role == "truth"
        else relations[explainer].includes_metric(metric, variant)
        for metric, variant, explainer, role in zip(*columns, strict=True)
    ]
    return pd.array(is_circular, dtype=bool).to_numpy()


def find_circular_truths(plan: Plan, spec: ModelSpec, summary: pd.DataFrame) -> set[tuple[str, str, str]]:
    """Return the metrics and variants of a summary, each with a truth that it is circular with."""
    return {
        (metric, variant, truth)
        for metric, variant in dict.fromkeys(zip(summary["metric"], summary["variant"], strict=True))
        for truth in plan.metrics[metric].circular_with(spec, plan.settings.k, variant, plan.removals).truths
        if truth in plan.truths
    }


def assess_circular_metrics(
    plan: Plan, spec: ModelSpec, summary: pd.DataFrame, measured: Mapping[tuple[str, str, str], float]
) -> CircularMetrics:
    """Return the metrics that are circular with a truth: as measured, else as declared."""
    declared = find_circular_truths(plan, spec, summary)
    measured = {pair: share for pair, share in measured.items() if plan.metrics[pair[0]].role == "judged"}
    return CircularMetrics(replace_declared(declared, measured), measured, drop=plan.settings.circular == "drop")


def replace_declared(
    declared: set[tuple[str, str, str]], measured: Mapping[tuple[str, str, str], float]
) -> set[tuple[str, str, str]]:
    """Return the pairs of metric and truth that are circular: by their measured share, else those declared."""
    return {pair for pair, share in measured.items() if share >= _MIN_SHARE} | (declared - measured.keys())
