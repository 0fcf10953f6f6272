"""A run from top to bottom: data, model, explanations, counterfactuals, scores, tables."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli import gold
from cfeval_cli.config import Plan
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.folder.write import RunFolder
from cfeval_cli.identity import of_code, of_component, of_subject, of_work
from cfeval_cli.model.gate import Ledger, probability_of
from cfeval_cli.report import tables
from cfeval_cli.run import bounds as bounding
from cfeval_cli.run.explain import Explained, Job
from cfeval_cli.run.explain import explain as explained
from cfeval_cli.run.progress import Progress
from cfeval_cli.run.search import Hunt, Prey, Shelf
from cfeval_cli.run.search import find as searched
from cfeval_cli.seeding import stream
from cfeval_cli.statistics.findings import conclude
from cfeval_cli.statistics.resampled import Bootstrap
from cfeval_cli.storage import npy
from cfeval_cli.types import (
    ABSENT,
    NONE,
    Absent,
    Access,
    Cache,
    Case,
    Counterfactuals,
    Dataset,
    Floats,
    Ints,
    Measure,
    Metric,
    Split,
    WhiteBox,
)

Found = Mapping[Access, Counterfactuals]


@dataclass(frozen=True)
class Study:
    """What all stages after training share."""

    plan: Plan
    dataset: Dataset
    model: WhiteBox
    instances: Split  # to be explained
    labels: Ints  # (N,) predicted
    positive: Floats  # (N,) P(1|x)
    measures: Mapping[Access, Measure]  # the distance at each level of the search
    subject: str | None  # a hash of data and model, by which finished work is found again
    cache: Cache  # of this run, over what all runs share
    ledger: Ledger = field(default_factory=Ledger)


def run(plan: Plan, folder: RunFolder, progress: Progress) -> list[tables.Table]:
    """Compute everything that the plan asks for, and store each part as soon as it is there."""
    with progress.stage("data"):
        wanted = inputs(plan)
        if wanted is not None and folder.results == wanted and not plan.redo:
            return []
        dataset = plan.dataset.load(plan.data_dir, plan.seed)
        plan.check(dataset)
    folder.begin(plan, dataset, wanted)
    cache = folder.journal(plan.cache)

    with progress.stage("train"):
        model = train(plan, dataset, cache)
    folder.save_model(model, accuracies(model, dataset))

    study = prepare(plan, dataset, model, cache)
    folder.save_instances(dataset, study.instances, study.labels, study.positive)

    explanations: dict[str, Explained] = {}
    for name in plan.explainers:
        with progress.stage(f"explain: {name}", len(study.instances)) as advance:
            done = explanations[name] = explain(study, name, advance)
        study.ledger.book(f"explainer.{name}", done.rows, done.seconds)
        folder.save_explanations(study.instances, explanations)

    usable = {name: select(study, name, done) for name, done in explanations.items()}
    counterfactuals: dict[str, Found] = {}
    for name, features in usable.items():
        with progress.stage(f"search: {name}", len(used(features)) * len(plan.levels)) as advance:
            counterfactuals[name] = find(study, name, features, advance)
    folder.save_counterfactuals(study.instances, usable, counterfactuals)

    with progress.stage("score"):
        truth = golden(study)
        scores, order = score(study, truth, explanations, usable, counterfactuals)
    bounds = None
    if plan.bounds:
        with progress.stage("bounds") as advance:
            bounds = bounding.find(study, truth, advance)
    with progress.stage("conclude"):
        how = Bootstrap(plan.seed, plan.resamples, plan.confidence)
        findings = conclude(scores, order, how, plan.ladder_gold, bounds)
    folder.save_scores(scores, findings)
    with progress.stage("write"):
        return folder.finish(study.ledger, progress)


def inputs(plan: Plan) -> str | None:
    """A hash of everything that the run depends on, by which finished work is known again; None if it is not known."""
    told = {field.name: getattr(plan, field.name) for field in fields(plan) if field.name not in ("redo", "strict")}
    plain = (bool, int, float, str, type(None))
    settings: dict[str, Any] = {name: value for name, value in told.items() if isinstance(value, plain)}
    settings |= {"access": plan.access, "levels": plan.levels, "figures": plan.figures, "dropped": dict(plan.dropped)}
    components = {key: of_component(component) for key, component in plan.components.items()}
    data = [getattr(found, "sha256", None) for found in plan.dataset.fetch(plan.data_dir)]
    # a user's own kind of dataset may not tell its files' hashes, nor a component its settings
    known = None not in (*data, *components.values())
    return of_work(Study, settings, components, data) if known else None


def train(plan: Plan, dataset: Dataset, cache: Cache) -> WhiteBox:
    """The model, trained now or before."""
    section = of_work(plan.model.__class__, dataset.fingerprint, of_component(plan.model), plan.seed)
    if section is None or not hasattr(plan.model, "restore"):
        return plan.model.fit(dataset, plan.seed)  # type: ignore[no-any-return]
    label = f"{dataset.name}, model, seed {plan.seed}"
    kept = cache.known(section, label, [b"model"]).get(b"model")
    with suppress(ValueError):  # then it is trained again
        if kept is not None:
            return plan.model.restore(npy.load(io.BytesIO(kept)))  # type: ignore[no-any-return]
    model = plan.model.fit(dataset, plan.seed)
    cache.keep(section, label, {b"model": npy.dump(model.arrays())})
    return model  # type: ignore[no-any-return]


def accuracies(model: WhiteBox, dataset: Dataset) -> dict[str, float]:
    """Shares of right predictions; the test labels are looked at here, once, after training."""
    splits = {"train": dataset.train, "validation": dataset.validation, "test": dataset.test}
    return {name: float((model.labels(split.codes) == split.labels).mean()) for name, split in splits.items()}


def prepare(plan: Plan, dataset: Dataset, model: WhiteBox, cache: Cache | None = None) -> Study:
    """Choose the instances, all of the test set or a seeded sample, and predict them."""
    instances = dataset.test
    if plan.n_explain is not None:
        rows = stream(plan.seed, "instances").choice(len(instances), plan.n_explain, replace=False)
        instances = instances.take(np.sort(rows))
    for asker, access in asked(plan).items():
        if access > model.access:
            needed, offered = access.name.lower(), model.access.name.lower()
            raise UserError(f"{asker} needs {needed} access, and this model offers {offered} only.")
    measures = {level: plan.distance.fit(dataset, model, level) for level in plan.levels}
    return Study(
        plan=plan,
        dataset=dataset,
        model=model,
        instances=instances,
        labels=model.labels(instances.codes),
        positive=model.proba(instances.codes),
        measures=measures,
        subject=of_subject(dataset, model),
        cache=cache or plan.cache,
    )


def asked(plan: Plan) -> dict[str, Access]:
    """What each component will ask of the model; known before anything is explained."""
    explainers = {f"explainer.{name}": explainer.access for name, explainer in plan.explainers.items()}
    return explainers | {"search": max(plan.levels)} | {f"metric.{name}": m.access for name, m in plan.metrics.items()}


def explain(study: Study, name: str, advance: Callable[[int], None]) -> Explained:
    """One explainer's explanations of all instances."""
    plan = study.plan
    explainer = plan.explainers[name]
    identity = of_component(explainer)
    job = Job(
        name=name,
        explainer=explainer,
        dataset=study.dataset,
        model=study.model,
        identity=identity,
        code=of_code(explainer.__class__) if identity else "",
        subject=study.subject,
        seed=plan.seed,
        instances=study.instances,
        labels=study.labels,
        timeout=plan.timeout,
    )
    try:
        return explained(job, plan.executor, study.cache, advance, strict=plan.strict)
    except (UserError, Failure):
        raise
    except Exception as error:
        what = f"{type(error).__name__}: {error}"
        raise Failure(f"explainer.{name} failed, {what} (HYDRA_FULL_ERROR=1 shows where).") from error


def select(study: Study, name: str, done: Explained) -> Ints:
    """The k features (N, k) to be evaluated; a row of NONE is left out."""
    plan, instances = study.plan, study.instances
    features = done.explanation.top(plan.k)
    short = np.flatnonzero((features == NONE).any(axis=1))
    if plan.incomplete == "skip":
        features[short] = NONE
    elif plan.incomplete == "random":
        for row in (row for row in short if row not in done.faults):
            named = features[row][features[row] != NONE]
            others = np.setdiff1d(np.flatnonzero(instances.codes[row] != ABSENT), named)
            more = stream(plan.seed, f"incomplete.{name}", int(instances.ids[row])).permutation(others)
            filled = np.concatenate([named, more])[: plan.k]
            features[row] = NONE if len(filled) < plan.k else filled
    return features


def used(features: Ints) -> Ints:
    """The instances that have anything to evaluate."""
    return np.flatnonzero((features != NONE).any(axis=1))


def find(study: Study, name: str, features: Ints, advance: Callable[[int], None]) -> Found:
    """Counterfactuals of the instances in use, at each level of access that the search has."""
    plan, rows, instances = study.plan, used(features), study.instances
    prey = Prey(instances.codes[rows], study.labels[rows], features[rows], instances.ids[rows])
    found = {}
    for level, measure in study.measures.items():
        hunt = Hunt(plan.search, study.dataset, study.model, measure, level, plan.seed)
        who = (of_component(plan.search), of_component(plan.distance))
        section = of_work(Hunt, study.subject, *who, level.name, plan.seed)
        label = f"{study.dataset.name}, search.{level.name.lower()}, seed {plan.seed}"
        shelf = None if section is None else Shelf(study.cache, section, label)
        done = searched(hunt, prey, plan.executor, advance, shelf)
        found[level] = done.counterfactuals
        study.ledger.book(f"search.{name}.{level.name.lower()}", done.rows, done.seconds)
    return found


def score(
    study: Study,
    truth: Mapping[str, Floats],
    explanations: Mapping[str, Explained],
    usable: Mapping[str, Ints],
    counterfactuals: Mapping[str, Found],
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Scores per instance, and the rows that their summary should have."""
    plan, instances = study.plan, study.instances
    probability = probability_of(study.labels, study.positive)
    parts, order = [], []
    for metric in plan.metrics.values():
        gate = study.ledger.gate(study.model, metric.access, f"metric.{metric.name}")
        for name, features in usable.items():
            rung = getattr(plan.explainers[name], "rung", np.nan)
            some = used(features)
            rows = some if len(some) < len(instances) else slice(None)  # all are not copied
            case = Case(
                dataset=study.dataset,
                model=gate,
                codes=instances.codes[rows],
                labels=study.labels[rows],
                probability=probability[rows] if metric.access >= Access.PROBABILITY else None,
                features=features[rows],
                k=plan.k,
                complete=(explanations[name].explanation.top(plan.k) != NONE).all(axis=1),
                counterfactuals=counterfactuals[name],
                gold={definition: importance[rows] for definition, importance in truth.items()},
            )
            with study.ledger.clock(f"metric.{metric.name}"):
                results = list(metric.score(case))
            for result in results:
                reason = result.reason if isinstance(result, Absent) else ""
                order.append(row_of(metric, result.variant, name, rung, reason))
                if not isinstance(result, Absent):
                    ids = instances.ids if result.everyone else instances.ids[rows]
                    parts.append((metric.name, result.variant, name, ids, result.numerator, result.denominator))
    return frame(parts), arranged(order)


def golden(study: Study) -> dict[str, Floats]:
    """How much each feature truly matters, under every definition."""
    arguments = (study.model, study.dataset, study.instances.codes, study.labels)
    return {name: gold.importance(name, *arguments) for name in gold.DEFINITIONS}


def row_of(metric: Metric, variant: str, explainer: str, rung: float, note: str) -> dict[str, object]:
    """A row of the summary, with what the metric says of itself."""
    low, high = metric.range
    return {
        "metric": metric.name, "variant": variant, "explainer": explainer, "rung": rung, "better": metric.better,
        "access": metric.access.name.lower(), "low": low, "high": high, "note": note,
    }  # fmt: skip


def arranged(order: list[dict[str, object]]) -> pd.DataFrame:
    """Rows of a metric by variant, then by explainer."""
    table = pd.DataFrame(order)
    place = {key: i for i, key in enumerate(dict.fromkeys(zip(table["metric"], table["variant"], strict=True)))}
    keys = [place[key] for key in zip(table["metric"], table["variant"], strict=True)]
    return table.iloc[np.argsort(keys, kind="stable")].reset_index(drop=True)


def frame(parts: list[tuple[str, str, str, Ints, Floats, Floats]]) -> pd.DataFrame:
    """Tidy scores: instance, explainer, metric, variant, numerator, denominator; the parts are used up."""
    metric, variant, name, ids, numerators, denominators = map(list, zip(*parts, strict=True))
    sizes = [len(part) for part in ids]

    def column(labels: list[str]) -> Any:
        categories = list(dict.fromkeys(labels))
        codes = np.repeat(np.array([categories.index(label) for label in labels]), sizes)
        return pd.Categorical.from_codes(codes, pd.Index(categories))

    def joined(arrays: list[Any]) -> Any:
        whole = np.concatenate(arrays)
        arrays.clear()  # so that not all is in memory twice
        return whole

    parts.clear()
    return pd.DataFrame(
        {
            "instance": joined(ids),
            "explainer": column(name),
            "metric": column(metric),
            "variant": column(variant),
            "numerator": joined(numerators),
            "denominator": joined(denominators),
        },
        copy=False,
    )
