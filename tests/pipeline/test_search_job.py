"""Counterfactuals chunk by chunk are those of all at once, whoever finds them and whenever."""

from dataclasses import fields, replace

import numpy as np
import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.core import NO_FEATURE, Access, Counterfactuals, Section, scratch
from cfeval_cli.distance.euclidean import Euclidean
from cfeval_cli.errors import Failure
from cfeval_cli.executor.local import Local
from cfeval_cli.pipeline import chunks
from cfeval_cli.pipeline.search_job import SearchJob, find_counterfactuals
from cfeval_cli.search.continuous import Continuous
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.search.exact import Exact
from tests.problems import (
    choose_features,
    make_dataset,
    make_linear,
    make_mixed,
    make_task,
    permitted,
    predicted,
    with_constraints,
)

DATASET = make_dataset([3, 4, 2, 3], n=70, seed=3)
MODEL = make_linear(DATASET, seed=4, scale=1)
ROWS = predicted(DATASET, MODEL)
FEATURES = choose_features(DATASET, 2, 0)
HERE = Local(n_jobs=1)
SECTION = Section("s", "label")


class Small(Discrete):
    """In chunks of a few instances."""

    def chunk(self, dataset, k):
        return 16


def job(search, access, rows=slice(None)):
    measure = Euclidean("embedding").fit(DATASET, MODEL, access)
    return SearchJob(search, DATASET, MODEL, measure, access, 0, ROWS.take(rows), FEATURES[rows])


def run(job, executor=HERE, cache=None, section=SECTION, advance=lambda _: None):
    return find_counterfactuals(job, executor, cache or Off(), advance, section=section)


def edits(done):
    return Counterfactuals(**done.arrays)


def same(one, two):
    for field in fields(Counterfactuals):
        a, b = getattr(one, field.name), getattr(two, field.name)
        assert (a is None) == (b is None) and (a is None or np.array_equal(a, b)), field.name


@pytest.mark.parametrize("access", [Access.LABEL, Access.PROBABILITY])
def test_chunks_workers_and_cache_change_nothing(access, tmp_path):
    task = replace(make_task(DATASET, MODEL, FEATURES, access), component=f"search.{access.name.lower()}")
    whole = Discrete().find(task)
    cache, done = Disk(str(tmp_path)), []
    plain = run(job(Small(), access), advance=done.append)
    same(edits(plain), whole)
    assert sum(done) == 70 and len(done) > 5 and plain.cost.rows > 70
    workers = run(job(Small(), access), Local(2, min_seconds=0.0))
    same(edits(workers), whole)
    assert workers.cost.rows == plain.cost.rows
    first = run(job(Small(), access, slice(32)), cache=cache)
    same(edits(run(job(Small(), access), cache=cache)), whole)

    class Broken(Small):
        def find(self, task):
            raise AssertionError("all is known")

    warm = run(job(Broken(), access), cache=cache)
    same(edits(warm), whole)
    assert warm.cost.rows == plain.cost.rows and first.cost.rows < plain.cost.rows
    message = rf"search.{access.name.lower()} failed, AssertionError: all is known \(test_search_job.py:\d+\)"
    with pytest.raises(Failure, match=message):
        run(replace(job(Broken(), access), features=FEATURES[:, ::-1]), cache=cache)
    with pytest.raises(Failure, match=message):
        run(job(Broken(), access), cache=cache, section=Section("another", "label"))


@pytest.mark.parametrize("search", [Continuous(), Exact()], ids=lambda one: one.title)
def test_moved_embeddings_are_stored_and_found_again(search, tmp_path):
    cache = Disk(str(tmp_path))
    one, two = (run(job(search, Access.GRADIENT), cache=cache) for _ in range(2))
    same(edits(one), edits(two))
    assert one.cost.rows == two.cost.rows and edits(one).vectors is not None
    assert len(one.cached_rows) == 0 and len(two.cached_rows) == 70


@pytest.mark.parametrize("search", [Small(), Continuous(steps=20, restarts=1)], ids=lambda one: one.title)
def test_what_is_put_aside_as_it_comes_in_is_what_would_stay_in_memory(search, tmp_path, monkeypatch):
    cache, access = Disk(str(tmp_path)), max(search.levels)
    plain = run(job(search, access))
    monkeypatch.setattr(scratch, "_SLAB", 7)
    monkeypatch.setattr(chunks, "LOOKUP_INSTANCES", 20)  # chunks are looked up one by one
    run(job(search, access, slice(32)), cache=cache)
    for _ in range(2):  # some are known, and then all
        found = run(job(search, access), cache=cache)
        same(edits(found), edits(plain))
        assert found.cost.rows == plain.cost.rows


def test_a_search_may_tell_whole_numbers_first_but_nothing_of_some_instances_only():
    class Whole(Small):
        def find(self, task):
            found = super().find(task)
            first = task.ids[0] == ROWS.ids[0]
            return replace(found, distance=np.ceil(found.distance).astype(int) if first else found.distance)

    class Partly(Small):
        def find(self, task):
            found = super().find(task)
            return found if task.ids[0] == ROWS.ids[0] else replace(found, probability=None)

    access = Access.PROBABILITY
    plain, whole = (run(job(search, access)).arrays["distance"] for search in (Small(), Whole()))
    assert np.array_equal(whole, np.concatenate([np.ceil(plain[:16]), plain[16:]])) and (whole != plain).any()
    with pytest.raises(Failure, match=r"search\.probability gave probability for some instances only"):
        run(job(Partly(), access))


def test_no_instances_no_counterfactuals():
    found = edits(run(job(Discrete(), Access.LABEL, slice(0))))
    assert len(found.distance) == 0 and found.codes.shape == (0, 4)


@pytest.mark.parametrize("search", [Discrete(), Discrete("nearest"), Continuous(steps=50, restarts=2), Exact()])
@pytest.mark.parametrize("seed", range(3))
def test_no_search_changes_what_may_not_change(search, seed):
    dataset = make_mixed(seed, n=30, missing=0.2)
    model = make_linear(dataset, seed=seed)
    dataset = with_constraints(dataset, seed)
    if search.moves:  # which go neither up nor down: a plan refuses those
        ways = {"up": "none", "down": "none"}
        features = tuple(
            replace(f, allowed_change=ways.get(f.allowed_change, f.allowed_change)) for f in dataset.features
        )
        dataset = replace(dataset, features=features)
    access = max(search.levels)
    measure = Euclidean("embedding").fit(dataset, model, access)
    asked = choose_features(dataset, 2, seed)
    rows = predicted(dataset, model)
    found = edits(run(SearchJob(search, dataset, model, measure, access, 0, rows, asked)))
    for i, row in enumerate(dataset.test.codes):
        mine = [j for j in asked[i] if dataset.features[j].allowed_change != "none"]
        assert [j for j in found.features[i] if j != NO_FEATURE] == mine
        assert mine or (not found.flipped[i] and found.distance[i] == 0)
        if found.codes is not None:
            assert all(permitted(f, *pair) for f, *pair in zip(dataset.features, row, found.codes[i], strict=True))
            assert set(np.flatnonzero(found.codes[i] != row)) <= set(mine)
        else:  # vectors stand in the order of the features that may change, the rest is nothing
            assert not found.vectors[i][len(mine) :].any()


def test_a_search_that_breaks_a_constraint_is_a_failure():
    class Careless(Discrete):
        def find(self, task):
            features = tuple(replace(feature, allowed_change="any") for feature in task.dataset.features)
            return super().find(replace(task, dataset=replace(task.dataset, features=features)))

    numbers = make_mixed(1, n=30, categories=0, numbers=2)
    model = make_linear(numbers, seed=1)
    features = tuple(replace(feature, allowed_change="up") for feature in numbers.features)
    dataset = replace(numbers, features=features)
    measure = Euclidean("embedding").fit(dataset, model, Access.PROBABILITY)
    rows, features = predicted(dataset, model), choose_features(dataset, 1, 0)
    careless = SearchJob(Careless(), dataset, model, measure, Access.PROBABILITY, 0, rows, features)
    with pytest.raises(Failure, match=r"Careless changed x\d in a way that the dataset does not allow"):
        run(careless)
