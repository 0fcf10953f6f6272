"""Erasing, written out: one row, one stand-in at a time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, Access, HasEmbeddings, Probabilistic, Rows
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.without import compute_removal_effect
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

WAYS = ("zero", "mask", "marginal")


def by_hand(dataset, model, row, label, gone, way):
    """The share of removals that flip the label, and the mean of what they leave of its probability."""
    there = [j for j in range(len(row)) if gone[j] and row[j] != ABSENT]
    if way == "marginal":
        others = Counter(tuple(other[j] for j in there) for other in dataset.train.codes.tolist())
        instead = {values: count / len(dataset.train) for values, count in others.items()}
    else:
        instead = {(ABSENT if way == "zero" else dataset.mask_code,) * len(there): 1.0}
    flips = left = 0.0
    for values, weight in instead.items():
        edited = row.copy()
        for j, value in zip(there, values, strict=True):
            edited[j] = value
        z = logit(model, edited)
        flips += weight * (int(z > 0) != label)
        left += weight * sigmoid(z if label == 1 else -z)
    return flips, left


@given(problems(unknown=1), st.integers(0, 99), st.sampled_from(WAYS))
def test_every_way_on_any_features_of_tables(problem, seed, way):
    dataset, model = problem
    rows = make_rows(dataset, model)
    gone = np.random.default_rng(seed).random(rows.codes.shape) < 0.5
    replacement = REMOVALS[way].fit(dataset, None)
    effect = compute_removal_effect(open_client(model, Access.PROBABILITY), rows, gone, replacement)
    flips, left = effect.flip_rate, effect.probability
    expected = [
        by_hand(dataset, model, row, label, taken, way)
        for row, label, taken in zip(rows.codes, rows.labels, gone, strict=True)
    ]
    assert flips == pytest.approx([flip for flip, _ in expected])
    assert left == pytest.approx([kept for _, kept in expected])
    effect = compute_removal_effect(open_client(model, Access.LABEL), rows, gone, replacement)
    shares, none = effect.flip_rate, effect.probability
    assert none is None and shares == pytest.approx(flips)


@given(problems(absent=0.3, unknown=1), st.integers(0, 99), st.booleans(), st.sampled_from(WAYS))
def test_erasing_touches_the_named_features_or_all_others_and_never_padding(problem, seed, keep, way):
    dataset, model = problem
    codes = dataset.test.codes
    rng = np.random.default_rng(seed)
    features = np.array([[0, rng.choice(np.flatnonzero(row != ABSENT))] for row in codes])
    features[features[:, 0] == features[:, 1], 1] = NO_FEATURE
    told = mark_selected(codes, features)
    seen = []

    class Spy(Probabilistic, HasEmbeddings):
        embed_values = model.embed_values

        def predict_proba(self, asked):
            seen.append(asked)
            return model.predict_proba(asked)

    for i, row in enumerate(codes):
        marked = set(features[i]) - {NO_FEATURE}
        assert told[i].tolist() == [j in marked for j in range(dataset.n_features)]
        gone = (~told if keep else told)[[i]] & (row != ABSENT)
        seen.clear()
        one = Rows(np.arange(1), codes[[i]], predict_labels(model, codes[[i]]))
        compute_removal_effect(open_client(Spy(), Access.PROBABILITY), one, gone, REMOVALS[way].fit(dataset, None))
        for edited in np.concatenate(seen):
            for j, code in enumerate(row):
                removed = (j in marked) != keep and code != ABSENT
                if not removed:
                    assert edited[j] == code
                elif way != "marginal":
                    assert edited[j] == (ABSENT if way == "zero" else 1)


def test_the_mean_over_draws_is_weighted_and_asked_in_parts(monkeypatch):
    dataset = make_dataset([9, 9, 9, 9], n=200)
    model = make_linear(dataset)
    rows = make_rows(dataset, model)
    gone = np.random.default_rng(0).random(rows.codes.shape) < 0.6
    replacement = Marginal(draws=30).fit(dataset, None)
    effect = compute_removal_effect(open_client(model), rows, gone, replacement)
    flips, left = effect.flip_rate, effect.probability
    for i in range(0, 200, 17):
        features = np.flatnonzero(gone[i])
        values, weights = replacement.sample(features)
        edited = np.tile(rows.codes[i], (len(values), 1))
        edited[:, features] = values
        p = model.predict_positive(edited) if rows.labels[i] == 1 else 1 - model.predict_positive(edited)
        assert left[i] == pytest.approx((p * weights).sum())
        assert flips[i] == pytest.approx(((predict_labels(model, edited) != rows.labels[i]) * weights).sum())
    asked = []

    class Spy(Probabilistic, HasEmbeddings):
        embed_values = model.embed_values

        def predict_proba(self, codes):
            asked.append(len(codes))
            return model.predict_proba(codes)

    monkeypatch.setattr("cfeval_cli.core.without._BATCH_ROWS", 64)
    parts = compute_removal_effect(open_client(Spy()), rows, gone, replacement)
    assert max(asked) <= 64 and (parts.flip_rate == flips).all() and parts.probability == pytest.approx(left)


def test_nothing_removed_changes_nothing():
    for dataset in (make_dataset([3, 4], unknown=1), make_dataset([3, 4], unknown=1, absent=0.3)):
        model = make_linear(dataset)
        rows = make_rows(dataset, model)
        for way in WAYS:
            gone = np.zeros(rows.codes.shape, dtype=bool)
            effect = compute_removal_effect(open_client(model), rows, gone, REMOVALS[way].fit(dataset, None))
            flips, left = effect.flip_rate, effect.probability
            assert (flips == 0).all() and left == pytest.approx(rows.probability)


def test_a_black_box_of_three_classes_is_asked_about_whole_rows():
    dataset = make_dataset([4, 3, 2])
    table = np.random.default_rng(3).normal(size=(3, 4, 3))

    class Three(Probabilistic):
        def predict_proba(self, codes):
            told = np.exp(sum(table[j][codes[:, j]] for j in range(3)))
            return told / told.sum(axis=1, keepdims=True)

    model, codes = Three(), dataset.test.codes
    said = model.predict_proba(codes).argmax(axis=1)
    rows = Rows(dataset.test.ids, codes, said)
    gone = np.tile([True, False, True], (len(codes), 1))
    effect = compute_removal_effect(open_client(model, Access.PROBABILITY), rows, gone, Marginal().fit(dataset, None))
    flips, left = effect.flip_rate, effect.probability
    for i, row in enumerate(codes):
        edited = np.tile(row, (len(dataset.train), 1))
        edited[:, [0, 2]] = dataset.train.codes[:, [0, 2]]  # every training row lends its values
        p = model.predict_proba(edited)
        assert left[i] == pytest.approx(p[:, said[i]].mean())
        assert flips[i] == pytest.approx((p.argmax(axis=1) != said[i]).mean())
