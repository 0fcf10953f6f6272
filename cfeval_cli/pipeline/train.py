"""The train stage: the model of a run, trained or restored from the cache, and its quality."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import replace

import numpy as np

from cfeval_cli.core import Cache, Classifier, Dataset, DistilledModel, HasArrays, Model, Restorable, Section, Trainable
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.core.fingerprint import hash_component, hash_work
from cfeval_cli.errors import UserError
from cfeval_cli.pipeline.data import restore_original_texts
from cfeval_cli.pipeline.model_checks import compute_predictions
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.auc import compute_auc
from cfeval_cli.statistics.proportion import compute_proportion_interval

_MODEL_KEY = b"model"  # of the only entry in a cache section


def relabel_by_teacher(plan: Plan, dataset: Dataset, cache: Cache, teacher: Model | None = None) -> Dataset:
    """Return the data that the model is trained on; a distilled model is trained on its teacher's predictions."""
    if not isinstance(plan.model, DistilledModel):
        return dataset
    teacher_dataset = restore_original_texts(plan.model.teacher, dataset)
    if teacher is None:
        teacher_plan = replace(plan, model=plan.model.teacher)
        teacher = train_model(teacher_plan, relabel_by_teacher(teacher_plan, teacher_dataset, cache), cache)
    names = ("train", "validation", "test")
    codes = {name: getattr(teacher_dataset, name).codes for name in names}
    labels = {name: compute_predictions(teacher, teacher_dataset, codes[name])[0] for name in names}
    return replace(dataset, **{name: replace(getattr(dataset, name), labels=labels[name]) for name in names})


@restore_working_directory()
def train_model(plan: Plan, dataset: Dataset, cache: Cache) -> Model:
    """Return the trained model, from the cache if it is there."""
    seed = plan.settings.seed
    if not isinstance(plan.model, Restorable):
        return _fit_model(plan.model, dataset, seed)
    key = hash_work(type(plan.model), dataset.fingerprint, hash_component(plan.model), seed)
    section = Section(key, f"{dataset.name}, model, seed {seed}")
    for entry in cache.get(section, [_MODEL_KEY]).values():
        with suppress(ValueError):  # an entry that is not readable: the model is trained again
            return plan.model.restore(entry)
    model = _fit_model(plan.model, dataset, seed)
    if isinstance(model, HasArrays):
        cache.put(section, {_MODEL_KEY: model.to_arrays()})
    return model


def _fit_model(settings: Trainable, dataset: Dataset, seed: int) -> Model:
    """Return the trained model; raise a UserError if it does not derive from a model class."""
    model = settings.fit(dataset, seed)
    if not isinstance(model, Classifier):
        raise UserError(
            f"{type(settings).__name__}.fit returned {type(model).__name__}, which does not derive from Classifier or "
            "Probabilistic of cfeval_cli.core. Derive it from one of them."
        )
    return model


def measure_quality(model: Model, dataset: Dataset) -> tuple[dict[str, dict[str, float]], float]:
    """Return accuracy, share of the largest class and AUC on each split, and the seconds of a model evaluation.

    This is the only use of the test labels.
    """
    seconds = 0.0
    quality: dict[str, dict[str, float]] = {"accuracy": {}, "majority": {}, "auc": {}}
    for name, split in (("train", dataset.train), ("validation", dataset.validation), ("test", dataset.test)):
        started = time.perf_counter()
        labels, probabilities = compute_predictions(model, dataset, split.codes)
        seconds += time.perf_counter() - started  # without the AUC, which imports scikit-learn
        quality["accuracy"][name] = float((labels == split.labels).mean())
        quality["majority"][name] = float(np.bincount(split.labels).max() / len(split))
        auc = float("nan") if probabilities is None else compute_auc(split.labels, probabilities)
        if not np.isnan(auc):
            quality["auc"][name] = auc
    n_rows = len(dataset.train) + len(dataset.validation) + len(dataset.test)
    return quality, seconds / n_rows


def measure_fidelity(model: Model, training_data: Dataset, confidence: float) -> dict[str, float]:
    """Return the share of test rows on which the model agrees with its teacher, with an exact interval."""
    labels, _ = compute_predictions(model, training_data, training_data.test.codes)
    n_equal, n_rows = int((labels == training_data.test.labels).sum()), len(training_data.test)
    low, high = compute_proportion_interval(n_equal, n_rows, confidence)
    return {"test": n_equal / n_rows, "low": low, "high": high, "rows": n_rows}
