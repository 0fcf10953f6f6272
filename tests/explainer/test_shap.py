"""shap returns the values of the package for the same background and seed, with every algorithm."""

import warnings
from itertools import combinations
from math import factorial

import numpy as np
import pytest

from cfeval_cli.core import ABSENT, Access, Batch, BlackBox, LedgerKey, ModelSpec
from cfeval_cli.errors import UserError
from cfeval_cli.explainer import coalitions
from cfeval_cli.explainer.shap import Shap
from cfeval_cli.model.estimator import Estimator
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.seeding import draw_seed, make_stream
from tests.problems import (
    compute_importance,
    densify,
    draw_linear,
    get_class_proba,
    make_batch,
    make_dataset,
    make_mixed,
    make_text,
    open_client,
)
from tests.tree_classifiers import TREE_CLASSIFIERS


@pytest.fixture(scope="module", autouse=True)
def package():
    """Imported where these tests run, for it takes a second."""
    global shap
    import shap


# few values, so that background rows share some of them with an instance; numbers of many values; more features than
# sets can be tried; sentences; one feature alone; and a feature that no row differs in
PROBLEMS = {
    "few": make_dataset([2, 3, 2, 4, 2, 3, 2, 2, 5, 2, 3, 2], n=120, seed=1),
    "numbers": make_mixed(3, n=60, categories=3, numbers=4),
    "many": make_dataset([9] * 17, n=120, seed=2),
    "text": make_text(width=9, words=12, n=30, seed=4),
    "one": make_dataset([4], n=40, seed=5),
    "same": make_dataset([3, 1, 4, 1, 2], n=40, seed=6),
}


def setting(name, rows=4):
    dataset = PROBLEMS[name]
    model = draw_linear(dataset, 7, 3, scale=0.7)
    return dataset, model, make_batch(dataset, model, 3, "explainer.shap", slice(rows))


def query_package(dataset, model, batch, i, background):
    """What the package is given: a function, a background, and a seed."""
    label = int(batch.predicted_classes[i])
    rows = np.where(batch.codes[i] == ABSENT, ABSENT, background)

    def function(x):
        return get_class_proba(model, np.asarray(x).astype(np.int32), np.full(len(x), label))

    return function, rows, draw_seed(make_stream(3, "explainer.shap", int(batch.ids[i])))


@pytest.mark.parametrize("name", PROBLEMS)
def test_permutation_gives_the_packages_values(name):
    dataset, model, batch = setting(name)
    explanation = densify(
        Shap("permutation", 30, 5).fit(dataset, open_client(model, Access.PROBABILITY))(batch), dataset.n_features
    )
    for i, codes in enumerate(batch.codes):
        function, rows, seed = query_package(dataset, model, batch, i, coalitions.draw_background(dataset, 30, 0))
        vary = int((rows != codes).any(axis=0).sum())
        package = shap.PermutationExplainer(function, shap.maskers.Independent(rows, max_samples=30), seed=seed)
        expected = package(codes[None], max_evals=5 * (2 * vary + 1), silent=True).values[0]
        is_present = codes != ABSENT
        assert explanation[i][is_present] == pytest.approx(expected[is_present], abs=1e-12)


@pytest.mark.parametrize(("name", "samples"), [*((name, None) for name in PROBLEMS), ("few", 300), ("many", 90)])
def test_kernel_gives_the_packages_values(name, samples):
    dataset, model, batch = setting(name, 2)
    explainer = Shap("kernel", background=20, n_samples=samples)
    explanation = densify(explainer.fit(dataset, open_client(model, Access.PROBABILITY))(batch), dataset.n_features)
    for i, codes in enumerate(batch.codes):
        function, rows, seed = query_package(dataset, model, batch, i, coalitions.draw_background(dataset, 20, 0))
        np.random.seed(seed)  # noqa: NPY002
        package = shap.KernelExplainer(function, rows)
        extra = {} if samples is None else {"nsamples": samples}
        expected = package.shap_values(codes[None].astype(float), l1_reg=0, silent=True, **extra)[0]
        is_present = codes != ABSENT
        assert explanation[i][is_present] == pytest.approx(expected[is_present], abs=1e-9)


def shapley(value, size):
    """By the definition: the mean gain over all orders."""
    scores = np.zeros(size)
    for j in range(size):
        other_values = [first for first in range(size) if first != j]
        for n_values in range(size):
            weight = factorial(n_values) * factorial(size - n_values - 1) / factorial(size)
            for subset in combinations(other_values, n_values):
                scores[j] += weight * (value({*subset, j}) - value({*subset}))
    return scores


@pytest.mark.parametrize("algorithm", ["kernel", "permutation"])
def test_all_sets_or_many_orders_give_the_shapley_value(algorithm):
    dataset = make_dataset([3, 4, 2, 3, 5], n=60, seed=3)
    model = draw_linear(dataset, 4, 2)
    batch = make_batch(dataset, model, rows=slice(3))
    explanation = densify(Shap(algorithm, 15, 3000).fit(dataset, open_client(model, Access.PROBABILITY))(batch), 5)
    rows = coalitions.draw_background(dataset, 15, 0)
    for i, codes in enumerate(batch.codes):

        def value(subset, codes=codes, label=int(batch.predicted_classes[i])):
            edited = rows.copy()
            edited[:, [*subset]] = codes[[*subset]]
            return get_class_proba(model, edited, np.full(len(rows), label)).mean()

        assert explanation[i] == pytest.approx(shapley(value, 5), abs=1e-10 if algorithm == "kernel" else 4e-3)


def test_equal_rows_are_evaluated_once():
    """Against asking about every row, on random sets of features."""
    rng = np.random.default_rng(0)
    dataset = PROBLEMS["few"]
    model, rows = draw_linear(dataset, 1, 3), coalitions.draw_background(dataset, 40, 2)
    for codes in dataset.test.codes[:5]:
        door, features = open_client(model, Access.PROBABILITY), coalitions.find_differing_features(codes, rows)
        sets = rng.random((600, len(features))) < 0.5
        explanation = coalitions.compute_set_values(door, codes, 1, rows, features, sets)
        for result, own in zip(explanation, sets, strict=True):
            edited = rows.copy()
            edited[:, features[own]] = codes[features[own]]
            assert result == pytest.approx(model.predict_positive(edited).mean(), abs=1e-12)
        assert door._ledger.n_evaluations[LedgerKey("test")] < 0.5 * sets.shape[0] * len(rows)


@pytest.mark.parametrize("name", ["few", "text"])
def test_linear_is_the_contribution_to_the_logit_of_the_truth_shapley(name):
    dataset, model, batch = setting(name, 10)
    explanation = densify(Shap("linear").fit(dataset, open_client(model))(batch), dataset.n_features)
    reference = compute_importance("shapley", model, dataset, batch.codes, batch.predicted_classes)
    is_present = batch.codes != ABSENT
    assert explanation[is_present] == pytest.approx(reference[is_present], abs=1e-9)


def test_linear_is_the_packages_on_embeddings():
    dataset, model, batch = setting("numbers", 6)
    explanation = densify(Shap("linear").fit(dataset, open_client(model))(batch), dataset.n_features)

    def embedded(codes):
        return np.concatenate([model.embed_values(j, codes[:, j]) for j in range(dataset.n_features)], axis=1)

    masker = shap.maskers.Independent(embedded(dataset.train.codes), max_samples=1000)
    values = shap.LinearExplainer((model.weights.ravel(), model.bias), masker).shap_values(embedded(batch.codes))
    signs = np.where(batch.predicted_classes == 1, 1, -1)[:, None]
    assert explanation == pytest.approx(signs * values.reshape(6, dataset.n_features, 3).sum(axis=2), abs=1e-9)


def trained(estimator, dataset, **settings):
    model = Estimator(estimator, **settings).fit(dataset, 0)
    codes = dataset.test.codes[:6]
    labels = model.predict_proba(codes).argmax(axis=1)
    return model, Batch(dataset.test.ids[:6], codes, labels, seed=0, component="explainer.shap")


@pytest.mark.parametrize("name", TREE_CLASSIFIERS)
@pytest.mark.parametrize("categories", [0, 2], ids=["numbers", "mixed"])
def test_tree_equals_the_package_and_auto_uses_it_if_values_sum_to_the_probability(name, categories):
    package, _, kind = name.rpartition(".")
    estimator = getattr(pytest.importorskip(package), kind)(**TREE_CLASSIFIERS[name])
    dataset = make_mixed(1, n=80, categories=categories, numbers=4)
    model, batch = trained(estimator, dataset)
    auto = densify(Shap("auto", 40).fit(dataset, open_client(model))(batch), dataset.n_features)
    rows = coalitions.draw_background(dataset, 40, 0)
    result_of_all = model.predict_proba(batch.codes) - model.predict_proba(rows).mean(axis=0)
    assert auto.sum(axis=1) == pytest.approx(result_of_all[np.arange(6), batch.predicted_classes], abs=2e-4)
    if categories and not set(np.unique(model.encode(rows)[:, :2]).tolist()) <= {0.0, 1.0} and _native(model):
        expected = Shap("permutation", 40).fit(dataset, open_client(model, Access.PROBABILITY))(batch)
        assert auto == pytest.approx(
            densify(expected, dataset.n_features), abs=1e-12
        )  # the package does not support categories
        with pytest.raises(UserError, match=r"explainer\.shap\.algorithm=tree.*algorithm=auto"):
            Shap("tree", 40).fit(dataset, open_client(model))
        return
    exact = model.encode(rows)
    if type(estimator).__module__.startswith(("sklearn.tree", "sklearn.ensemble._forest", "sklearn.ensemble._gb")):
        exact = exact.astype(np.float32).astype(float)  # as these trees read it, which the package forgets
    masker = shap.maskers.Independent(exact, max_samples=40)
    package = shap.TreeExplainer(model.get_estimator(), masker, model_output="probability")
    values = np.asarray(package.shap_values(model.encode(batch.codes), check_additivity=False))
    for i, label in enumerate(batch.predicted_classes):
        own_file = values[i, :, label] if values.ndim == 3 else values[i] * (1 if label else -1)
        expected = [own_file[model.get_column_features() == j].sum() for j in range(dataset.n_features)]
        assert auto[i] == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("hidden", [[0, 2], [1], [3]])
def test_trees_without_some_features_are_explained_by_the_others(hidden):
    from sklearn.ensemble import RandomForestClassifier

    dataset = make_mixed(4, n=80, categories=0, numbers=4)
    blind = [dataset.features[j].name for j in hidden]
    model, batch = trained(RandomForestClassifier(6, max_depth=4), dataset, blind=blind)
    explanation = densify(Shap("tree", 20).fit(dataset, open_client(model))(batch), dataset.n_features)
    rows = coalitions.draw_background(dataset, 20, 0)
    sets = [
        frozenset(subset)
        for n_values in range(dataset.n_features + 1)
        for subset in combinations(range(dataset.n_features), n_values)
    ]
    for i, codes in enumerate(batch.codes):
        edited = np.stack([rows] * len(sets))
        for part, subset in zip(edited, sets, strict=True):
            part[:, [*subset]] = codes[[*subset]]
        chances = model.predict_proba(np.concatenate(edited))[:, batch.predicted_classes[i]].reshape(
            len(sets), len(rows)
        )
        values = dict(zip(sets, chances.mean(axis=1), strict=True))
        assert explanation[i] == pytest.approx(
            shapley(lambda subset, of=values: of[frozenset(subset)], dataset.n_features), abs=1e-6
        )
        assert (explanation[i][hidden] == 0).all()


def _native(model):
    return bool(model.source.encoder.is_category.any())


def test_auto_uses_permutations_without_trees():
    from sklearn.linear_model import LogisticRegression

    dataset = make_mixed(1, n=80)
    model, batch = trained(LogisticRegression(), dataset)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        auto = Shap("auto", 20).fit(dataset, open_client(model))(batch)
    expected = Shap("permutation", 20).fit(dataset, open_client(model, Access.PROBABILITY))(batch)
    assert np.array_equal(auto.scores, expected.scores)


def test_access_depends_on_the_algorithm_and_inapplicable_ones_are_refused():
    from sklearn.tree import DecisionTreeClassifier

    dataset = make_mixed(1)
    white, black = ModelSpec(dataset, LinearModel), ModelSpec(dataset, BlackBox)
    tree = ModelSpec.from_settings(dataset, Estimator(DecisionTreeClassifier()))
    removals = ("auto", "permutation", "kernel")
    assert [Shap(removal).choose_access(white) for removal in removals] == [Access.PROBABILITY] * 3
    inside = [Shap("linear").choose_access(white), *(Shap(removal).choose_access(tree) for removal in ("auto", "tree"))]
    assert inside == [Access.WHITE_BOX] * 3
    for removal, spec in (("linear", black), ("tree", white), ("linear", tree)):
        with pytest.raises(ValueError, match=rf"algorithm={removal}: needs .*Use algorithm=auto"):
            Shap(removal).check(spec)


def test_background_depends_on_the_seed_and_is_the_mask_of_a_text():
    dataset = PROBLEMS["few"]
    first, second, other = (coalitions.draw_background(dataset, 30, seed) for seed in (0, 0, 1))
    assert np.array_equal(first, second) and not np.array_equal(first, other) and first.shape == (30, 12)
    assert len(coalitions.draw_background(dataset, 10_000, 0)) == len(dataset.train)
    text = PROBLEMS["text"]
    assert (coalitions.draw_background(text, 30, 0) == text.mask).all() and len(
        coalitions.draw_background(text, 30, 0)
    ) == 1


@pytest.mark.parametrize(
    ("settings", "key"),
    [
        ({"algorithm": "deep"}, "algorithm"),
        ({"background": 0}, "background"),
        ({"permutations": 0}, "permutations"),
        ({"n_samples": 1}, "n_samples"),
        ({"seed": -1}, "seed"),
    ],
)
def test_message_names_the_invalid_setting(settings, key):
    with pytest.raises(ValueError, match=key):
        Shap(**settings)
