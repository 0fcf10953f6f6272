"""Judges that learn another model's predictions."""

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


class Parity(Trainable, Classifier):
    """A model that is no training set's: 1 where the sum of the codes is odd."""

    def fit(self, dataset, seed):
        return self

    def predict(self, codes):
        return codes.sum(axis=1) % 2


def learned(seed=0):
    plan = inside.make_plan("model=tree")
    dataset = make_mixed(seed, n=80, categories=3, numbers=0)
    student = Distilled(Tree(min_leaf=1), Parity())
    return dataset, train.relabel_by_teacher(replace(plan, model=student), dataset, Off()), student


def test_it_is_given_the_teachers_predictions_for_labels_and_nothing_else_changes():
    dataset, taught, _ = learned()
    for name in ("train", "validation", "test"):
        before, after = getattr(dataset, name), getattr(taught, name)
        assert (after.labels == before.codes.sum(axis=1) % 2).all() and not (after.labels == before.labels).all()
        assert (after.codes == before.codes).all() and (after.ids == before.ids).all()
    assert taught.fingerprint != dataset.fingerprint


def test_it_is_what_the_student_is():
    dataset, taught, student = learned()
    spec = ModelSpec.from_settings(dataset, student)
    assert spec.supports(HasLeaves) and not spec.blind
    assert ModelSpec.from_settings(dataset, Distilled(Tree(blind=["f1"]), Parity())).blind
    model = student.fit(taught, 0)
    again = student.restore(model.to_arrays())
    assert (again.predict_proba(taught.test.codes) == model.predict_proba(taught.test.codes)).all()


@pytest.mark.parametrize("seed", range(3))
def test_fidelity_is_counted_and_its_interval_is_exact(seed):
    dataset, taught, student = learned(seed)
    model = student.fit(taught, 0)
    said = model.predict_proba(dataset.test.codes).argmax(axis=1)
    alike, rows = sum(a == b for a, b in zip(said, taught.test.labels, strict=True)), len(said)
    told = train.measure_fidelity(model, taught, 0.95)
    low = beta.ppf(0.025, alike, rows - alike + 1) if alike else 0.0
    high = beta.ppf(0.975, alike + 1, rows - alike) if alike < rows else 1.0
    assert told == pytest.approx({"test": alike / rows, "low": low, "high": high, "rows": rows})
    assert not np.isclose(alike / rows, (said == dataset.test.labels).mean())


def test_teacher_must_be_trainable():
    with pytest.raises(ValueError, match="teacher must derive from"):
        Distilled(Tree(), 3)


def test_a_run_tells_the_fidelity(toy, make_run):
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
    told = record["fidelity"]
    assert 0 < told["low"] < told["test"] <= told["high"] <= 1 and told["rows"] == record["splits"]["test"]
    assert f"agrees with it on {told['test']:.1%}" in (folder / "tables.md").read_text()
