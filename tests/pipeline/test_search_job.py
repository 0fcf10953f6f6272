"""Counterfactuals of chunks equal those of all instances at once, for any executor and cache."""

from dataclasses import fields, replace

import numpy as np
import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.core import NO_FEATURE, Access, Counterfactuals, Section
from cfeval_cli.distance.euclidean import Euclidean
from cfeval_cli.errors import Failure
from cfeval_cli.executor.local import Local
from cfeval_cli.pipeline.search_job import SearchJob, find_counterfactuals
from cfeval_cli.search.continuous import Continuous
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.search.exact import Exact
from tests.problems import (
    add_constraints,
    choose_features,
    is_permitted,
    make_dataset,
    make_linear,
    make_mixed,
    make_rows,
    make_task,
)

DATASET = make_dataset([3, 4, 2, 3], n=70, seed=3)
MODEL = make_linear(DATASET, seed=4, scale=1)
ROWS = make_rows(DATASET, MODEL)
FEATURES = choose_features(DATASET, 2, 0)
SERIAL = Local(n_jobs=1)
SECTION = Section("s", "label")


class Small(Discrete):
    """Searches chunks of 16 instances."""

    def choose_chunk_size(self, dataset, k):
        return 16


def job(search, access, rows=slice(None)):
    measure = Euclidean("embedding").fit(DATASET, MODEL, access)
    return SearchJob(search, DATASET, MODEL, measure, access, 0, ROWS.take(rows), FEATURES[rows])


def run(job, executor=SERIAL, cache=None, section=SECTION, advance=lambda _: None):
    return find_counterfactuals(job, executor, cache or Off(), advance, section=section)


def edits(joined):
    return Counterfactuals(**joined.arrays)


def check_equal(first, second):
    for field in fields(Counterfactuals):
        a, b = getattr(first, field.name), getattr(second, field.name)
        assert (a is None) == (b is None) and (a is None or np.array_equal(a, b)), field.name


@pytest.mark.parametrize("access", [Access.LABEL, Access.PROBABILITY])
def test_chunks_workers_and_cache_change_no_counterfactual(access, tmp_path):
    task = replace(make_task(DATASET, MODEL, FEATURES, access), component=f"search.{access.name.lower()}")
    result_of_all = Discrete().find(task)
    cache, outcome = Disk(str(tmp_path)), []
    plain = run(job(Small(), access), advance=outcome.append)
    check_equal(edits(plain), result_of_all)
    assert sum(outcome) == 70 and len(outcome) > 5 and plain.cost.n_evaluations > 70
    workers = run(job(Small(), access), Local(2, min_seconds=0.0))
    check_equal(edits(workers), result_of_all)
    assert workers.cost.n_evaluations == plain.cost.n_evaluations
    first = run(job(Small(), access, slice(32)), cache=cache)
    check_equal(edits(run(job(Small(), access), cache=cache)), result_of_all)

    class FailingSearch(Small):
        def find(self, task):
            raise AssertionError("not cached")

    warm = run(job(FailingSearch(), access), cache=cache)
    check_equal(edits(warm), result_of_all)
    assert warm.cost.n_evaluations == plain.cost.n_evaluations and first.cost.n_evaluations < plain.cost.n_evaluations
    message = rf"search.{access.name.lower()} failed, AssertionError: not cached \(test_search_job.py:\d+\)"
    with pytest.raises(Failure, match=message):
        run(replace(job(FailingSearch(), access), features=FEATURES[:, ::-1]), cache=cache)
    with pytest.raises(Failure, match=message):
        run(job(FailingSearch(), access), cache=cache, section=Section("another", "label"))


@pytest.mark.parametrize("search", [Continuous(), Exact()], ids=lambda search: search.title)
def test_moved_embeddings_are_cached(search, tmp_path):
    cache = Disk(str(tmp_path))
    first, second = (run(job(search, Access.GRADIENT), cache=cache) for _ in range(2))
    check_equal(edits(first), edits(second))
    assert first.cost.n_evaluations == second.cost.n_evaluations and edits(first).vectors is not None
    assert len(first.cached_positions) == 0 and len(second.cached_positions) == 70


def test_chunks_may_differ_in_number_type_but_not_in_fields():
    class WithIntegerDistances(Small):
        def find(self, task):
            result = super().find(task)
            first = task.ids[0] == ROWS.ids[0]
            return replace(result, distance=np.ceil(result.distance).astype(int) if first else result.distance)

    class Partly(Small):
        def find(self, task):
            result = super().find(task)
            return result if task.ids[0] == ROWS.ids[0] else replace(result, probability=None)

    access = Access.PROBABILITY
    plain, result_of_all = (run(job(search, access)).arrays["distance"] for search in (Small(), WithIntegerDistances()))
    assert (
        np.array_equal(result_of_all, np.concatenate([np.ceil(plain[:16]), plain[16:]]))
        and (result_of_all != plain).any()
    )
    with pytest.raises(Failure, match=r"search\.probability gave probability for some instances only"):
        run(job(Partly(), access))


def test_no_instances_have_no_counterfactuals():
    result = edits(run(job(Discrete(), Access.LABEL, slice(0))))
    assert len(result.distance) == 0 and result.codes.shape == (0, 4)


@pytest.mark.parametrize("search", [Discrete(), Discrete("nearest"), Continuous(steps=50, restarts=2), Exact()])
@pytest.mark.parametrize("seed", range(3))
def test_searches_respect_constraints(search, seed):
    dataset = make_mixed(seed, n=30, missing=0.2)
    model = make_linear(dataset, seed=seed)
    dataset = add_constraints(dataset, seed)
    if search.moves_embeddings:  # a plan rejects features that may only increase or decrease for these searches
        removals = {"up": "none", "down": "none"}
        features = tuple(
            replace(f, allowed_change=removals.get(f.allowed_change, f.allowed_change)) for f in dataset.features
        )
        dataset = replace(dataset, features=features)
    access = max(search.levels)
    measure = Euclidean("embedding").fit(dataset, model, access)
    requested = choose_features(dataset, 2, seed)
    rows = make_rows(dataset, model)
    result = edits(run(SearchJob(search, dataset, model, measure, access, 0, rows, requested)))
    for i, row in enumerate(dataset.test.codes):
        changeable = [j for j in requested[i] if dataset.features[j].allowed_change != "none"]
        assert [j for j in result.features[i] if j != NO_FEATURE] == changeable
        assert changeable or (not result.flipped[i] and result.distance[i] == 0)
        if result.codes is not None:
            assert all(is_permitted(f, *pair) for f, *pair in zip(dataset.features, row, result.codes[i], strict=True))
            assert set(np.flatnonzero(result.codes[i] != row)) <= set(changeable)
        else:  # vectors of the changeable features, then zeros
            assert not result.vectors[i][len(changeable) :].any()


def test_a_search_that_violates_a_constraint_fails():
    class SearchOfForeignFeatures(Discrete):
        def find(self, task):
            features = tuple(replace(feature, allowed_change="any") for feature in task.dataset.features)
            return super().find(replace(task, dataset=replace(task.dataset, features=features)))

    numbers = make_mixed(1, n=30, categories=0, numbers=2)
    model = make_linear(numbers, seed=1)
    features = tuple(replace(feature, allowed_change="up") for feature in numbers.features)
    dataset = replace(numbers, features=features)
    measure = Euclidean("embedding").fit(dataset, model, Access.PROBABILITY)
    rows, features = make_rows(dataset, model), choose_features(dataset, 1, 0)
    careless = SearchJob(SearchOfForeignFeatures(), dataset, model, measure, Access.PROBABILITY, 0, rows, features)
    with pytest.raises(Failure, match=r"SearchOfForeignFeatures changed x\d in a way that the dataset does not allow"):
        run(careless)
