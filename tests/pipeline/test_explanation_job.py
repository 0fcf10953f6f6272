"""Explanations are equal whether they are cached, computed by workers or computed here."""

import contextlib
import signal
import time
from collections import defaultdict
from dataclasses import dataclass, field, fields, replace

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
    Probabilistic,
)
from cfeval_cli.core.fingerprint import hash_code, hash_component, hash_data_and_model
from cfeval_cli.errors import Failure
from cfeval_cli.executor.local import Local
from cfeval_cli.explainer.anchor import Anchor
from cfeval_cli.explainer.decision_boundary import DecisionBoundary
from cfeval_cli.explainer.lime import Lime
from cfeval_cli.explainer.random import Random
from cfeval_cli.pipeline.explanation_job import (
    ExplanationJob,
    _get_chunk_ends,
    compute_explanations,
    describe_invalid_explanation,
)
from tests.problems import make_dataset, make_linear, make_rows

DATASET = make_dataset([3, 4, 2, 3, 5], n=70, seed=3)
MODEL = make_linear(DATASET, seed=4, scale=1)
ROWS = make_rows(DATASET, MODEL)
SERIAL = Local(n_jobs=1)


def job(explainer, name="x", seed=0, dataset=DATASET, model=MODEL):
    hashes = hash_component(explainer), hash_code(type(explainer)), hash_data_and_model(dataset, model)
    return ExplanationJob(name, explainer, explainer.access, dataset, model, *hashes, seed, ROWS)


def run(job, rows=slice(None), executor=SERIAL, cache=None):
    advances = []
    rows = np.arange(70)[rows]
    result = compute_explanations(replace(job, rows=job.rows.take(rows)), executor, cache or Off(), advances.append)
    assert sum(advances) == len(rows) == len(result.explanation)
    return result


def are_equal(a, b):
    a, b = a.explanation, b.explanation
    return np.array_equal(a.features, b.features) and np.array_equal(a.scores, b.scores, equal_nan=True)


@pytest.mark.parametrize("explainer", [Lime(n_samples=200), Anchor(), Random()], ids=str)
def test_workers_and_cache_change_no_explanation(explainer, tmp_path):
    plain = run(job(explainer))
    assert plain.n_cached == 0 and len(plain.explanation) == 70
    workers = run(job(explainer), executor=Local(2, min_seconds=0.0))
    assert are_equal(plain, workers) and workers.cost.n_evaluations == plain.cost.n_evaluations
    cache = Disk(str(tmp_path))
    subset = run(job(explainer), slice(5, 60, 3), cache=cache)
    assert subset.n_cached == 0
    mixed = run(job(explainer), cache=cache)
    assert are_equal(mixed, plain) and mixed.n_cached == len(range(5, 60, 3))
    warm = run(job(explainer), cache=cache)
    assert are_equal(warm, plain) and warm.n_cached == 70
    if not isinstance(explainer, Anchor):  # of a chunk with others, an instance gets its share of the rows
        assert (mixed.cost.n_evaluations, warm.cost.n_evaluations) == (
            plain.cost.n_evaluations,
            plain.cost.n_evaluations,
        )
    assert warm.cost.n_evaluations == mixed.cost.n_evaluations and warm.cost.seconds == pytest.approx(
        mixed.cost.seconds
    )


def test_an_explainer_can_use_the_samples_of_another():
    """By size or signed: the same coefficients, in another order."""
    first = run(job(Lime(n_samples=200), name="lime")).explanation
    sizes = Lime(n_samples=200, order="absolute", samples_of="lime")
    second = run(job(sizes, name="lime_absolute")).explanation
    for a, b in zip(*((dict(zip(f, s, strict=True)) for f, s in zip(e.features, e.scores, strict=True))
                      for e in (first, second)), strict=True):  # fmt: skip
        assert a == b
    assert (np.diff(first.scores) <= 0).all() and (np.diff(np.abs(second.scores)) <= 0).all()
    assert (first.features != second.features).any()
    derived = sizes.derive_from(Lime(n_samples=200))(first)  # without asking the model again
    assert np.array_equal(derived.features, second.features) and np.array_equal(derived.scores, second.scores)
    for other in (Lime(n_samples=201), Lime(n_samples=200, kernel_width=1.0), sizes, Random()):
        assert sizes.derive_from(other) is None
    own = run(job(replace(sizes, samples_of=None), name="lime_absolute")).explanation
    assert (own.scores != second.scores).all()
    assert job(sizes, name="lime").section != job(replace(sizes, samples_of=None), name="lime").section


def test_each_input_of_explanations_changes_the_cache_section(tmp_path):
    cache = Disk(str(tmp_path))
    first = job(Lime(n_samples=50))
    run(first, cache=cache)
    other_values = [
        job(Lime(n_samples=51)),
        job(Lime(n_samples=50), seed=1),
        job(Lime(n_samples=50), name="y"),  # draws other numbers
        job(Lime(n_samples=50), model=make_linear(DATASET, seed=5, scale=1)),
        job(Lime(n_samples=50), dataset=make_dataset([3, 4, 2, 3, 5], n=70, seed=4)),
    ]
    assert len({other.section for other in [first, *other_values]}) == len(other_values) + 1
    assert all(run(other, slice(0, 3), cache=cache).n_cached == 0 for other in other_values)
    assert run(job(Lime(n_samples=50)), slice(0, 3), cache=cache).n_cached == 3
    flipped = replace(
        first, rows=replace(ROWS, predicted_classes=1 - ROWS.predicted_classes)
    )  # another prediction is to be explained
    assert run(flipped, cache=cache).n_cached == 0


@dataclass(frozen=True)
class Counting(Explainer, Fingerprinted):
    """Evaluates the model when it is fitted, and three times for each instance."""

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


def test_cost_does_not_depend_on_workers_and_cache(tmp_path):
    cache = Disk(str(tmp_path))
    plain = run(job(Counting()), cache=cache)
    assert plain.cost.n_evaluations == 11 + 3 * 70
    assert run(job(Counting()), cache=cache).cost.n_evaluations == plain.cost.n_evaluations
    assert run(job(Counting()), executor=Local(2, min_seconds=0.0)).cost.n_evaluations == plain.cost.n_evaluations
    assert run(job(Counting()), slice(0, 20), cache=cache).cost.n_evaluations == 11 + 3 * 20


def test_explainers_without_a_fingerprint_are_not_cached(tmp_path):
    @dataclass(frozen=True)
    class Odd(Explainer, Fingerprinted):
        function: object = print
        access = Access.NOTHING
        fit = Random.fit

        def fingerprint(self):
            return ""

    @dataclass(frozen=True)
    class WithoutFingerprint(Explainer):
        access = Access.NOTHING
        fit = Random.fit

    cache = Disk(str(tmp_path))
    for explainer in (Odd(), WithoutFingerprint()):
        assert job(explainer).section.key is None
        run(job(explainer), cache=cache)
        assert run(job(explainer), cache=cache).n_cached == 0 and cache.list_sections() == []


def test_a_change_of_the_source_during_the_run_fails():
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
def test_invalid_explanations_are_described(features, scores, message):
    wrong = describe_invalid_explanation(np.array(features, dtype=int), np.array(scores), DATASET.test.codes[0])
    assert message in wrong and bool(wrong) == bool(message)
    assert "after the end" in describe_invalid_explanation(np.array([1]), np.ones(1), np.array([3, ABSENT]))


LIMIT = 1000.0  # seconds; an explainer that hangs sets the timer to its end
BAD = defaultdict(lambda: [3, 20, 21], {"hangs": [20], "spins": [20]})


def end_timer():
    """Let the timer end at once, after checking that it was set to the limit and repeats."""
    remaining, repetition = signal.getitimer(signal.ITIMER_REAL)
    assert LIMIT / 2 < remaining <= LIMIT and repetition == 1
    signal.setitimer(signal.ITIMER_REAL, 0.001, repetition)


@dataclass(frozen=True)
class Faulty(Explainer, Fingerprinted):
    """Fails on some instances, in one way."""

    fault: str
    access = Access.NOTHING

    def fingerprint(self):
        return ""

    def fit(self, dataset, model):
        bad = set(dataset.test.ids[BAD[self.fault]].tolist())

        def function(batch):
            features = np.tile(np.arange(2), (len(batch), 1))
            scores = np.tile([2.0, 1.0], (len(batch), 1))
            for row, instance in enumerate(batch.ids.tolist()):
                if instance not in bad:
                    features[row] = instance % 4, 4
                elif self.fault == "raises":
                    raise ArithmeticError(f"cannot\ndo {instance}")
                elif self.fault == "hangs":
                    end_timer()
                    time.sleep(2 * LIMIT)
                elif self.fault == "spins":
                    end_timer()
                    while True:
                        with contextlib.suppress(Exception):
                            time.sleep(0)
                elif self.fault == "repeats":
                    features[row] = 1, 1
                elif self.fault == "invents":
                    features[row] = 99, 0
                elif self.fault == "nan":
                    scores[row] = np.nan
                elif self.fault == "float":
                    return Explanation(features + 0.5, scores)
                elif self.fault == "short":
                    return Explanation(features[:0], scores[:0])
                elif self.fault == "list":
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


@pytest.mark.parametrize("fault", REASONS)
@pytest.mark.parametrize("executor", [SERIAL, Local(2, min_seconds=0.0)], ids=["here", "workers"])
def test_failures_of_single_instances_are_recorded(fault, executor, tmp_path):
    cache, timeout = Disk(str(tmp_path)), LIMIT if fault in ("hangs", "spins") else None
    bad = BAD[fault]
    results = run(replace(job(Faulty(fault)), timeout=timeout), executor=executor, cache=cache)
    assert sorted(results.failures) == bad and all(REASONS[fault] in reason for reason in results.failures.values())
    assert (results.explanation.features[bad] == NO_FEATURE).all()
    good = np.setdiff1d(np.arange(70), bad)
    assert np.array_equal(results.explanation.features[good, 0], DATASET.test.ids[good] % 4)
    repetition = run(replace(job(Faulty(fault)), timeout=timeout), cache=cache)
    assert repetition.n_cached == 70 - len(bad) and repetition.failures == results.failures  # failures are not cached


def test_strict_stops_at_the_first_failure():
    with pytest.raises(Failure, match=rf"explainer\.x, instance {DATASET.test.ids[3]}: ArithmeticError: cannot…"):
        compute_explanations(job(Faulty("raises")), SERIAL, Off(), lambda _: None, strict=True)


def test_the_most_frequent_reasons_are_listed():
    results = ExplainerResult(None, Cost(), 0, {1: "a", 2: "b", 3: "b", 4: "c", 5: "d"})
    assert results.failure_summary.startswith("b (2); ") and results.failure_summary.endswith("…")


def test_access_errors_stop_the_run():
    @dataclass(frozen=True)
    class Curious(Explainer):
        access = Access.LABEL

        def fit(self, dataset, model):
            return lambda batch: model.predict_class_proba(batch.codes, batch.predicted_classes)

    with pytest.raises(Failure, match="declares label access"):
        run(job(Curious()))


@dataclass(frozen=True)
class CountingBlackBox(Probabilistic):
    """A model whose predictions do not depend on other rows; its calls are counted."""

    calls: list = field(default_factory=list, compare=False)

    def predict_proba(self, codes):
        self.calls.append(len(codes))
        positive = 0.1 + 0.5 * (codes[:, 0] > 1) * (codes[:, 1] < 3) + 0.3 * (codes[:, 4] == 2)
        return np.stack([1 - positive, positive], axis=1)


def forbid_concurrency(explainer):
    """Return the same explainer, for instances one after the other."""

    class SequentialExplainer(type(explainer)):
        supports_concurrency = False

    return SequentialExplainer(**{field.name: getattr(explainer, field.name) for field in fields(explainer)})


@pytest.mark.parametrize("explainer", [Anchor(), Lime(n_samples=100), DecisionBoundary(n_samples=50)], ids=str)
def test_batched_evaluation_changes_no_explanation(explainer):
    model = CountingBlackBox()
    labels = model.predict_proba(DATASET.test.codes).argmax(axis=1)
    rows = replace(ROWS, predicted_classes=labels)
    results, calls = {}, {}
    for batched, tested_explainer in ((True, explainer), (False, forbid_concurrency(explainer))):
        model.calls.clear()
        explanation_job = replace(job(tested_explainer, model=model), subject_hash=None, access=Access.PROBABILITY)
        results[batched] = run(replace(explanation_job, rows=rows), slice(0, 40))
        calls[batched] = len(model.calls)
    assert (
        are_equal(results[True], results[False])
        and results[True].cost.n_evaluations == results[False].cost.n_evaluations
    )
    assert calls[True] < calls[False] / 4
    assert {batched: round(outcome.cost.calls) for batched, outcome in results.items()} == calls


def test_a_failure_leaves_the_batched_instances_their_explanations():
    model = CountingBlackBox()

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

    explanation_job = replace(job(Picky(), model=model), subject_hash=None)
    outcome = compute_explanations(
        replace(explanation_job, rows=ROWS.take(slice(0, 32))), SERIAL, Off(), lambda _: None
    )
    assert set(outcome.failures) == {row for row in range(32) if ROWS.ids[row] % 5 == 0}
    assert (
        all("not this one" in reason for reason in outcome.failures.values()) and len(model.calls) == 3
    )  # four at first


def test_evaluations_before_a_restart_are_not_counted():
    """Explainers that draw from a global generator are restarted, one instance after the other."""
    model = CountingBlackBox()

    @dataclass(frozen=True)
    class EvaluatesRepeatedly(Explainer):
        access = Access.LABEL

        def fit(self, dataset, client):
            def explain(batch):
                for _ in range(3):
                    client.predict_labels(batch.codes)
                    np.random.random()  # noqa: NPY002
                return Explanation(np.zeros((1, 1), dtype=np.int64), np.ones((1, 1)))

            return explain

    explanation_job = replace(job(EvaluatesRepeatedly(), model=model), subject_hash=None, access=Access.LABEL)
    assert run(explanation_job, slice(0, 40)).cost.n_evaluations == 3 * 40
    assert sum(model.calls) > 3 * 40  # otherwise there was no restart


@given(st.integers(1, 3000), st.booleans())
def test_chunks_shrink_with_the_remaining_instances(size, is_batched):
    ends = _get_chunk_ends(size, is_batched)
    sizes = np.diff([0, *ends])
    assert ends[-1] == size and (sizes > 0).all() and sizes.max() <= (128 if is_batched else 16)
    assert (sizes[1:-1] >= 16).all() and sizes[0] == min(size, 4 if is_batched else 16)
    starts = ends - sizes
    assert all(sizes[1:] <= np.maximum(16, (size - starts[1:]) / 8))
    if is_batched and size >= 1000:
        assert np.median(sizes) > 20  # of those that share a call
