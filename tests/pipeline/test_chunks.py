"""Results of units are cached and joined, and a few from the cache and from workers are verified."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.core import NO_FEATURE, Access, Classifier, Cost, ModelSpec, Probabilistic, Section, scratch
from cfeval_cli.core.fingerprint import hash_code, hash_component
from cfeval_cli.distance.euclidean import Euclidean
from cfeval_cli.errors import Failure
from cfeval_cli.executor.local import Local
from cfeval_cli.explainer.lime import Lime
from cfeval_cli.explainer.random import Random
from cfeval_cli.pipeline import chunks
from cfeval_cli.pipeline.chunks import ChunkedComputation, JoinedResults, UnitResult, compute_in_chunks
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.explanation_job import ExplanationJob, check_explanations, compute_explanations
from cfeval_cli.pipeline.search_job import SearchJob, check_counterfactuals, find_counterfactuals
from cfeval_cli.pipeline.truth import compute_truth
from cfeval_cli.pipeline.verification import FROM_CACHE, FROM_WORKERS, draw_verified_instances
from cfeval_cli.search.discrete import Discrete
from tests import inside
from tests.problems import choose_features, make_dataset, make_linear, make_rows

DATASET = make_dataset([3, 4, 2, 3], n=70, seed=3)
LINEAR = make_linear(DATASET, seed=4, scale=1)
SERIAL, WORKERS = Local(n_jobs=1), Local(2, min_seconds=0.0)


@dataclass(frozen=True)
class ReversibleModel(Probabilistic):
    """A linear model that may give opposite predictions, always or in other processes."""

    home: int = 0  # the process where predictions are not reversed; 0: all
    is_reversed: bool = False

    def predict_proba(self, codes):
        probabilities = LINEAR.predict_proba(codes)
        return probabilities[:, ::-1] if self.is_reversed or self.home not in (0, os.getpid()) else probabilities


@dataclass(frozen=True)
class ReversibleClassifier(Classifier):
    model: ReversibleModel

    def predict(self, codes):
        return self.model.predict_proba(codes).argmax(axis=1)


ROWS = make_rows(DATASET, LINEAR)
# the model of a first run, that of a second run with the same cache, the executor, and the message
CASES = {
    "cache": (
        ReversibleModel(),
        ReversibleModel(is_reversed=True),
        SERIAL,
        "from the cache, .* Use redo=true or cache=off",
    ),
    "workers": (None, ReversibleModel(home=os.getpid()), WORKERS, "from a worker process, .* Use n_jobs=1"),
    "the same": (ReversibleModel(), ReversibleModel(), WORKERS, None),
}


class Explanations:
    """Computes and verifies explanations."""

    explainer = Lime(n_samples=200)

    def compute(self, model, executor, cache):
        hashes = hash_component(self.explainer), hash_code(type(self.explainer)), "subject"
        job = ExplanationJob("x", self.explainer, Access.PROBABILITY, DATASET, model, *hashes, 0, ROWS)
        check_explanations(job, compute_explanations(job, executor, cache, lambda _: None), 1e-6)


class CounterfactualWork:
    access, model = Access.PROBABILITY, staticmethod(lambda model: model)

    def compute(self, model, executor, cache):
        measure, model = Euclidean("onehot").fit(DATASET, model, self.access), self.model(model)
        features = choose_features(DATASET, 2, 0)
        job = SearchJob(SearchInChunksOf16(), DATASET, model, measure, self.access, 0, ROWS, features)
        outcome = find_counterfactuals(job, executor, cache, lambda _: None, section=Section("section", "label"))
        check_counterfactuals(job, outcome, 1e-6)


class LabelCounterfactualWork(CounterfactualWork):
    access, model = Access.LABEL, ReversibleClassifier


class SearchInChunksOf16(Discrete):
    """Searches chunks of 16 instances."""

    def choose_chunk_size(self, dataset, k):
        return 16


class Truths:
    def compute(self, model, executor, cache):
        selection = ("truth=[contrast,shapley]", "explainer=[random]", "reference=null")
        plan = inside.make_plan("cache=off", *selection).restrict_to(ModelSpec(DATASET, ReversibleModel))
        context = create_context(replace(plan, executor=executor), DATASET, model, cache)
        context = replace(context, rows=ROWS, subject_hash="the same")
        for name in plan.truths:
            compute_truth(context, name, np.arange(len(ROWS)), lambda _: None)


@pytest.mark.parametrize(
    "kind", [Explanations, CounterfactualWork, LabelCounterfactualWork, Truths], ids=lambda kind: kind.__name__
)
@pytest.mark.parametrize("case", CASES)
def test_a_few_results_are_verified(kind, case, tmp_path):
    first, second, executor, message = CASES[case]
    cache = Disk(str(tmp_path))
    if first is not None:
        kind().compute(first, SERIAL, cache)
    if message is None:
        kind().compute(second, executor, Off())
        kind().compute(second, executor, cache)
        return
    with pytest.raises(Failure, match=message):
        kind().compute(second, executor, cache)


@dataclass(frozen=True)
class Nondeterministic(Random):
    """Draws other numbers each time, and declares no fingerprint."""

    def fit(self, dataset, model):
        explain = super().fit(dataset, model)
        return lambda batch: explain(replace(batch, seed=int.from_bytes(os.urandom(4))))


def test_explainers_without_a_fingerprint_are_not_verified():
    class Comparing(Explanations):
        explainer = Nondeterministic()

    assert hash_component(Nondeterministic()) is None
    Comparing().compute(ReversibleModel(), WORKERS, Off())


def test_verified_instances_are_seeded_and_of_both_origins():
    ids, cached, computed = np.arange(12) + 100, np.arange(10), np.arange(10, 12)

    def draw(seed):
        return draw_verified_instances(seed, "x", "explainer.x", ids, cached, computed)

    draws = draw(0)
    assert {sample.origin: len(sample.positions) for sample in draws} == {FROM_CACHE: 3, FROM_WORKERS: 2}
    assert all(np.array_equal(sample.ids, sample.positions + 100) for sample in draws)
    assert all(
        np.array_equal(component.positions, two.positions) for component, two in zip(draws, draw(0), strict=True)
    )
    assert any(not np.array_equal(draws[0].positions, draw(seed)[0].positions) for seed in range(1, 5))
    assert draw_verified_instances(0, "x", "explainer.x", ids, cached[:0], computed[:0]) == []


SIZE = 50
IDS, INPUTS = np.arange(SIZE) + 1000, np.arange(3 * SIZE).reshape(SIZE, 3)
SECTION = Section("section", "label")


def square(shared, positions):
    """Return squares in units of 4, or less at the end, with as many columns as the largest number has digits."""
    parts = []
    for start in range(0, len(positions), 4):
        subset = positions[start : start + 4]
        width = len(str(subset.max(initial=0)))
        arrays = {"square": np.tile((subset**2)[:, None], width), "half": subset / 2}
        note = "small" if subset.max(initial=0) < 10 else "large"
        parts.append(UnitResult(arrays, Cost(len(subset), 1.0, 0.0, 0.0), note, shared.get(int(subset[0]), "")))
    return parts


def work(faults=(), section=SECTION, inputs=(IDS, INPUTS), unit_size=4):
    return ChunkedComputation(
        "name", dict(faults), square, inputs, section, unit_size, lambda size: [*range(3, size, 3), size]
    )


def run(work, executor=SERIAL, cache=None, **options):
    advances = []
    outcome = compute_in_chunks(work, executor, cache or Off(), advances.append, scratch.Scratch(), **options)
    assert sum(advances) == len(work)
    return outcome


def are_equal(a: JoinedResults, b: JoinedResults):
    arrays = all(np.array_equal(a.arrays[name], b.arrays[name]) for name in ("square", "half"))
    return arrays and (a.cost, a.notes, a.failures) == (b.cost, b.notes, b.failures)


@pytest.mark.parametrize("slab", [1 << 14, 7])
def test_joined_results_do_not_depend_on_executor_and_cache(tmp_path, monkeypatch, slab):
    monkeypatch.setattr(scratch, "_SLAB_INSTANCES", slab)
    monkeypatch.setattr(chunks, "LOOKUP_INSTANCES", slab)
    monkeypatch.setattr(chunks, "_MAX_BYTES_IN_MEMORY", 10 * slab)
    plain, cache = run(work()), Disk(str(tmp_path))
    squares = np.arange(SIZE) ** 2
    # a unit with positions of two digits has a second column
    assert np.array_equal(plain.arrays["square"][:, 0], squares) and plain.arrays["square"].dtype == np.int64
    assert np.array_equal(plain.arrays["square"][:, 1], np.where(np.arange(SIZE) < 8, NO_FEATURE, squares))
    assert plain.arrays["half"].tolist() == (np.arange(SIZE) / 2).tolist()
    assert plain.cost == Cost(SIZE, 13.0, 0.0, 0.0) and plain.notes == ["small", "large"]
    assert are_equal(run(work(), WORKERS), plain)
    run(replace(work(), inputs=(IDS[20:32], INPUTS[20:32]), compute=later), cache=cache)
    mixed, warm = run(work(), WORKERS, cache), run(work(), cache=cache)
    assert are_equal(mixed, plain) and are_equal(warm, plain)
    assert mixed.cached_positions.tolist() == list(range(20, 32)) and not set(mixed.cached_positions) & set(
        mixed.worker_positions
    )
    assert len(warm.cached_positions) == SIZE and len(warm.worker_positions) == 0


def later(shared, positions):
    return square(shared, positions + 20)


def test_the_key_of_a_unit_depends_on_all_inputs():
    first = work()
    other_values = [(IDS + 1, INPUTS), (IDS, INPUTS + 1), (IDS.astype(np.int32), INPUTS), (IDS, INPUTS, INPUTS), (IDS,)]
    keys = [work(inputs=inputs).compute_keys([2])[0] for inputs in other_values]
    assert len({*keys, *first.compute_keys([2, 3]), *work(unit_size=3).compute_keys([2])}) == len(other_values) + 3
    repetition = work(inputs=(IDS.copy(), np.asfortranarray(INPUTS)))
    assert repetition.compute_keys(range(13)) == first.compute_keys(range(13))


def test_failures_are_reported_and_not_cached(tmp_path):
    cache = Disk(str(tmp_path))
    outcome = run(work({8: "cannot"}), cache=cache)
    assert outcome.failures == {8: "cannot"}
    repetition = run(work(), cache=cache)
    assert repetition.failures == {} and np.setdiff1d(np.arange(SIZE), repetition.cached_positions).tolist() == [
        8,
        9,
        10,
        11,
    ]
    with pytest.raises(Failure, match=r"name, instance 1008: cannot\. With strict=false the run goes on without it\."):
        run(work({8: "cannot"}), strict=True)


def test_without_a_section_nothing_is_cached(tmp_path):
    cache = Disk(str(tmp_path))
    for _ in range(2):
        assert len(run(work(section=Section(None, "label")), cache=cache).cached_positions) == 0
    assert cache.list_sections() == []


def test_invalid_cache_entries_are_computed_again(tmp_path):
    cache = Disk(str(tmp_path))
    plain = run(work(), cache=cache)
    square, cost = np.zeros((4, 1)), np.zeros(4)
    odd = [{"square": square}, {"square": square[:2], "cost": cost}, {"cost": np.zeros(2)}, {"cost": np.array(1.0)}]
    keys = work().compute_keys(range(4))
    cache.put(SECTION, dict(zip(keys, odd, strict=True)))
    repetition = run(work(), cache=cache)
    assert are_equal(repetition, plain) and repetition.cached_positions.tolist() == list(range(16, SIZE))


@pytest.mark.parametrize(
    "cost", [Cost(), Cost(2**53 - 1, 1 / 3, 1e9 / 7, 1e-300)], ids=["nothing", "much"]
)  # fmt: skip
def test_a_result_is_restored_exactly(cost):
    result = UnitResult({"a": np.array([np.nan, -0.0])}, cost, "with ünusual words")
    restored = UnitResult.from_cache_entry(result.to_cache_entry())
    assert (restored.cost, restored.note, restored.failure) == (cost, result.note, "")
    assert restored.arrays["a"].tobytes() == result.arrays["a"].tobytes()


class Interruption(BaseException):
    pass


def test_results_before_an_interruption_are_cached_in_few_writes(tmp_path, monkeypatch):
    def broken(shared, positions):
        if 40 in positions:
            raise Interruption
        return square(shared, positions)

    outputs = []

    class CountingDisk(Disk):
        def put(self, section, entries):
            outputs.append(len(entries))
            super().put(section, entries)

    for seconds, requested_columns in ((100.0, [9]), (0.0, [3, 3, 3])):
        monkeypatch.setattr(chunks, "STORE_SECONDS", seconds)
        cache = CountingDisk(str(tmp_path / str(seconds)))
        with pytest.raises(Interruption):
            run(replace(work(), compute=broken), cache=cache)
        assert [n_entries for n_entries in outputs if n_entries] == requested_columns
        assert run(work(), cache=cache).cached_positions.tolist() == list(range(36))
        outputs.clear()


def fail(shared, positions):
    raise KeyError("debt")


@pytest.mark.parametrize("executor", [SERIAL, WORKERS], ids=["here", "workers"])
def test_an_error_is_reported_with_the_component(executor):
    with pytest.raises(Failure, match=r"name failed, KeyError: 'debt' \(test_chunks.py:\d+\)\. HYDRA_FULL_ERROR=1"):
        run(replace(work(), compute=fail), executor)


def change_folder(shared, positions):
    os.chdir(shared)
    return [UnitResult({"a": positions}) for _ in range(0, len(positions), 4)]


@pytest.mark.parametrize("executor", [SERIAL, WORKERS], ids=["here", "workers"])
def test_computations_leave_the_current_folder_unchanged(executor, tmp_path):
    before = Path.cwd()
    outcome = run(ChunkedComputation("name", str(tmp_path), change_folder, (IDS,), SECTION, unit_size=4), executor)
    assert outcome.arrays["a"].tolist() == list(range(SIZE)) and Path.cwd() == before
    assert 0 not in outcome.worker_positions and (len(outcome.worker_positions) > 0) == (executor is WORKERS)
