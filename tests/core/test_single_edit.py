"""The best value of a feature equals that of a loop over all its values."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Access, single_edit
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
def test_best_value_has_the_lowest_probability(seed, constrained, access):
    dataset = (
        make_mixed(seed, n=12, missing=0.1) if constrained else make_dataset([3, 2, 4], n=12, seed=seed, absent=0.2)
    )
    dataset = add_constraints(dataset, seed) if constrained else dataset
    model, rng = make_linear(dataset, seed), np.random.default_rng(seed)
    original_codes = dataset.test.codes
    labels, features = predict_labels(model, original_codes), rng.integers(0, dataset.n_features, 12)
    codes = original_codes.copy()  # other features may be edited already
    other = (features + 1) % dataset.n_features
    codes[np.arange(12), other] = np.where(codes[np.arange(12), other] == ABSENT, ABSENT, 0)
    own_values = original_codes[np.arange(12), features]
    result = single_edit.find_best_edit(dataset, open_client(model, access), codes, labels, own_values, features, 100)
    for i, j in enumerate(features):
        candidates = []
        for value in dataset.candidates[j].tolist() if own_values[i] != ABSENT else ():
            if value != own_values[i] and is_permitted(dataset.features[j], own_values[i], value):
                edited = codes[i].copy()
                edited[j] = value
                probability = get_class_proba(model, edited[None], labels[i : i + 1])[0]
                candidates.append((probability, value, predict_labels(model, edited[None])[0] != labels[i]))
        assert result.flips[i] == any(flip for _, _, flip in candidates)
        if access == Access.LABEL or not candidates:
            assert result.probability[i] == np.inf and result.value[i] == codes[i, j]
        else:
            assert result.probability[i] == pytest.approx(min(candidates)[0])
            assert result.value[i] in [
                value for probability, value, _ in candidates if probability == pytest.approx(min(candidates)[0])
            ]


def test_result_does_not_depend_on_batches(monkeypatch):
    dataset = make_dataset([5, 3, 4], n=30, seed=1)
    model = make_linear(dataset, 2)
    codes, features = dataset.test.codes, np.arange(30) % 3
    arguments = (codes, predict_labels(model, codes), codes[np.arange(30), features], features, 100)
    unbatched = single_edit.find_best_edit(dataset, open_client(model), *arguments)
    monkeypatch.setattr(single_edit, "_BATCH_ROWS", 7)
    batched = single_edit.find_best_edit(dataset, open_client(model), *arguments)
    assert (
        unbatched.value.tolist() == batched.value.tolist()
        and unbatched.probability.tolist() == batched.probability.tolist()
    )
