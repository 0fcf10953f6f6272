"""Run all stages: data, model, truths, explanations, recommendation, counterfactuals, scores, statistics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from cfeval_cli.core import DistilledModel, ExplainerResult, LedgerKey, Model, TruthEstimate
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.pipeline.answer import answer_questions
from cfeval_cli.pipeline.conclude import create_bootstrap, draw_conclusions
from cfeval_cli.pipeline.context import RunContext, create_context
from cfeval_cli.pipeline.data import hash_inputs, load_dataset
from cfeval_cli.pipeline.explain import check_unchanged, create_explanation_job, explain_instances, select_top_k
from cfeval_cli.pipeline.model_checks import check_model, determine_model_spec, find_accuracy_warnings
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.repeat import repeat_explanations
from cfeval_cli.pipeline.robustness import EvaluatedExplanations, assess_robustness
from cfeval_cli.pipeline.score import compute_scores
from cfeval_cli.pipeline.search import (
    Edits,
    describe_beam_searches,
    find_instances_with_features,
    search_explained_instances,
)
from cfeval_cli.pipeline.sign_check import find_reversed_signs
from cfeval_cli.pipeline.time_estimates import estimate_explainer, estimate_search, estimate_truth
from cfeval_cli.pipeline.train import measure_fidelity, measure_quality, relabel_by_teacher, train_model
from cfeval_cli.pipeline.truth import compute_truth, select_instances
from cfeval_cli.results.folder import RunFolder
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.recommendation import Recommendation
from cfeval_cli.statistics.run_statistics import RunStatistics


@dataclass(frozen=True)
class RunOutcome:
    """The results that the evaluation of judges and the checks of the recommendation need."""

    context: RunContext
    statistics: RunStatistics
    recommendation: Recommendation


@restore_working_directory()
def run(
    plan: Plan,
    folder: RunFolder,
    progress: Progress,
    teacher: Model | None = None,
    announce: Callable[[Recommendation], None] = lambda _: None,
) -> RunOutcome | None:
    """Compute all results of a plan, and save each as soon as it is computed.

    Return None if the folder already has results of the same inputs and `redo` is not set. The teacher of a distilled
    model is trained unless it is given. `announce` is called with the recommendation before the counterfactual search.
    """
    settings = plan.settings
    with progress.track_stage("data"):
        inputs_hash = hash_inputs(plan)
        if not settings.redo and folder.has_results_of(inputs_hash):
            return None
        plan.executor.prepare(settings.timeout_per_instance)
        dataset = load_dataset(plan)
        plan = plan.restrict_to(determine_model_spec(plan, dataset))
    folder.begin(plan, dataset, inputs_hash)
    cache = folder.open_cache(plan.cache, redo=settings.redo)

    with progress.track_stage("train"):
        training_data = relabel_by_teacher(plan, dataset, cache, teacher)
        model = train_model(plan, training_data, cache)
        check_model(model, dataset, settings.seed, settings.timeout_model)
    quality, seconds_per_row = measure_quality(model, dataset)
    folder.save_model(model, quality, find_accuracy_warnings(quality["accuracy"], dataset))
    if isinstance(plan.model, DistilledModel):
        folder.save_fidelity(measure_fidelity(model, training_data, settings.confidence))
    context = create_context(plan, dataset, model, cache, folder.scratch)
    folder.save_instances(dataset, context.instances, context.rows, context.probabilities)

    truths: dict[str, TruthEstimate] = {}
    for name, truth in plan.truths.items():
        positions, time_estimate = select_instances(context, truth), estimate_truth(context, name, seconds_per_row)
        with progress.track_stage("truth", len(positions), time_estimate, component=name) as advance:
            truths[name] = compute_truth(context, name, positions, advance)
    folder.save_truth(context.instances, truths)
    importance = {name: truth_estimate.importance for name, truth_estimate in truths.items()}

    explanations: dict[str, ExplainerResult] = {}
    jobs = {name: create_explanation_job(context, name, settings.seed) for name in plan.explainers}
    for name, job in jobs.items():
        time_estimate = estimate_explainer(context, name, seconds_per_row)
        with progress.track_stage("explain", len(context.instances), time_estimate, component=name) as advance:
            # Earlier explanations are passed, because some explainers derive theirs from them.
            explanations[name] = explain_instances(context, name, explanations, advance, job)
            if (warning := find_reversed_signs(context, name, explanations[name])) is not None:
                folder.add_warning(warning)
        context.ledger.record(LedgerKey("explainer", name), explanations[name].cost)
        folder.save_explanations(context.instances, explanations)
    selected = {name: select_top_k(context, name, result) for name, result in explanations.items()}

    second_seed_sample = repeat_explanations(context, progress)
    with progress.track_stage("answer"):
        recommendation = answer_questions(context, truths, explanations, second_seed_sample)
    folder.save_recommendation(recommendation)
    announce(recommendation)

    edits: dict[str, Edits] = {}
    for name, features in selected.items():
        explained = features[find_instances_with_features(features)]
        time_estimate = estimate_search(context, explained, seconds_per_row)
        with progress.track_stage(
            "search", len(explained) * len(plan.levels), time_estimate, component=name
        ) as advance:
            edits[name] = search_explained_instances(context, features, name, advance)
    folder.save_counterfactuals(context.instances, selected, edits)
    if (warning := describe_beam_searches(context, edits)) is not None:
        folder.add_warning(warning)

    with progress.track_stage("score"):
        scores, summary = compute_scores(context, importance, explanations, selected, edits)
    evaluated = EvaluatedExplanations(importance, explanations, selected, edits, scores)
    robustness = assess_robustness(context, evaluated, second_seed_sample, progress)
    if (second_seed_results := robustness.second_seed_results) is not None:
        second = second_seed_results.evaluated
        folder.save_repetition(second_seed_results.instances, second.explanations, second.selected, second.edits)
    with progress.track_stage("conclude"):
        bootstrap = create_bootstrap(plan, scores, summary)
        statistics = draw_conclusions(context, scores, summary, explanations, robustness, bootstrap)
    with progress.track_stage("check", len(jobs)) as advance:
        check_unchanged(context, jobs, explanations, advance)
    folder.save_scores(scores, statistics, bootstrap.n_resamples, context.ledger, progress.seconds)
    return RunOutcome(context, statistics, recommendation)
