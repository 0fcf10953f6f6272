"""Continuous and exact search against closed forms: on a linear model both are problems on a line."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import NO_FEATURE, Access, HasGradient, ModelSpec
from cfeval_cli.search.continuous import Continuous
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.search.exact import Exact
from tests.problems import choose_features, logit, make_dataset, make_linear, make_task, problems, sigmoid


def lowest(alpha, size, length):
    """The global minimum of t² + α σ(|z| - ‖w‖ t): the oracle, by a fine grid and a finer one around its best."""
    t = np.linspace(0, alpha**0.5, 20_001)
    for _ in range(3):
        values = t**2 + alpha / (1 + np.exp(-(size - length * t)))
        best = t[values.argmin()]
        step = t[1] - t[0]
        t = np.linspace(max(0, best - step), best + step, 2001)
    return (t**2 + alpha / (1 + np.exp(-(size - length * t)))).min()


def reached(model, row, features, vectors, alpha):
    """The relaxed objective at a counterfactual, written out."""
    z, gap = logit(model, row), 0.0
    for j, v in zip(features, vectors, strict=True):
        if j != NO_FEATURE:
            own = model.tables[j][row[j]]
            z += float(model.weights[j] @ (v - own))
            gap += float(((v - own) ** 2).sum())
    p = sigmoid(z)
    return gap + alpha * (p if logit(model, row) > 0 else 1 - p)


def named_weights(model, features):
    return np.array([np.sqrt(sum((model.weights[j] ** 2).sum() for j in row if j != NO_FEATURE)) for row in features])


@pytest.mark.parametrize("optimizer", ["descent", "adam"])
@pytest.mark.parametrize("alpha", [1.0, 30.0, 300.0])
def test_continuous_comes_within_1_percent_of_the_global_optimum_and_never_below(optimizer, alpha):
    dataset = make_dataset([3, 4, 2, 3], n=50, seed=2)
    model = make_linear(dataset, seed=3, scale=1)
    small = type(model)(model.bias, model.weights / 2, model.tables, model.means / 2)
    features = choose_features(dataset, 2, 2)
    features[::2, 1] = NO_FEATURE  # one feature moves, or two do
    found = Continuous(alpha=alpha, optimizer=optimizer).find(make_task(dataset, small, features, Access.GRADIENT))
    near = 0
    for i, row in enumerate(dataset.test.codes):
        length = named_weights(small, features[i : i + 1])[0]
        best = lowest(alpha, abs(logit(small, row)), length)
        got = reached(small, row, features[i], found.vectors[i], alpha)
        assert got >= best - 1e-9 * alpha
        near += got <= 1.01 * best
    assert found.converged.mean() > 0.99
    assert near >= 0.99 * len(features)


@given(problems(n=5), st.integers(1, 3), st.integers(0, 99))
def test_exact_is_the_distance_to_the_boundary_and_flips_wherever_there_is_weight(problem, k, seed):
    dataset, model = problem
    features = choose_features(dataset, min(k, dataset.width), seed)
    features[::2, 1:] = NO_FEATURE
    found = Exact().find(make_task(dataset, model, features, Access.GRADIENT))
    lengths = named_weights(model, features)
    for i, row in enumerate(dataset.test.codes):
        if lengths[i] == 0:
            assert not found.flipped[i] and not found.converged[i] and found.distance[i] == 0
        else:
            assert found.flipped[i] and found.converged[i]
            assert found.distance[i] == pytest.approx(abs(logit(model, row)) / lengths[i], abs=1e-8)
            assert found.probability[i] == pytest.approx(0.5, abs=1e-8)


@given(problems(n=5, max_features=3), st.integers(1, 2), st.integers(0, 99))
def test_exact_is_a_lower_bound_for_every_flip_of_the_others(problem, k, seed):
    dataset, model = problem
    features = choose_features(dataset, min(k, dataset.width), seed)
    bound = Exact().find(make_task(dataset, model, features, Access.GRADIENT)).distance
    moved = Continuous(alpha=300.0, restarts=2, steps=200).find(make_task(dataset, model, features, Access.GRADIENT))
    exchanged = Discrete(pick="nearest").find(make_task(dataset, model, features, Access.PROBABILITY))
    for found in (moved, exchanged):
        assert (found.distance[found.flipped] >= bound[found.flipped] - 1e-7).all()


def test_only_the_explained_features_move_and_labels_probabilities_and_distances_are_those_of_the_result():
    dataset = make_dataset([3, 4, 2], n=30, seed=4)
    model = make_linear(dataset, seed=5, scale=1)
    features = choose_features(dataset, 2, 0)
    features[::3, 1] = NO_FEATURE
    for search in (Continuous(alpha=30.0), Exact()):
        found = search.find(make_task(dataset, model, features, Access.GRADIENT))
        for i, row in enumerate(dataset.test.codes):
            z, gap = logit(model, row), 0.0
            for place, j in enumerate(features[i]):
                if j != NO_FEATURE:
                    step = found.vectors[i, place] - model.tables[j][row[j]]
                    z, gap = z + model.weights[j] @ step, gap + step @ step
            kept = sigmoid(z) if logit(model, row) > 0 else 1 - sigmoid(z)
            assert found.probability[i] == pytest.approx(kept, abs=1e-9)
            assert found.flipped[i] == (kept < 0.5) and found.labels[i] == int(z > 0)
            assert found.distance[i] == pytest.approx(np.sqrt(gap))


def test_the_result_depends_on_the_seed_alone_not_on_batches_or_company():
    dataset = make_dataset([3, 4, 2], n=20, seed=4)
    model = make_linear(dataset, seed=5, scale=1)
    features = choose_features(dataset, 1, 0)
    one = Continuous().find(make_task(dataset, model, features, Access.GRADIENT)).vectors
    assert np.array_equal(
        Continuous(max_batch_rows=30).find(make_task(dataset, model, features, Access.GRADIENT)).vectors, one
    )
    assert not np.array_equal(
        Continuous().find(make_task(dataset, model, features, Access.GRADIENT, seed=1)).vectors, one
    )


def test_too_few_steps_are_reported_as_not_converged():
    dataset = make_dataset([3, 4, 2], n=20, seed=4)
    model = make_linear(dataset, seed=5, scale=1)
    found = Continuous(steps=2, restarts=1).find(
        make_task(dataset, model, choose_features(dataset, 1, 0), Access.GRADIENT)
    )
    assert not found.converged.all()


def test_a_model_without_gradients_is_refused_in_words():
    dataset = make_dataset([3, 2])
    model = make_linear(dataset)

    class Black:
        predict_proba = model.predict_proba

    class Sloping(Black, HasGradient):
        embed_values, predict_proba_embedded = model.embed_values, model.predict_proba_embedded

    black, sloping, linear = (ModelSpec(dataset, kind) for kind in (Black, Sloping, type(model)))
    assert "needs gradients in the embeddings" in Continuous().not_applicable_reason(black)
    assert Continuous().not_applicable_reason(sloping) is None and Continuous().not_applicable_reason(linear) is None
    assert "a logit that is linear in the embeddings" in Exact().not_applicable_reason(sloping)
    assert Exact().not_applicable_reason(linear) is None
    assert all(Discrete().not_applicable_reason(spec) is None for spec in (black, sloping, linear))


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
def test_bad_settings_are_named(make, key):
    with pytest.raises(ValueError, match=key):
        make()


@given(problems(max_features=3, n=8, absent=0.2), st.sampled_from([0.1, 3.0, 100.0, 2000.0]), st.integers(1, 3))
def test_the_limit_of_continuous_is_the_global_optimum(problem, alpha, k):
    dataset, model = problem
    features = choose_features(dataset, min(k, dataset.width), 1)
    features[0] = NO_FEATURE
    for i, row in enumerate(dataset.test.codes):
        features[i] = np.where(row[features[i]] == -1, NO_FEATURE, features[i])
    task = make_task(dataset, model, features, Access.GRADIENT)
    found = Continuous(alpha=alpha).limit(task)
    lengths = named_weights(model, features)
    for i, row in enumerate(dataset.test.codes):
        best = lowest(alpha, abs(logit(model, row)), lengths[i])
        assert reached(model, row, features[i], found.vectors[i], alpha) == pytest.approx(best, rel=1e-7, abs=1e-7)
        assert found.distance[i] ** 2 + alpha * found.probability[i] == pytest.approx(best, rel=1e-7, abs=1e-7)
    assert found.converged.all() and (found.flipped == (found.probability < 0.5))[found.probability != 0.5].all()


def test_searches_of_the_line_know_where_they_would_end():
    dataset = make_dataset([3, 2], n=5)
    model = make_linear(dataset)
    task = make_task(dataset, model, choose_features(dataset, 1, 0), Access.GRADIENT)
    assert Discrete().limit(task) is None
    assert (Exact().limit(task).distance == Exact().find(task).distance).all()
    assert Continuous().limit(make_task(dataset, model, task.features, Access.PROBABILITY)) is None
    assert Continuous().by_distance and Discrete(pick="nearest").by_distance and not Discrete().by_distance


def test_some_counterfactuals_can_be_taken():
    dataset = make_dataset([3, 2], n=6)
    task = make_task(dataset, make_linear(dataset), choose_features(dataset, 1, 0), Access.GRADIENT)
    some = np.array([4, 1])
    for search in (Continuous(restarts=2), Discrete()):
        found = search.find(task)
        taken = found.take(some)
        for name, array in vars(found).items():
            assert (getattr(taken, name) is None) if array is None else (getattr(taken, name) == array[some]).all()
