import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Access, ModelSpec, Probabilistic
from cfeval_cli.core.ranking import find_top_k
from cfeval_cli.model.additive import AdditiveModel
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.truth.absolute import Absolute
from cfeval_cli.truth.contrast import Contrast
from cfeval_cli.truth.shapley import Shapley
from cfeval_cli.truth.signed import Signed
from tests.problems import (
    TRUTHS,
    add_constraints,
    compute_importance,
    is_permitted,
    logit,
    make_dataset,
    make_linear,
    make_mixed,
    predict_labels,
    problems,
)


@given(problems(absent=0.2))
def test_values_equal_the_definitions(problem):
    dataset, model = problem
    codes = dataset.test.codes
    predicted_labels = predict_labels(model, codes)
    result = {name: compute_importance(name, model, dataset, codes, predicted_labels) for name in TRUTHS}
    for i, row in enumerate(codes):
        sign = 1 if predicted_labels[i] == 1 else -1
        for j, own in enumerate(row):
            if own == ABSENT:
                assert all(scores[i, j] == -np.inf for scores in result.values())
                continue
            c = [float(model.weights[j] @ e) for e in model.tables[j]]
            mean = float(np.dot(dataset.frequencies[j], c))
            drops = []
            for v in range(len(c)):
                if v != own:
                    other = row.copy()
                    other[j] = v
                    drops.append(sign * (logit(model, row) - logit(model, other)))
            assert result["signed"][i, j] == pytest.approx(sign * c[own])
            assert result["absolute"][i, j] == pytest.approx(abs(c[own]))
            assert result["shapley"][i, j] == pytest.approx(sign * (c[own] - mean))
            assert result["contrast"][i, j] == pytest.approx(max(drops))


@given(st.integers(0, 500), st.sampled_from([0.0, 0.3]))
def test_contrast_uses_the_candidate_values_of_searches(seed, missing):
    dataset = make_mixed(seed, n=8, missing=missing, tried=3)
    model = make_linear(dataset, seed=seed)
    if seed % 3:
        dataset = add_constraints(dataset, seed)
    codes = dataset.test.codes
    predicted_labels = predict_labels(model, codes)
    result = compute_importance("contrast", model, dataset, codes, predicted_labels)
    for i, row in enumerate(codes):
        for j, own in enumerate(row):
            drops = []
            for v in dataset.candidates[j]:
                other = row.copy()
                other[j] = v
                if v != own and is_permitted(dataset.features[j], own, v):
                    drops.append((1 if predicted_labels[i] else -1) * (logit(model, row) - logit(model, other)))
            assert result[i, j] == pytest.approx(max(drops, default=0.0))


@given(problems(), st.integers(-5, 5), st.integers(0, 3))
def test_shapley_and_contrast_do_not_depend_on_the_parametrisation(problem, delta, feature):
    """Adding δ to every effect of a feature and taking it from the bias changes no prediction."""
    dataset, model = problem
    j = feature % dataset.n_features
    # an extra embedding dimension of weight 1 carries the shift
    tables = tuple(np.c_[t, np.full(len(t), delta if i == j else 0.0)] for i, t in enumerate(model.tables))
    weights = np.c_[model.weights, np.ones(len(tables))]
    means = np.c_[model.means, [delta if i == j else 0.0 for i in range(len(tables))]]
    shifted = LinearModel(model.bias - delta, weights, tables, means)
    codes = dataset.test.codes
    predicted_labels = predict_labels(model, codes)
    assert shifted.predict_positive(codes) == pytest.approx(model.predict_positive(codes))
    for name in ("shapley", "contrast"):
        a, b = (compute_importance(name, m, dataset, codes, predicted_labels) for m in (model, shifted))
        assert a == pytest.approx(b)
    signed = [compute_importance("signed", m, dataset, codes, predicted_labels)[:, j] for m in (model, shifted)]
    assert np.abs(signed[1] - signed[0]) == pytest.approx(abs(delta))


def test_top_sorts_by_importance_then_feature_without_absent_ones():
    scores = np.array([[1.0, 3.0, 3.0, -np.inf]])
    assert find_top_k(scores, 2).tolist() == [[1, 2]]
    assert find_top_k(scores, 4).tolist() == [[1, 2, 0, -1]]
    assert find_top_k(scores, 6).tolist() == [[1, 2, 0, -1, -1, -1]]


def test_questions_and_identifiability_are_declared():
    result = {truth.name: (truth.question, truth.arbitrary) for truth in (Signed(), Absolute(), Shapley(), Contrast())}
    assert result == {
        "signed": ("paper", True),
        "absolute": ("paper", True),
        "shapley": ("contribution", False),
        "contrast": ("change", False),
    }


def test_reason_for_models_without_effects_or_embeddings():
    class ModelWithoutEffects(Probabilistic):
        def predict_proba(self, codes):
            raise AssertionError

    dataset = make_dataset([3, 2])
    for name, truth in TRUTHS.items():
        assert truth.access is Access.WHITE_BOX and truth.not_applicable_reason(ModelSpec(dataset, LinearModel)) is None
        reason = truth.not_applicable_reason(ModelSpec(dataset, ModelWithoutEffects))
        assert reason is None if name in ("shapley", "contrast") else "a sum of effects" in reason
        reason_of_additive_model = truth.not_applicable_reason(
            ModelSpec(dataset, AdditiveModel)
        )  # additive models have no embeddings
        assert "embeddings" in reason_of_additive_model if truth.arbitrary else reason_of_additive_model is None
