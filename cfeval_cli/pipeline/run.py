"""A run from top to bottom: data, model, explanations, counterfactuals, scores, statistics."""

from __future__ import annotations

import io
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import isnan
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core import (
    ABSENT,
    NONE,
    Cache,
    Dataset,
    Explained,
    Explanation,
    Floats,
    Ints,
    Ledger,
    Model,
    Plan,
    Restorable,
    Stored,
    Taught,
    Trainable,
    npy,
)
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.fingerprint import of_code, of_component, of_work
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.model.outside import Given
from cfeval_cli.pipeline import bounds, circular, explain, invariance, judges, trust, truths
from cfeval_cli.pipeline.estimate import estimate_explainer, estimate_repetition, estimate_search
from cfeval_cli.pipeline.evaluate import Edits, edits_of
from cfeval_cli.pipeline.memo import Memo
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.score import score, those, used
from cfeval_cli.pipeline.signs import find_reversed_signs
from cfeval_cli.pipeline.study import Study, predicted, prepare
from cfeval_cli.results.store import RunFolder
from cfeval_cli.seeding import integer, stream
from cfeval_cli.statistics import noise, proportion
from cfeval_cli.statistics.auc import auc
from cfeval_cli.statistics.findings import Circular, conclude
from cfeval_cli.statistics.resampled import USUAL, Bootstrap, enough
from cfeval_cli.statistics.scores import Scores

_AGAIN = 100  # instances that are explained a second time, unless a run says how many


@restore_working_directory()
def run(plan: Plan, folder: RunFolder, progress: Progress, teacher: Model | None = None) -> bool:
    """Compute everything that the plan asks for, and store each part as soon as it is there; False if it was there.

    A model that learns another's predictions need not train that if it is given.
    """
    with progress.stage("data"):
        wanted = inputs(plan)
        if not plan.settings.redo and folder.has_results_of(wanted):
            return False
        plan.executor.prepare(plan.settings.timeout_per_instance)
        whole, dataset = plan, as_read(plan.model, plan.dataset.load(plan.settings.data_dir, plan.settings.seed))
        plan = plan.applied(trust.foreseen(plan, dataset))
    folder.begin(plan, dataset, wanted)
    cache = folder.journal(plan.cache, again=plan.settings.redo)

    with progress.stage("train"):
        learned = taught(plan, dataset, cache, teacher)
        model = train(plan, learned, cache)
        trust.try_out(model, dataset, plan.settings.seed, plan.settings.timeout_model)
    begun = time.perf_counter()
    found = quality(model, dataset)
    seconds_per_row = (time.perf_counter() - begun) / dataset_rows(dataset)
    folder.save_model(model, found, trust.doubts(found["accuracy"], dataset))
    if isinstance(plan.model, Taught):
        folder.save_fidelity(fidelity(model, learned, plan.settings.confidence))

    study = prepare(plan, dataset, model, cache, folder.scratch)
    folder.save_instances(dataset, study.instances, study.rows, study.probabilities)
    with progress.stage("truth", len(plan.truths)) as advance:
        known = truths.find(study, advance)
    folder.save_truth(study.instances, known)
    truth = {name: one.importance for name, one in known.items()}

    explanations: dict[str, Explained] = {}
    jobs = {name: job_of(study, name, plan.settings.seed) for name in plan.explainers}
    for name, job in jobs.items():
        expected = estimate_explainer(study, name, seconds_per_row)
        with progress.stage(f"explain: {name}", len(study.instances), expected) as advance:
            done = explanations[name] = explained(study, name, explanations, advance, job)
            if (doubt := find_reversed_signs(study, name, done)) is not None:
                folder.add_doubt(doubt)
        study.ledger.book(f"explainer.{name}", done.cost)
        folder.save_explanations(study.instances, explanations)

    chosen = {name: select(study, name, done) for name, done in explanations.items()}
    edits: dict[str, Edits] = {}
    for name, features in chosen.items():
        rows = used(features)
        expected = estimate_search(study, features[rows], seconds_per_row)
        with progress.stage(f"search: {name}", len(rows) * len(plan.levels), expected) as advance:
            asker, some = f"search.{name}.{{level}}", those(rows, len(features))
            edits[name] = edits_of(study, study.rows.take(some), features[some], asker, advance, keep=True)
    folder.save_counterfactuals(study.instances, chosen, edits)

    with progress.stage("score"):
        scores, order = score(study, truth, explanations, chosen, edits)
    again = None
    part, rows = sampled(study)
    if len(rows) and part.plan.explainers:
        expected = estimate_repetition(study)
        with progress.stage("noise", len(rows) * len(part.plan.explainers), expected) as advance:
            second = repeated(part, {name: importance[rows] for name, importance in truth.items()}, advance)
        study.scratch.release()
        folder.save_again(part.instances, second.explanations, second.chosen, second.edits)
        study.ledger.add("noise", part.ledger)
        again = noise.Again(rows, second.explanations, second.scores)
    study.memory.forget()
    extremes = None
    if plan.settings.bounds:
        with progress.stage("bounds") as advance:
            extremes = bounds.find(study, truth, advance)
    with progress.stage("invariance") as advance:
        reparametrised = invariance.find(study, explanations, chosen, edits, scores, advance)
    with progress.stage("conclude"):
        how = resampling(plan, scores, order)
        made_for = Circular(circular.pairs(plan, order), drop=plan.settings.circular == "drop")
        given = (how, plan.ladder_gold, extremes, reparametrised, made_for)
        findings = conclude(scores, order, *given, common=plan.settings.support == "common")
        if again is not None:
            findings = replace(findings, **again.tables(explanations, scores, order, plan.settings.k, how))
    if plan.judges or judges.wanted(study.subject):
        others = judges.beside(whole, folder, progress, partial(run, teacher=model))
        with progress.stage("recommend"):
            told = judges.recommended(study, folder.truths, scores, findings, chosen, others, how)
        folder.save_recommendation(told)
    with progress.stage("check", len(jobs)) as advance:
        check_unchanged(study, jobs, explanations, advance)
    folder.save_scores(scores, findings, how.resamples, study.ledger, progress.seconds)
    return True


def inputs(plan: Plan) -> str | None:
    """A hash of everything that the run depends on, by which finished work is known again; None if it is not known."""
    settings = plan.settings.model_dump(mode="json", exclude={"redo", "strict", "data_dir"})
    settings |= {"levels": plan.levels, "absent": dict(plan.absent.metrics)}
    components = {key: of_component(component) for key, component in plan.components.items()}
    # The files of the data are hashed below. The folder that holds them, often the current one, also holds results.
    components["dataset"] = of_component(plan.dataset, hash_folders=False)
    data = [found.sha256 for found in plan.dataset.fetch(plan.settings.data_dir)]
    # a component that does not say what it depends on is never the same again
    return of_work(Study, settings, components, data) if None not in components.values() else None


def as_read(model: Trainable, dataset: Dataset) -> Dataset:
    """Return the dataset as the model reads it: a model made elsewhere gets the original texts."""
    return dataset.with_spellings() if isinstance(model, Given) else dataset


def taught(plan: Plan, dataset: Dataset, cache: Cache, teacher: Model | None = None) -> Dataset:
    """The data that the model learns from: as they are, or with a teacher's predictions for labels."""
    if not isinstance(plan.model, Taught):
        return dataset
    shown = as_read(plan.model.teacher, dataset)
    if teacher is None:
        theirs = replace(plan, model=plan.model.teacher)
        teacher = train(theirs, taught(theirs, shown, cache), cache)
    parts = {name: getattr(dataset, name) for name in ("train", "validation", "test")}
    labels = {name: predicted(teacher, shown, getattr(shown, name).codes)[0] for name in parts}
    return replace(dataset, **{name: replace(part, labels=labels[name]) for name, part in parts.items()})


def fidelity(model: Model, learned: Dataset, confidence: float) -> dict[str, float]:
    """How often the model says what its teacher says of the test rows, with the exact interval."""
    said = predicted(model, learned, learned.test.codes)[0]
    alike, rows = int((said == learned.test.labels).sum()), len(learned.test)
    low, high = proportion.exact(alike, rows, confidence)
    return {"test": alike / rows, "low": low, "high": high, "rows": rows}


@restore_working_directory()
def train(plan: Plan, dataset: Dataset, cache: Cache) -> Model:
    """The model, trained now or before."""
    if not isinstance(plan.model, Restorable):
        return plan.model.fit(dataset, plan.settings.seed)
    restore = plan.model.restore
    memo: Memo[Model] = Memo(
        cache,
        of_work(type(plan.model), dataset.fingerprint, of_component(plan.model), plan.settings.seed),
        f"{dataset.name}, model, seed {plan.settings.seed}",
        lambda model: npy.dump(model.arrays() if isinstance(model, Stored) else {}),
        lambda value: _restored(restore, value),
    )
    known = memo.known([b"model"])
    if b"model" in known:
        return known[b"model"]
    model = plan.model.fit(dataset, plan.settings.seed)
    with memo.keeping() as keep:
        if isinstance(model, Stored):
            keep({b"model": model})
    return model


def _restored(restore: Callable[[Mapping[str, Any]], Model], value: bytes) -> Model | None:
    """From the cache; None, and it is trained again, if it is nothing of ours."""
    try:
        return restore(npy.load(io.BytesIO(value)))
    except ValueError:
        return None


def quality(model: Model, dataset: Dataset) -> dict[str, dict[str, float]]:
    """For each split the accuracy, what always saying the largest class would reach, and the AUC if it is known.

    The test labels are looked at here, once, after training.
    """
    told: dict[str, dict[str, float]] = {"accuracy": {}, "majority": {}, "auc": {}}
    for name, split in (("train", dataset.train), ("validation", dataset.validation), ("test", dataset.test)):
        labels, probabilities = predicted(model, dataset, split.codes)
        told["accuracy"][name] = float((labels == split.labels).mean())
        told["majority"][name] = float(np.bincount(split.labels).max() / len(split))
        area = float("nan") if probabilities is None else auc(split.labels, probabilities)
        if not np.isnan(area):
            told["auc"][name] = area
    return told


def dataset_rows(dataset: Dataset) -> int:
    """Return the number of rows of all splits."""
    return len(dataset.train) + len(dataset.validation) + len(dataset.test)


def explained(
    study: Study,
    name: str,
    others: Mapping[str, Explained],
    advance: Callable[[int], None],
    job: explain.Job | None = None,
) -> Explained:
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
        return Explained(Explanation(**aside), done.cost, done.known, done.faults)
    job = job or job_of(study, name, plan.settings.seed)
    try:
        return explain.explain(
            job, plan.executor, study.cache, advance, strict=plan.settings.strict, scratch=study.scratch
        )
    except (UserError, Failure):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise Failure(f"explainer.{name} failed, {what} (HYDRA_FULL_ERROR=1 shows where).") from error


def job_of(study: Study, name: str, seed: int) -> explain.Job:
    """Return the work of one explainer on all instances."""
    explainer = study.plan.explainers[name]
    identity = of_component(explainer)
    return explain.Job(
        name=name,
        explainer=explainer,
        access=explainer.asks(study.subject),
        dataset=study.dataset,
        model=study.model,
        identity=identity,
        code=of_code(explainer.__class__) if identity else "",
        subject=study.identity,
        seed=seed,
        rows=study.rows,
        timeout=study.plan.settings.timeout_per_instance,
    )


def check_unchanged(
    study: Study, jobs: Mapping[str, explain.Job], explanations: Mapping[str, Explained], advance: Callable[[int], None]
) -> None:
    """Compare the model, and some explanations from elsewhere, with what they are now; Failure if they differ.

    These evaluations are not part of any component's cost.
    """
    trust.check_unchanged(study.model, study.dataset, study.rows, study.probabilities)
    tolerance = trust.tolerance_of(study.probabilities)
    for name, done in explanations.items():
        explain.check_sample(jobs[name], done, tolerance)
        advance(1)


def select(study: Study, name: str, done: Explained) -> Ints:
    """The k features (N, k) to be evaluated; a row of NONE is left out."""
    plan, instances = study.plan, study.instances
    features = done.explanation.top(plan.settings.k)
    study.scratch.release()
    short = np.flatnonzero((features == NONE).any(axis=1))
    if plan.settings.incomplete == "skip":
        features[short] = NONE
    elif plan.settings.incomplete == "random":
        for row in (row for row in short if row not in done.faults):
            named = features[row][features[row] != NONE]
            others = np.setdiff1d(np.flatnonzero(instances.codes[row] != ABSENT), named)
            more = stream(plan.settings.seed, f"incomplete.{name}", int(instances.ids[row])).permutation(others)
            filled = np.concatenate([named, more])[: plan.settings.k]
            features[row] = NONE if len(filled) < plan.settings.k else filled
    return features


@dataclass(frozen=True)
class Second:
    """What the explainers say with another seed, and what becomes of it."""

    explanations: Mapping[str, Explained]
    chosen: Mapping[str, Ints]
    edits: Mapping[str, Edits]
    scores: Scores


def sampled(study: Study) -> tuple[Study, Ints]:
    """The study of those instances that are explained a second time, with an account of its own; and their places."""
    plan, size = study.plan, len(study.instances)
    most = (
        min(_AGAIN, size // 4) if plan.settings.noise == "auto" else plan.settings.noise
    )  # which costs at most a quarter of explaining
    rows = np.sort(stream(plan.settings.seed, "noise").choice(size, min(most, size), replace=False))
    # what the rungs of a ladder draw is known beforehand
    asked = {name: explainer for name, explainer in plan.explainers.items() if isnan(explainer.rung)}
    some = study.instances.take(rows)
    plan = replace(plan, explainers=asked)
    return replace(study, plan=plan, instances=some, rows=study.rows.take(rows), ledger=Ledger()), rows


def repeated(study: Study, truth: Mapping[str, Floats], advance: Callable[[int], None]) -> Second:
    """All explainers again, with a seed that no run has by chance; the search draws what it drew before."""
    seed = integer(stream(study.plan.settings.seed, "noise.seed"))
    explanations: dict[str, Explained] = {}
    chosen, edits = {}, {}
    for name in study.plan.explainers:
        done = explanations[name] = explained(study, name, explanations, advance, job_of(study, name, seed))
        study.ledger.book(f"explainer.{name}", done.cost)
        features = chosen[name] = select(study, name, done)
        rows = used(features)
        edits[name] = edits_of(study, study.rows.take(rows), features[rows], "search", lambda _: None, keep=True)
    return Second(explanations, chosen, edits, score(study, truth, explanations, chosen, edits)[0])


def resampling(plan: Plan, scores: Scores, order: pd.DataFrame) -> Bootstrap:
    """As many resamples as the plan says, or as comparing the metrics takes."""
    if plan.settings.resamples != "auto":
        return Bootstrap(plan.settings.seed, plan.settings.resamples, plan.settings.confidence)
    judged = order[(order["role"] == "judged") & (order["note"] == "")].groupby(["metric", "variant"]).ngroups
    return Bootstrap(plan.settings.seed, enough(judged, len(scores), len(order)), plan.settings.confidence, most=USUAL)
