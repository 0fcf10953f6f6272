from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Feature,
    HasAdditiveEffects,
    HasAnalyticGradient,
    HasArrays,
    HasGradient,
    HasLinearLogit,
    Probabilistic,
    Restorable,
    SupportsBatchedEmbedding,
    SupportsEdits,
)
from cfeval_cli.core.client import apply_edits, embed_rows
from cfeval_cli.errors import UserError
from cfeval_cli.model.embedding import compute_bins, make_adam_step
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.logistic import Logistic
from cfeval_cli.seeding import draw_seed, make_stream
from tests.problems import logit, make_dataset, make_linear, make_mixed, predict_labels, problems, sigmoid


@given(problems(absent=0.3))
def test_predictions_are_sums_of_effects(problem):
    dataset, model = problem
    codes = dataset.test.codes
    logits = [logit(model, row) for row in codes]
    assert model.predict_positive(codes) == pytest.approx([sigmoid(z) for z in logits])
    assert model.predict_proba(codes) == pytest.approx(np.array([[sigmoid(-z), sigmoid(z)] for z in logits]))
    assert predict_labels(model, codes).tolist() == [int(z > 0) for z in logits]
    second_class = np.ones(len(codes), int)
    for i, row in enumerate(codes):
        parts = [0.0 if c == ABSENT else model.weights[j] @ model.tables[j][c] for j, c in enumerate(row)]
        assert model.compute_effects(codes, second_class)[i] == pytest.approx(parts)
        assert model.compute_effects(codes, 1 - second_class)[i] == pytest.approx(np.negative(parts))


def test_predictions_do_not_depend_on_other_rows(monkeypatch):
    rng = np.random.default_rng(0)
    dataset = make_dataset(rng.integers(2, 9, 30).tolist(), n=300, absent=0.2)
    tables = tuple(rng.normal(size=(len(feature.values), 3)) for feature in dataset.features)
    model = LinearModel(0.3, rng.normal(size=(30, 3)), tables, np.zeros((30, 3)))
    codes = dataset.test.codes
    gathered = model.predict_positive(codes)
    monkeypatch.setattr("cfeval_cli.model.linear._MAX_GATHERED_CODES", 0)
    by_column = model.predict_positive(codes)
    assert (gathered == by_column).all()
    monkeypatch.setattr("cfeval_cli.model.linear._MAX_GATHERED_CODES", 60)
    assert (np.concatenate([model.predict_positive(row[None]) for row in codes]) == gathered).all()


@given(problems(absent=0.3))
def test_embeddings_give_equal_predictions_and_exact_gradients(problem):
    dataset, model = problem
    codes = dataset.test.codes
    vectors = torch.tensor(embed_rows(model, codes), requires_grad=True)
    probabilities = model.predict_proba_embedded(vectors)
    assert probabilities.detach().numpy() == pytest.approx(model.predict_proba(codes))
    p = probabilities[:, 1]
    assert p.detach().numpy() == pytest.approx(model.predict_positive(codes))
    p.sum().backward()
    slope = model.predict_positive(codes) * (1 - model.predict_positive(codes))
    assert vectors.grad.numpy() == pytest.approx(slope[:, None, None] * model.weights)
    assert (embed_rows(model, codes)[codes == ABSENT] == 0).all()


@given(problems(absent=0.2), st.integers(0, 99))
def test_edits_equal_predictions_of_edited_rows(problem, seed):
    dataset, model = problem
    rng = np.random.default_rng(seed)
    codes = dataset.test.codes
    features = rng.permuted(np.tile(np.arange(dataset.n_features), (len(codes), 1)), axis=1)
    features = features[:, : rng.integers(1, dataset.n_features + 1)]
    features[rng.random(features.shape) < 0.2] = NO_FEATURE
    for rows in (rng.integers(0, len(codes), 7), rng.integers(0, len(codes), 1)):
        values = np.full((7, features.shape[1]), ABSENT, dtype=np.int32)
        expected = codes[np.broadcast_to(rows, 7)]
        for edit, row in enumerate(np.broadcast_to(rows, 7)):
            for position, j in enumerate(features[row]):
                if j != NO_FEATURE:
                    values[edit, position] = rng.integers(-1, len(dataset.candidates[j]))
                    expected[edit, j] = values[edit, position]
        edited_rows = np.broadcast_to(rows, 7)
        assert (apply_edits(codes, features, edited_rows, values) == expected).all()
        assert model.predict_edited(codes, features, rows, values) == pytest.approx(model.predict_positive(expected))


def test_mean_effects_are_means_over_training_rows():
    dataset = make_dataset([3, 4, 2], n=50)
    model = make_linear(dataset)
    for of in (0, 1):
        means = model.compute_effects(dataset.train.codes, np.full(50, of)).mean(axis=0)
        assert model.compute_mean_effects()[of] == pytest.approx(means)
        for j in range(3):
            values = np.arange(len(dataset.features[j].values))
            codes = np.zeros((len(values), 3), dtype=np.int32)
            codes[:, j] = values
            assert model.compute_value_effects(j, of) == pytest.approx(
                model.compute_effects(codes, np.full(len(values), of))[:, j]
            )


def make_settings(**changes):
    settings = {
        "learning_rate": {"tabular": 0.01, "text": 0.01},
        "batch_size": {"tabular": 256, "text": 256},
    }
    return Logistic(**{**settings, **changes})


def make_noisy_data(n=400, seed=0):
    """Return a dataset with labels drawn from a linear model, and the model."""
    dataset = make_dataset([3, 4, 2], n=n, seed=seed)
    truth = make_linear(dataset, seed=seed, scale=1)
    rng = np.random.default_rng(seed)
    for split in (dataset.train, dataset.validation, dataset.test):
        split.labels[:] = rng.random(len(split)) < truth.predict_positive(split.codes)
    return dataset, truth


def test_training_recovers_the_true_model():
    dataset, truth = make_noisy_data(2000)
    model = make_settings().fit(dataset, 0)
    mean_error = np.abs(model.predict_positive(dataset.test.codes) - truth.predict_positive(dataset.test.codes)).mean()
    best = (predict_labels(truth, dataset.test.codes) == dataset.test.labels).mean()
    assert (predict_labels(model, dataset.test.codes) == dataset.test.labels).mean() > best - 0.03
    assert mean_error < 0.05
    frequencies = [freq @ table for freq, table in zip(dataset.frequencies, model.tables, strict=True)]
    assert model.means == pytest.approx(np.stack(frequencies))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_numbers_are_embedded_as_bins(missing):
    """A table binned by hand at quantiles of the training rows results in the same model."""
    dataset = make_mixed(3, n=60, categories=1, numbers=3, missing=missing)
    features, tables = [], [split.codes.copy() for split in (dataset.train, dataset.validation, dataset.test)]
    for j, feature in enumerate(dataset.features):
        if feature.kind == "category":
            features.append(feature)
            continue
        train = sorted(code for code in dataset.train.codes[:, j] if code != feature.missing_code)
        cuts = {train[int(np.ceil(len(train) * share)) - 1] for share in (0.25, 0.5, 0.75)} - {train[-1]}
        for table in tables:
            is_missing = table[:, j] == feature.missing_code
            table[:, j] = [sum(cut < code for cut in cuts) for code in table[:, j]]
            table[is_missing, j] = len(cuts) + 1
        features.append(
            Feature(feature.name, tuple(map(str, range(len(cuts) + 1 + (feature.missing_code is not None)))))
        )
    splits = {
        name: replace(getattr(dataset, name), codes=table)
        for name, table in zip(("train", "validation", "test"), tables, strict=True)
    }
    binned_model = make_settings(max_epochs=3).fit(replace(dataset, features=tuple(features), **splits), 1)
    model = make_settings(max_epochs=3).fit(dataset, 1)
    assert np.array_equal(model.predict_positive(dataset.test.codes), binned_model.predict_positive(tables[2]))
    assert model.compute_mean_effects() == pytest.approx(binned_model.compute_mean_effects())
    assert [len(table) for table in model.tables] == [len(feature.values) for feature in dataset.features]


def test_bins_without_training_rows_are_merged():
    dataset = make_mixed(0, n=20, categories=0, numbers=1)
    codes = np.array([[3], [3], [3], [7]] * 5, dtype=np.int32)
    bins = compute_bins(replace(dataset, train=replace(dataset.train, codes=codes)), 0, 4)
    assert bins.tolist() == [int(code > 3) for code in range(len(bins))]
    assert not compute_bins(replace(dataset, train=replace(dataset.train, codes=codes * 0 + 2)), 0, 4).any()


def test_words_share_vectors_and_the_mask_has_the_mean_vector():
    """Training equals training from the same pretrained vectors."""
    dataset, _ = make_noisy_data(200)
    codes = {name: getattr(dataset, name).codes.clip(max=1) for name in ("train", "validation", "test")}
    splits = {name: replace(getattr(dataset, name), codes=array) for name, array in codes.items()}
    words = tuple(Feature(f"token {j}", ("a", "b", "<unk>"), kind="token") for j in range(3))
    counts = np.bincount(codes["train"].ravel(), minlength=3)
    text = replace(
        dataset, kind="text", features=words, mask_code=2, frequencies=(counts / counts.sum(),) * 3, **splits
    )
    model = make_settings(dim=5, max_epochs=4).fit(text, 0)
    assert all(table is model.tables[0] for table in model.tables) and model.tables[0].shape == (3, 5)
    assert model.tables[0][2] == pytest.approx(text.frequencies[0] @ model.tables[0])
    generator = torch.Generator().manual_seed(draw_seed(make_stream(0, "model")))
    start = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    start[2] = 0.0
    pretrained_model = make_settings(dim=5, max_epochs=4)._fit(replace(text, pretrained=start.numpy()), generator)
    assert model.tables[0][:2] == pytest.approx(pretrained_model.tables[0][:2])
    assert model.predict_positive(codes["test"]) == pytest.approx(pretrained_model.predict_positive(codes["test"]))


def test_model_depends_on_the_seed():
    dataset, _ = make_noisy_data()
    first, equal, other = (make_settings(max_epochs=3).fit(dataset, seed).to_arrays() for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], equal[name]) for name in first)
    assert not np.array_equal(first["weights"], other["weights"])
    torch.set_num_threads(2)
    assert all(
        np.array_equal(first[name], array)
        for name, array in make_settings(max_epochs=3).fit(dataset, 0).to_arrays().items()
    )
    assert torch.get_num_threads() == 2


def test_early_stopping_keeps_the_epoch_with_the_lowest_validation_loss():
    dataset, _ = make_noisy_data(60)

    def compute_loss(model):
        p = model.predict_positive(dataset.validation.codes)
        return -np.where(dataset.validation.labels == 1, np.log(p), np.log(1 - p)).mean()

    rate = {
        "learning_rate": {"tabular": 0.2, "text": 1},
        "batch_size": {"tabular": 10, "text": 1},
    }  # high enough to overfit within a few epochs
    losses = [
        compute_loss(make_settings(max_epochs=epochs, patience=100, **rate).fit(dataset, 0)) for epochs in (1, 5, 30)
    ]
    assert losses == sorted(losses, reverse=True)  # losses do not increase with more epochs
    loss_with_patience = compute_loss(make_settings(max_epochs=500, patience=30, **rate).fit(dataset, 0))
    assert loss_with_patience <= losses[-1]


def test_patience_limits_epochs_without_improvement(monkeypatch):
    dataset, _ = make_noisy_data(60)
    epochs = []
    shuffle = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda *a, **k: epochs.append(1) or shuffle(*a, **k))
    rate = {"learning_rate": {"tabular": 0.2, "text": 1}}
    for patience in (1, 4):
        epochs.clear()
        make_settings(max_epochs=2000, patience=patience, **rate).fit(dataset, 0)
        assert patience < len(epochs) < 500


def test_pretrained_vectors_are_shared_and_tuned_or_frozen():
    dataset, _ = make_noisy_data(200)
    rng = np.random.default_rng(0)
    values = tuple(f"w{v}" for v in range(4))
    text = replace(
        dataset,
        kind="text",
        features=tuple(Feature(f"token {j}", values) for j in range(3)),
        pretrained=rng.normal(size=(4, 5)),
        candidates=(np.arange(4, dtype=np.int32),) * 3,
    )
    text.train.codes[::3, 2] = ABSENT
    frozen, tuned = (make_settings(fine_tune=tune, max_epochs=5).fit(text, 0) for tune in (False, True))
    assert all(np.array_equal(table, text.pretrained) for table in frozen.tables)
    assert tuned.tables[0] is tuned.tables[2] and not np.array_equal(tuned.tables[0], text.pretrained)
    for model in (frozen, tuned):
        assert model.to_arrays()["embeddings"].shape == (4, 5)  # stored once
        restored = LinearModel.from_arrays(model.to_arrays())
        assert np.array_equal(restored.predict_positive(text.test.codes), model.predict_positive(text.test.codes))
        is_present = text.train.codes[:, 2] != ABSENT
        assert model.means[2] == pytest.approx(model.tables[2][text.train.codes[is_present, 2]].mean(axis=0))


@given(problems())
def test_model_from_its_arrays_is_equal(problem):
    dataset, model = problem
    restored = LinearModel.from_arrays(model.to_arrays())
    assert (restored.predict_positive(dataset.test.codes) == model.predict_positive(dataset.test.codes)).all()
    assert (restored.compute_mean_effects() == model.compute_mean_effects()).all()
    assert (
        make_settings().restore(model.to_arrays()).predict_positive(dataset.test.codes)
        == model.predict_positive(dataset.test.codes)
    ).all()


@pytest.mark.parametrize(
    "setting",
    [
        {"dim": 0},
        {"patience": "x"},
        {"learning_rate": {"tabular": 0, "text": 1}},
        {"batch_size": {"tabular": 2}},
        {"max_epochs": 0},
    ],
)
def test_invalid_settings_are_refused(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        make_settings(**setting)


def test_optimizer_step_equals_the_definition_of_adam():
    """Compare with Kingma and Ba; the class of torch imports a compiler and is compared in the next test."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in ((4, 3), (), (7,))]
    parameters = [torch.tensor(value).requires_grad_() for value in values]
    step, means, squares = make_adam_step(parameters, 0.05), [0.0] * 3, [0.0] * 3
    for t in range(1, 31):
        gradients = [np.asarray(rng.normal(size=value.shape)) for value in values]
        step(tuple(torch.tensor(gradient) for gradient in gradients))
        for j, g in enumerate(gradients):
            means[j], squares[j] = 0.9 * means[j] + 0.1 * g, 0.999 * squares[j] + 0.001 * g**2
            values[j] = values[j] - 0.05 * means[j] / (1 - 0.9**t) / (np.sqrt(squares[j] / (1 - 0.999**t)) + 1e-8)
            assert parameters[j].detach().numpy() == pytest.approx(values[j], abs=1e-12)


@pytest.mark.slow
def test_optimizer_step_equals_that_of_torch():
    rng = np.random.default_rng(0)
    start = [torch.tensor(rng.normal(size=shape)) for shape in ((4, 3), (), (7,))]
    parameters, reference_parameters = ([p.clone().requires_grad_() for p in start] for _ in range(2))
    step, adam = make_adam_step(parameters, 0.05), torch.optim.Adam(reference_parameters, lr=0.05)
    for _ in range(30):
        gradients = tuple(torch.tensor(rng.normal(size=p.shape)) for p in start)
        step(gradients)
        for p, gradient in zip(reference_parameters, gradients, strict=True):
            p.grad = gradient
        adam.step()
        for a, b in zip(parameters, reference_parameters, strict=True):
            assert a.detach().numpy() == pytest.approx(b.detach().numpy(), abs=1e-12)


def test_abilities_are_declared():
    dataset = make_dataset([3, 2])
    abilities = (
        Probabilistic,
        SupportsEdits,
        SupportsBatchedEmbedding,
        HasGradient,
        HasAnalyticGradient,
        HasLinearLogit,
        HasAdditiveEffects,
        HasArrays,
    )
    assert all(isinstance(make_linear(dataset), ability) for ability in abilities)
    assert isinstance(make_settings(), Restorable)


def test_more_than_two_classes_are_rejected():
    dataset = replace(make_dataset([3, 2]), classes=("a", "b", "c"))
    with pytest.raises(UserError, match="is for two classes, and toy has 3"):
        make_settings().fit(dataset, 0)
