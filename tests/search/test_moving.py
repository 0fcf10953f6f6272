"""Continuous and exact search against closed forms of linear models."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import NO_FEATURE, Access, HasGradient, ModelSpec, Probabilistic
from cfeval_cli.search.continuous import Continuous
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.search.exact import Exact
from tests.problems import choose_features, logit, make_dataset, make_linear, make_task, problems, sigmoid


def minimise_on_grid(alpha, size, length):
    """Return the global minimum of t² + α σ(|z| - ‖w‖ t) on a grid that is refined around its best point."""
    t = np.linspace(0, alpha**0.5, 20_001)
    for _ in range(3):
        values = t**2 + alpha / (1 + np.exp(-(size - length * t)))
        best = t[values.argmin()]
        step = t[1] - t[0]
        t = np.linspace(max(0, best - step), best + step, 2001)
    return (t**2 + alpha / (1 + np.exp(-(size - length * t)))).min()


def compute_objective(model, row, features, vectors, alpha):
    """Return the objective of the search at a counterfactual."""
    z, squared = logit(model, row), 0.0
    for j, v in zip(features, vectors, strict=True):
        if j != NO_FEATURE:
            own = model.tables[j][row[j]]
            z += float(model.weights[j] @ (v - own))
            squared += float(((v - own) ** 2).sum())
    p = sigmoid(z)
    return squared + alpha * (p if logit(model, row) > 0 else 1 - p)


def compute_weight_norms(model, features):
    return np.array([np.sqrt(sum((model.weights[j] ** 2).sum() for j in row if j != NO_FEATURE)) for row in features])


@pytest.mark.parametrize("optimizer", ["descent", "adam"])
@pytest.mark.parametrize("alpha", [1.0, 30.0, 300.0])
def test_continuous_search_is_within_1_percent_of_the_global_optimum(optimizer, alpha):
    dataset = make_dataset([3, 4, 2, 3], n=50, seed=2)
    model = make_linear(dataset, seed=3, scale=1)
    small = type(model)(model.bias, model.weights / 2, model.tables, model.means / 2)
    features = choose_features(dataset, 2, 2)
    features[::2, 1] = NO_FEATURE  # one or two features
    counterfactuals = Continuous(alpha=alpha, optimizer=optimizer).find(
        make_task(dataset, small, features, Access.GRADIENT)
    )
    n_near = 0
    for i, row in enumerate(dataset.test.codes):
        length = compute_weight_norms(small, features[i : i + 1])[0]
        best = minimise_on_grid(alpha, abs(logit(small, row)), length)
        objective = compute_objective(small, row, features[i], counterfactuals.vectors[i], alpha)
        assert objective >= best - 1e-9 * alpha
        n_near += objective <= 1.01 * best
    assert counterfactuals.converged.mean() > 0.99
    assert n_near >= 0.99 * len(features)


@given(problems(n=5), st.integers(1, 3), st.integers(0, 99))
def test_exact_search_finds_the_distance_to_the_boundary(problem, k, seed):
    dataset, model = problem
    features = choose_features(dataset, min(k, dataset.n_features), seed)
    features[::2, 1:] = NO_FEATURE
    counterfactuals = Exact().find(make_task(dataset, model, features, Access.GRADIENT))
    lengths = compute_weight_norms(model, features)
    for i, row in enumerate(dataset.test.codes):
        if lengths[i] == 0:
            assert (
                not counterfactuals.flipped[i] and not counterfactuals.converged[i] and counterfactuals.distance[i] == 0
            )
        else:
            assert counterfactuals.flipped[i] and counterfactuals.converged[i]
            assert counterfactuals.distance[i] == pytest.approx(abs(logit(model, row)) / lengths[i], abs=1e-8)
            assert counterfactuals.probability[i] == pytest.approx(0.5, abs=1e-8)


@given(problems(n=5, max_features=3), st.integers(1, 2), st.integers(0, 99))
def test_exact_distance_is_a_lower_bound_of_other_searches(problem, k, seed):
    dataset, model = problem
    features = choose_features(dataset, min(k, dataset.n_features), seed)
    bound = Exact().find(make_task(dataset, model, features, Access.GRADIENT)).distance
    moved = Continuous(alpha=300.0, restarts=2, steps=200).find(make_task(dataset, model, features, Access.GRADIENT))
    exchanged = Discrete(pick="nearest").find(make_task(dataset, model, features, Access.PROBABILITY))
    for counterfactuals in (moved, exchanged):
        assert (counterfactuals.distance[counterfactuals.flipped] >= bound[counterfactuals.flipped] - 1e-7).all()


def test_only_selected_features_move_and_results_are_those_of_the_moved_embeddings():
    dataset = make_dataset([3, 4, 2], n=30, seed=4)
    model = make_linear(dataset, seed=5, scale=1)
    features = choose_features(dataset, 2, 0)
    features[::3, 1] = NO_FEATURE
    for search in (Continuous(alpha=30.0), Exact()):
        counterfactuals = search.find(make_task(dataset, model, features, Access.GRADIENT))
        for i, row in enumerate(dataset.test.codes):
            z, squared = logit(model, row), 0.0
            for position, j in enumerate(features[i]):
                if j != NO_FEATURE:
                    step = counterfactuals.vectors[i, position] - model.tables[j][row[j]]
                    z, squared = z + model.weights[j] @ step, squared + step @ step
            probability = sigmoid(z) if logit(model, row) > 0 else 1 - sigmoid(z)
            assert counterfactuals.probability[i] == pytest.approx(probability, abs=1e-9)
            assert counterfactuals.flipped[i] == (probability < 0.5) and counterfactuals.labels[i] == int(z > 0)
            assert counterfactuals.distance[i] == pytest.approx(np.sqrt(squared))


def test_result_depends_on_the_seed_but_not_on_batches():
    dataset = make_dataset([3, 4, 2], n=20, seed=4)
    model = make_linear(dataset, seed=5, scale=1)
    features = choose_features(dataset, 1, 0)
    vectors = Continuous().find(make_task(dataset, model, features, Access.GRADIENT)).vectors
    assert np.array_equal(
        Continuous(max_batch_rows=30).find(make_task(dataset, model, features, Access.GRADIENT)).vectors, vectors
    )
    assert not np.array_equal(
        Continuous().find(make_task(dataset, model, features, Access.GRADIENT, seed=1)).vectors, vectors
    )


def test_too_few_steps_are_reported_as_not_converged():
    dataset = make_dataset([3, 4, 2], n=20, seed=4)
    model = make_linear(dataset, seed=5, scale=1)
    counterfactuals = Continuous(steps=2, restarts=1).find(
        make_task(dataset, model, choose_features(dataset, 1, 0), Access.GRADIENT)
    )
    assert not counterfactuals.converged.all()


def test_search_is_not_applicable_without_the_gradients_it_needs():
    dataset = make_dataset([3, 2])
    model = make_linear(dataset)

    class ModelWithoutGradient(Probabilistic):
        predict_proba = model.predict_proba

    class GradientModel(ModelWithoutGradient, HasGradient):
        embed_values, predict_proba_embedded = model.embed_values, model.predict_proba_embedded

    probability_spec, gradient_spec, linear_spec = (
        ModelSpec(dataset, kind) for kind in (ModelWithoutGradient, GradientModel, type(model))
    )
    assert "needs gradients in the embeddings" in Continuous().not_applicable_reason(probability_spec)
    assert (
        Continuous().not_applicable_reason(gradient_spec) is None
        and Continuous().not_applicable_reason(linear_spec) is None
    )
    assert "a logit that is linear in the embeddings" in Exact().not_applicable_reason(gradient_spec)
    assert Exact().not_applicable_reason(linear_spec) is None
    assert all(
        Discrete().not_applicable_reason(spec) is None for spec in (probability_spec, gradient_spec, linear_spec)
    )


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Continuous(alpha=0), "alpha"),
        (lambda: Continuous(alpha=-1), "alpha"),
        (lambda: Continuous(optimizer="sgd"), "optimizer"),
        (lambda: Continuous(steps=0), "steps"),
        (lambda: Continuous(tolerance=0), "tolerance"),
        (lambda: Continuous(restarts=0), "restarts"),
        (lambda: Continuous(start=-1), "start"),
        (lambda: Exact(margin=0), "margin"),
    ],
)
def test_invalid_settings_are_rejected(make, key):
    with pytest.raises(ValueError, match=key):
        make()


@given(problems(max_features=3, n=8, absent=0.2), st.sampled_from([0.1, 3.0, 100.0, 2000.0]), st.integers(1, 3))
def test_limit_of_continuous_search_is_the_global_optimum(problem, alpha, k):
    dataset, model = problem
    features = choose_features(dataset, min(k, dataset.n_features), 1)
    features[0] = NO_FEATURE
    for i, row in enumerate(dataset.test.codes):
        features[i] = np.where(row[features[i]] == -1, NO_FEATURE, features[i])
    task = make_task(dataset, model, features, Access.GRADIENT)
    counterfactuals = Continuous(alpha=alpha).find_limit(task)
    lengths = compute_weight_norms(model, features)
    for i, row in enumerate(dataset.test.codes):
        best = minimise_on_grid(alpha, abs(logit(model, row)), lengths[i])
        assert compute_objective(model, row, features[i], counterfactuals.vectors[i], alpha) == pytest.approx(
            best, rel=1e-7, abs=1e-7
        )
        assert counterfactuals.distance[i] ** 2 + alpha * counterfactuals.probability[i] == pytest.approx(
            best, rel=1e-7, abs=1e-7
        )
    assert (
        counterfactuals.converged.all()
        and (counterfactuals.flipped == (counterfactuals.probability < 0.5))[counterfactuals.probability != 0.5].all()
    )


def test_limit_exists_for_linear_models_only():
    dataset = make_dataset([3, 2], n=5)
    model = make_linear(dataset)
    task = make_task(dataset, model, choose_features(dataset, 1, 0), Access.GRADIENT)
    assert Discrete().find_limit(task) is None
    assert (Exact().find_limit(task).distance == Exact().find(task).distance).all()
    assert Continuous().find_limit(make_task(dataset, model, task.features, Access.PROBABILITY)) is None
    assert Continuous().uses_distance and Discrete(pick="nearest").uses_distance and not Discrete().uses_distance


def test_selected_counterfactuals_are_those_of_the_rows():
    dataset = make_dataset([3, 2], n=6)
    task = make_task(dataset, make_linear(dataset), choose_features(dataset, 1, 0), Access.GRADIENT)
    rows = np.array([4, 1])
    for search in (Continuous(restarts=2), Discrete()):
        counterfactuals = search.find(task)
        selected = counterfactuals.take(rows)
        for name, array in vars(counterfactuals).items():
            assert (
                (getattr(selected, name) is None) if array is None else (getattr(selected, name) == array[rows]).all()
            )
