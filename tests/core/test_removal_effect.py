"""Effects of removals equal loops over rows and replacement values."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, HasEmbeddings, Probabilistic, Rows
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.removal_effect import compute_removal_effect
from cfeval_cli.removal.marginal import Marginal
from tests.problems import (
    REMOVALS,
    logit,
    make_dataset,
    make_linear,
    make_rows,
    open_client,
    predict_labels,
    problems,
    sigmoid,
)

REMOVAL_NAMES = ("zero", "mask", "marginal")


def compute_effect_by_hand(dataset, model, row, label, is_removed, removal):
    """Return the share of replacements that flip the label, and the mean probability of the label."""
    removed_features = [j for j in range(len(row)) if is_removed[j] and row[j] != ABSENT]
    if removal == "marginal":
        counts = Counter(tuple(train_row[j] for j in removed_features) for train_row in dataset.train.codes.tolist())
        weight_by_values = {values: count / len(dataset.train) for values, count in counts.items()}
    else:
        weight_by_values = {(ABSENT if removal == "zero" else dataset.mask_code,) * len(removed_features): 1.0}
    flips = probability = 0.0
    for values, weight in weight_by_values.items():
        edited = row.copy()
        for j, value in zip(removed_features, values, strict=True):
            edited[j] = value
        z = logit(model, edited)
        flips += weight * (int(z > 0) != label)
        probability += weight * sigmoid(z if label == 1 else -z)
    return flips, probability


@given(problems(unknown=1), st.integers(0, 99), st.sampled_from(REMOVAL_NAMES))
def test_effects_of_all_removals_equal_those_by_hand(problem, seed, removal):
    dataset, model = problem
    rows = make_rows(dataset, model)
    is_removed = np.random.default_rng(seed).random(rows.codes.shape) < 0.5
    replacement = REMOVALS[removal].fit(dataset, None)
    effect = compute_removal_effect(open_client(model, Access.PROBABILITY), rows, is_removed, replacement)
    flips, probability = effect.flip_rate, effect.probability
    expected = [
        compute_effect_by_hand(dataset, model, row, label, removed_row, removal)
        for row, label, removed_row in zip(rows.codes, rows.predicted_classes, is_removed, strict=True)
    ]
    assert flips == pytest.approx([flip for flip, _ in expected])
    assert probability == pytest.approx([mean for _, mean in expected])
    effect = compute_removal_effect(open_client(model, Access.LABEL), rows, is_removed, replacement)
    shares, missing_probability = effect.flip_rate, effect.probability
    assert missing_probability is None and shares == pytest.approx(flips)


@given(problems(absent=0.3, unknown=1), st.integers(0, 99), st.booleans(), st.sampled_from(REMOVAL_NAMES))
def test_selected_or_other_features_are_removed_but_not_padding(problem, seed, keep, removal):
    dataset, model = problem
    codes = dataset.test.codes
    rng = np.random.default_rng(seed)
    features = np.array([[0, rng.choice(np.flatnonzero(row != ABSENT))] for row in codes])
    features[features[:, 0] == features[:, 1], 1] = NO_FEATURE
    is_selected = mark_selected(codes, features)
    evaluated = []

    class RecordingModelOfCodes(Probabilistic, HasEmbeddings):
        embed_values = model.embed_values

        def predict_proba(self, codes_of_call):
            evaluated.append(codes_of_call)
            return model.predict_proba(codes_of_call)

    for i, row in enumerate(codes):
        selected = set(features[i]) - {NO_FEATURE}
        assert is_selected[i].tolist() == [j in selected for j in range(dataset.n_features)]
        is_removed = (~is_selected if keep else is_selected)[[i]] & (row != ABSENT)
        evaluated.clear()
        instance = Rows(np.arange(1), codes[[i]], predict_labels(model, codes[[i]]))
        compute_removal_effect(
            open_client(RecordingModelOfCodes(), Access.PROBABILITY),
            instance,
            is_removed,
            REMOVALS[removal].fit(dataset, None),
        )
        for edited in np.concatenate(evaluated):
            for j, code in enumerate(row):
                is_expected_removal = (j in selected) != keep and code != ABSENT
                if not is_expected_removal:
                    assert edited[j] == code
                elif removal != "marginal":
                    assert edited[j] == (ABSENT if removal == "zero" else 1)


def test_mean_over_draws_is_weighted_and_computed_in_batches(monkeypatch):
    dataset = make_dataset([9, 9, 9, 9], n=200)
    model = make_linear(dataset)
    rows = make_rows(dataset, model)
    is_removed = np.random.default_rng(0).random(rows.codes.shape) < 0.6
    replacement = Marginal(draws=30).fit(dataset, None)
    effect = compute_removal_effect(open_client(model), rows, is_removed, replacement)
    flips, probability = effect.flip_rate, effect.probability
    for i in range(0, 200, 17):
        features = np.flatnonzero(is_removed[i])
        values, weights = replacement.sample(features)
        edited = np.tile(rows.codes[i], (len(values), 1))
        edited[:, features] = values
        p = model.predict_positive(edited) if rows.predicted_classes[i] == 1 else 1 - model.predict_positive(edited)
        assert probability[i] == pytest.approx((p * weights).sum())
        assert flips[i] == pytest.approx(((predict_labels(model, edited) != rows.predicted_classes[i]) * weights).sum())
    batch_sizes = []

    class RecordingModelOfSizes(Probabilistic, HasEmbeddings):
        embed_values = model.embed_values

        def predict_proba(self, codes):
            batch_sizes.append(len(codes))
            return model.predict_proba(codes)

    monkeypatch.setattr("cfeval_cli.core.removal_effect._BATCH_ROWS", 64)
    parts = compute_removal_effect(open_client(RecordingModelOfSizes()), rows, is_removed, replacement)
    assert (
        max(batch_sizes) <= 64 and (parts.flip_rate == flips).all() and parts.probability == pytest.approx(probability)
    )


def test_nothing_removed_changes_nothing():
    for dataset in (make_dataset([3, 4], unknown=1), make_dataset([3, 4], unknown=1, absent=0.3)):
        model = make_linear(dataset)
        rows = make_rows(dataset, model)
        for removal in REMOVAL_NAMES:
            is_removed = np.zeros(rows.codes.shape, dtype=bool)
            effect = compute_removal_effect(open_client(model), rows, is_removed, REMOVALS[removal].fit(dataset, None))
            flips, probability = effect.flip_rate, effect.probability
            assert (flips == 0).all() and probability == pytest.approx(rows.probability)


def test_black_box_of_three_classes_is_evaluated_on_rows():
    dataset = make_dataset([4, 3, 2])
    table = np.random.default_rng(3).normal(size=(3, 4, 3))

    class BlackBoxOfThreeClasses(Probabilistic):
        def predict_proba(self, codes):
            exponentials = np.exp(sum(table[j][codes[:, j]] for j in range(3)))
            return exponentials / exponentials.sum(axis=1, keepdims=True)

    model, codes = BlackBoxOfThreeClasses(), dataset.test.codes
    labels = model.predict_proba(codes).argmax(axis=1)
    rows = Rows(dataset.test.ids, codes, labels)
    is_removed = np.tile([True, False, True], (len(codes), 1))
    effect = compute_removal_effect(
        open_client(model, Access.PROBABILITY), rows, is_removed, Marginal().fit(dataset, None)
    )
    flips, probability = effect.flip_rate, effect.probability
    for i, row in enumerate(codes):
        edited = np.tile(row, (len(dataset.train), 1))
        edited[:, [0, 2]] = dataset.train.codes[:, [0, 2]]  # the values of every training row are used
        p = model.predict_proba(edited)
        assert probability[i] == pytest.approx(p[:, labels[i]].mean())
        assert flips[i] == pytest.approx((p.argmax(axis=1) != labels[i]).mean())
