"""Explanations of all explainers on all instances, and the top k features of each."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from cfeval_cli.core import ABSENT, NO_FEATURE, ExplainerResult, Explanation, Ints
from cfeval_cli.core.fingerprint import of_code, of_component
from cfeval_cli.pipeline import explain, model_checks
from cfeval_cli.pipeline.context import Study
from cfeval_cli.seeding import make_stream


def explain_instances(
    study: Study,
    name: str,
    others: Mapping[str, ExplainerResult],
    advance: Callable[[int], None],
    job: explain.Job | None = None,
) -> ExplainerResult:
    """Return one explainer's explanations of all instances; from `others` if they follow from these.

    With the run's seed, unless a job has another.
    """
    plan = study.plan
    explainer = plan.explainers[name]
    source = explainer.samples_of or ""
    if source in others and (made := explainer.follows(plan.explainers[source])) is not None:
        advance(len(study.rows))
        done = others[source]  # whose cost is its own: it would have asked the same
        told = made(done.explanation)
        aside = study.scratch.keep({"features": told.features, "scores": told.scores})
        return ExplainerResult(Explanation(**aside), done.cost, done.known, done.faults)
    job = job or make_job(study, name, plan.settings.seed)
    return explain.explain(job, plan.executor, study.cache, advance, strict=plan.settings.strict, scratch=study.scratch)


def make_job(study: Study, name: str, seed: int) -> explain.Job:
    """Return the work of one explainer on all instances."""
    explainer = study.plan.explainers[name]
    identity = of_component(explainer)
    return explain.Job(
        name=name,
        explainer=explainer,
        access=explainer.asks(study.spec),
        dataset=study.dataset,
        model=study.model,
        identity=identity,
        code=of_code(explainer.__class__) if identity else "",
        subject_hash=study.identity,
        seed=seed,
        rows=study.rows,
        timeout=study.plan.settings.timeout_per_instance,
    )


def select_top_k(study: Study, name: str, done: ExplainerResult) -> Ints:
    """Return the k features (N, k) to be evaluated; a row of NONE is left out."""
    plan, instances = study.plan, study.instances
    features = done.explanation.top(plan.settings.k)
    study.scratch.release()
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
    study: Study,
    jobs: Mapping[str, explain.Job],
    explanations: Mapping[str, ExplainerResult],
    advance: Callable[[int], None],
) -> None:
    """Compare the model, and some explanations from elsewhere, with what they are now; Failure if they differ.

    These evaluations are not part of any component's cost.
    """
    model_checks.check_unchanged(study.model, study.dataset, study.rows, study.probabilities)
    tolerance = model_checks.tolerance_of(study.probabilities)
    for name, done in explanations.items():
        explain.check_sample(jobs[name], done, tolerance)
        advance(1)
