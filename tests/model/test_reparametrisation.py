"""Other parameters, the same predictions: on random tables and texts, and what each change does, written out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Reparametrisable
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.logistic import Logistic
from cfeval_cli.model.reparametrisation import MAX_SCALE_FACTOR, Group, compute_mean_vectors
from cfeval_cli.seeding import make_stream
from tests.problems import draw_linear, logit, make_dataset, make_mixed, make_text, predict_labels

ALL = ("constant", "orthogonal", "scale")


def drawn(model, dataset, changes, number=0):
    return model.reparametrise(dataset, changes, make_stream(0, "test", number))


def written_out(model, codes):
    return np.array([logit(model, row) for row in codes])


def means(dataset, tables):
    """Of the training rows that have the feature, row by row."""
    found = []
    for j, table in enumerate(tables):
        seen = [table[row[j]] for row in dataset.train.codes if row[j] != ABSENT]
        found.append(np.mean(seen, axis=0) if seen else np.zeros(table.shape[1]))
    return np.array(found)


@given(st.integers(0, 10_000), st.integers(1, 5), st.booleans(), st.sets(st.sampled_from(ALL)))
def test_no_prediction_moves_under_any_changes_of_tables_and_texts(seed, dim, text, wanted):
    dataset = make_text(width=4, words=9, seed=seed) if text else make_dataset([3, 2, 4], seed=seed)
    model = draw_linear(dataset, seed, dim)
    assert isinstance(model, Reparametrisable)
    changes = [change for change in model.list_changes(padded=text) if change in wanted]
    codes = np.concatenate([dataset.train.codes, dataset.validation.codes, dataset.test.codes])
    before = written_out(model, codes)
    for number in range(3):
        other = drawn(model, dataset, changes, number)
        assert np.abs(written_out(other, codes) - before).max() < 1e-9  # from embeddings, weights and bias
        assert np.abs(other.compute_logits(codes) - before).max() < 1e-9  # as the model adds up its effects
        assert (predict_labels(other, codes) == predict_labels(model, codes)).all()
        assert other.means == pytest.approx(means(dataset, other.tables), abs=1e-9)
        assert len({id(table) for table in other.tables}) == len({id(table) for table in model.tables})
    assert (written_out(model, codes) == before).all()  # the model itself stays as it is


def test_the_constant_is_put_anywhere_between_the_lowest_and_the_highest_effect_and_taken_from_the_bias():
    dataset = make_dataset([3, 5, 2])
    model = draw_linear(dataset, 1, 4)
    places = []
    for number in range(200):
        other = drawn(model, dataset, ["constant"], number)
        moved = []
        for j, (table, before) in enumerate(zip(other.tables, model.tables, strict=True)):
            old, new = before @ model.weights[j], table @ model.weights[j]
            assert np.ptp(new - old) < 1e-12  # the same for every value
            moved.append((new - old)[0])
            gap = table - before
            assert gap == pytest.approx(
                np.outer(gap @ model.weights[j], model.weights[j]) / (model.weights[j] ** 2).sum()
            )
            places.append(-moved[-1] - old.min()) if j == 1 else None
        assert other.bias == pytest.approx(model.bias - sum(moved)) and (other.weights == model.weights).all()
    width = np.ptp(model.tables[1] @ model.weights[1])
    shares = np.sort(places) / width
    assert 0 <= shares[0] < 0.05 and 0.95 < shares[-1] <= 1  # uniform: no further than 1.63 / √200 from the diagonal
    assert np.abs(shares - np.linspace(0, 1, 200)).max() < 1.63 / 200**0.5


def test_the_orthogonal_part_is_redrawn_with_the_spread_that_it_had():
    dataset = make_dataset([4, 3])
    model = draw_linear(dataset, 2, 4)
    spread = []
    for number in range(400):
        other = drawn(model, dataset, ["orthogonal"], number)
        assert (other.weights == model.weights).all() and other.bias == model.bias
        for j, (table, before) in enumerate(zip(other.tables, model.tables, strict=True)):
            unit = model.weights[j] / np.linalg.norm(model.weights[j])
            assert table @ unit == pytest.approx(before @ unit)
            across = table - np.outer(table @ unit, unit)
            spread.append((j, (across**2).sum() / (3 * len(table)), across.mean(axis=0)))
    for j, before in enumerate(model.tables):
        unit = model.weights[j] / np.linalg.norm(model.weights[j])
        expected = ((before - np.outer(before @ unit, unit)) ** 2).sum() / (3 * len(before))
        mine = [size for number, size, _ in spread if number == j]
        assert np.mean(mine) == pytest.approx(expected, rel=0.1) and np.std(mine) > 0.1 * expected
        assert np.abs(np.mean([middle for number, _, middle in spread if number == j], axis=0)).max() < 0.2


def test_numbers_of_a_bin_keep_one_vector_and_no_prediction_moves():
    dataset = make_mixed(4, n=60, categories=1, numbers=2, missing=0.2)
    model = Logistic({"tabular": 0.1, "text": 0.1}, {"tabular": 20, "text": 20}, max_epochs=2).fit(dataset, 0)
    other = model.reparametrise(dataset, model.list_changes(padded=False), np.random.default_rng(0))
    codes = dataset.test.codes
    assert other.predict_positive(codes) == pytest.approx(model.predict_positive(codes)) and other.bias != model.bias
    for j, (before, after) in enumerate(zip(model.tables, other.tables, strict=True)):
        pairs = [tuple(before[a]) == tuple(before[b]) for a in range(len(before)) for b in range(a)]
        assert pairs == [tuple(after[a]) == tuple(after[b]) for a in range(len(after)) for b in range(a)]
        assert any(pairs) == (dataset.features[j].kind == "number")


def test_a_feature_of_its_own_is_scaled_by_one_factor_and_its_weights_against_it():
    dataset = make_dataset([4, 3])
    model = draw_linear(dataset, 3, 3)
    factors = []
    for number in range(100):
        other = drawn(model, dataset, ["scale"], number)
        for j in range(2):
            factor = other.tables[j][0, 0] / model.tables[j][0, 0]
            assert other.tables[j] == pytest.approx(factor * model.tables[j])
            assert other.weights[j] == pytest.approx(model.weights[j] / factor)
            factors.append(np.log(factor) / np.log(MAX_SCALE_FACTOR))
    assert -1 <= min(factors) < -0.9 and 0.9 < max(factors) <= 1 and abs(np.mean(factors)) < 0.15


def test_a_shared_table_is_stretched_by_one_map_for_all_features():
    dataset = make_text(width=5, words=12)
    model = draw_linear(dataset, 4, 3)
    for number in range(20):
        other = drawn(model, dataset, ["scale"], number)
        assert all(table is other.tables[0] for table in other.tables)
        stretch, *_ = np.linalg.lstsq(model.tables[0], other.tables[0], rcond=None)
        assert model.tables[0] @ stretch == pytest.approx(other.tables[0]) and stretch == pytest.approx(stretch.T)
        sizes = np.linalg.svd(stretch)[1]
        assert (
            (sizes > 1 / MAX_SCALE_FACTOR - 1e-9).all()
            and (sizes < MAX_SCALE_FACTOR + 1e-9).all()
            and np.ptp(sizes) > 1e-3
        )
        assert other.weights @ stretch == pytest.approx(model.weights)


def test_a_change_is_drawn_alike_whichever_others_are_made():
    dataset = make_dataset([3, 4])
    model = draw_linear(dataset, 5, 4)
    constant, together = drawn(model, dataset, ["constant"]), drawn(model, dataset, ALL)
    assert together.bias == constant.bias
    for j in range(2):
        assert together.tables[j] @ together.weights[j] == pytest.approx(constant.tables[j] @ constant.weights[j])
    scale, both = drawn(model, dataset, ["scale"]), drawn(model, dataset, ["orthogonal", "scale"])
    assert (both.weights == scale.weights).all() and both.tables[0] != pytest.approx(scale.tables[0])
    again = drawn(model, dataset, ALL)
    assert all((a == b).all() for a, b in zip(again.tables, together.tables, strict=True))
    assert (drawn(model, dataset, ALL, 1).weights != together.weights).all()


def test_what_can_be_changed_depends_on_rows_and_weights():
    table, text = make_dataset([3, 2]), make_text(width=4, words=6)
    assert draw_linear(table, 0, 3).list_changes(padded=False) == ALL
    assert draw_linear(table, 0, 1).list_changes(padded=False) == (
        "constant",
        "scale",
    )  # nothing is orthogonal to a number
    assert draw_linear(text, 0, 3).list_changes(padded=True) == ("scale",)  # four weights look everywhere
    assert draw_linear(text, 0, 6).list_changes(padded=True) == ("orthogonal", "scale")
    model = draw_linear(table, 0, 2)
    blind = LinearModel(model.bias, np.zeros_like(model.weights), model.tables, model.means)
    assert blind.list_changes(padded=False) == ("orthogonal", "scale")
    other = drawn(blind, table, ALL)
    assert other.bias == blind.bias and not other.weights.any() and (other.tables[0] != blind.tables[0]).all()


def test_groups_share_a_table_and_have_directions_orthogonal_to_their_weights():
    text = make_text(width=3, words=5)
    model = draw_linear(text, 1, 5)
    (group,) = Group.from_tables(model.tables, model.weights, model.means)
    assert group.features.tolist() == [0, 1, 2] and not group.has_own_table and group.null_directions.shape == (5, 2)
    assert group.weights @ group.null_directions == pytest.approx(np.zeros((3, 2)), abs=1e-12)
    assert group.null_directions.T @ group.null_directions == pytest.approx(np.eye(2))
    separate = Group.from_tables((np.ones((2, 3)), np.ones((2, 3))), np.ones((2, 3)), np.ones((2, 3)))
    assert [group.features.tolist() for group in separate] == [[0], [1]] and all(
        group.has_own_table for group in separate
    )
    assert compute_mean_vectors([np.eye(2)], np.array([[0], [ABSENT], [0], [1]], np.int32)) == pytest.approx(
        np.array([[2 / 3, 1 / 3]])
    )
