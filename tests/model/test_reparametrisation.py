"""Reparametrised models have equal predictions, and every change follows its definition."""

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

ALL_CHANGES = ("constant", "orthogonal", "scale")


def reparametrise(model, dataset, changes, number=0):
    return model.reparametrise(dataset, changes, make_stream(0, "test", number))


def compute_logits(model, codes):
    return np.array([logit(model, row) for row in codes])


def compute_means(dataset, tables):
    """Return the mean vectors over training rows that have the feature."""
    means = []
    for j, table in enumerate(tables):
        vectors = [table[row[j]] for row in dataset.train.codes if row[j] != ABSENT]
        means.append(np.mean(vectors, axis=0) if vectors else np.zeros(table.shape[1]))
    return np.array(means)


@given(st.integers(0, 10_000), st.integers(1, 5), st.booleans(), st.sets(st.sampled_from(ALL_CHANGES)))
def test_changes_keep_all_predictions(seed, dim, text, requested_changes):
    dataset = make_text(width=4, words=9, seed=seed) if text else make_dataset([3, 2, 4], seed=seed)
    model = draw_linear(dataset, seed, dim)
    assert isinstance(model, Reparametrisable)
    changes = [change for change in model.list_changes(padded=text) if change in requested_changes]
    codes = np.concatenate([dataset.train.codes, dataset.validation.codes, dataset.test.codes])
    before = compute_logits(model, codes)
    for number in range(3):
        other = reparametrise(model, dataset, changes, number)
        assert np.abs(compute_logits(other, codes) - before).max() < 1e-9  # from embeddings, weights and bias
        assert np.abs(other.compute_logits(codes) - before).max() < 1e-9  # as the model adds up its effects
        assert (predict_labels(other, codes) == predict_labels(model, codes)).all()
        assert other.means == pytest.approx(compute_means(dataset, other.tables), abs=1e-9)
        assert len({id(table) for table in other.tables}) == len({id(table) for table in model.tables})
    assert (compute_logits(model, codes) == before).all()  # the model itself is unchanged


def test_constant_is_uniform_in_the_range_of_effects():
    dataset = make_dataset([3, 5, 2])
    model = draw_linear(dataset, 1, 4)
    positions = []
    for number in range(200):
        other = reparametrise(model, dataset, ["constant"], number)
        shifts = []
        for j, (table, before) in enumerate(zip(other.tables, model.tables, strict=True)):
            old, new = before @ model.weights[j], table @ model.weights[j]
            assert np.ptp(new - old) < 1e-12  # the same for every value
            shifts.append((new - old)[0])
            gap = table - before
            assert gap == pytest.approx(
                np.outer(gap @ model.weights[j], model.weights[j]) / (model.weights[j] ** 2).sum()
            )
            positions.append(-shifts[-1] - old.min()) if j == 1 else None
        assert other.bias == pytest.approx(model.bias - sum(shifts)) and (other.weights == model.weights).all()
    width = np.ptp(model.tables[1] @ model.weights[1])
    shares = np.sort(positions) / width
    assert 0 <= shares[0] < 0.05 and 0.95 < shares[-1] <= 1  # uniform: at most 1.63 / √200 from the diagonal
    assert np.abs(shares - np.linspace(0, 1, 200)).max() < 1.63 / 200**0.5


def test_orthogonal_part_is_redrawn_with_equal_spread():
    dataset = make_dataset([4, 3])
    model = draw_linear(dataset, 2, 4)
    spread = []
    for number in range(400):
        other = reparametrise(model, dataset, ["orthogonal"], number)
        assert (other.weights == model.weights).all() and other.bias == model.bias
        for j, (table, before) in enumerate(zip(other.tables, model.tables, strict=True)):
            unit = model.weights[j] / np.linalg.norm(model.weights[j])
            assert table @ unit == pytest.approx(before @ unit)
            across = table - np.outer(table @ unit, unit)
            spread.append((j, (across**2).sum() / (3 * len(table)), across.mean(axis=0)))
    for j, before in enumerate(model.tables):
        unit = model.weights[j] / np.linalg.norm(model.weights[j])
        expected = ((before - np.outer(before @ unit, unit)) ** 2).sum() / (3 * len(before))
        spread_of_feature = [size for number, size, _ in spread if number == j]
        assert (
            np.mean(spread_of_feature) == pytest.approx(expected, rel=0.1)
            and np.std(spread_of_feature) > 0.1 * expected
        )
        assert np.abs(np.mean([middle for number, _, middle in spread if number == j], axis=0)).max() < 0.2


def test_numbers_of_a_bin_keep_a_common_vector():
    dataset = make_mixed(4, n=60, categories=1, numbers=2, missing=0.2)
    model = Logistic({"tabular": 0.1, "text": 0.1}, {"tabular": 20, "text": 20}, max_epochs=2).fit(dataset, 0)
    other = model.reparametrise(dataset, model.list_changes(padded=False), np.random.default_rng(0))
    codes = dataset.test.codes
    assert other.predict_positive(codes) == pytest.approx(model.predict_positive(codes)) and other.bias != model.bias
    for j, (before, after) in enumerate(zip(model.tables, other.tables, strict=True)):
        pairs = [tuple(before[a]) == tuple(before[b]) for a in range(len(before)) for b in range(a)]
        assert pairs == [tuple(after[a]) == tuple(after[b]) for a in range(len(after)) for b in range(a)]
        assert any(pairs) == (dataset.features[j].kind == "number")


def test_separate_table_is_scaled_by_one_factor():
    dataset = make_dataset([4, 3])
    model = draw_linear(dataset, 3, 3)
    factors = []
    for number in range(100):
        other = reparametrise(model, dataset, ["scale"], number)
        for j in range(2):
            factor = other.tables[j][0, 0] / model.tables[j][0, 0]
            assert other.tables[j] == pytest.approx(factor * model.tables[j])
            assert other.weights[j] == pytest.approx(model.weights[j] / factor)
            factors.append(np.log(factor) / np.log(MAX_SCALE_FACTOR))
    assert -1 <= min(factors) < -0.9 and 0.9 < max(factors) <= 1 and abs(np.mean(factors)) < 0.15


def test_shared_table_is_scaled_by_one_linear_map():
    dataset = make_text(width=5, words=12)
    model = draw_linear(dataset, 4, 3)
    for number in range(20):
        other = reparametrise(model, dataset, ["scale"], number)
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


def test_change_does_not_depend_on_other_changes():
    dataset = make_dataset([3, 4])
    model = draw_linear(dataset, 5, 4)
    constant, all_changes = reparametrise(model, dataset, ["constant"]), reparametrise(model, dataset, ALL_CHANGES)
    assert all_changes.bias == constant.bias
    for j in range(2):
        assert all_changes.tables[j] @ all_changes.weights[j] == pytest.approx(constant.tables[j] @ constant.weights[j])
    scale, two_changes = (
        reparametrise(model, dataset, ["scale"]),
        reparametrise(model, dataset, ["orthogonal", "scale"]),
    )
    assert (two_changes.weights == scale.weights).all() and two_changes.tables[0] != pytest.approx(scale.tables[0])
    equal = reparametrise(model, dataset, ALL_CHANGES)
    assert all((a == b).all() for a, b in zip(equal.tables, all_changes.tables, strict=True))
    assert (reparametrise(model, dataset, ALL_CHANGES, 1).weights != all_changes.weights).all()


def test_possible_changes_depend_on_rows_and_weights():
    table, text = make_dataset([3, 2]), make_text(width=4, words=6)
    assert draw_linear(table, 0, 3).list_changes(padded=False) == ALL_CHANGES
    assert draw_linear(table, 0, 1).list_changes(padded=False) == (
        "constant",
        "scale",
    )  # one dimension has no orthogonal part
    assert draw_linear(text, 0, 3).list_changes(padded=True) == ("scale",)  # four weights span all three dimensions
    assert draw_linear(text, 0, 6).list_changes(padded=True) == ("orthogonal", "scale")
    model = draw_linear(table, 0, 2)
    blind = LinearModel(model.bias, np.zeros_like(model.weights), model.tables, model.means)
    assert blind.list_changes(padded=False) == ("orthogonal", "scale")
    other = reparametrise(blind, table, ALL_CHANGES)
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
