"""The robustness stage: a second explainer seed, the best and worst scores, and other parameters of the model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from cfeval_cli.core import ExplainerResult, Floats, Ints, Ledger, LedgerKey, Split
from cfeval_cli.pipeline.bounds import FeatureSetBounds, compute_bounds
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.explain import create_explanation_job, explain_instances, select_top_k
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.reparametrisation import compute_reparametrised_scores
from cfeval_cli.pipeline.score import compute_scores
from cfeval_cli.pipeline.search import Edits, search_explained_instances
from cfeval_cli.pipeline.time_estimates import estimate_repetition
from cfeval_cli.seeding import draw_seed, make_stream
from cfeval_cli.statistics.invariance import ReparametrisedValues
from cfeval_cli.statistics.scores import Scores

MAX_REPEATED_INSTANCES = 100  # that are explained a second time, unless the settings state a number


@dataclass(frozen=True)
class EvaluatedExplanations:
    """Explanations and the results computed from them, by explainer."""

    truth: Mapping[str, Floats]  # importance (N, M), by definition
    explanations: Mapping[str, ExplainerResult]
    selected: Mapping[str, Ints]  # the k features (N, k) of each instance
    edits: Mapping[str, Edits]
    scores: Scores


@dataclass(frozen=True)
class Repetition:
    """A sample of the instances, explained a second time with another explainer seed."""

    instances: Split
    rows: Ints  # their positions among all instances
    evaluated: EvaluatedExplanations


@dataclass(frozen=True)
class Robustness:
    """The results of the robustness checks; None: switched off, or not applicable."""

    repetition: Repetition | None
    bounds: FeatureSetBounds | None
    reparametrised: ReparametrisedValues | None


def assess_robustness(context: RunContext, evaluated: EvaluatedExplanations, progress: Progress) -> Robustness:
    """Explain a sample again, compute the best and worst possible scores, and reparametrise the model."""
    repetition = _repeat_sample(context, evaluated.truth, progress)
    context.answer_cache.clear()
    bounds = None
    if context.plan.settings.bounds:
        with progress.stage("bounds") as advance:
            bounds = compute_bounds(context, evaluated.truth, advance)
    with progress.stage("invariance") as advance:
        reparametrised = compute_reparametrised_scores(
            context, evaluated.explanations, evaluated.selected, evaluated.edits, evaluated.scores, advance
        )
    return Robustness(repetition, bounds, reparametrised)


def _repeat_sample(context: RunContext, truth: Mapping[str, Floats], progress: Progress) -> Repetition | None:
    sample, rows = sample_instances(context)
    n_explainers = len(sample.plan.explainers)
    if not len(rows) or not n_explainers:
        return None
    with progress.stage("explainer stability", len(rows) * n_explainers, estimate_repetition(context)) as advance:
        sample_truth = {name: importance[rows] for name, importance in truth.items()}
        evaluated = repeat_explanations(sample, sample_truth, advance)
    context.scratch.release()
    context.ledger.add(LedgerKey("explainer_stability"), sample.ledger)
    return Repetition(sample.instances, rows, evaluated)


def sample_instances(context: RunContext) -> tuple[RunContext, Ints]:
    """Return a context of the instances that are explained a second time, with a ledger of its own, and their rows."""
    plan, size = context.plan, len(context.instances)
    # By default at most a quarter of the instances, which bounds the cost of explaining again.
    requested = plan.settings.explainer_stability
    n_repeated = min(MAX_REPEATED_INSTANCES, size // 4) if requested == "auto" else requested
    rows = np.sort(make_stream(plan.settings.seed, "noise").choice(size, min(n_repeated, size), replace=False))
    # How much the graded control explainers vary is known in advance.
    explainers = {name: explainer for name, explainer in plan.explainers.items() if isnan(explainer.quality_level)}
    sample = replace(
        context,
        plan=replace(plan, explainers=explainers),
        instances=context.instances.take(rows),
        rows=context.rows.take(rows),
        ledger=Ledger(),
    )
    return sample, rows


def repeat_explanations(
    context: RunContext, truth: Mapping[str, Floats], advance: Callable[[int], None]
) -> EvaluatedExplanations:
    """Explain with a seed that no run has by chance; the search draws the same random numbers as before."""
    seed = draw_seed(make_stream(context.plan.settings.seed, "noise.seed"))
    explanations: dict[str, ExplainerResult] = {}
    selected, edits = {}, {}
    for name in context.plan.explainers:
        job = create_explanation_job(context, name, seed)
        explanations[name] = explain_instances(context, name, explanations, advance, job)
        context.ledger.record(LedgerKey("explainer", name), explanations[name].cost)
        selected[name] = select_top_k(context, name, explanations[name])
        edits[name] = search_explained_instances(context, selected[name], name, lambda _: None)
    scores, _ = compute_scores(context, truth, explanations, selected, edits)
    return EvaluatedExplanations(truth, explanations, selected, edits, scores)
