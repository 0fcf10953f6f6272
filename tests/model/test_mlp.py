"""A network on embeddings: the same answers by codes and by embeddings, gradients, texts, and arrays."""

import numpy as np
import pytest
import torch

from cfeval_cli.core import (
    ABSENT,
    HasArrays,
    HasGradient,
    HasReadFeatures,
    ModelSpec,
    Probabilistic,
    SupportsBatchedEmbedding,
)
from cfeval_cli.core.client import embed_rows
from cfeval_cli.model.embedding import check_settings_by_kind
from cfeval_cli.model.mlp import Mlp, MlpModel
from tests.model.test_tree import with_classes
from tests.problems import make_dataset, make_mixed, make_text, open_client

SETTINGS = {
    "learning_rate": {"tabular": 0.02, "text": 0.02}, "batch_size": {"tabular": 32, "text": 32}, "max_epochs": 5,
    "hidden": [6, 4],
}  # fmt: skip


@pytest.fixture(scope="module", params=["table", "classes", "text"])
def fitted(request):
    made = {
        "table": lambda: make_mixed(2, n=60, missing=0.1),
        "classes": lambda: with_classes(make_mixed(3, n=60), 3),
        "text": lambda: make_text(n=50),
    }
    dataset = made[request.param]()
    return dataset, Mlp(**SETTINGS).fit(dataset, 1)


def test_written_out(fitted):
    dataset, model = fitted
    for row in dataset.test.codes[:5]:
        vectors = [
            np.zeros(4) if code == ABSENT else table[code] for code, table in zip(row, model.tables, strict=True)
        ]
        values = np.concatenate(vectors)
        for weights, biases in model.layers[:-1]:
            values = np.array([max(0.0, float(values @ w + b)) for w, b in zip(weights.T, biases, strict=True)])
        logits = values @ model.layers[-1][0] + model.layers[-1][1]
        wanted = np.exp(logits) / np.exp(logits).sum()
        assert model.predict_proba(row[None])[0] == pytest.approx(wanted)


def test_a_row_gets_the_same_bits_among_any_others(fitted):
    dataset, model = fitted
    whole = model.predict_proba(dataset.test.codes)
    for some in (slice(0, 1), slice(3, 20), slice(7, 50)):
        assert np.array_equal(model.predict_proba(dataset.test.codes[some]), whole[some])
    assert model.predict_proba(dataset.test.codes[:0]).shape == (0, len(dataset.classes))


def test_embeddings_get_the_same_answer_and_gradients_are_finite_differences(fitted):
    dataset, model = fitted
    codes = dataset.test.codes[:4]
    vectors = embed_rows(model, codes)
    assert model.predict_proba_embedded(torch.as_tensor(vectors)).numpy() == pytest.approx(model.predict_proba(codes))
    features, of = np.zeros((4, 1), dtype=np.int64), np.ones(4, dtype=np.int64)
    slope = open_client(model).make_gradient_function(codes, features, of, 1.0)
    start = vectors[:, :1]
    _, gradient = slope(np.arange(4), start)
    for place in range(start.shape[2]):
        step = np.zeros_like(start)
        step[:, :, place] = 1e-6
        up, down = (slope(np.arange(4), start + sign * step)[0] for sign in (1, -1))
        assert (up - down) / 2e-6 == pytest.approx(gradient[:, 0, place], abs=1e-6)


def test_it_learns():
    dataset = make_dataset([2, 2, 3], n=200, seed=1)
    for split in (dataset.train, dataset.validation, dataset.test):  # of which no sum of effects knows anything
        split.labels[:] = split.codes[:, 0] ^ split.codes[:, 1]
    model = Mlp(**{**SETTINGS, "max_epochs": 60, "hidden": [16]}).fit(dataset, 0)
    assert (model.predict_proba(dataset.test.codes).argmax(axis=1) == dataset.test.labels).mean() > 0.95


def test_the_same_seed_gives_the_same_model(fitted):
    dataset, model = fitted
    codes = dataset.test.codes
    assert np.array_equal(Mlp(**SETTINGS).fit(dataset, 1).predict_proba(codes), model.predict_proba(codes))
    assert not np.array_equal(Mlp(**SETTINGS).fit(dataset, 2).predict_proba(codes), model.predict_proba(codes))


def test_model_restored_from_its_arrays_is_equal(fitted):
    dataset, model = fitted
    again = Mlp(**SETTINGS).restore(model.to_arrays())
    assert np.array_equal(again.predict_proba(dataset.test.codes), model.predict_proba(dataset.test.codes))


def test_what_it_can_answer_is_known_before():
    spec = ModelSpec.from_settings(make_dataset([2, 2]), Mlp(**SETTINGS))
    assert spec.kind is MlpModel
    assert all(
        spec.supports(ability)
        for ability in (HasGradient, SupportsBatchedEmbedding, Probabilistic, HasReadFeatures, HasArrays)
    )


@pytest.mark.parametrize(
    ("setting", "value"), [("hidden", []), ("hidden", [0]), ("hidden", 3), ("dim", 0), ("blind", 2), ("patience", 0)]
)
def test_invalid_settings_are_refused(setting, value):
    with pytest.raises(ValueError, match=setting):
        Mlp(**{**SETTINGS, setting: value})


def test_rates_are_given_for_tables_and_texts():
    for rates in ({"tabular": 1.0}, {"tabular": 1.0, "text": 1.0, "image": 1.0}, {"tabular": 0.0, "text": 1.0}):
        with pytest.raises(ValueError, match="learning_rate"):
            check_settings_by_kind(rates, {"tabular": 1, "text": 1})
