"""The nouns that all stages pass on."""

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


def test_rows_are_taken_with_all_that_is_known_of_them():
    rows = Rows(np.arange(5), np.arange(10, dtype=np.int32).reshape(5, 2), np.array([0, 1, 0, 1, 2]), np.arange(5) / 5)
    for some in (np.array([3, 1]), slice(1, 4)):
        part = rows.take(some)
        assert (part.ids == rows.ids[some]).all() and (part.codes == rows.codes[some]).all()
        assert (part.labels == rows.labels[some]).all() and (part.probability == rows.probability[some]).all()
    assert len(rows) == 5 and replace(rows, probability=None).take(slice(2)).probability is None


def test_tables_and_sentences_are_decoded():
    dataset = make_dataset([3, 2], n=4)
    table = dataset.decode(dataset.test.codes)
    assert isinstance(table, pd.DataFrame) and list(table) == ["f0", "f1"]
    assert table["f0"].tolist() == [f"v{code}" for code in dataset.test.codes[:, 0]]
    text = replace(dataset, kind="text")
    assert text.padded and not dataset.padded
    assert text.decode(np.array([[0, 1], [2, ABSENT]], dtype=np.int32)) == ["v0 v1", "v2"]


def test_numbers_are_decoded_as_numbers_and_what_is_missing_as_nothing():
    dataset = make_dataset([3, 2, 3], n=4)
    number = Feature("age", ("3", "5", "missing"), kind="number", numbers=np.array([3.0, 5.0, np.nan]), missing_code=2)
    whole = Feature("count", ("1", "2"), kind="number", numbers=np.array([1, 2]))
    colour = Feature("colour", ("blue", "red", "missing"), missing_code=2)
    mixed = replace(dataset, features=(number, whole, colour), candidates=(*dataset.candidates[:2], np.array([0, 1])))
    table = mixed.decode(np.array([[0, 1, 0], [2, 0, 2]], dtype=np.int32))
    expected = pd.DataFrame({"age": [3.0, np.nan], "count": [2, 1], "colour": ["blue", np.nan]})
    pd.testing.assert_frame_equal(table, expected)
    alone = mixed.decode(np.array([[2, 1, 2]], dtype=np.int32))  # of the same types, though all is missing
    pd.testing.assert_frame_equal(alone, expected.iloc[1:].assign(count=2).reset_index(drop=True))
    assert mixed.get_alternatives(0).tolist() == [0, 1, 2] and mixed.get_alternatives(2).tolist() == [0, 1, 2]
    fewer = replace(mixed, candidates=(np.array([1], dtype=np.int32), *mixed.candidates[1:]))
    assert fewer.get_alternatives(0).tolist() == [1]
    prints = {mixed.fingerprint, fewer.fingerprint, dataset.fingerprint}
    other = replace(number, numbers=np.array([3.0, 5.5, np.nan]))
    prints |= {
        replace(mixed, features=(one, whole, colour)).fingerprint for one in (other, replace(number, missing_code=None))
    }
    assert len(prints) == 5


@pytest.mark.parametrize("seed", range(20))
def test_where_a_value_may_go_is_what_the_constraint_says(seed):
    dataset = add_constraints(make_mixed(seed, n=8, missing=0.3 * (seed % 2), tried=4), seed)
    for j, feature in enumerate(dataset.features):
        codes = np.arange(len(feature.values), dtype=np.int32)
        told = feature.allows(codes[:, None], codes[None])
        assert told.tolist() == [[is_permitted(feature, a, b) for b in codes] for a in codes]
        first, last = dataset.find_reachable(j, codes)
        for own in codes:
            tried = dataset.candidates[j][first[own] : last[own]].tolist()
            others = [v for v in dataset.candidates[j].tolist() if is_permitted(feature, own, v)]
            assert tried == (others if feature.allowed_change == "any" else [v for v in others if v != own])
        allowed = dataset.find_allowed(j, codes)
        others = dataset.get_alternatives(j)
        assert allowed.tolist() == [[a != b and is_permitted(feature, a, b) for b in others] for a in codes]
    assert dataset.is_changeable.tolist() == [feature.allowed_change != "none" for feature in dataset.features]
    asked = choose_features(dataset, 3, seed)
    asked[::2, -1] = NO_FEATURE
    for before, after in zip(asked, select_changeable(dataset, asked), strict=True):
        kept = [j for j in before if j != NO_FEATURE and dataset.is_changeable[j]]
        assert after.tolist() == kept + [NO_FEATURE] * (3 - len(kept))
    free = make_mixed(seed, n=8, missing=0.3 * (seed % 2), tried=4)
    assert (dataset.fingerprint != free.fingerprint) == dataset.has_constraints and not free.has_constraints


def test_the_mask_is_no_value_that_a_feature_can_have():
    dataset = make_dataset([3, 3], unknown=1)
    assert dataset.get_values(0).tolist() == [0, 2] and dataset.mask == 1
    assert make_dataset([3, 3]).get_values(0).tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="toy has no mask token"):
        _ = make_dataset([3, 3]).mask


def test_an_explanation_is_cut_filled_and_ranked():
    told = Explanation.from_scores(np.array([[1.0, 3.0, 3.0, 9.0]]), np.array([[True, True, True, False]]))
    assert told.features.tolist() == [[1, 2, 0, NO_FEATURE]] and np.isnan(told.scores[0, 3])
    assert told.top_k(2).tolist() == [[1, 2]] and told.top_k(6).tolist() == [
        [1, 2, 0, NO_FEATURE, NO_FEATURE, NO_FEATURE]
    ]
    ragged = Explanation.from_lists([[(2, 0.5)], [], [(1, 3.0), (0, 1.0)]])
    assert ragged.features.tolist() == [[2, NO_FEATURE], [NO_FEATURE, NO_FEATURE], [1, 0]] and len(ragged) == 3
    assert Explanation.from_lists([]).features.shape == (0, 0)
    rng = np.random.default_rng(0)
    drawn = [
        [(int(j), float(rng.integers(-2, 3))) for j in rng.permutation(5)[: rng.integers(0, 6)]] for _ in range(200)
    ]
    by_size = Explanation.from_lists([sorted(row, key=lambda one: (-abs(one[1]), one[0])) for row in drawn])
    again = Explanation.from_lists(drawn).sort_by(np.abs)
    assert np.array_equal(again.features, by_size.features)
    assert np.array_equal(again.scores, by_size.scores, equal_nan=True)


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


def test_reasons_are_told_with_how_often():
    told = ExplainerResult(Explanation.from_lists([]), Cost(), 0, {1: "a", 2: "b", 3: "b"})
    assert told.failure_summary == "b (2); a (1)"


def test_parts_of_a_task_and_of_what_was_found_fit_together():
    dataset = make_dataset([3, 4], n=10)
    task = make_task(dataset, make_linear(dataset), choose_features(dataset, 1, 0), Access.LABEL)
    part = task.select_instances(slice(2, 5))
    assert len(part) == 3 and (part.features == task.features[2:5]).all() and part.access is Access.LABEL
    assert part.measure is task.measure and (part.ids == task.ids[2:5]).all()

    def some(n, **more):
        return Counterfactuals(np.zeros((n, 1), int), np.zeros(n, int), np.zeros(n, bool), np.ones(n), **more)

    joined = Counterfactuals.concatenate([some(2, probability=np.ones(2)), some(3, probability=np.zeros(3))])
    assert joined.probability.tolist() == [1, 1, 0, 0, 0] and joined.codes is None and len(joined.distance) == 5


def test_the_base_classes_cannot_be_made_and_say_what_is_missing():
    for base, verb in (
        (Explainer, "fit"), (Metric, "score"), (Search, "find"), (Distance, "fit"), (Truth, "importance"),
        (Removal, "fit"),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=verb):
            base()


def test_what_a_component_leaves_open_has_a_sensible_value():
    class Plain(Explainer):
        access = Access.GRADIENT

        def fit(self, dataset, model):
            raise AssertionError

    plain = Plain()
    black = ModelSpec(make_dataset([2, 2]), BlackBox)
    assert (
        plain.title is None and plain.expand("mine") == {"mine": plain} and plain.quality_level != plain.quality_level
    )
    assert "needs gradients" in plain.not_applicable_reason(black) and plain.check(black) is None
    assert issubclass(MetricInput, Rows)


def test_a_label_is_what_the_model_says_and_an_explainer_asks_no_more_than_it_wants():
    class Modest(Explainer):
        access = Access.LABEL

        def fit(self, dataset, model):
            raise AssertionError

    dataset = make_dataset([2, 2])
    for kind in (BlackBox, type(make_linear(dataset))):
        assert Modest().choose_access(ModelSpec(dataset, kind)) is Access.LABEL
