"""Judges are trained on predictions of another model."""

import json
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import beta

from cfeval_cli.cache.off import Off
from cfeval_cli.core import Classifier, HasLeaves, ModelSpec, Trainable
from cfeval_cli.model.distilled import Distilled
from cfeval_cli.model.tree import Tree
from cfeval_cli.pipeline import train
from tests import inside
from tests.problems import make_mixed


class ParityModel(Trainable, Classifier):
    """A model without training: 1 where the sum of the codes is odd."""

    def fit(self, dataset, seed):
        return self

    def predict(self, codes):
        return codes.sum(axis=1) % 2


def make_distillation(seed=0):
    plan = inside.make_plan("model=tree")
    dataset = make_mixed(seed, n=80, categories=3, numbers=0)
    student = Distilled(Tree(min_leaf=1), ParityModel())
    return dataset, train.relabel_by_teacher(replace(plan, model=student), dataset, Off()), student


def test_labels_are_replaced_by_the_teachers_predictions():
    dataset, relabelled, _ = make_distillation()
    for name in ("train", "validation", "test"):
        before, after = getattr(dataset, name), getattr(relabelled, name)
        assert (after.labels == before.codes.sum(axis=1) % 2).all() and not (after.labels == before.labels).all()
        assert (after.codes == before.codes).all() and (after.ids == before.ids).all()
    assert relabelled.fingerprint != dataset.fingerprint


def test_distilled_model_has_the_abilities_of_the_student():
    dataset, relabelled, student = make_distillation()
    spec = ModelSpec.from_settings(dataset, student)
    assert spec.supports(HasLeaves) and not spec.blind
    assert ModelSpec.from_settings(dataset, Distilled(Tree(blind=["f1"]), ParityModel())).blind
    model = student.fit(relabelled, 0)
    restored = student.restore(model.to_arrays())
    assert (restored.predict_proba(relabelled.test.codes) == model.predict_proba(relabelled.test.codes)).all()


@pytest.mark.parametrize("seed", range(3))
def test_fidelity_is_counted_and_its_interval_is_exact(seed):
    dataset, relabelled, student = make_distillation(seed)
    model = student.fit(relabelled, 0)
    labels = model.predict_proba(dataset.test.codes).argmax(axis=1)
    n_equal, rows = sum(a == b for a, b in zip(labels, relabelled.test.labels, strict=True)), len(labels)
    fidelity = train.measure_fidelity(model, relabelled, 0.95)
    low = beta.ppf(0.025, n_equal, rows - n_equal + 1) if n_equal else 0.0
    high = beta.ppf(0.975, n_equal + 1, rows - n_equal) if n_equal < rows else 1.0
    assert fidelity == pytest.approx({"test": n_equal / rows, "low": low, "high": high, "rows": rows})
    assert not np.isclose(n_equal / rows, (labels == dataset.test.labels).mean())


def test_teacher_must_be_trainable():
    with pytest.raises(ValueError, match="teacher must derive from"):
        Distilled(Tree(), 3)


def test_run_reports_the_fidelity(toy, make_run):
    folder = make_run(
        toy,
        "model=distilled",
        "+model.teacher.estimator.max_iter=5",
        "explainer=[random,omission]",
        "metric=[dfr]",
        "n_explain=10",
        "resamples=0",
    )
    record = json.loads((folder / "run.json").read_text())
    fidelity = record["fidelity"]
    assert (
        0 < fidelity["low"] < fidelity["test"] <= fidelity["high"] <= 1 and fidelity["rows"] == record["splits"]["test"]
    )
    assert f"agrees with it on {fidelity['test']:.1%}" in (folder / "tables.md").read_text()
