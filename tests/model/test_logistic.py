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
def test_predictions_are_the_sum_written_out(problem):
    dataset, model = problem
    codes = dataset.test.codes
    logits = [logit(model, row) for row in codes]
    assert model.predict_positive(codes) == pytest.approx([sigmoid(z) for z in logits])
    assert model.predict_proba(codes) == pytest.approx(np.array([[sigmoid(-z), sigmoid(z)] for z in logits]))
    assert predict_labels(model, codes).tolist() == [int(z > 0) for z in logits]
    ones = np.ones(len(codes), int)
    for i, row in enumerate(codes):
        parts = [0.0 if c == ABSENT else model.weights[j] @ model.tables[j][c] for j, c in enumerate(row)]
        assert model.compute_effects(codes, ones)[i] == pytest.approx(parts)
        assert model.compute_effects(codes, 1 - ones)[i] == pytest.approx(np.negative(parts))


def test_a_row_gets_the_same_bits_in_any_company(monkeypatch):
    rng = np.random.default_rng(0)
    dataset = make_dataset(rng.integers(2, 9, 30).tolist(), n=300, absent=0.2)
    tables = tuple(rng.normal(size=(len(feature.values), 3)) for feature in dataset.features)
    model = LinearModel(0.3, rng.normal(size=(30, 3)), tables, np.zeros((30, 3)))
    codes = dataset.test.codes
    at_once = model.predict_positive(codes)
    monkeypatch.setattr("cfeval_cli.model.linear._MAX_GATHERED_CODES", 0)
    by_column = model.predict_positive(codes)
    assert (at_once == by_column).all()
    monkeypatch.setattr("cfeval_cli.model.linear._MAX_GATHERED_CODES", 60)
    assert (np.concatenate([model.predict_positive(row[None]) for row in codes]) == at_once).all()


@given(problems(absent=0.3))
def test_embeddings_give_the_same_predictions_and_the_right_gradient(problem):
    dataset, model = problem
    codes = dataset.test.codes
    vectors = torch.tensor(embed_rows(model, codes), requires_grad=True)
    both = model.predict_proba_embedded(vectors)
    assert both.detach().numpy() == pytest.approx(model.predict_proba(codes))
    p = both[:, 1]
    assert p.detach().numpy() == pytest.approx(model.predict_positive(codes))
    p.sum().backward()
    slope = model.predict_positive(codes) * (1 - model.predict_positive(codes))
    assert vectors.grad.numpy() == pytest.approx(slope[:, None, None] * model.weights)
    assert (embed_rows(model, codes)[codes == ABSENT] == 0).all()


@given(problems(absent=0.2), st.integers(0, 99))
def test_edits_are_evaluated_as_if_every_row_were_made(problem, seed):
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
            for place, j in enumerate(features[row]):
                if j != NO_FEATURE:
                    values[edit, place] = rng.integers(-1, len(dataset.candidates[j]))
                    expected[edit, j] = values[edit, place]
        everyone = np.broadcast_to(rows, 7)
        assert (apply_edits(codes, features, everyone, values) == expected).all()
        assert model.predict_edited(codes, features, rows, values) == pytest.approx(model.predict_positive(expected))


def test_mean_effects_are_averages_over_the_training_rows():
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


def make(**changes):
    settings = {
        "learning_rate": {"tabular": 0.01, "text": 0.01},
        "batch_size": {"tabular": 256, "text": 256},
    }
    return Logistic(**{**settings, **changes})


def noisy(n=400, seed=0):
    """Labels drawn from a known white box."""
    dataset = make_dataset([3, 4, 2], n=n, seed=seed)
    truth = make_linear(dataset, seed=seed, scale=1)
    rng = np.random.default_rng(seed)
    for split in (dataset.train, dataset.validation, dataset.test):
        split.labels[:] = rng.random(len(split)) < truth.predict_positive(split.codes)
    return dataset, truth


def test_training_comes_near_the_model_that_made_the_labels():
    dataset, truth = noisy(2000)
    model = make().fit(dataset, 0)
    off = np.abs(model.predict_positive(dataset.test.codes) - truth.predict_positive(dataset.test.codes)).mean()
    best = (predict_labels(truth, dataset.test.codes) == dataset.test.labels).mean()
    assert (predict_labels(model, dataset.test.codes) == dataset.test.labels).mean() > best - 0.03
    assert off < 0.05
    frequencies = [freq @ table for freq, table in zip(dataset.frequencies, model.tables, strict=True)]
    assert model.means == pytest.approx(np.stack(frequencies))


@pytest.mark.parametrize("missing", [0.0, 0.3])
def test_numbers_are_embedded_as_the_categories_that_their_bins_are(missing):
    """Cut by hand at quantiles of the training rows, the same table of categories gives the same model."""
    dataset = make_mixed(3, n=60, categories=1, numbers=3, missing=missing)
    features, tables = [], [split.codes.copy() for split in (dataset.train, dataset.validation, dataset.test)]
    for j, feature in enumerate(dataset.features):
        if feature.kind == "category":
            features.append(feature)
            continue
        train = sorted(code for code in dataset.train.codes[:, j] if code != feature.missing_code)
        cuts = {train[int(np.ceil(len(train) * share)) - 1] for share in (0.25, 0.5, 0.75)} - {train[-1]}
        for table in tables:
            gone = table[:, j] == feature.missing_code
            table[:, j] = [sum(cut < code for cut in cuts) for code in table[:, j]]
            table[gone, j] = len(cuts) + 1
        features.append(
            Feature(feature.name, tuple(map(str, range(len(cuts) + 1 + (feature.missing_code is not None)))))
        )
    splits = {
        name: replace(getattr(dataset, name), codes=table)
        for name, table in zip(("train", "validation", "test"), tables, strict=True)
    }
    by_hand = make(max_epochs=3).fit(replace(dataset, features=tuple(features), **splits), 1)
    model = make(max_epochs=3).fit(dataset, 1)
    assert np.array_equal(model.predict_positive(dataset.test.codes), by_hand.predict_positive(tables[2]))
    assert model.compute_mean_effects() == pytest.approx(by_hand.compute_mean_effects())
    assert [len(table) for table in model.tables] == [len(feature.values) for feature in dataset.features]


def test_a_number_of_few_values_has_no_bin_without_training_rows():
    dataset = make_mixed(0, n=20, categories=0, numbers=1)
    codes = np.array([[3], [3], [3], [7]] * 5, dtype=np.int32)
    bins = compute_bins(replace(dataset, train=replace(dataset.train, codes=codes)), 0, 4)
    assert bins.tolist() == [int(code > 3) for code in range(len(bins))]
    assert not compute_bins(replace(dataset, train=replace(dataset.train, codes=codes * 0 + 2)), 0, 4).any()


def test_words_trained_from_nothing_have_one_vector_wherever_they_stand_and_the_mask_is_the_usual_one():
    """The same as if the starting vectors had been given."""
    dataset, _ = noisy(200)
    codes = {name: getattr(dataset, name).codes.clip(max=1) for name in ("train", "validation", "test")}
    splits = {name: replace(getattr(dataset, name), codes=array) for name, array in codes.items()}
    words = tuple(Feature(f"token {j}", ("a", "b", "<unk>"), kind="token") for j in range(3))
    counts = np.bincount(codes["train"].ravel(), minlength=3)
    text = replace(
        dataset, kind="text", features=words, mask_code=2, frequencies=(counts / counts.sum(),) * 3, **splits
    )
    model = make(dim=5, max_epochs=4).fit(text, 0)
    assert all(table is model.tables[0] for table in model.tables) and model.tables[0].shape == (3, 5)
    assert model.tables[0][2] == pytest.approx(text.frequencies[0] @ model.tables[0])
    generator = torch.Generator().manual_seed(draw_seed(make_stream(0, "model")))
    start = torch.randn(3, 5, generator=generator, dtype=torch.float64)
    start[2] = 0.0
    given = make(dim=5, max_epochs=4)._fit(replace(text, pretrained=start.numpy()), generator)
    assert model.tables[0][:2] == pytest.approx(given.tables[0][:2])
    assert model.predict_positive(codes["test"]) == pytest.approx(given.predict_positive(codes["test"]))


def test_the_same_seed_gives_the_same_bits_and_another_seed_another_model():
    dataset, _ = noisy()
    first, again, other = (make(max_epochs=3).fit(dataset, seed).to_arrays() for seed in (0, 0, 1))
    assert all(np.array_equal(first[name], again[name]) for name in first)
    assert not np.array_equal(first["weights"], other["weights"])
    torch.set_num_threads(2)
    assert all(
        np.array_equal(first[name], array) for name, array in make(max_epochs=3).fit(dataset, 0).to_arrays().items()
    )
    assert torch.get_num_threads() == 2


def test_early_stopping_keeps_the_epoch_with_the_lowest_validation_loss():
    dataset, _ = noisy(60)

    def loss(model):
        p = model.predict_positive(dataset.validation.codes)
        return -np.where(dataset.validation.labels == 1, np.log(p), np.log(1 - p)).mean()

    rate = {
        "learning_rate": {"tabular": 0.2, "text": 1},
        "batch_size": {"tabular": 10, "text": 1},
    }  # high enough to overfit within a few epochs
    by_epochs = [loss(make(max_epochs=epochs, patience=100, **rate).fit(dataset, 0)) for epochs in (1, 5, 30)]
    assert by_epochs == sorted(by_epochs, reverse=True)  # never worse than what an earlier epoch had
    patient = loss(make(max_epochs=500, patience=30, **rate).fit(dataset, 0))
    assert patient <= by_epochs[-1]


def test_training_stops_when_the_validation_loss_has_not_fallen_for_so_many_epochs(monkeypatch):
    dataset, _ = noisy(60)
    epochs = []
    shuffle = torch.randperm
    monkeypatch.setattr(torch, "randperm", lambda *a, **k: epochs.append(1) or shuffle(*a, **k))
    rate = {"learning_rate": {"tabular": 0.2, "text": 1}}
    for patience in (1, 4):
        epochs.clear()
        make(max_epochs=2000, patience=patience, **rate).fit(dataset, 0)
        assert patience < len(epochs) < 500


def test_pretrained_vectors_are_shared_tuned_or_frozen_and_padding_stays_zero():
    dataset, _ = noisy(200)
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
    frozen, tuned = (make(fine_tune=tune, max_epochs=5).fit(text, 0) for tune in (False, True))
    assert all(np.array_equal(table, text.pretrained) for table in frozen.tables)
    assert tuned.tables[0] is tuned.tables[2] and not np.array_equal(tuned.tables[0], text.pretrained)
    for model in (frozen, tuned):
        assert model.to_arrays()["embeddings"].shape == (4, 5)  # stored once
        back = LinearModel.from_arrays(model.to_arrays())
        assert np.array_equal(back.predict_positive(text.test.codes), model.predict_positive(text.test.codes))
        there = text.train.codes[:, 2] != ABSENT
        assert model.means[2] == pytest.approx(model.tables[2][text.train.codes[there, 2]].mean(axis=0))


@given(problems())
def test_model_from_its_arrays_is_equal(problem):
    dataset, model = problem
    back = LinearModel.from_arrays(model.to_arrays())
    assert (back.predict_positive(dataset.test.codes) == model.predict_positive(dataset.test.codes)).all()
    assert (back.compute_mean_effects() == model.compute_mean_effects()).all()
    assert (
        make().restore(model.to_arrays()).predict_positive(dataset.test.codes)
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
        make(**setting)


def test_a_step_is_adams_written_out():
    """As Kingma and Ba have it: torch's own class, with which the next test compares, imports a compiler first."""
    rng = np.random.default_rng(0)
    values = [rng.normal(size=shape) for shape in ((4, 3), (), (7,))]
    ours = [torch.tensor(value).requires_grad_() for value in values]
    step, means, squares = make_adam_step(ours, 0.05), [0.0] * 3, [0.0] * 3
    for t in range(1, 31):
        gradients = [np.asarray(rng.normal(size=value.shape)) for value in values]
        step(tuple(torch.tensor(gradient) for gradient in gradients))
        for j, g in enumerate(gradients):
            means[j], squares[j] = 0.9 * means[j] + 0.1 * g, 0.999 * squares[j] + 0.001 * g**2
            values[j] = values[j] - 0.05 * means[j] / (1 - 0.9**t) / (np.sqrt(squares[j] / (1 - 0.999**t)) + 1e-8)
            assert ours[j].detach().numpy() == pytest.approx(values[j], abs=1e-12)


@pytest.mark.slow
def test_a_step_is_that_of_torchs_adam():
    rng = np.random.default_rng(0)
    start = [torch.tensor(rng.normal(size=shape)) for shape in ((4, 3), (), (7,))]
    ours, theirs = ([p.clone().requires_grad_() for p in start] for _ in range(2))
    step, adam = make_adam_step(ours, 0.05), torch.optim.Adam(theirs, lr=0.05)
    for _ in range(30):
        gradients = tuple(torch.tensor(rng.normal(size=p.shape)) for p in start)
        step(gradients)
        for p, gradient in zip(theirs, gradients, strict=True):
            p.grad = gradient
        adam.step()
        for a, b in zip(ours, theirs, strict=True):
            assert a.detach().numpy() == pytest.approx(b.detach().numpy(), abs=1e-12)


def test_it_can_answer_everything_and_says_so():
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
    assert isinstance(make(), Restorable)


def test_more_than_two_classes_are_rejected():
    three = replace(make_dataset([3, 2]), classes=("a", "b", "c"))
    with pytest.raises(UserError, match="is for two classes, and toy has 3"):
        make().fit(three, 0)
