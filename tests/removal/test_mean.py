"""Removal by the mean embedding, written out."""

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


def by_hand(dataset, model, row, gone):
    """The logit with the mean effect in the place of what is removed."""
    z = logit(model, row)
    for j, code in enumerate(row):
        if gone[j] and code != ABSENT:
            effects = model.tables[j] @ model.weights[j]
            z += float(dataset.frequencies[j] @ effects) - effects[code]
    return z


class Plain(Probabilistic, HasGradient):
    """The same model, without a gradient of its own: embeddings go through torch."""

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
    gone = np.random.default_rng(seed).random(rows.codes.shape) < 0.5
    for one in (model, Plain(model)):
        effect = compute_removal_effect(open_client(one), rows, gone, Mean().fit(dataset, open_client(one)))
        flips, left = effect.flip_rate, effect.probability
        for i, row in enumerate(rows.codes):
            z = by_hand(dataset, model, row, gone[i])
            assert left[i] == pytest.approx(sigmoid(z if rows.labels[i] == 1 else -z), abs=1e-9)
            assert flips[i] == ((z > 0) != rows.labels[i]) or abs(z) < 1e-9


def test_mean_does_not_depend_on_the_parametrisation():
    dataset = make_dataset([3, 4, 2])
    model = make_linear(dataset)
    tables = tuple(np.c_[table, np.full(len(table), 3.0)] for table in model.tables)
    means = np.c_[model.means, np.full(len(tables), 3.0)]
    shifted = LinearModel(model.bias - 9.0, np.c_[model.weights, np.ones(3)], tables, means)
    rows = make_rows(dataset, model)
    gone = np.random.default_rng(0).random(rows.codes.shape) < 0.5
    left = [
        compute_removal_effect(open_client(one), rows, gone, Mean().fit(dataset, open_client(one))).probability
        for one in (model, shifted)
    ]
    assert left[0] == pytest.approx(left[1]) and not Mean().arbitrary


def test_omission_by_mean_equals_the_drop():
    dataset = make_dataset([3, 4, 2])
    model = make_linear(dataset)
    told = Omission({"mean": Mean()}, "mean").fit(dataset, open_client(model))(make_batch(dataset, model))
    for i, row in enumerate(dataset.test.codes):
        label = int(logit(model, row) > 0)
        for named, score in zip(told.features[i], told.scores[i], strict=True):
            z = by_hand(dataset, model, row, np.arange(3) == named)
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
