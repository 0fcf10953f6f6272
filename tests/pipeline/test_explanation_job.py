"""Known explanations are taken, the rest is computed, and nobody can tell the difference."""

import contextlib
import signal
import time
from collections import defaultdict
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.cache.disk import Disk
from cfeval_cli.cache.off import Off
from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Access,
    Cost,
    Explainer,
    ExplainerResult,
    Explanation,
    Fingerprinted,
    scratch,
)
from cfeval_cli.core.fingerprint import hash_code, hash_component, hash_data_and_model
from cfeval_cli.errors import Failure
from cfeval_cli.executor.local import Local
from cfeval_cli.explainer.anchor import Anchor
from cfeval_cli.explainer.decision_boundary import DecisionBoundary
from cfeval_cli.explainer.lime import Lime
from cfeval_cli.explainer.random import Random
from cfeval_cli.pipeline import chunks
from cfeval_cli.pipeline.explanation_job import (
    ExplanationJob,
    _get_chunk_ends,
    check_explanations,
    compute_explanations,
    describe_invalid_explanation,
)
from tests.problems import make_dataset, make_linear, predicted

DATASET = make_dataset([3, 4, 2, 3, 5], n=70, seed=3)
MODEL = make_linear(DATASET, seed=4, scale=1)
ROWS = predicted(DATASET, MODEL)
HERE = Local(n_jobs=1)


def job(explainer, name="x", seed=0, dataset=DATASET, model=MODEL):
    who, what, code = hash_component(explainer), hash_data_and_model(dataset, model), hash_code(type(explainer))
    return ExplanationJob(name, explainer, explainer.access, dataset, model, who, code, what, seed, ROWS)


def run(made, rows=slice(None), executor=HERE, cache=None):
    done = []
    rows = np.arange(70)[rows]
    some = replace(made, rows=made.rows.take(rows))
    told = compute_explanations(some, executor, cache or Off(), done.append)
    assert sum(done) == len(rows) == len(told.explanation)
    return told


def same(a, b):
    a, b = a.explanation, b.explanation
    return np.array_equal(a.features, b.features) and np.array_equal(a.scores, b.scores, equal_nan=True)


@pytest.mark.parametrize("explainer", [Lime(n_samples=200), Anchor(), Random()], ids=str)
def test_workers_and_cache_change_nothing_but_the_time(explainer, tmp_path):
    plain = run(job(explainer))
    assert plain.n_cached == 0 and len(plain.explanation) == 70
    workers = run(job(explainer), executor=Local(2, min_seconds=0.0))
    assert same(plain, workers) and workers.cost.rows == plain.cost.rows
    cache = Disk(str(tmp_path))
    some = run(job(explainer), slice(5, 60, 3), cache=cache)
    assert some.n_cached == 0
    mixed = run(job(explainer), cache=cache)
    assert same(mixed, plain) and mixed.n_cached == len(range(5, 60, 3))
    warm = run(job(explainer), cache=cache)
    assert same(warm, plain) and warm.n_cached == 70
    if not isinstance(explainer, Anchor):  # of a chunk with others, an instance gets its share of the rows
        assert (mixed.cost.rows, warm.cost.rows) == (plain.cost.rows, plain.cost.rows)
    assert warm.cost.rows == mixed.cost.rows and warm.cost.seconds == pytest.approx(mixed.cost.seconds)


def test_what_is_put_aside_as_it_comes_in_is_what_would_stay_in_memory(tmp_path, monkeypatch):
    """Anchors name one feature or several, so that what is put aside has to widen."""
    plain, cache = run(job(Anchor())), Disk(str(tmp_path))
    assert len(set((plain.explanation.features != NO_FEATURE).sum(axis=1).tolist())) > 1
    monkeypatch.setattr(scratch, "_SLAB", 7)
    monkeypatch.setattr(chunks, "LOOKUP_INSTANCES", 9)
    monkeypatch.setattr(chunks, "_MAX_BYTES_IN_MEMORY", 40)
    run(job(Anchor()), slice(3, 60, 4), cache=cache)
    mixed, warm = run(job(Anchor()), cache=cache), run(job(Anchor()), cache=cache)
    assert same(plain, mixed) and same(plain, warm) and same(plain, run(job(Anchor())))
    assert (mixed.n_cached, warm.n_cached) == (len(range(3, 60, 4)), 70)


def test_an_explainer_can_take_the_samples_of_another():
    """By size or signed: the same coefficients, in another order."""
    first = run(job(Lime(n_samples=200), name="lime")).explanation
    sizes = Lime(n_samples=200, order="absolute", samples_of="lime")
    second = run(job(sizes, name="lime_absolute")).explanation
    for a, b in zip(*((dict(zip(f, s, strict=True)) for f, s in zip(e.features, e.scores, strict=True))
                      for e in (first, second)), strict=True):  # fmt: skip
        assert a == b
    assert (np.diff(first.scores) <= 0).all() and (np.diff(np.abs(second.scores)) <= 0).all()
    assert (first.features != second.features).any()
    made = sizes.derive_from(Lime(n_samples=200))(first)  # without asking the model again
    assert np.array_equal(made.features, second.features) and np.array_equal(made.scores, second.scores)
    for other in (Lime(n_samples=201), Lime(n_samples=200, kernel_width=1.0), sizes, Random()):
        assert sizes.derive_from(other) is None
    own = run(job(replace(sizes, samples_of=None), name="lime_absolute")).explanation
    assert (own.scores != second.scores).all()
    assert job(sizes, name="lime").section != job(replace(sizes, samples_of=None), name="lime").section


@pytest.mark.parametrize("explainer", [Lime(n_samples=200), Anchor(), Random()], ids=str)
def test_a_sample_of_cached_explanations_is_computed_again(explainer, tmp_path):
    cache, first = Disk(str(tmp_path)), job(explainer)
    plain = run(first, cache=cache)
    assert len(plain.cached_rows) == 0
    run(first, slice(5, 60, 3), cache=(other := Disk(str(tmp_path / "other"))))
    mixed, warm = run(first, cache=other), run(first, cache=cache)
    assert mixed.cached_rows.tolist() == list(range(5, 60, 3)) and len(warm.cached_rows) == 70
    for done in (plain, mixed, warm):
        check_explanations(first, done, 1e-6)
    if isinstance(explainer, Lime):  # which depends on the model: another one with the same cache key
        stale = replace(job(explainer, model=make_linear(DATASET, seed=5, scale=1)), subject_hash=first.subject_hash)
        with pytest.raises(
            Failure, match=r"explainer.x, instance \d+: the explanation from the cache gives .* a score of "
        ):
            check_explanations(stale, run(stale, cache=cache), 1e-6)
        check_explanations(stale, plain, 1e-6)  # nothing of it is from the cache


def test_what_explanations_depend_on_makes_another_section(tmp_path):
    cache = Disk(str(tmp_path))
    first = job(Lime(n_samples=50))
    run(first, cache=cache)
    others = [
        job(Lime(n_samples=51)),
        job(Lime(n_samples=50), seed=1),
        job(Lime(n_samples=50), name="y"),  # draws other numbers
        job(Lime(n_samples=50), model=make_linear(DATASET, seed=5, scale=1)),
        job(Lime(n_samples=50), dataset=make_dataset([3, 4, 2, 3, 5], n=70, seed=4)),
    ]
    assert len({one.section for one in [first, *others]}) == len(others) + 1
    assert all(run(one, slice(0, 3), cache=cache).n_cached == 0 for one in others)
    assert run(job(Lime(n_samples=50)), slice(0, 3), cache=cache).n_cached == 3
    flipped = replace(first, rows=replace(ROWS, labels=1 - ROWS.labels))  # another prediction is to be explained
    assert run(flipped, cache=cache).n_cached == 0


@dataclass(frozen=True)
class Counting(Explainer, Fingerprinted):
    """Asks the model once when it is made, and three times for each instance."""

    calls: list = field(default_factory=list)
    access = Access.LABEL

    def fingerprint(self):
        return ""

    def fit(self, dataset, model):
        model.predict_labels(dataset.train.codes[:11])

        def function(batch):
            self.calls.append(len(batch))
            for _ in range(3):
                model.predict_labels(batch.codes)
            return Explanation(np.zeros((len(batch), 1), int), np.ones((len(batch), 1)))

        return function


def test_rows_are_counted_once_whoever_computed_and_whenever(tmp_path):
    cache = Disk(str(tmp_path))
    plain = run(job(Counting()), cache=cache)
    assert plain.cost.rows == 11 + 3 * 70
    assert run(job(Counting()), cache=cache).cost.rows == plain.cost.rows
    assert run(job(Counting()), executor=Local(2, min_seconds=0.0)).cost.rows == plain.cost.rows
    assert run(job(Counting()), slice(0, 20), cache=cache).cost.rows == 11 + 3 * 20


def test_each_chunk_is_kept_as_soon_as_it_is_there(tmp_path):
    @dataclass(frozen=True)
    class Breaks(Explainer, Fingerprinted):
        access = Access.NOTHING

        def fingerprint(self):
            return ""

        def fit(self, dataset, model):
            def function(batch):
                if (batch.ids == DATASET.test.ids[40]).any():
                    raise KeyboardInterrupt("broken")
                return Explanation(np.zeros((len(batch), 1), int), np.ones((len(batch), 1)))

            return function

    cache = Disk(str(tmp_path))
    with pytest.raises(KeyboardInterrupt, match="broken"):
        run(job(Breaks()), cache=cache)
    assert run(job(Breaks()), slice(0, 32), cache=cache).n_cached == 32


def test_an_explainer_without_plain_settings_or_a_word_on_what_it_depends_on_is_not_kept(tmp_path):
    @dataclass(frozen=True)
    class Odd(Explainer, Fingerprinted):
        function: object = print
        access = Access.NOTHING
        fit = Random.fit

        def fingerprint(self):
            return ""

    @dataclass(frozen=True)
    class Mute(Explainer):
        access = Access.NOTHING
        fit = Random.fit

    cache = Disk(str(tmp_path))
    for made in (Odd(), Mute()):
        assert job(made).section.key is None
        run(job(made), cache=cache)
        assert run(job(made), cache=cache).n_cached == 0 and cache.sections() == []


def test_a_source_that_was_changed_during_the_run_is_refused():
    with pytest.raises(Failure, match=r"the source code of explainer\.x was changed during the run"):
        run(replace(job(Random()), code_hash="of the source before"))


@pytest.mark.parametrize(
    ("features", "scores", "message"),
    [
        ([0, 0], [2.0, 1.0], "more than once"),
        ([5, 0], [2.0, 1.0], "do not exist"),
        ([-2, 0], [2.0, 1.0], "do not exist"),
        ([1, 0], [np.nan, 1.0], "NaN"),
        ([1, 0], [np.inf, -1.0], ""),
        ([], [], ""),
    ],
)
def test_impossible_explanations_are_known(features, scores, message):
    wrong = describe_invalid_explanation(np.array(features, dtype=int), np.array(scores), DATASET.test.codes[0])
    assert message in wrong and bool(wrong) == bool(message)
    assert "after the end" in describe_invalid_explanation(np.array([1]), np.ones(1), np.array([3, ABSENT]))


LIMIT = 1000.0  # seconds, of which none pass: who hangs lets the clock strike
BAD = defaultdict(lambda: [3, 20, 21], {"hangs": [20], "spins": [20]})


def strike():
    """Let the time that is left be over at once, if there is as much as the limit and it would strike again."""
    left, again = signal.getitimer(signal.ITIMER_REAL)
    assert LIMIT / 2 < left <= LIMIT and again == 1
    signal.setitimer(signal.ITIMER_REAL, 0.001, again)


@dataclass(frozen=True)
class Faulty(Explainer, Fingerprinted):
    """Goes wrong on some instances, in some way."""

    way: str
    access = Access.NOTHING

    def fingerprint(self):
        return ""

    def fit(self, dataset, model):
        bad = set(dataset.test.ids[BAD[self.way]].tolist())

        def function(batch):
            features = np.tile(np.arange(2), (len(batch), 1))
            scores = np.tile([2.0, 1.0], (len(batch), 1))
            for row, instance in enumerate(batch.ids.tolist()):
                if instance not in bad:
                    features[row] = instance % 4, 4
                elif self.way == "raises":
                    raise ArithmeticError(f"cannot\ndo {instance}")
                elif self.way == "hangs":
                    strike()
                    time.sleep(2 * LIMIT)
                elif self.way == "spins":
                    strike()
                    while True:
                        with contextlib.suppress(Exception):
                            time.sleep(0)
                elif self.way == "repeats":
                    features[row] = 1, 1
                elif self.way == "invents":
                    features[row] = 99, 0
                elif self.way == "nan":
                    scores[row] = np.nan
                elif self.way == "float":
                    return Explanation(features + 0.5, scores)
                elif self.way == "short":
                    return Explanation(features[:0], scores[:0])
                elif self.way == "list":
                    return features.tolist()
            return Explanation(features, scores)

        return function


REASONS = {
    "raises": "ArithmeticError: cannot…",
    "hangs": f"no answer within {LIMIT:g} s",
    "spins": f"no answer within {LIMIT:g} s",
    "repeats": "selected a feature more than once: [1, 1]",
    "invents": "selected features that do not exist: [99, 0]",
    "nan": "gave NaN as a score",
    "float": "TypeError: returned features of type float64, not integers",
    "short": "ValueError: returned 0×2 features and 0×2 scores for 1 instances",
    "list": "TypeError: returned list, not an Explanation",
}


@pytest.mark.parametrize("way", REASONS)
@pytest.mark.parametrize("executor", [HERE, Local(2, min_seconds=0.0)], ids=["here", "workers"])
def test_what_goes_wrong_on_one_instance_is_recorded_and_the_rest_goes_on(way, executor, tmp_path):
    cache, timeout = Disk(str(tmp_path)), LIMIT if way in ("hangs", "spins") else None
    bad = BAD[way]
    told = run(replace(job(Faulty(way)), timeout=timeout), executor=executor, cache=cache)
    assert sorted(told.failures) == bad and all(REASONS[way] in reason for reason in told.failures.values())
    assert (told.explanation.features[bad] == NO_FEATURE).all()
    good = np.setdiff1d(np.arange(70), bad)
    assert np.array_equal(told.explanation.features[good, 0], DATASET.test.ids[good] % 4)
    again = run(replace(job(Faulty(way)), timeout=timeout), cache=cache)
    assert again.n_cached == 70 - len(bad) and again.failures == told.failures  # it is tried again, not remembered


def test_strict_stops_at_the_first():
    with pytest.raises(Failure, match=rf"explainer\.x, instance {DATASET.test.ids[3]}: ArithmeticError: cannot…"):
        compute_explanations(job(Faulty("raises")), HERE, Off(), lambda _: None, strict=True)


def test_reasons_are_counted():
    told = ExplainerResult(None, Cost(), 0, {1: "a", 2: "b", 3: "b", 4: "c", 5: "d"})
    assert told.failure_summary.startswith("b (2); ") and told.failure_summary.endswith("…")


def test_a_mistake_in_the_explainer_as_a_whole_is_not_blamed_on_instances():
    @dataclass(frozen=True)
    class Curious(Explainer):
        access = Access.LABEL

        def fit(self, dataset, model):
            return lambda batch: model.predict_class_proba(batch.codes, batch.labels)

    with pytest.raises(Failure, match="declares label access"):
        run(job(Curious()))


@dataclass(frozen=True)
class BlackBox:
    """Trees by hand: the answer to a row does not depend on the others; the calls are counted."""

    calls: list = field(default_factory=list, compare=False)

    def predict_proba(self, codes):
        self.calls.append(len(codes))
        positive = 0.1 + 0.5 * (codes[:, 0] > 1) * (codes[:, 1] < 3) + 0.3 * (codes[:, 4] == 2)
        return np.stack([1 - positive, positive], axis=1)


@pytest.mark.parametrize("explainer", [Anchor(), Lime(n_samples=100), DecisionBoundary(n_samples=50)], ids=str)
def test_instances_that_wait_for_a_model_together_are_explained_as_alone(explainer, monkeypatch):
    model = BlackBox()
    labels = model.predict_proba(DATASET.test.codes).argmax(axis=1)
    made = replace(job(explainer, model=model), subject_hash=None, access=Access.PROBABILITY)
    made = replace(made, rows=replace(ROWS, labels=labels))
    told, calls = {}, {}
    for together in (True, False):
        monkeypatch.setattr(type(explainer), "supports_concurrency", together)
        model.calls.clear()
        told[together] = run(replace(made), slice(0, 40))
        calls[together] = len(model.calls)
    assert same(told[True], told[False]) and told[True].cost.rows == told[False].cost.rows
    assert calls[True] < calls[False] / 4
    assert {one: round(done.cost.calls) for one, done in told.items()} == calls


def test_an_instance_that_goes_wrong_does_not_take_down_those_beside_it():
    model = BlackBox()

    @dataclass(frozen=True)
    class Picky(Explainer):
        access = Access.LABEL

        def fit(self, dataset, client):
            def explain(batch):
                label = client.predict_labels(batch.codes)
                if batch.ids[0] % 5 == 0:
                    raise KeyError("not this one")
                return Explanation(np.full((1, 1), int(label[0])), np.ones((1, 1)))

            return explain

    made = replace(job(Picky(), model=model), subject_hash=None)
    done = compute_explanations(replace(made, rows=ROWS.take(slice(0, 32))), HERE, Off(), lambda _: None)
    assert set(done.failures) == {row for row in range(32) if ROWS.ids[row] % 5 == 0}
    assert all("not this one" in reason for reason in done.failures.values()) and len(model.calls) == 3  # four at first


def test_rows_of_who_draws_from_a_shared_generator_count_once():
    """Side by side its instances are in each other's way: it is begun anew, one after the other."""
    model = BlackBox()

    @dataclass(frozen=True)
    class Careless(Explainer):
        access = Access.LABEL

        def fit(self, dataset, client):
            def explain(batch):
                for _ in range(3):
                    client.predict_labels(batch.codes)
                    np.random.random()  # noqa: NPY002
                return Explanation(np.zeros((1, 1), dtype=np.int64), np.ones((1, 1)))

            return explain

    made = replace(job(Careless(), model=model), subject_hash=None, access=Access.LABEL)
    assert run(made, slice(0, 40)).cost.rows == 3 * 40
    assert sum(model.calls) > 3 * 40  # otherwise nothing was begun anew


@given(st.integers(1, 3000), st.booleans())
def test_chunks_are_whole_in_order_and_few_are_left_to_the_last(size, side_by_side):
    ends = _get_chunk_ends(size, side_by_side)
    sizes = np.diff([0, *ends])
    assert ends[-1] == size and (sizes > 0).all() and sizes.max() <= (128 if side_by_side else 16)
    assert (sizes[1:-1] >= 16).all() and sizes[0] == min(size, 4 if side_by_side else 16)
    begun = ends - sizes
    assert all(sizes[1:] <= np.maximum(16, (size - begun[1:]) / 8))
    if side_by_side and size >= 1000:
        assert np.median(sizes) > 20  # of those that share a call
