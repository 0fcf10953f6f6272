"""Results from the cache or from worker processes are compared with what this process computes."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.core import Access, Subject
from cfeval_cli.core.fingerprint import of_code, of_component
from cfeval_cli.distance.euclidean import Euclidean
from cfeval_cli.errors import Failure
from cfeval_cli.executor.local import Local
from cfeval_cli.explainer.lime import Lime
from cfeval_cli.explainer.random import Random
from cfeval_cli.pipeline import elsewhere, explain, search, truths
from cfeval_cli.pipeline.study import prepare
from cfeval_cli.search.discrete import Discrete
from tests import inside
from tests.problems import choose_features, make_dataset, make_linear, predicted

DATASET = make_dataset([3, 4, 2, 3], n=70, seed=3)
LINEAR = make_linear(DATASET, seed=4, scale=1)
HERE, WORKERS = Local(n_jobs=1), Local(2, min_seconds=0.0)


@dataclass(frozen=True)
class Model:
    """A linear model that may give the opposite answer, always or in other processes than its own."""

    home: int = 0  # the process where it gives its own answers; 0: all
    turned: bool = False

    def predict_proba(self, codes):
        told = LINEAR.predict_proba(codes)
        return told[:, ::-1] if self.turned or self.home not in (0, os.getpid()) else told


@dataclass(frozen=True)
class Labels:
    model: Model

    def predict(self, codes):
        return self.model.predict_proba(codes).argmax(axis=1)


ROWS = predicted(DATASET, LINEAR)
# the model of a first run, the model of a second one that uses the same cache, and who computes
CASES = {
    "cache": (Model(), Model(turned=True), HERE, "from the cache .* Use redo=true or cache=off"),
    "workers": (None, Model(home=os.getpid()), WORKERS, "from a worker process .* Use n_jobs=1"),
    "the same": (Model(), Model(), WORKERS, None),
}


class Explained:
    """How each kind of result is computed and checked."""

    explainer = Lime(n_samples=200)

    def compute(self, model, executor, cache):
        who, code = of_component(self.explainer), of_code(type(self.explainer))
        job = explain.Job("x", self.explainer, Access.PROBABILITY, DATASET, model, who, code, "subject", 0, ROWS)
        explain.check_sample(job, explain.explain(job, executor, cache, lambda _: None), 1e-6)


class Searched:
    access, model = Access.PROBABILITY, staticmethod(lambda model: model)

    def compute(self, model, executor, cache):
        measure, model = Euclidean("onehot").fit(DATASET, model, self.access), self.model(model)
        job = search.Job(Small(), DATASET, model, measure, self.access, 0)
        features = choose_features(DATASET, 2, 0)
        found = search.find(job, ROWS, features, executor, lambda _: None, cache, "section")
        search.check_sample(job, ROWS, found, 1e-6)


class SearchedByLabels(Searched):
    access, model = Access.LABEL, Labels


class Small(Discrete):
    """In chunks of a few instances."""

    def chunk(self, dataset, k):
        return 16


class TruthComputed:
    def compute(self, model, executor, cache):
        chosen = ("truth=[shapley,contrast]", "gold=contrast", "explainer=[random]", "reference=null")
        plan = inside.planned("cache=off", *chosen).applied(Subject(DATASET, Model))
        study = prepare(replace(plan, executor=executor), DATASET, model, cache)
        truths.find(replace(study, rows=ROWS, identity="the same"), lambda _: None)


@pytest.mark.parametrize("kind", [Explained, Searched, SearchedByLabels, TruthComputed], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("case", CASES)
def test_a_few_results_are_computed_again(kind, case, tmp_path):
    first, second, executor, message = CASES[case]
    cache = Disk(str(tmp_path))
    if first is not None:
        kind().compute(first, HERE, cache)
    if message is None:
        kind().compute(second, executor, Off())
        kind().compute(second, executor, cache)
        return
    with pytest.raises(Failure, match=message):
        kind().compute(second, executor, cache)


@dataclass(frozen=True)
class Restless(Random):
    """Draws other numbers each time, and does not say that its results depend on its settings alone."""

    def fit(self, dataset, model):
        explain = super().fit(dataset, model)
        return lambda batch: explain(replace(batch, seed=int.from_bytes(os.urandom(4))))


def test_an_explainer_that_does_not_declare_that_it_is_deterministic_is_not_compared():
    class Comparing(Explained):
        explainer = Restless()

    assert of_component(Restless()) is None
    Comparing().compute(Model(), WORKERS, Off())


def test_samples_are_seeded_small_and_of_both_origins():
    cached, others = np.arange(10), np.arange(10, 12)
    drawn = elsewhere.sample(0, "x", cached, others)
    assert {origin: len(places) for origin, places in drawn.items()} == {
        elsewhere.FROM_CACHE: 3,
        elsewhere.FROM_WORKERS: 2,
    }
    again = elsewhere.sample(0, "x", cached, others)
    assert all(np.array_equal(drawn[origin], again[origin]) for origin in drawn)
    assert any(
        not np.array_equal(
            drawn[elsewhere.FROM_CACHE], elsewhere.sample(seed, "x", cached, others)[elsewhere.FROM_CACHE]
        )
        for seed in range(1, 5)
    )
    assert elsewhere.sample(0, "x", cached[:0], others[:0]) == {}


def walk(shared, item):
    os.chdir(shared)
    return item


@pytest.mark.parametrize("executor", [HERE, WORKERS], ids=["here", "workers"])
def test_work_leaves_the_current_folder_as_it_was(executor, tmp_path):
    before = Path.cwd()
    done = list(elsewhere.shared_out(executor, walk, str(tmp_path), list(range(5))))
    assert [item for item, _ in done] == list(range(5)) and Path.cwd() == before
    assert not done[0][1] and any(there for _, there in done) == (executor is WORKERS)
