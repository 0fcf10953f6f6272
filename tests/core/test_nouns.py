"""The data classes that the stages exchange."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.core.cost import Cost
from cfeval_cli.core.counterfactual import Counterfactuals, Distance, Search, select_changeable
from cfeval_cli.core.data import ABSENT, NO_FEATURE, Feature, Rows
from cfeval_cli.core.explanation import Batch, Explainer, ExplainerResult, Explanation, mark_selected
from cfeval_cli.core.metric import Metric, MetricInput
from cfeval_cli.core.model import Access, BlackBox, ModelSpec
from cfeval_cli.core.removal import Removal
from cfeval_cli.core.truth import Truth
from tests.problems import (
    add_constraints,
    choose_features,
    is_permitted,
    make_dataset,
    make_linear,
    make_mixed,
    make_task,
)


def test_selected_rows_keep_all_columns():
    rows = Rows(np.arange(5), np.arange(10, dtype=np.int32).reshape(5, 2), np.array([0, 1, 0, 1, 2]), np.arange(5) / 5)
    for selection in (np.array([3, 1]), slice(1, 4)):
        part = rows.take(selection)
        assert (part.ids == rows.ids[selection]).all() and (part.codes == rows.codes[selection]).all()
        assert (part.predicted_classes == rows.predicted_classes[selection]).all() and (
            part.probability == rows.probability[selection]
        ).all()
    assert len(rows) == 5 and replace(rows, probability=None).take(slice(2)).probability is None


def test_tables_and_sentences_are_decoded():
    dataset = make_dataset([3, 2], n=4)
    table = dataset.decode(dataset.test.codes)
    assert isinstance(table, pd.DataFrame) and list(table) == ["f0", "f1"]
    assert table["f0"].tolist() == [f"v{code}" for code in dataset.test.codes[:, 0]]
    text = replace(dataset, kind="text")
    assert text.padded and not dataset.padded
    assert text.decode(np.array([[0, 1], [2, ABSENT]], dtype=np.int32)) == ["v0 v1", "v2"]


def test_numbers_and_missing_values_are_decoded():
    dataset = make_dataset([3, 2, 3], n=4)
    number = Feature("age", ("3", "5", "missing"), kind="number", numbers=np.array([3.0, 5.0, np.nan]), missing_code=2)
    integer = Feature("count", ("1", "2"), kind="number", numbers=np.array([1, 2]))
    colour = Feature("colour", ("blue", "red", "missing"), missing_code=2)
    mixed = replace(dataset, features=(number, integer, colour), candidates=(*dataset.candidates[:2], np.array([0, 1])))
    table = mixed.decode(np.array([[0, 1, 0], [2, 0, 2]], dtype=np.int32))
    expected = pd.DataFrame({"age": [3.0, np.nan], "count": [2, 1], "colour": ["blue", np.nan]})
    pd.testing.assert_frame_equal(table, expected)
    missing_row = mixed.decode(np.array([[2, 1, 2]], dtype=np.int32))  # types do not depend on missing values
    pd.testing.assert_frame_equal(missing_row, expected.iloc[1:].assign(count=2).reset_index(drop=True))
    assert mixed.get_alternatives(0).tolist() == [0, 1, 2] and mixed.get_alternatives(2).tolist() == [0, 1, 2]
    restricted = replace(mixed, candidates=(np.array([1], dtype=np.int32), *mixed.candidates[1:]))
    assert restricted.get_alternatives(0).tolist() == [1]
    fingerprints = {mixed.fingerprint, restricted.fingerprint, dataset.fingerprint}
    other = replace(number, numbers=np.array([3.0, 5.5, np.nan]))
    fingerprints |= {
        replace(mixed, features=(feature, integer, colour)).fingerprint
        for feature in (other, replace(number, missing_code=None))
    }
    assert len(fingerprints) == 5


@pytest.mark.parametrize("seed", range(20))
def test_allowed_values_follow_the_constraints(seed):
    dataset = add_constraints(make_mixed(seed, n=8, missing=0.3 * (seed % 2), tried=4), seed)
    for j, feature in enumerate(dataset.features):
        codes = np.arange(len(feature.values), dtype=np.int32)
        is_allowed = feature.allows(codes[:, None], codes[None])
        assert is_allowed.tolist() == [[is_permitted(feature, a, b) for b in codes] for a in codes]
        first, last = dataset.find_reachable(j, codes)
        for code in codes:
            candidates = dataset.candidates[j][first[code] : last[code]].tolist()
            allowed_values = [v for v in dataset.candidates[j].tolist() if is_permitted(feature, code, v)]
            assert candidates == (
                allowed_values if feature.allowed_change == "any" else [v for v in allowed_values if v != code]
            )
        allowed = dataset.find_allowed(j, codes)
        allowed_values = dataset.get_alternatives(j)
        assert allowed.tolist() == [[a != b and is_permitted(feature, a, b) for b in allowed_values] for a in codes]
    assert dataset.is_changeable.tolist() == [feature.allowed_change != "none" for feature in dataset.features]
    selected = choose_features(dataset, 3, seed)
    selected[::2, -1] = NO_FEATURE
    for before, after in zip(selected, select_changeable(dataset, selected), strict=True):
        changeable = [j for j in before if j != NO_FEATURE and dataset.is_changeable[j]]
        assert after.tolist() == changeable + [NO_FEATURE] * (3 - len(changeable))
    unconstrained = make_mixed(seed, n=8, missing=0.3 * (seed % 2), tried=4)
    assert (
        dataset.fingerprint != unconstrained.fingerprint
    ) == dataset.has_constraints and not unconstrained.has_constraints


def test_mask_is_not_a_value_of_a_feature():
    dataset = make_dataset([3, 3], unknown=1)
    assert dataset.get_values(0).tolist() == [0, 2] and dataset.mask == 1
    assert make_dataset([3, 3]).get_values(0).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="toy has no mask token"):
        _ = make_dataset([3, 3]).mask


def test_explanations_are_truncated_padded_and_ranked():
    explanation = Explanation.from_scores(np.array([[1.0, 3.0, 3.0, 9.0]]), np.array([[True, True, True, False]]))
    assert explanation.features.tolist() == [[1, 2, 0, NO_FEATURE]] and np.isnan(explanation.scores[0, 3])
    assert explanation.top_k(2).tolist() == [[1, 2]] and explanation.top_k(6).tolist() == [
        [1, 2, 0, NO_FEATURE, NO_FEATURE, NO_FEATURE]
    ]
    ragged = Explanation.from_lists([[(2, 0.5)], [], [(1, 3.0), (0, 1.0)]])
    assert ragged.features.tolist() == [[2, NO_FEATURE], [NO_FEATURE, NO_FEATURE], [1, 0]] and len(ragged) == 3
    assert Explanation.from_lists([]).features.shape == (0, 0)
    rng = np.random.default_rng(0)
    rows = [
        [(int(j), float(rng.integers(-2, 3))) for j in rng.permutation(5)[: rng.integers(0, 6)]] for _ in range(200)
    ]
    by_size = Explanation.from_lists([sorted(row, key=lambda pair: (-abs(pair[1]), pair[0])) for row in rows])
    sorted_explanation = Explanation.from_lists(rows).sort_by(np.abs)
    assert np.array_equal(sorted_explanation.features, by_size.features)
    assert np.array_equal(sorted_explanation.scores, by_size.scores, equal_nan=True)


def test_named_features_are_marked():
    codes = np.zeros((2, 4), dtype=np.int32)
    marked = mark_selected(codes, np.array([[3, NO_FEATURE], [0, 2]]))
    assert marked.tolist() == [[False, False, False, True], [True, False, True, False]]


def test_each_instance_has_a_stream_of_its_own():
    batch = Batch(np.array([7, 9]), np.zeros((2, 1), np.int32), np.zeros(2, int), seed=1, component="explainer.x")
    alone = Batch(np.array([9]), np.zeros((1, 1), np.int32), np.zeros(1, int), seed=1, component="explainer.x")
    other = replace(alone, component="explainer.y")
    draws = [
        batch.make_rng(0).random(),
        batch.make_rng(1).random(),
        other.make_rng(0).random(),
        replace(alone, seed=2).make_rng(0).random(),
    ]
    assert len(set(draws)) == 4 and alone.make_rng(0).random() == draws[1]


def test_failure_summary_has_counts():
    result = ExplainerResult(Explanation.from_lists([]), Cost(), 0, {1: "a", 2: "b", 3: "b"})
    assert result.failure_summary == "b (2); a (1)"


def test_tasks_are_split_and_counterfactuals_concatenated():
    dataset = make_dataset([3, 4], n=10)
    task = make_task(dataset, make_linear(dataset), choose_features(dataset, 1, 0), Access.LABEL)
    part = task.select_instances(slice(2, 5))
    assert len(part) == 3 and (part.features == task.features[2:5]).all() and part.access is Access.LABEL
    assert part.distance is task.distance and (part.ids == task.ids[2:5]).all()

    def make_counterfactuals(n, **columns):
        return Counterfactuals(np.zeros((n, 1), int), np.zeros(n, int), np.zeros(n, bool), np.ones(n), **columns)

    joined = Counterfactuals.concatenate(
        [make_counterfactuals(2, probability=np.ones(2)), make_counterfactuals(3, probability=np.zeros(3))]
    )
    assert joined.probability.tolist() == [1, 1, 0, 0, 0] and joined.codes is None and len(joined.distance) == 5


def test_base_classes_name_their_abstract_methods():
    for base, verb in (
        (Explainer, "fit"), (Metric, "score"), (Search, "find"), (Distance, "fit"), (Truth, "importance"),
        (Removal, "fit"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=verb):
            base()


def test_components_have_default_values():
    class MinimalExplainer(Explainer):
        access = Access.GRADIENT

        def fit(self, dataset, model):
            raise AssertionError

    explainer = MinimalExplainer()
    black_box = ModelSpec(make_dataset([2, 2]), BlackBox)
    assert (
        explainer.title is None
        and explainer.expand("mine") == {"mine": explainer}
        and explainer.quality_level != explainer.quality_level
    )
    assert "needs gradients" in explainer.not_applicable_reason(black_box) and explainer.check(black_box) is None
    assert issubclass(MetricInput, Rows)


def test_label_explainers_get_label_access():
    class LabelExplainer(Explainer):
        access = Access.LABEL

        def fit(self, dataset, model):
            raise AssertionError

    dataset = make_dataset([2, 2])
    for kind in (BlackBox, type(make_linear(dataset))):
        assert LabelExplainer().choose_access(ModelSpec(dataset, kind)) is Access.LABEL
