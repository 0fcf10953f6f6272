"""Circular pairs: explainers and metrics that are optimal by construction, as the components declare it."""

from __future__ import annotations

import pandas as pd

from cfeval_cli.core import Bools, ModelSpec
from cfeval_cli.settings.plan import Plan


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
