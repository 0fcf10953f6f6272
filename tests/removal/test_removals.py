"""Removals by zero, by the mask token and by training rows."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, BlackBox, ModelSpec
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.zero import Zero
from tests.problems import make_dataset


def test_zero_replaces_features_by_absent_and_needs_embeddings():
    replacement = Zero().fit(make_dataset([3, 2]), None)
    values, weights = replacement.sample(np.array([0, 1]))
    assert replacement.value == ABSENT and values.tolist() == [[ABSENT, ABSENT]] and weights.tolist() == [1.0]
    assert Zero().not_applicable_reason(ModelSpec(make_dataset([3, 2]), LinearModel)) is None
    assert "needs embeddings, which" in Zero().not_applicable_reason(ModelSpec(make_dataset([3, 2]), BlackBox))
    assert Zero().arbitrary and not Mask().arbitrary and not Marginal().arbitrary


def test_mask_replaces_features_by_the_mask_token():
    with_mask = make_dataset([3, 3], unknown=2)
    replacement = Mask().fit(with_mask, None)
    values, weights = replacement.sample(np.array([1]))
    assert replacement.value == 2 and values.tolist() == [[2]] and weights.tolist() == [1.0]
    for kind in (LinearModel, BlackBox):
        assert Mask().not_applicable_reason(ModelSpec(with_mask, kind)) is None
        assert Mask().not_applicable_reason(ModelSpec(make_dataset([3, 2]), kind)) == "toy has no mask token"


def compute_shares(train, features):
    """Return the share of each combination of values in training rows."""
    counts = Counter(tuple(row[j] for j in features) for row in train.tolist())
    return {combination: count / len(train) for combination, count in counts.items()}


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(0, 999))
def test_marginal_of_tables_has_all_combinations_of_training_rows(sizes, seed):
    dataset = make_dataset(sizes, n=12, seed=seed)
    rng = np.random.default_rng(seed)
    features = rng.permutation(len(sizes))[: rng.integers(1, len(sizes) + 1)]
    replacement = Marginal().fit(dataset, None)
    values, weights = replacement.sample(features)
    weight_by_values = {tuple(row): weight for row, weight in zip(values.tolist(), weights.tolist(), strict=True)}
    assert replacement.value is None and len(weight_by_values) == len(values)  # each combination once
    assert weight_by_values == pytest.approx(compute_shares(dataset.train.codes, features))
    assert weights.sum() == pytest.approx(1)


def test_marginal_draws_training_rows_if_there_are_too_many_combinations():
    dataset = make_dataset([9, 9, 9], n=300)
    shares = compute_shares(dataset.train.codes, [2, 0])
    assert len(shares) > 40
    values, weights = Marginal(draws=40).fit(dataset, None).sample(np.array([2, 0]))
    assert values.shape == (40, 2) and weights == pytest.approx(np.full(40, 1 / 40))
    assert {tuple(row) for row in values.tolist()} <= set(shares)  # values of one row stay together
    equal_sample = Marginal(draws=40).fit(dataset, None).sample(np.array([2, 0]))
    assert (equal_sample[0] == values).all()
    other_sample = Marginal(draws=40, seed=1).fit(dataset, None).sample(np.array([2, 0]))
    assert (other_sample[0] != values).any()
    assert len(Marginal(draws=len(shares)).fit(dataset, None).sample(np.array([2, 0]))[0]) == len(shares)
    # with many draws the shares are those of the training set
    large = make_dataset([9] * 5, n=9500)
    values_of_large, _ = Marginal(draws=4000).fit(large, None).sample(np.arange(4))
    assert values_of_large.shape == (4000, 4)
    assert np.bincount(values_of_large[:, 0], minlength=9) / 4000 == pytest.approx(large.frequencies[0], abs=0.02)


def test_marginal_of_texts_draws_words_from_all_positions():
    table = make_dataset([6, 6, 6], n=300, absent=0.3)
    words = table.train.codes[table.train.codes != ABSENT]
    shared = np.bincount(words, minlength=6) / len(words)
    text = replace(table, kind="text", frequencies=(shared,) * 3)
    values, weights = Marginal().fit(text, None).sample(np.array([2]))
    assert dict(zip(values.ravel().tolist(), weights, strict=True)) == pytest.approx(dict(enumerate(shared)))
    values, weights = Marginal(draws=4000).fit(text, None).sample(np.array([0, 2]))
    assert values.shape == (4000, 2) and weights == pytest.approx(np.full(4000, 1 / 4000))
    for column in values.T:
        assert np.bincount(column, minlength=6) / 4000 == pytest.approx(shared, abs=0.03)
    share_of_pair = ((values[:, 0] == 0) & (values[:, 1] == 0)).mean()
    assert share_of_pair == pytest.approx(shared[0] ** 2, abs=0.02)  # words are drawn independently
    values_of_few_draws, weights = Marginal(draws=3).fit(text, None).sample(np.array([1]))
    assert values_of_few_draws.shape == (3, 1) and weights == pytest.approx(np.full(3, 1 / 3))
    assert (Marginal(draws=3).fit(text, None).sample(np.array([1]))[0] == values_of_few_draws).all()


@pytest.mark.parametrize("setting", [{"draws": 0}, {"draws": 1.5}, {"seed": -1}])
def test_message_names_the_invalid_setting(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Marginal(**setting)
