"""The robustness stage: a second explainer seed, the best and worst scores, and other parameters of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cfeval_cli.core import ExplainerResult, Floats, Ints, LedgerKey, Split
from cfeval_cli.pipeline.bounds import FeatureSetBounds, compute_bounds
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.explain import select_top_k
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.reparametrisation import compute_reparametrised_scores
from cfeval_cli.pipeline.repeat import SecondSeedSample
from cfeval_cli.pipeline.score import compute_scores
from cfeval_cli.pipeline.search import Edits, search_explained_instances
from cfeval_cli.statistics.invariance import ReparametrisedValues
from cfeval_cli.statistics.scores import Scores


@dataclass(frozen=True)
class EvaluatedExplanations:
    """Explanations and the results computed from them, by explainer."""

    truth: Mapping[str, Floats]  # importance (N, M), by definition
    explanations: Mapping[str, ExplainerResult]
    selected: Mapping[str, Ints]  # the k features (N, k) of each instance
    edits: Mapping[str, Edits]
    scores: Scores


@dataclass(frozen=True)
class SecondSeedResults:
    """A sample of the instances, explained a second time with another explainer seed."""

    instances: Split
    positions: Ints  # their positions among all instances
    evaluated: EvaluatedExplanations


@dataclass(frozen=True)
class Robustness:
    """The results of the robustness checks; None: switched off, or not applicable."""

    second_seed_results: SecondSeedResults | None
    bounds: FeatureSetBounds | None
    reparametrised: ReparametrisedValues | None


def assess_robustness(
    context: RunContext,
    evaluated: EvaluatedExplanations,
    second_seed_sample: SecondSeedSample | None,
    progress: Progress,
) -> Robustness:
    """Evaluate the second seed's explanations, compute best and worst possible scores, and reparametrise the model."""
    second_seed_results = None
    if second_seed_sample is not None:
        with progress.track_stage("explainer stability", component="scores"):
            second_seed_results = evaluate_second_seed(context, evaluated.truth, second_seed_sample)
    context.evaluation_cache.clear()
    bounds = None
    if context.plan.settings.bounds:
        with progress.track_stage("bounds") as advance:
            bounds = compute_bounds(context, evaluated.truth, advance)
    with progress.track_stage("invariance") as advance:
        reparametrised = compute_reparametrised_scores(
            context, evaluated.explanations, evaluated.selected, evaluated.edits, evaluated.scores, advance
        )
    return Robustness(second_seed_results, bounds, reparametrised)


def evaluate_second_seed(
    context: RunContext, truth: Mapping[str, Floats], second_seed_sample: SecondSeedSample
) -> SecondSeedResults:
    """Search and score the explanations of a second seed; the search draws the same random numbers as before."""
    sample = second_seed_sample.context
    selected = {name: select_top_k(sample, name, result) for name, result in second_seed_sample.explanations.items()}
    edits = {
        name: search_explained_instances(sample, features, name, lambda _: None) for name, features in selected.items()
    }
    sample_truth = {name: importance[second_seed_sample.positions] for name, importance in truth.items()}
    scores, _ = compute_scores(sample, sample_truth, second_seed_sample.explanations, selected, edits)
    context.scratch.release()
    context.ledger.add(LedgerKey("explainer_stability"), sample.ledger)
    evaluated = EvaluatedExplanations(sample_truth, second_seed_sample.explanations, selected, edits, scores)
    return SecondSeedResults(sample.instances, second_seed_sample.positions, evaluated)
