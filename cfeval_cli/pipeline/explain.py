"""The explain stage: explanations of all instances, and the k features that each explainer selects."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cfeval_cli.core import ABSENT, NO_FEATURE, ExplainerResult, Explanation, Ints
from cfeval_cli.core.fingerprint import hash_code, hash_component
from cfeval_cli.pipeline import model_checks
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.explanation_job import ExplanationJob, check_explanations, compute_explanations
from cfeval_cli.seeding import make_stream


def explain_instances(
    context: RunContext,
    name: str,
    other_results: Mapping[str, ExplainerResult],
    advance: Callable[[int], None],
    job: ExplanationJob | None = None,
) -> ExplainerResult:
    """Return one explainer's explanations of all instances.

    They are derived from the results of another explainer, if the two differ only in what they do with the same
    samples. The job has the run's seed unless it is given.
    """
    plan = context.plan
    explainer = plan.explainers[name]
    source = explainer.samples_of or ""
    if source in other_results and (derive := explainer.derive_from(plan.explainers[source])) is not None:
        advance(len(context.rows))
        result = other_results[source]  # with the cost of the source: computed by itself, it would be the same
        derived_explanation = derive(result.explanation)
        arrays = context.scratch.store({"features": derived_explanation.features, "scores": derived_explanation.scores})
        return ExplainerResult(Explanation(**arrays), result.cost, result.n_cached, result.failures)
    job = job or create_explanation_job(context, name, plan.settings.seed)
    strict = plan.settings.strict
    return compute_explanations(job, plan.executor, context.cache, advance, strict=strict, scratch=context.scratch)


def create_explanation_job(context: RunContext, name: str, seed: int) -> ExplanationJob:
    """Return the job of one explainer on all instances."""
    explainer = context.plan.explainers[name]
    explainer_hash = hash_component(explainer)
    return ExplanationJob(
        name=name,
        explainer=explainer,
        access=explainer.choose_access(context.spec),
        dataset=context.dataset,
        model=context.model,
        explainer_hash=explainer_hash,
        code_hash=hash_code(explainer.__class__) if explainer_hash else "",
        subject_hash=context.subject_hash,
        seed=seed,
        rows=context.rows,
        timeout=context.plan.settings.timeout_per_instance,
    )


def select_top_k(context: RunContext, name: str, result: ExplainerResult) -> Ints:
    """Return the k features (N, k) to be evaluated; a row of NO_FEATURE is not evaluated."""
    plan, instances = context.plan, context.instances
    features = result.explanation.top_k(plan.settings.k)
    context.scratch.release()
    incomplete = np.flatnonzero((features == NO_FEATURE).any(axis=1))
    if plan.settings.incomplete == "skip":
        features[incomplete] = NO_FEATURE
    elif plan.settings.incomplete == "random":
        for row in (row for row in incomplete if row not in result.failures):
            selected = features[row][features[row] != NO_FEATURE]
            other_features = np.setdiff1d(np.flatnonzero(instances.codes[row] != ABSENT), selected)
            stream = make_stream(plan.settings.seed, f"incomplete.{name}", int(instances.ids[row]))
            filled_features = np.concatenate([selected, stream.permutation(other_features)])[: plan.settings.k]
            features[row] = NO_FEATURE if len(filled_features) < plan.settings.k else filled_features
    return features


def check_unchanged(
    context: RunContext,
    jobs: Mapping[str, ExplanationJob],
    explanations: Mapping[str, ExplainerResult],
    advance: Callable[[int], None],
) -> None:
    """Evaluate the model again, and a few explanations from the cache and from workers; Failure if one differs.

    These evaluations are not part of any component's cost.
    """
    model_checks.check_unchanged(context.model, context.dataset, context.rows, context.probabilities)
    tolerance = model_checks.get_tolerance(context.probabilities)
    for name, result in explanations.items():
        check_explanations(jobs[name], result, tolerance)
        advance(1)
