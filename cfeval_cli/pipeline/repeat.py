"""The repetition stage: a sample of the instances is explained again with another explainer seed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import isnan

import numpy as np

from cfeval_cli.core import ExplainerResult, Ints, Ledger, LedgerKey
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.explain import create_explanation_job, explain_instances
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.time_estimates import estimate_repetition
from cfeval_cli.seeding import draw_seed, make_stream

MAX_REPEATED_INSTANCES = 100  # that are explained a second time, unless the settings state a number


@dataclass(frozen=True)
class SecondSeedSample:
    """Explanations of a sample of the instances with another explainer seed."""

    context: RunContext  # of these instances, with a ledger of its own
    positions: Ints  # their positions among all instances
    explanations: Mapping[str, ExplainerResult]


def repeat_explanations(context: RunContext, progress: Progress) -> SecondSeedSample | None:
    """Explain a sample again with a seed that no run has by chance; None if nothing is to be repeated."""
    sample, positions = sample_instances(context)
    names = list(sample.plan.explainers)
    if not len(positions) or not names:
        return None
    seed = draw_seed(make_stream(context.plan.settings.seed, "noise.seed"))
    explanations: dict[str, ExplainerResult] = {}
    n_explanations = len(positions) * len(names)
    with progress.track_stage("explainer stability", n_explanations, estimate_repetition(context)) as advance:
        for name in names:
            job = create_explanation_job(sample, name, seed)
            explanations[name] = explain_instances(sample, name, explanations, advance, job)
            sample.ledger.record(LedgerKey("explainer", name), explanations[name].cost)
    return SecondSeedSample(sample, positions, explanations)


def sample_instances(context: RunContext) -> tuple[RunContext, Ints]:
    """Return a context, with a ledger of its own, of the instances to explain again, and their positions."""
    plan, size = context.plan, len(context.instances)
    # By default at most a quarter of the instances, which bounds the cost of explaining again.
    requested = plan.settings.explainer_stability
    n_repeated = min(MAX_REPEATED_INSTANCES, size // 4) if requested == "auto" else requested
    rng = make_stream(plan.settings.seed, "noise")
    positions = np.sort(rng.choice(size, min(n_repeated, size), replace=False))
    # How much the graded control explainers vary is known in advance.
    explainers = {name: explainer for name, explainer in plan.explainers.items() if isnan(explainer.quality_level)}
    sample = replace(
        context,
        plan=replace(plan, explainers=explainers),
        instances=context.instances.take(positions),
        rows=context.rows.take(positions),
        weights=None if context.weights is None else context.weights[positions],
        ledger=Ledger(),
    )
    return sample, positions
