"""What is so by construction, and tells nothing: as the explainers, metrics and truths say of themselves."""

from __future__ import annotations

import pandas as pd

from cfeval_cli.core import Bools, Dataset
from cfeval_cli.settings.plan import Plan


def mark_circular_rows(plan: Plan, dataset: Dataset, order: pd.DataFrame) -> Bools:
    """For each row of a summary (metric, variant, explainer) whether its explainer is made for the metric, or truth."""
    estimated = {name: explainer.estimates(dataset) for name, explainer in plan.explainers.items()}
    made_for = {name: explainer.maximises(dataset) for name, explainer in plan.explainers.items()}
    told = [
        variant in estimated[explainer]
        if role == "truth"
        else bool({(metric, variant), (metric, "")} & made_for[explainer])
        for metric, variant, explainer, role in zip(
            order["metric"], order["variant"], order["explainer"], order["role"], strict=True
        )
    ]
    return pd.array(told, dtype=bool).to_numpy()


def find_circular_truths(plan: Plan, order: pd.DataFrame) -> set[tuple[str, str, str]]:
    """Metrics and variants with the truths that they are best at by construction."""
    found = set()
    for metric, variant in dict.fromkeys(zip(order["metric"], order["variant"], strict=True)):
        best_at = plan.metrics[metric].rewards(variant, plan.settings.k, plan.removals)
        found |= {(metric, variant, name) for name in plan.truths if name in best_at}
    return found
