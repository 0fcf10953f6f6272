"""Removal by the mean embedding equals its definition."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Access, BlackBox, HasGradient, ModelSpec, Probabilistic, Rows
from cfeval_cli.core.removal_effect import compute_removal_effect
from cfeval_cli.explainer.omission import Omission
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.removal.mean import Mean
from tests.problems import logit, make_batch, make_dataset, make_linear, make_rows, open_client, problems, sigmoid


def compute_logit_by_hand(dataset, model, row, is_removed):
    """Return the logit with mean effects in place of the effects of removed features."""
    z = logit(model, row)
    for j, code in enumerate(row):
        if is_removed[j] and code != ABSENT:
            effects = model.tables[j] @ model.weights[j]
            z += float(dataset.frequencies[j] @ effects) - effects[code]
    return z


class ModelWithTorchGradient(Probabilistic, HasGradient):
    """The same model without an analytic gradient, so that torch computes it."""

    def __init__(self, model):
        self.model = model

    def embed_values(self, feature, codes):
        return self.model.embed_values(feature, codes)

    def predict_proba_embedded(self, vectors):
        return self.model.predict_proba_embedded(vectors)

    def predict_proba(self, codes):
        return self.model.predict_proba(codes)


@given(problems(absent=0.2), st.integers(0, 99))
def test_probability_equals_that_of_mean_effects(problem, seed):
    dataset, model = problem
    rows = make_rows(dataset, model)
    is_removed = np.random.default_rng(seed).random(rows.codes.shape) < 0.5
    for tested_model in (model, ModelWithTorchGradient(model)):
        effect = compute_removal_effect(
            open_client(tested_model), rows, is_removed, Mean().fit(dataset, open_client(tested_model))
        )
        flips, probability = effect.flip_rate, effect.probability
        for i, row in enumerate(rows.codes):
            z = compute_logit_by_hand(dataset, model, row, is_removed[i])
            assert probability[i] == pytest.approx(sigmoid(z if rows.predicted_classes[i] == 1 else -z), abs=1e-9)
            assert flips[i] == ((z > 0) != rows.predicted_classes[i]) or abs(z) < 1e-9


def test_mean_does_not_depend_on_the_parametrisation():
    dataset = make_dataset([3, 4, 2])
    model = make_linear(dataset)
    tables = tuple(np.c_[table, np.full(len(table), 3.0)] for table in model.tables)
    means = np.c_[model.means, np.full(len(tables), 3.0)]
    shifted = LinearModel(model.bias - 9.0, np.c_[model.weights, np.ones(3)], tables, means)
    rows = make_rows(dataset, model)
    is_removed = np.random.default_rng(0).random(rows.codes.shape) < 0.5
    probabilities = [
        compute_removal_effect(
            open_client(tested_model), rows, is_removed, Mean().fit(dataset, open_client(tested_model))
        ).probability
        for tested_model in (model, shifted)
    ]
    assert probabilities[0] == pytest.approx(probabilities[1]) and not Mean().arbitrary


def test_omission_by_mean_equals_the_drop():
    dataset = make_dataset([3, 4, 2])
    model = make_linear(dataset)
    explanation = Omission({"mean": Mean()}, "mean").fit(dataset, open_client(model))(make_batch(dataset, model))
    for i, row in enumerate(dataset.test.codes):
        label = int(logit(model, row) > 0)
        for feature, score in zip(explanation.features[i], explanation.scores[i], strict=True):
            z = compute_logit_by_hand(dataset, model, row, np.arange(3) == feature)
            drop = sigmoid(logit(model, row) * (2 * label - 1)) - sigmoid(z * (2 * label - 1))
            assert score == pytest.approx(drop, abs=1e-9)


def test_mean_needs_a_model_on_embeddings():
    dataset = make_dataset([3, 2])
    assert Mean().not_applicable_reason(ModelSpec(dataset, LinearModel)) is None
    assert "gradients in the embeddings" in Mean().not_applicable_reason(ModelSpec(dataset, BlackBox))
    empty = Rows(*(array[:0] for array in (dataset.test.ids, dataset.test.codes, dataset.test.labels)))
    replacement = Mean().fit(dataset, open_client(make_linear(dataset), Access.GRADIENT))
    assert (
        len(
            compute_removal_effect(
                open_client(make_linear(dataset)), empty, np.zeros((0, 2), bool), replacement
            ).flip_rate
        )
        == 0
    )
