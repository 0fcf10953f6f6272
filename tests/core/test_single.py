"""Every value of one feature, tried by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Access, single
from tests.problems import (
    add_constraints,
    get_class_proba,
    is_permitted,
    make_dataset,
    make_linear,
    make_mixed,
    open_client,
    predict_labels,
)


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([Access.LABEL, Access.PROBABILITY]))
def test_the_value_that_leaves_least(seed, constrained, access):
    dataset = (
        make_mixed(seed, n=12, missing=0.1) if constrained else make_dataset([3, 2, 4], n=12, seed=seed, absent=0.2)
    )
    dataset = add_constraints(dataset, seed) if constrained else dataset
    model, rng = make_linear(dataset, seed), np.random.default_rng(seed)
    whole = dataset.test.codes
    said, features = predict_labels(model, whole), rng.integers(0, dataset.n_features, 12)
    codes = whole.copy()  # which may have been edited elsewhere
    other = (features + 1) % dataset.n_features
    codes[np.arange(12), other] = np.where(codes[np.arange(12), other] == ABSENT, ABSENT, 0)
    own = whole[np.arange(12), features]
    found = single.find_best_edit(dataset, open_client(model, access), codes, said, own, features, 100)
    for i, j in enumerate(features):
        tries = []
        for value in dataset.candidates[j].tolist() if own[i] != ABSENT else ():
            if value != own[i] and is_permitted(dataset.features[j], own[i], value):
                edited = codes[i].copy()
                edited[j] = value
                left = get_class_proba(model, edited[None], said[i : i + 1])[0]
                tries.append((left, value, predict_labels(model, edited[None])[0] != said[i]))
        assert found.flips[i] == any(flip for _, _, flip in tries)
        if access == Access.LABEL or not tries:
            assert found.probability[i] == np.inf and found.value[i] == codes[i, j]
        else:
            assert found.probability[i] == pytest.approx(min(tries)[0])
            assert found.value[i] in [value for left, value, _ in tries if left == pytest.approx(min(tries)[0])]


def test_parts_make_no_difference(monkeypatch):
    dataset = make_dataset([5, 3, 4], n=30, seed=1)
    model = make_linear(dataset, 2)
    codes, features = dataset.test.codes, np.arange(30) % 3
    given_ = (codes, predict_labels(model, codes), codes[np.arange(30), features], features, 100)
    whole = single.find_best_edit(dataset, open_client(model), *given_)
    monkeypatch.setattr(single, "_BATCH_ROWS", 7)
    parts = single.find_best_edit(dataset, open_client(model), *given_)
    assert whole.value.tolist() == parts.value.tolist() and whole.probability.tolist() == parts.probability.tolist()
