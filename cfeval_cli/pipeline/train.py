"""Training: the model of a run, trained now or restored, and how good it is."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np

from cfeval_cli.core import Cache, Dataset, DistilledModel, HasArrays, Model, Restorable, Section
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.fingerprint import of_component, of_work
from cfeval_cli.pipeline.data import restore_original_texts
from cfeval_cli.pipeline.model_checks import compute_predictions
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.auc import compute_auc
from cfeval_cli.statistics.proportion import compute_proportion_interval

_MODEL = b"model"  # in the place of an instance


def relabel_by_teacher(plan: Plan, dataset: Dataset, cache: Cache, teacher: Model | None = None) -> Dataset:
    """Return the data that the model learns from; a distilled model learns its teacher's predictions."""
    if not isinstance(plan.model, DistilledModel):
        return dataset
    shown = restore_original_texts(plan.model.teacher, dataset)
    if teacher is None:
        theirs = replace(plan, model=plan.model.teacher)
        teacher = train_model(theirs, relabel_by_teacher(theirs, shown, cache), cache)
    parts = {name: getattr(dataset, name) for name in ("train", "validation", "test")}
    labels = {name: compute_predictions(teacher, shown, getattr(shown, name).codes)[0] for name in parts}
    return replace(dataset, **{name: replace(part, labels=labels[name]) for name, part in parts.items()})


@restore_working_directory()
def train_model(plan: Plan, dataset: Dataset, cache: Cache) -> Model:
    """Return the model, from the cache or newly trained."""
    if not isinstance(plan.model, Restorable):
        return plan.model.fit(dataset, plan.settings.seed)
    seed = plan.settings.seed
    key = of_work(type(plan.model), dataset.fingerprint, of_component(plan.model), seed)
    section = Section(key, f"{dataset.name}, model, seed {seed}")
    for entry in cache.get(section, [_MODEL]).values():
        with suppress(ValueError):  # not an entry of cfeval: the model is trained again
            return plan.model.restore(entry)
    model = plan.model.fit(dataset, seed)
    if isinstance(model, HasArrays):
        cache.put(section, {_MODEL: model.to_arrays()})
    return model


def measure_quality(model: Model, dataset: Dataset) -> tuple[dict[str, dict[str, float]], float]:
    """Return accuracy, share of the largest class and AUC on each split, and the seconds that a row takes.

    The test labels are used here once, after training.
    """
    started = time.perf_counter()
    quality: dict[str, dict[str, float]] = {"accuracy": {}, "majority": {}, "auc": {}}
    for name, split in (("train", dataset.train), ("validation", dataset.validation), ("test", dataset.test)):
        labels, probabilities = compute_predictions(model, dataset, split.codes)
        quality["accuracy"][name] = float((labels == split.labels).mean())
        quality["majority"][name] = float(np.bincount(split.labels).max() / len(split))
        area = float("nan") if probabilities is None else compute_auc(split.labels, probabilities)
        if not np.isnan(area):
            quality["auc"][name] = area
    n_rows = len(dataset.train) + len(dataset.validation) + len(dataset.test)
    return quality, (time.perf_counter() - started) / n_rows


def measure_fidelity(model: Model, learned: Dataset, confidence: float) -> dict[str, float]:
    """Return the share of test rows on which the model agrees with its teacher, with its exact interval."""
    said = compute_predictions(model, learned, learned.test.codes)[0]
    alike, rows = int((said == learned.test.labels).sum()), len(learned.test)
    low, high = compute_proportion_interval(alike, rows, confidence)
    return {"test": alike / rows, "low": low, "high": high, "rows": rows}
