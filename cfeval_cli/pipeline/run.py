"""A run from top to bottom: data, model, truth, explanations, counterfactuals, scores, statistics."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pandas as pd

from cfeval_cli.core import DistilledModel, ExplainerResult, Ints, Model
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.fingerprint import of_component, of_work
from cfeval_cli.pipeline import circularity, model_checks
from cfeval_cli.pipeline.context import Study, prepare
from cfeval_cli.pipeline.evaluate import Edits, find_explained, search_edits
from cfeval_cli.pipeline.explanations import check_unchanged, explain_instances, make_job, select_top_k
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.robustness import Evaluated, assess_robustness
from cfeval_cli.pipeline.score import score
from cfeval_cli.pipeline.sign_check import find_reversed_signs
from cfeval_cli.pipeline.time_estimates import estimate_explainer, estimate_search
from cfeval_cli.pipeline.train import (
    measure_fidelity,
    measure_quality,
    read_texts_as_written,
    relabel_by_teacher,
    train_model,
)
from cfeval_cli.pipeline.truth import compute_truths
from cfeval_cli.results.store import RunFolder
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.bootstrap import DEFAULT_RESAMPLES, Bootstrap, choose_n_resamples
from cfeval_cli.statistics.findings import CircularRelations, Findings, compute_findings
from cfeval_cli.statistics.scores import Scores


@dataclass(frozen=True)
class RunOutcome:
    """What a run computed, for its judges and the recommendation."""

    study: Study
    chosen: Mapping[str, Ints]  # for each explainer the k features of each instance
    scores: Scores
    findings: Findings
    bootstrap: Bootstrap


@restore_working_directory()
def run(plan: Plan, folder: RunFolder, progress: Progress, teacher: Model | None = None) -> RunOutcome | None:
    """Compute everything that the plan asks for, and store each part at once; None if the folder had the results.

    The teacher of a distilled model is trained unless it is given.
    """
    settings = plan.settings
    with progress.stage("data"):
        inputs = hash_inputs(plan)
        if not settings.redo and folder.has_results_of(inputs):
            return None
        plan.executor.prepare(settings.timeout_per_instance)
        dataset = read_texts_as_written(plan.model, plan.dataset.load(settings.data_dir, settings.seed))
        plan = plan.applied(model_checks.foreseen(plan, dataset))
    folder.begin(plan, dataset, inputs)
    cache = folder.open_cache(plan.cache, redo=settings.redo)

    with progress.stage("train"):
        learned = relabel_by_teacher(plan, dataset, cache, teacher)
        model = train_model(plan, learned, cache)
        model_checks.try_out(model, dataset, settings.seed, settings.timeout_model)
    quality, seconds_per_row = measure_quality(model, dataset)
    folder.save_model(model, quality, model_checks.doubts(quality["accuracy"], dataset))
    if isinstance(plan.model, DistilledModel):
        folder.save_fidelity(measure_fidelity(model, learned, settings.confidence))
    study = prepare(plan, dataset, model, cache, folder.scratch)
    folder.save_instances(dataset, study.instances, study.rows, study.probabilities)

    with progress.stage("truth", len(plan.truths)) as advance:
        estimates = compute_truths(study, advance)
    folder.save_truth(study.instances, estimates)
    truth = {name: estimate.importance for name, estimate in estimates.items()}

    explanations: dict[str, ExplainerResult] = {}
    jobs = {name: make_job(study, name, settings.seed) for name in plan.explainers}
    for name, job in jobs.items():
        expected = estimate_explainer(study, name, seconds_per_row)
        with progress.stage("explain", len(study.instances), expected, component=name) as advance:
            explanations[name] = explain_instances(study, name, explanations, advance, job)
            if (doubt := find_reversed_signs(study, name, explanations[name])) is not None:
                folder.add_doubt(doubt)
        study.ledger.book(f"explainer.{name}", explanations[name].cost)
        folder.save_explanations(study.instances, explanations)
    chosen = {name: select_top_k(study, name, done) for name, done in explanations.items()}

    edits: dict[str, Edits] = {}
    for name, features in chosen.items():
        explained = features[find_explained(features)]
        expected = estimate_search(study, explained, seconds_per_row)
        with progress.stage("search", len(explained) * len(plan.levels), expected, component=name) as advance:
            edits[name] = search_edits(study, features, f"search.{name}.{{level}}", advance)
    folder.save_counterfactuals(study.instances, chosen, edits)

    with progress.stage("score"):
        scores, order = score(study, truth, explanations, chosen, edits)
    robustness = assess_robustness(study, Evaluated(truth, explanations, chosen, edits, scores), folder, progress)
    with progress.stage("conclude"):
        bootstrap = choose_bootstrap(plan, scores, order)
        findings = compute_findings(
            scores, order, bootstrap, plan.ladder_gold, robustness.extremes, robustness.reparametrised,
            CircularRelations(circularity.pairs(plan, order), drop=settings.circular == "drop"),
            common=settings.support == "common",
        )  # fmt: skip
        if robustness.again is not None:
            tables = robustness.again.tables(explanations, scores, order, settings.k, bootstrap)
            findings = replace(findings, **tables)
    with progress.stage("check", len(jobs)) as advance:
        check_unchanged(study, jobs, explanations, advance)
    folder.save_scores(scores, findings, bootstrap.resamples, study.ledger, progress.seconds)
    return RunOutcome(study, chosen, scores, findings, bootstrap)


def hash_inputs(plan: Plan) -> str | None:
    """Hash everything that a run depends on; None if a component does not declare what it depends on."""
    settings = plan.settings.model_dump(mode="json", exclude={"redo", "strict", "data_dir"})
    settings |= {"levels": plan.levels, "absent": dict(plan.absent.metrics)}
    components = {key: of_component(component) for key, component in plan.components.items()}
    # The files of the data are hashed below. The folder that holds them, often the current one, also holds results.
    components["dataset"] = of_component(plan.dataset, hash_folders=False)
    data = [found.sha256 for found in plan.dataset.fetch(plan.settings.data_dir)]
    return of_work(Study, settings, components, data) if None not in components.values() else None


def choose_bootstrap(plan: Plan, scores: Scores, order: pd.DataFrame) -> Bootstrap:
    """Return as many resamples as the settings say, or as comparing the metrics takes."""
    if plan.settings.resamples != "auto":
        return Bootstrap(plan.settings.seed, plan.settings.resamples, plan.settings.confidence)
    judged = order[(order["role"] == "judged") & (order["note"] == "")].groupby(["metric", "variant"]).ngroups
    return Bootstrap(
        plan.settings.seed,
        choose_n_resamples(judged, len(scores), len(order)),
        plan.settings.confidence,
        max_interval_resamples=DEFAULT_RESAMPLES,
    )
