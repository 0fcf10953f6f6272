"""A network on embeddings: predictions from codes and embeddings, gradients, texts and arrays."""

import numpy as np
import pytest
import torch

from cfeval_cli.core import (
    ABSENT,
    HasArrays,
    HasGradient,
    HasUsedFeatures,
    ModelSpec,
    Probabilistic,
    SupportsBatchedEmbedding,
)
from cfeval_cli.core.client import embed_rows
from cfeval_cli.model.embedding import check_settings_by_kind
from cfeval_cli.model.mlp import Mlp, MlpModel
from tests.model.test_tree import relabel_randomly
from tests.problems import make_dataset, make_mixed, make_text, open_client

SETTINGS = {
    "learning_rate": {"tabular": 0.02, "text": 0.02}, "batch_size": {"tabular": 32, "text": 32}, "max_epochs": 5,
    "hidden": [6, 4],
}  # fmt: skip


@pytest.fixture(scope="module", params=["table", "classes", "text"])
def fitted(request):
    datasets = {
        "table": lambda: make_mixed(2, n=60, missing=0.1),
        "classes": lambda: relabel_randomly(make_mixed(3, n=60), 3),
        "text": lambda: make_text(n=50),
    }
    dataset = datasets[request.param]()
    return dataset, Mlp(**SETTINGS).fit(dataset, 1)


def test_predictions_equal_the_definition(fitted):
    dataset, model = fitted
    for row in dataset.test.codes[:5]:
        vectors = [
            np.zeros(4) if code == ABSENT else table[code] for code, table in zip(row, model.tables, strict=True)
        ]
        values = np.concatenate(vectors)
        for weights, biases in model.layers[:-1]:
            values = np.array([max(0.0, float(values @ w + b)) for w, b in zip(weights.T, biases, strict=True)])
        logits = values @ model.layers[-1][0] + model.layers[-1][1]
        expected = np.exp(logits) / np.exp(logits).sum()
        assert model.predict_proba(row[None])[0] == pytest.approx(expected)


def test_predictions_do_not_depend_on_other_rows(fitted):
    dataset, model = fitted
    probabilities = model.predict_proba(dataset.test.codes)
    for selection in (slice(0, 1), slice(3, 20), slice(7, 50)):
        assert np.array_equal(model.predict_proba(dataset.test.codes[selection]), probabilities[selection])
    assert model.predict_proba(dataset.test.codes[:0]).shape == (0, len(dataset.classes))


def test_embeddings_give_equal_predictions_and_gradients(fitted):
    dataset, model = fitted
    codes = dataset.test.codes[:4]
    vectors = embed_rows(model, codes)
    assert model.predict_proba_embedded(torch.as_tensor(vectors)).numpy() == pytest.approx(model.predict_proba(codes))
    features, of = np.zeros((4, 1), dtype=np.int64), np.ones(4, dtype=np.int64)
    slope = open_client(model).make_gradient_function(codes, features, of, 1.0)
    start = vectors[:, :1]
    _, gradient = slope(np.arange(4), start)
    for position in range(start.shape[2]):
        step = np.zeros_like(start)
        step[:, :, position] = 1e-6
        up, down = (slope(np.arange(4), start + sign * step)[0] for sign in (1, -1))
        assert (up - down) / 2e-6 == pytest.approx(gradient[:, 0, position], abs=1e-6)


def test_interaction_is_learned():
    dataset = make_dataset([2, 2, 3], n=200, seed=1)
    for split in (dataset.train, dataset.validation, dataset.test):  # no sum of effects can predict these labels
        split.labels[:] = split.codes[:, 0] ^ split.codes[:, 1]
    model = Mlp(**{**SETTINGS, "max_epochs": 60, "hidden": [16]}).fit(dataset, 0)
    assert (model.predict_proba(dataset.test.codes).argmax(axis=1) == dataset.test.labels).mean() > 0.95


def test_model_depends_on_the_seed(fitted):
    dataset, model = fitted
    codes = dataset.test.codes
    assert np.array_equal(Mlp(**SETTINGS).fit(dataset, 1).predict_proba(codes), model.predict_proba(codes))
    assert not np.array_equal(Mlp(**SETTINGS).fit(dataset, 2).predict_proba(codes), model.predict_proba(codes))


def test_model_restored_from_its_arrays_is_equal(fitted):
    dataset, model = fitted
    restored = Mlp(**SETTINGS).restore(model.to_arrays())
    assert np.array_equal(restored.predict_proba(dataset.test.codes), model.predict_proba(dataset.test.codes))


def test_abilities_are_determined_before_training():
    spec = ModelSpec.from_settings(make_dataset([2, 2]), Mlp(**SETTINGS))
    assert spec.kind is MlpModel
    assert all(
        spec.supports(ability)
        for ability in (HasGradient, SupportsBatchedEmbedding, Probabilistic, HasUsedFeatures, HasArrays)
    )


@pytest.mark.parametrize(
    ("setting", "value"), [("hidden", []), ("hidden", [0]), ("hidden", 3), ("dim", 0), ("blind", 2), ("patience", 0)]
)
def test_invalid_settings_are_refused(setting, value):
    with pytest.raises(ValueError, match=setting):
        Mlp(**{**SETTINGS, setting: value})


def test_rates_need_values_for_tables_and_texts():
    for rates in ({"tabular": 1.0}, {"tabular": 1.0, "text": 1.0, "image": 1.0}, {"tabular": 0.0, "text": 1.0}):
        with pytest.raises(ValueError, match="learning_rate"):
            check_settings_by_kind(rates, {"tabular": 1, "text": 1})
