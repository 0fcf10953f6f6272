"""How long explainers and searches are expected to take, before they start, and which settings shorten them."""

from __future__ import annotations

from cfeval_cli.core import HasAnalyticGradient, Ints, SupportsEdits
from cfeval_cli.pipeline.context import Study
from cfeval_cli.pipeline.progress import Estimate


def estimate_explainer(study: Study, name: str, seconds_per_row: float) -> Estimate:
    """Return the estimate for one explainer, whose items are instances."""
    workload = study.plan.explainers[name].workload(study.spec)
    settings = [f"explainer.{name}.{key}" for key in workload.settings]
    seconds = None if workload.evaluations is None else workload.evaluations * seconds_per_row
    return Estimate(" or ".join([*settings, "n_explain"]), seconds)


def estimate_search(study: Study, features: Ints, seconds_per_row: float) -> Estimate:
    """Return the estimate for the search, whose items are instances at each level of access."""
    search = study.plan.search
    workload = search.workload(study.dataset, features)
    # Such models evaluate edits in a fraction of the time that whole rows take.
    is_fast = isinstance(study.model, HasAnalyticGradient if search.moves else SupportsEdits)
    seconds = None if workload.evaluations is None or is_fast else workload.evaluations * seconds_per_row
    return Estimate(" or ".join([*workload.settings, "n_explain"]), seconds)


def estimate_repetition(study: Study) -> Estimate:
    """Return the estimate for explaining again, whose items are instances of each explainer."""
    costs = [
        study.ledger.cost(component)
        for component in study.ledger.rows
        if component.startswith(("explainer.", "search."))
    ]
    items = len(study.plan.explainers) * max(1, len(study.instances))
    return Estimate("noise", sum(cost.seconds for cost in costs) / items)
