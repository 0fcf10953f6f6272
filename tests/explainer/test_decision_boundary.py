from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, Classifier, ModelSpec, Probabilistic
from cfeval_cli.explainer.decision_boundary import DecisionBoundary, _draw_other_value, _prepare_distribution
from cfeval_cli.model.linear import LinearModel
from tests.problems import (
    add_constraints,
    is_permitted,
    logit,
    make_batch,
    make_dataset,
    make_linear,
    make_mixed,
    open_client,
    predict_labels,
    problems,
    sigmoid,
)


def explain(explainer, dataset, model, access=Access.GRADIENT):
    batch = make_batch(dataset, model)
    return batch, explainer.fit(dataset, open_client(model, access))(batch)


def make_mixed_dataset(seed):
    dataset = make_mixed(seed, n=5, missing=0.2 * (seed % 2))
    return add_constraints(dataset, seed) if seed % 3 else dataset, make_linear(dataset, seed=seed)


@given(problems(absent=0.2, n=5) | st.integers(0, 99).map(make_mixed_dataset), st.sampled_from([None, 1, 2]))
def test_explanation_is_the_best_of_the_samples(problem, max_edits):
    """Each rule of the method, checked on the samples one by one."""
    dataset, model = problem
    explainer = DecisionBoundary(n_samples=60, max_edits=max_edits)
    batch, explanation = explain(explainer, dataset, model)
    for i, row in enumerate(dataset.test.codes):
        samples = explainer._draw_edits(row, _prepare_distribution(dataset), batch.make_rng(i), dataset.is_changeable)
        flips = []
        for sample in samples:
            edited = [j for j in range(len(row)) if sample[j] != row[j]]
            assert all(row[j] != ABSENT and dataset.frequencies[j][sample[j]] > 0 for j in edited)
            assert max_edits is None or len(edited) <= max_edits
            assert all(is_permitted(dataset.features[j], row[j], sample[j]) for j in edited)
            if (logit(model, sample) > 0) != (logit(model, row) > 0):
                gap = sum(((model.tables[j][sample[j]] - model.tables[j][row[j]]) ** 2).sum() for j in edited)
                flips.append((len(edited), gap, edited, sample))
        selected = explanation.features[i][explanation.features[i] != NO_FEATURE].tolist()
        if not flips:
            assert selected == []
            continue
        best = min((count, gap) for count, gap, _, _ in flips)
        choices = [(set(edited), sample) for count, gap, edited, sample in flips if (count, gap) == best]
        assert set(selected) in [edited for edited, _ in choices]
        sample = next(sample for edited, sample in choices if edited == set(selected))
        sign = 1 if logit(model, row) > 0 else -1
        drops = []
        for j in selected:
            single = row.copy()
            single[j] = sample[j]
            drops.append(sign * (sigmoid(logit(model, row)) - sigmoid(logit(model, single))))
        if len(choices) == 1:
            assert explanation.scores[i][: len(selected)] == pytest.approx(drops)
            assert (np.diff(drops) <= 1e-12).all()


def test_values_of_constrained_features_are_drawn_from_allowed_values():
    dataset = make_mixed(5, n=300, categories=0, numbers=1, missing=0.2)
    number, frequency = dataset.features[0], dataset.frequencies[0]
    rng = np.random.default_rng(0)
    for removal, beyond in (("up", np.arange(len(frequency)) > 40), ("down", np.arange(len(frequency)) < 40)):
        another = _prepare_distribution(replace(dataset, features=(replace(number, allowed_change=removal),)))
        draws = np.bincount(another(0, 40, rng.random(40_000)), minlength=len(frequency)) / 40_000
        expected = np.where(beyond & (np.arange(len(frequency)) != number.missing_code), frequency, 0)
        assert np.abs(draws - expected / expected.sum()).max() < 0.01
        end = number.missing_code - 1 if removal == "up" else 0
        assert (another(0, end, rng.random(9)) == end).all()
        assert (another(0, number.missing_code, rng.random(9)) == number.missing_code).all()


def test_explanation_is_empty_if_no_feature_may_change():
    dataset = make_dataset([3, 3])
    still = replace(dataset, features=tuple(replace(feature, allowed_change="none") for feature in dataset.features))
    _, explanation = explain(DecisionBoundary(), still, make_linear(dataset))
    assert (explanation.top_k(2) == NO_FEATURE).all()


def test_only_relevant_feature_is_selected():
    dataset = make_dataset([3, 3, 3], n=40)
    model = make_linear(dataset)
    weights = np.zeros_like(model.weights)
    weights[1] = [1.0, 0.0]
    tables = tuple(np.array([[-1.0, 0], [2.0, 0], [-3.0, 0]]) for _ in range(3))
    _, explanation = explain(DecisionBoundary(), dataset, type(model)(0.0, weights, tables, model.means))
    assert explanation.top_k(1).ravel().tolist() == [1] * 40
    assert explanation.features.shape[1] == 1


def test_explanation_is_empty_without_a_flip():
    dataset = make_dataset([3, 3])
    _, explanation = explain(DecisionBoundary(n_samples=50), dataset, make_linear(dataset, bias=100.0))
    assert (explanation.top_k(2) == NO_FEATURE).all()


def test_values_are_drawn_from_the_training_distribution_without_the_instances_own():
    frequency = np.array([0.1, 0.5, 0.0, 0.4])
    rng = np.random.default_rng(0)
    for own in (0, 1, 3):
        draws = np.bincount(_draw_other_value(own, np.cumsum(frequency), 3, rng.random(40_000)), minlength=4) / 40_000
        expected = np.where(np.arange(4) == own, 0, frequency) / (1 - frequency[own])
        assert np.abs(draws - expected).max() < 0.01


@given(problems(n=5), st.sampled_from([Access.LABEL, Access.PROBABILITY]))
def test_first_smallest_flip_is_selected_without_embeddings(problem, access):
    dataset, model = problem

    class ProbabilityOnlyModel(Probabilistic):
        predict_proba = staticmethod(model.predict_proba)

    explainer = DecisionBoundary(n_samples=60)
    batch = make_batch(dataset, model)
    explanation = explainer.fit(dataset, open_client(ProbabilityOnlyModel(), access))(batch)
    for i, row in enumerate(batch.codes):
        samples = explainer._draw_edits(row, _prepare_distribution(dataset), batch.make_rng(i), dataset.is_changeable)
        flips = samples[predict_labels(model, samples) != batch.predicted_classes[i]]
        selected = explanation.features[i][explanation.features[i] != NO_FEATURE].tolist()
        if not len(flips):
            assert selected == []
            continue
        best = min(flips, key=lambda sample: (sample != row).sum())  # the first of equal ones
        assert set(selected) == set(np.flatnonzero(best != row))
        for j, score in zip(selected, explanation.scores[i], strict=False):
            single = row.copy()
            single[j] = best[j]
            if access == Access.LABEL:  # those that flip alone come first
                assert score == float(predict_labels(model, single[None])[0] != batch.predicted_classes[i])
            else:
                sign = 1 if batch.predicted_classes[i] == 1 else -1
                assert score == pytest.approx(sign * (sigmoid(logit(model, row)) - sigmoid(logit(model, single))))
        assert (np.diff(explanation.scores[i][: len(selected)]) <= 1e-12).all()


def test_access_is_the_highest_that_the_model_supports():
    class LabelClassifier(Classifier):
        def predict(self, codes):
            raise AssertionError

    class BlackBoxModel(Probabilistic):
        def predict_proba(self, codes):
            raise AssertionError

    dataset = make_dataset([3, 3])
    queries = {
        kind: DecisionBoundary().choose_access(ModelSpec(dataset, kind))
        for kind in (LabelClassifier, BlackBoxModel, LinearModel)
    }
    assert queries == {LabelClassifier: Access.LABEL, BlackBoxModel: Access.PROBABILITY, LinearModel: Access.GRADIENT}
    assert DecisionBoundary().not_applicable_reason(ModelSpec(dataset, LabelClassifier)) is None


@pytest.mark.parametrize("setting", [{"n_samples": 0}, {"max_edits": 0}, {"n_neighbours": 0}])
def test_message_names_the_invalid_setting(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        DecisionBoundary(**setting)
