"""Responsibility and contrast against every input of a small domain."""

from dataclasses import replace
from itertools import chain, combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import BlackBox, Classifier, ModelSpec
from cfeval_cli.model.external import LabelModel
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.tree import TreeModel
from cfeval_cli.truth.alternatives import count_alternatives
from cfeval_cli.truth.contrast import Contrast
from cfeval_cli.truth.responsibility import Responsibility
from tests.problems import add_constraints, is_permitted, make_dataset, make_mixed, make_text, open_client
from tests.truth.models import PredictionsOnlyModel, make_random_tree, predict_test_rows


def choices(dataset, row, j):
    """What a feature may have instead of its own value, by the words of the constraint."""
    feature = dataset.features[j]
    values = dataset.candidates[j] if feature.kind == "number" else range(len(feature.values))
    return [v for v in values if v != row[j] and is_permitted(feature, row[j], v)]


def can_flip(dataset, model, row, label, subset):
    """Return whether other values of all features of a subset can change the class."""
    for values in product(*(choices(dataset, row, j) for j in subset)):
        other = row.copy()
        other[list(subset)] = values
        if model.predict_proba(other[None])[0].argmax() != label:
            return True
    return False


def compute_responsibility_by_search(dataset, model, row, label, max_size):
    """Return 1 / size of the smallest minimal flipping set with each feature, or 0."""
    width = len(row)
    subsets = chain.from_iterable(combinations(range(width), size) for size in range(1, max_size + 1))
    flipping = [set(subset) for subset in subsets if can_flip(dataset, model, row, label, subset)]
    minimal = [minimal_set for minimal_set in flipping if not any(other < minimal_set for other in flipping)]
    return [
        max((1 / len(minimal_set) for minimal_set in minimal if j in minimal_set), default=0.0) for j in range(width)
    ]


@given(st.integers(0, 10_000))
def test_responsibility_equals_the_search_over_all_sets(seed):
    dataset = make_mixed(seed, n=4, categories=2, numbers=2, missing=0.2 * (seed % 2), tried=3)
    if seed % 3:
        dataset = add_constraints(dataset, seed)
    model = make_random_tree(dataset, seed, classes=2 + seed % 2)
    rows = predict_test_rows(dataset, model)
    result = Responsibility().estimate(dataset, open_client(model), rows)
    assert result.method == "exact" and result.standard_error is None
    pairs = Responsibility().estimate(dataset, open_client(PredictionsOnlyModel(model)), rows)
    n_changeable = int(dataset.is_changeable.sum())
    assert pairs.method == ("searched up to sets of two" if n_changeable > 2 else "exact")
    assert (pairs.standard_error is None) == (n_changeable <= 2) and (
        pairs.standard_error is None or np.isnan(pairs.standard_error).all()
    )
    # A dataset without changeable features has no alternatives.
    single = Responsibility(budget=max(1, count_alternatives(dataset))).estimate(
        dataset, open_client(PredictionsOnlyModel(model)), rows
    )
    assert single.method == "searched single features only" or n_changeable < 2
    for i in range(2):
        row, label = rows.codes[i], rows.predicted_classes[i]
        assert result.importance[i].tolist() == pytest.approx(
            compute_responsibility_by_search(dataset, model, row, label, dataset.n_features)
        )
        assert pairs.importance[i].tolist() == pytest.approx(
            compute_responsibility_by_search(dataset, model, row, label, 2)
        )
        assert single.importance[i].tolist() == pytest.approx(
            compute_responsibility_by_search(dataset, model, row, label, 1)
        ) or (dataset.is_changeable.sum() < 2)


@given(st.integers(0, 10_000))
def test_contrast_of_any_model_is_the_largest_drop(seed):
    dataset = make_mixed(seed, n=5, categories=2, numbers=2, missing=0.2 * (seed % 2), tried=4)
    if seed % 3:
        dataset = add_constraints(dataset, seed)
    model = make_random_tree(dataset, seed, classes=2 + seed % 2)
    rows = predict_test_rows(dataset, model)
    result = Contrast().compute_importance(dataset, open_client(model), rows)
    for i, row in enumerate(rows.codes):
        for j in range(dataset.n_features):
            drops = []
            for value in choices(dataset, row, j):
                other = row.copy()
                other[j] = value
                drops.append(rows.probability[i] - model.predict_proba(other[None])[0, rows.predicted_classes[i]])
            assert result[i, j] == pytest.approx(max(drops, default=0.0))


def test_features_that_may_not_change_have_no_value():
    dataset = make_dataset([3, 2, 2], n=6)
    fixed = replace(dataset, features=tuple(replace(first, allowed_change="none") for first in dataset.features))
    model = make_random_tree(fixed, 3)
    rows = predict_test_rows(fixed, model)
    for hidden in (model, PredictionsOnlyModel(model)):
        assert not Responsibility().compute_importance(fixed, open_client(hidden), rows).any()
        assert not Contrast().compute_importance(fixed, open_client(hidden), rows).any()


def test_labels_are_enough_for_responsibility():
    class TreeWithoutProbabilities(Classifier):
        def __init__(self, model):
            self.model = model

        def predict(self, codes):
            return self.model.predict_proba(codes).argmax(axis=1)

    dataset = make_dataset([3, 2, 2, 3], n=8, seed=4)
    model = make_random_tree(dataset, 8)
    rows = predict_test_rows(dataset, model)
    own_values = Responsibility().compute_importance(dataset, open_client(TreeWithoutProbabilities(model)), rows)
    assert np.array_equal(
        own_values, Responsibility().compute_importance(dataset, open_client(PredictionsOnlyModel(model)), rows)
    )


def test_reason_for_data_with_more_alternatives_than_the_budget():
    dataset = make_dataset([3, 2, 4])
    assert count_alternatives(dataset) == 9 and count_alternatives(dataset, 2) == 6 + 12 + 8
    for truth in (Contrast(budget=8), Responsibility(budget=8)):
        output = truth.not_applicable_reason(ModelSpec(dataset, BlackBox))
        assert output == f"needs 9 model evaluations per instance, more than truth.{truth.name}.budget=8"
    assert Contrast(budget=8).not_applicable_reason(ModelSpec(dataset, LinearModel)) is None
    assert Responsibility(budget=8).not_applicable_reason(ModelSpec(dataset, TreeModel)) is None
    assert "probabilities" in Contrast().not_applicable_reason(ModelSpec(dataset, LabelModel))
    assert Responsibility().not_applicable_reason(ModelSpec(dataset, LabelModel)) is None
    text = make_text(width=40, words=2000)
    assert "needs 79,960 model evaluations" in Contrast().not_applicable_reason(ModelSpec(text, BlackBox))
    for kind in (Contrast, Responsibility):
        with pytest.raises(ValueError, match="budget"):
            kind(budget=0)
