"""How long truths, explainers and searches are expected to take, before they start, and which settings shorten them."""

from __future__ import annotations

from cfeval_cli.core import HasAnalyticGradient, Ints, SupportsEdits
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.progress import TimeEstimate


def estimate_truth(context: RunContext, name: str, seconds_per_row: float) -> TimeEstimate:
    """Return the estimate for one truth, in instances; an upper limit if it evaluates the model."""
    truth = context.plan.truths[name]
    seconds = truth.count_evaluations(context.spec) * seconds_per_row if truth.evaluates_model(context.spec) else None
    return TimeEstimate("reference or truth.budget", seconds)


def estimate_explainer(context: RunContext, name: str, seconds_per_row: float) -> TimeEstimate:
    """Return the estimate for one explainer, in instances."""
    workload = context.plan.explainers[name].estimate_workload(context.spec)
    settings = [f"explainer.{name}.{key}" for key in workload.settings]
    seconds = None if workload.evaluations is None else workload.evaluations * seconds_per_row
    return TimeEstimate(" or ".join([*settings, "n_explain"]), seconds)


def estimate_search(context: RunContext, features: Ints, seconds_per_row: float) -> TimeEstimate:
    """Return the estimate for the search, in instances at each level of access."""
    search = context.plan.search
    workload = search.estimate_workload(context.dataset, features)
    # Such models evaluate edits in a fraction of the time that whole rows take.
    is_fast = isinstance(context.model, HasAnalyticGradient if search.moves_embeddings else SupportsEdits)
    seconds = None if workload.evaluations is None or is_fast else workload.evaluations * seconds_per_row
    return TimeEstimate(" or ".join([*workload.settings, "n_explain"]), seconds)


def estimate_repetition(context: RunContext) -> TimeEstimate:
    """Return the estimate for the second explanations, in instances of each explainer."""
    costs = [
        context.ledger.get_cost(key) for key in context.ledger.n_evaluations if key.part in ("explainer", "search")
    ]
    items = len(context.plan.explainers) * max(1, len(context.instances))
    return TimeEstimate("explainer_stability", sum(cost.seconds for cost in costs) / items)
