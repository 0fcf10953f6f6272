"""Samples with a minimum number of each class: their sizes, their weights, and what means they estimate."""

from dataclasses import replace
from fractions import Fraction
from itertools import chain, combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ModelSpec
from cfeval_cli.pipeline.answer import answer_questions
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.explain import explain_instances
from cfeval_cli.pipeline.repeat import sample_instances
from cfeval_cli.pipeline.sampling import compute_class_weights, compute_quotas, select_by_class
from cfeval_cli.pipeline.truth import compute_truth, select_instances
from cfeval_cli.statistics.best_explainer import PairedMeans
from tests.inside import make_plan
from tests.problems import make_dataset, make_linear
from tests.truth.models import PredictionsOnlyModel


def compute_expected_quotas(counts, size, minimum):
    """Return real quotas, by trying every set of classes that may be at their minimum."""
    minimum = max(m for m in range(minimum + 1) if sum(min(m, count) for count in counts) <= size)
    minima, classes = [min(minimum, count) for count in counts], range(len(counts))
    for fixed in chain.from_iterable(combinations(classes, n) for n in range(len(counts))):
        n_unfixed = sum(counts[c] for c in classes if c not in fixed)
        rate = Fraction(size - sum(minima[c] for c in fixed), n_unfixed) if n_unfixed else Fraction(0)
        if all((minima[c] > rate * counts[c]) == (c in fixed) for c in classes):
            return [Fraction(minima[c]) if c in fixed else rate * counts[c] for c in classes]
    raise AssertionError


@given(st.lists(st.integers(0, 60), min_size=1, max_size=5).filter(any), st.integers(0, 40), st.data())
def test_quotas_are_proportional_shares_above_the_minimum(counts, minimum, data):
    size = data.draw(st.integers(1, sum(counts)))
    quotas = compute_quotas(np.array(counts), size, minimum).tolist()
    assert sum(quotas) == size and all(quota <= count for quota, count in zip(quotas, counts, strict=True))
    expected = compute_expected_quotas(counts, size, minimum)
    assert all(abs(quota - share) < 1 for quota, share in zip(quotas, expected, strict=True))
    if sum(min(minimum, count) for count in counts) <= size:
        assert all(quota >= min(minimum, count) for quota, count in zip(quotas, counts, strict=True))


def test_quotas_of_a_rare_class():
    assert compute_quotas(np.array([590, 10]), 100, 30).tolist() == [90, 10]
    assert compute_quotas(np.array([900, 100]), 100, 30).tolist() == [70, 30]
    assert compute_quotas(np.array([500, 500]), 40, 30).tolist() == [20, 20]
    assert compute_quotas(np.array([900, 100]), 100, 0).tolist() == [90, 10]


@given(st.integers(0, 10**6), st.integers(1, 4), st.integers(0, 20))
def test_samples_take_the_first_of_each_class_and_weights_restore_class_sizes(seed, n_classes, minimum):
    rng = np.random.default_rng(seed)
    classes, order = rng.integers(0, n_classes, 80), rng.permutation(80)
    positions = select_by_class(classes, order, 30, minimum)
    assert len(positions) == 30 and (np.diff(positions) > 0).all()
    for label in range(n_classes):
        selected = set(positions[classes[positions] == label])
        assert selected == set(order[classes[order] == label][: len(selected)])
    weights = compute_class_weights(classes, positions)
    is_sampled = np.isin(np.arange(n_classes), classes[positions])
    assert np.bincount(classes[positions], weights, n_classes) == pytest.approx(
        np.bincount(classes, minlength=n_classes) * is_sampled
    )
    second = np.sort(rng.permutation(30)[:20])  # a sample of the sample
    weights_of_second = compute_class_weights(classes[positions], second, weights)
    present = np.unique(classes[positions][second])
    assert np.bincount(classes[positions][second], weights_of_second, n_classes)[present] == pytest.approx(
        np.bincount(classes, minlength=n_classes)[present]
    )


def test_weighted_mean_is_unbiased_with_the_variance_of_a_stratified_sample():
    rng = np.random.default_rng(0)
    classes = (np.arange(400) < 40).astype(np.int64)
    scores = np.where(classes == 1, rng.normal(2, 1, 400), rng.normal(0, 0.3, 400))
    sizes, n = np.array([360, 40]), np.array([30, 30])
    means, plain = [], []
    for _ in range(4000):
        positions = select_by_class(classes, rng.permutation(400), 60, 30)
        means.append(np.average(scores[positions], weights=compute_class_weights(classes, positions)))
        plain.append(scores[positions].mean())
    variances = np.array([scores[classes == label].var(ddof=1) for label in (0, 1)])
    expected = np.sqrt(((sizes / 400) ** 2 * (1 - n / sizes) * variances / n).sum())
    assert np.mean(means) == pytest.approx(scores.mean(), abs=4 * expected / np.sqrt(4000))
    assert np.std(means) == pytest.approx(expected, rel=0.05)
    assert np.mean(plain) - scores.mean() > 0.5  # without weights the rare class counts too much


def test_intervals_of_weighted_means_cover():
    rng = np.random.default_rng(1)
    classes = (np.arange(5000) < 400).astype(np.int64)
    probability = np.where(classes == 1, 0.8, 0.4)
    truth, n_covered = probability.mean(), 0
    for repetition in range(150):
        scores = (rng.random(5000) < probability).astype(float)
        positions = select_by_class(classes, rng.permutation(5000), 100, 30)
        weights = compute_class_weights(classes, positions)
        paired = PairedMeans.compute(scores[positions][:, None], repetition, weights, classes[positions])
        low, high = paired.compute_interval(0.95)
        n_covered += low[0] <= truth <= high[0]
    assert 134 <= n_covered <= 149  # 0.89 to 0.99


DATASET = make_dataset([3, 4, 2], n=400)
MODEL = make_linear(DATASET)


@pytest.fixture(scope="module")
def plan():
    words = ("cache=off", "n_jobs=1", "explainer=[random,omission,lr]", "truth=[contrast]", "reference=30", "k=1")
    return make_plan(*words).restrict_to(ModelSpec(DATASET, type(MODEL)))


def make_context(plan, **settings):
    changed = replace(plan, settings=plan.settings.model_copy(update=settings))
    return create_context(changed, DATASET, MODEL)


def count_classes(context):
    return np.bincount(context.rows.predicted_classes, minlength=2)


def test_explained_instances_have_the_quotas_and_weights_of_the_test_set(plan):
    everything = make_context(plan)
    counts, size = count_classes(everything), len(everything.rows)
    n_explain = size // 2
    minimum = n_explain // 2
    context = make_context(plan, n_explain=n_explain, min_per_class=minimum)
    assert count_classes(context).tolist() == compute_quotas(counts, n_explain, minimum).tolist()
    assert np.bincount(context.rows.predicted_classes, context.weights) == pytest.approx(counts)
    assert context.probabilities == pytest.approx(MODEL.predict_proba(context.rows.codes))
    repetition = make_context(plan, n_explain=n_explain, min_per_class=minimum)
    other = make_context(plan, n_explain=n_explain, min_per_class=minimum, seed=1)
    assert context.rows.ids.tolist() == repetition.rows.ids.tolist() != other.rows.ids.tolist()
    repeated, rows = sample_instances(context)
    assert (repeated.weights == context.weights[rows]).all()


@pytest.mark.parametrize("settings", [{"min_per_class": 0, "n_explain": 20}, {"min_per_class": 30}])
def test_without_a_minimum_or_with_all_instances_the_sample_is_unchanged(plan, settings):
    context = make_context(plan, **settings)
    expected = make_context(plan, n_explain=settings.get("n_explain"))
    assert context.weights is None and context.rows.ids.tolist() == expected.rows.ids.tolist()


def test_reference_instances_have_the_quotas_too_and_the_answer_says_so(plan):
    model = PredictionsOnlyModel(MODEL)  # whose reference attributions need model evaluations
    for minimum, is_reweighted in ((0, False), (15, True)):
        changed = replace(plan, settings=plan.settings.model_copy(update={"min_per_class": minimum}))
        context = create_context(changed.restrict_to(ModelSpec(DATASET, type(model))), DATASET, model)
        positions = select_instances(context, context.plan.truths["contrast"])
        classes = context.rows.predicted_classes
        expected = compute_quotas(np.bincount(classes), 30, minimum)
        assert len(positions) == 30 and (not minimum or np.bincount(classes[positions]).tolist() == expected.tolist())
        estimates = {"contrast": compute_truth(context, "contrast", positions, lambda _: None)}
        explanations = {}
        for name in context.plan.explainers:
            explanations[name] = explain_instances(context, name, explanations, lambda _: None)
        answer = answer_questions(context, estimates, explanations, None).answers["change"]
        assert (answer.n_instances, answer.is_reweighted) == (30, is_reweighted)
