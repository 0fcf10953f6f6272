"""Explanations of all explainers on all instances, and the top k features of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cfeval_cli.core import ABSENT, NO_FEATURE, ExplainerResult, Explanation, Ints
from cfeval_cli.core.fingerprint import of_code, of_component
from cfeval_cli.pipeline import model_checks
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.explanation_job import ExplanationJob, check_explanations, compute_explanations
from cfeval_cli.seeding import make_stream


def explain_instances(
    context: RunContext,
    name: str,
    others: Mapping[str, ExplainerResult],
    advance: Callable[[int], None],
    job: ExplanationJob | None = None,
) -> ExplainerResult:
    """Return one explainer's explanations of all instances; from `others` if they follow from these.

    With the run's seed, unless a job has another.
    """
    plan = context.plan
    explainer = plan.explainers[name]
    source = explainer.samples_of or ""
    if source in others and (made := explainer.follows(plan.explainers[source])) is not None:
        advance(len(context.rows))
        done = others[source]  # whose cost is its own: it would have asked the same
        told = made(done.explanation)
        aside = context.scratch.keep({"features": told.features, "scores": told.scores})
        return ExplainerResult(Explanation(**aside), done.cost, done.n_cached, done.faults)
    job = job or create_explanation_job(context, name, plan.settings.seed)
    return compute_explanations(
        job, plan.executor, context.cache, advance, strict=plan.settings.strict, scratch=context.scratch
    )


def create_explanation_job(context: RunContext, name: str, seed: int) -> ExplanationJob:
    """Return the work of one explainer on all instances."""
    explainer = context.plan.explainers[name]
    identity = of_component(explainer)
    return ExplanationJob(
        name=name,
        explainer=explainer,
        access=explainer.asks(context.spec),
        dataset=context.dataset,
        model=context.model,
        identity=identity,
        code=of_code(explainer.__class__) if identity else "",
        subject_hash=context.subject_hash,
        seed=seed,
        rows=context.rows,
        timeout=context.plan.settings.timeout_per_instance,
    )


def select_top_k(context: RunContext, name: str, done: ExplainerResult) -> Ints:
    """Return the k features (N, k) to be evaluated; a row of NONE is left out."""
    plan, instances = context.plan, context.instances
    features = done.explanation.top(plan.settings.k)
    context.scratch.release()
    short = np.flatnonzero((features == NO_FEATURE).any(axis=1))
    if plan.settings.incomplete == "skip":
        features[short] = NO_FEATURE
    elif plan.settings.incomplete == "random":
        for row in (row for row in short if row not in done.faults):
            named = features[row][features[row] != NO_FEATURE]
            others = np.setdiff1d(np.flatnonzero(instances.codes[row] != ABSENT), named)
            more = make_stream(plan.settings.seed, f"incomplete.{name}", int(instances.ids[row])).permutation(others)
            filled = np.concatenate([named, more])[: plan.settings.k]
            features[row] = NO_FEATURE if len(filled) < plan.settings.k else filled
    return features


def check_unchanged(
    context: RunContext,
    jobs: Mapping[str, ExplanationJob],
    explanations: Mapping[str, ExplainerResult],
    advance: Callable[[int], None],
) -> None:
    """Compare the model, and some explanations from elsewhere, with what they are now; Failure if they differ.

    These evaluations are not part of any component's cost.
    """
    model_checks.check_unchanged(context.model, context.dataset, context.rows, context.probabilities)
    tolerance = model_checks.get_tolerance(context.probabilities)
    for name, done in explanations.items():
        check_explanations(jobs[name], done, tolerance)
        advance(1)
