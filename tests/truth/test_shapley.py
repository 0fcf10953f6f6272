"""Shapley values against the mean over all orders, written out, and against the package shap."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import BlackBox, LedgerKey, ModelSpec, Rows
from cfeval_cli.model.external import LabelModel
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.model.tree import Tree
from cfeval_cli.truth import shapley
from cfeval_cli.truth.shapley import Shapley, compute_coalition_values, compute_tree_values
from tests.problems import draw_linear, make_dataset, make_mixed, make_rows, make_text, open_client
from tests.truth.models import CodeFunctionModel, PredictionsOnlyModel, make_random_tree, predict_test_rows


def compute_values_by_orders(model, background, row, label):
    """Return the mean contribution of each feature over all orders and all background rows."""
    width = len(row)
    total = np.zeros(width)
    orders = list(permutations(range(width)))
    for order in orders:
        for z in background:
            mixed = z.copy()
            before = model.predict_proba(mixed[None])[0, label]
            for j in order:
                mixed[j] = row[j]
                after = model.predict_proba(mixed[None])[0, label]
                total[j] += after - before
                before = after
    return total / (len(orders) * len(background))


@pytest.mark.parametrize("seed", range(4))
def test_trees_and_coalitions_give_the_mean_over_all_orders(seed):
    dataset = make_mixed(seed, n=5, categories=2, numbers=2, missing=0.2 * (seed % 2))
    model = make_random_tree(dataset, seed, classes=2 + seed % 2)
    rows = predict_test_rows(dataset, model)
    by_leaf = compute_tree_values(model.get_leaves(), dataset.train.codes, rows)
    by_coalition = compute_coalition_values(
        open_client(model), dataset.train.codes, np.arange(dataset.n_features), rows
    )
    for i in range(2):
        expected = compute_values_by_orders(model, dataset.train.codes, rows.codes[i], rows.predicted_classes[i])
        assert by_leaf[i] == pytest.approx(expected, abs=1e-12)
        assert by_coalition[i] == pytest.approx(expected, abs=1e-12)


@given(st.integers(0, 10_000))
def test_leaves_and_coalitions_agree(seed):
    dataset = make_mixed(seed, n=12, categories=2, numbers=3, missing=0.1 * (seed % 3))
    model = make_random_tree(dataset, seed, classes=2 + seed % 3)
    rows = predict_test_rows(dataset, model)
    by_leaf = compute_tree_values(model.get_leaves(), dataset.train.codes, rows)
    by_coalition = compute_coalition_values(
        open_client(model), dataset.train.codes, np.arange(dataset.n_features), rows
    )
    assert by_leaf == pytest.approx(by_coalition, abs=1e-12)
    # values sum to the difference of the prediction from the mean prediction
    of = np.arange(len(rows)), rows.predicted_classes
    mean_probability = model.predict_proba(dataset.train.codes).mean(axis=0)
    assert by_leaf.sum(axis=1) == pytest.approx(
        model.predict_proba(rows.codes)[of] - mean_probability[rows.predicted_classes]
    )


def test_values_of_a_tree_equal_the_package_shap():
    """Compare interventional values of the same tree; every column is one feature."""
    import shap
    from sklearn.tree import DecisionTreeClassifier

    from cfeval_cli.model.encoding import make_table_encoder
    from cfeval_cli.model.tree import compile_tree

    dataset = make_mixed(3, n=80, categories=0, numbers=4)
    encoder = make_table_encoder(dataset, onehot=True, scale=False, fill=True, max_categories=None)
    train = encoder.transform(dataset.train.codes)
    tree = DecisionTreeClassifier(max_depth=5, random_state=0).fit(train, dataset.train.labels)
    model = compile_tree(tree, encoder, dataset, np.arange(dataset.n_features))
    rows = predict_test_rows(dataset, model)
    own_values = compute_tree_values(model.get_leaves(), dataset.train.codes, rows)
    explainer = shap.TreeExplainer(tree, train, feature_perturbation="interventional", model_output="probability")
    package_values = explainer.shap_values(encoder.transform(rows.codes), check_additivity=False)
    assert own_values == pytest.approx(package_values[np.arange(len(rows)), :, rows.predicted_classes], abs=1e-6)
    background = dataset.train.codes[:20]
    exact = shap.explainers.Exact(
        lambda x: tree.predict_proba(x)[:, 1], shap.maskers.Independent(encoder.transform(background), max_samples=20)
    )
    output = exact(encoder.transform(rows.codes[:3])).values
    sign = np.where(rows.predicted_classes[:3] == 1, 1, -1)[:, None]
    assert compute_tree_values(model.get_leaves(), background, rows)[:3] == pytest.approx(sign * output, abs=1e-9)


def test_value_of_an_additive_model_is_the_effect_minus_its_mean():
    dataset = make_dataset([3, 4, 2], n=10, seed=3)
    model = draw_linear(dataset, 1, 2)
    rows = make_rows(dataset, model)
    result = Shapley().estimate(dataset, open_client(model), rows)
    client = open_client(model)
    effects = (
        client.compute_effects(rows.codes, rows.predicted_classes)
        - client.compute_mean_effects()[rows.predicted_classes]
    )
    assert np.array_equal(result.importance, effects) and result.standard_error is None
    # the Shapley value of the logit, by all coalitions: the model returns a logit as its probability
    values = compute_coalition_values(
        open_client(CodeFunctionModel(lambda codes: model.compute_logits(codes))),
        dataset.train.codes,
        np.arange(3),
        rows,
    )
    assert result.importance == pytest.approx(values)
    spec = ModelSpec(dataset, LinearModel)
    assert not Shapley().evaluates_model(spec) and Shapley().evaluates_model(ModelSpec(dataset, BlackBox))


def test_few_features_are_exact_unless_the_budget_is_too_small():
    dataset = make_dataset([3, 2, 3], n=30, seed=2)
    model = make_random_tree(dataset, 5)
    rows = predict_test_rows(dataset, model)
    expected = compute_tree_values(model.get_leaves(), dataset.train.codes, rows)
    black_box = PredictionsOnlyModel(model)
    exact = Shapley().estimate(dataset, open_client(black_box), rows)
    assert (
        exact.standard_error is None
        and exact.method.startswith("exact")
        and exact.importance == pytest.approx(expected)
    )
    sampled = Shapley(budget=10).estimate(dataset, open_client(black_box), rows)
    assert sampled.standard_error.shape == (len(rows),) and sampled.method.startswith("sampled")
    assert np.abs(sampled.importance - expected).max() <= 1.0 and not np.array_equal(sampled.importance, expected)


@pytest.mark.parametrize("error", [0.05, 0.01])
def test_sampling_stops_at_the_standard_error_or_the_budget(error):
    dataset = make_mixed(4, n=40, categories=1, numbers=5)
    model = PredictionsOnlyModel(make_random_tree(dataset, 4))
    rows = predict_test_rows(dataset, model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shapley, "_MAX_EXACT_FEATURES", 0)
        result = Shapley(error=error, budget=200_000 if error == 0.05 else 300).estimate(
            dataset, open_client(model), rows
        )
        if error == 0.05:
            assert (result.standard_error <= error).all()
        else:
            assert (result.standard_error > error).any()  # and it is reported
        client = open_client(model)
        Shapley(error=1e-9, budget=2_000).estimate(dataset, client, rows)
    rounds = 10  # each round evaluates the row itself once more
    assert client._ledger.n_evaluations[LedgerKey("test")] <= len(rows) * (2_000 + rounds)


def test_sampled_values_do_not_depend_on_the_other_instances(monkeypatch):
    monkeypatch.setattr(shapley, "_MAX_EXACT_FEATURES", 0)
    dataset = make_mixed(6, n=30, categories=1, numbers=4)
    model = PredictionsOnlyModel(make_random_tree(dataset, 6))
    rows = predict_test_rows(dataset, model)
    truth = Shapley(budget=200, seed=3)
    result_of_all = truth.estimate(dataset, open_client(model), rows)
    part = truth.estimate(dataset, open_client(model), rows.take(np.array([7, 2])))
    assert result_of_all.method.startswith("sampled")
    assert np.array_equal(part.importance, result_of_all.importance[[7, 2]]) and np.array_equal(
        part.standard_error, result_of_all.standard_error[[7, 2]]
    )
    other = Shapley(budget=200, seed=4).estimate(dataset, open_client(model), rows)
    assert not np.array_equal(other.importance, result_of_all.importance)


@pytest.mark.slow
def test_confidence_intervals_of_sampled_values_have_the_nominal_coverage():
    covered, all_of_them = 0, 0
    for seed in range(60):
        dataset = make_mixed(seed, n=40, categories=2, numbers=4)
        model = make_random_tree(dataset, seed)
        rows = predict_test_rows(dataset, model).take(slice(0, 10))
        exact = compute_tree_values(model.get_leaves(), dataset.train.codes, rows)
        values, errors = Shapley(error=0.02, seed=seed)._estimate(
            open_client(PredictionsOnlyModel(model)), dataset.train.codes, np.arange(dataset.n_features), rows
        )
        moves = errors > 0
        covered += (np.abs(values - exact) <= 1.96 * errors)[moves].sum()
        all_of_them += moves.sum()
        assert values[~moves] == pytest.approx(exact[~moves], abs=0.05)
    assert 0.93 <= covered / all_of_them <= 0.97


def test_unread_features_have_no_value_and_cost_no_evaluations():
    dataset = make_mixed(2, n=30, categories=2, numbers=3)
    model = Tree(min_leaf=2, blind=[dataset.features[0].name, dataset.features[3].name]).fit(dataset, 0)
    black_box = PredictionsOnlyModel(model)
    rows = predict_test_rows(dataset, model)
    result = Shapley(budget=10**6).estimate(dataset, open_client(black_box), rows)
    assert result.importance == pytest.approx(compute_tree_values(model.get_leaves(), dataset.train.codes, rows))
    assert not result.importance[:, [0, 3]].any()


def test_constant_models_and_single_features():
    dataset = make_dataset([3], n=10)
    constant = CodeFunctionModel(lambda codes: np.full(len(codes), 0.3))
    rows = Rows(dataset.test.ids, dataset.test.codes, np.zeros(10, dtype=np.int64))
    for truth in (Shapley(), Shapley(budget=1)):
        result = truth.estimate(dataset, open_client(constant), rows)
        assert not result.importance.any() and (result.standard_error is None or not result.standard_error.any())


def test_reason_for_models_without_probabilities_and_for_texts():
    dataset, text = make_dataset([3, 2]), make_text()
    assert Shapley().not_applicable_reason(ModelSpec(dataset, BlackBox)) is None
    assert "probabilities" in Shapley().not_applicable_reason(ModelSpec(dataset, LabelModel))
    assert "mixtures of two texts" in Shapley().not_applicable_reason(ModelSpec(text, BlackBox))
    assert Shapley().not_applicable_reason(ModelSpec(text, LinearModel)) is None


@pytest.mark.parametrize(("setting", "value"), [("background", 0), ("error", 0), ("budget", 0.5)])
def test_message_names_the_invalid_setting(setting, value):
    with pytest.raises(ValueError, match=setting):
        Shapley(**{setting: value})
