"""lime and anchor on tables with numbers: what the packages give when called by hand."""

import numpy as np
import pytest
from anchor.anchor_tabular import AnchorTabularExplainer
from hypothesis import given
from hypothesis import strategies as st
from lime.discretize import BaseDiscretizer, QuartileDiscretizer
from lime.lime_tabular import LimeTabularExplainer

from cfeval_cli.core import NO_FEATURE
from cfeval_cli.explainer.anchor import Anchor, _merge_duplicates
from cfeval_cli.explainer.lime import Lime
from cfeval_cli.explainer.quartiles import bin_table
from cfeval_cli.seeding import draw_seed, make_stream
from tests.problems import make_batch, make_linear, make_mixed, open_client, predict_labels

ABOVE = 1e6  # where a missing number is put for the packages


def as_numbers(dataset, codes):
    """Rows as the packages are given them."""
    columns = []
    for j, feature in enumerate(dataset.features):
        meaning = np.arange(len(feature.values)) if feature.numbers is None else feature.numbers
        columns.append(np.nan_to_num(meaning.astype(float), nan=ABOVE)[codes[:, j]])
    return np.stack(columns, axis=1)


def as_codes(dataset, rows):
    """The code of the nearest number, by looking at each."""
    codes = np.empty(rows.shape, dtype=np.int32)
    for j, feature in enumerate(dataset.features):
        estimate = (
            np.arange(len(feature.values)) if feature.numbers is None else np.nan_to_num(feature.numbers, nan=ABOVE)
        )
        codes[:, j] = np.abs(rows[:, j, None] - estimate).argmin(axis=1)
    return codes


class WithMissing(BaseDiscretizer):
    """Quartiles of what is not missing, and one more bin for what is."""

    def bins(self, data, labels):
        explanation = []
        for j in self.to_discretize:
            estimate = data[data[:, j] < ABOVE, j]
            explanation.append([*np.percentile(estimate, [25, 50, 75]), ABOVE / 2])
        return explanation


def make_discretizer(dataset, missing):
    """The discretizer that the stock packages make of the data, or one with a bin for what is missing."""
    train = as_numbers(dataset, dataset.train.codes)
    categories = [j for j, feature in enumerate(dataset.features) if feature.kind != "number"]
    kind = WithMissing if missing else QuartileDiscretizer
    quartiles = kind(train, categories, [feature.name for feature in dataset.features])
    if missing:
        for j in quartiles.to_discretize:  # the numbers of the last bin but one end where those of the training rows do
            quartiles.maxs[j][-2] = train[train[:, j] < ABOVE, j].max()
    return train, categories, quartiles


@pytest.mark.parametrize(("seed", "missing"), [(1, 0.0), (2, 0.0), (3, 0.2), (4, 0.4)])
def test_lime_gives_the_packages_coefficients(seed, missing):
    dataset = make_mixed(seed, categories=2, numbers=3, missing=missing)
    model = make_linear(dataset, seed=seed, scale=1)
    explanation = Lime(n_samples=400).fit(dataset, open_client(model))(
        make_batch(dataset, model, 7, "explainer.x", slice(6))
    )
    for i, row in enumerate(dataset.test.codes[:6]):
        random = np.random.RandomState(draw_seed(make_stream(7, "explainer.x", int(dataset.test.ids[i]))))
        train, categories, discretizer = make_discretizer(dataset, missing)
        discretizer.random_state = random
        package = LimeTabularExplainer(
            train,
            categorical_features=categories,
            discretizer=discretizer if missing else "quartile",
            feature_selection="none",
            random_state=random,
        )
        predicted_labels = int(predict_labels(model, row[None])[0])
        expected = package.explain_instance(
            as_numbers(dataset, row[None])[0],
            lambda rows: model.predict_proba(as_codes(dataset, rows)),
            labels=(predicted_labels,),
            num_features=dataset.n_features,
            num_samples=400,
        ).local_exp[predicted_labels]
        assert dict(zip(explanation.features[i], explanation.scores[i], strict=True)) == pytest.approx(
            dict(expected), rel=0, abs=1e-8
        )


def test_a_bin_of_one_number_gives_that_number():
    """If the lowest quarter is one number, the package returns about 0 for it."""
    dataset = make_mixed(0, categories=0, numbers=1, n=60)
    codes = dataset.train.codes
    codes[:30] = 2
    codes[30:][codes[30:] < 2] = 2
    table = bin_table(dataset)
    draws = table.draw_values(0, np.zeros(50, dtype=int), np.random.RandomState(0))
    assert (draws == 2).all() and table.get_bins(0)[2] == 0
    package_values = table.discretizer.get_undiscretize_values(0, np.zeros(5, dtype=int))
    assert np.abs(package_values).max() < 0.01 < abs(dataset.features[0].numbers[2])


@given(st.integers(0, 500), st.sampled_from([0.0, 0.3]))
def test_bins_and_nearest_numbers_by_hand(seed, missing):
    dataset = make_mixed(seed, categories=1, numbers=2, n=12, missing=missing)
    table = bin_table(dataset)
    rng = np.random.default_rng(seed)
    for j, feature in enumerate(dataset.features):
        if feature.kind != "number":
            assert j in table.categories
            continue
        train = dataset.train.codes[:, j]
        estimate = feature.numbers[train[train != feature.missing_code]]
        cuts = sorted(set(np.percentile(estimate, [25, 50, 75]))) if len(estimate) else []
        for code, bin_ in enumerate(table.get_bins(j)):
            if code != feature.missing_code:
                assert bin_ == sum(cut < feature.numbers[code] for cut in cuts)
        if feature.missing_code is not None:
            assert (table.get_bins(j)[: feature.missing_code] < table.get_bins(j)[feature.missing_code]).all()
        estimate = feature.numbers[: feature.missing_code]
        queries = rng.uniform(estimate.min() - 1, estimate.max(), 30)
        gaps = np.abs(queries[:, None] - estimate)
        nearest = table.find_nearest(j, queries)
        assert (gaps[np.arange(30), nearest] == gaps.min(axis=1)).all()


@pytest.mark.parametrize(("seed", "missing"), [(2, 0.0), (3, 0.2)])
def test_anchor_gives_the_packages_rule(seed, missing):
    dataset = make_mixed(seed, categories=2, numbers=3, missing=missing, n=60)
    model = make_linear(dataset, seed=seed, scale=1)
    settings = {"threshold": 0.9, "delta": 0.2, "tau": 0.3, "batch_size": 37}
    explanation = Anchor(**settings).fit(dataset, open_client(model))(
        make_batch(dataset, model, 7, "explainer.x", slice(4))
    )
    train, categories, discretizer = make_discretizer(dataset, missing)
    names = {j: list(dataset.features[j].values) for j in categories}
    for i, row in enumerate(dataset.test.codes[:4]):
        package = AnchorTabularExplainer(["no", "yes"], [f.name for f in dataset.features], train, names)
        package.disc, package.d_train = discretizer, discretizer.discretize(train)
        package.categorical_names.update(discretizer.names)
        np.random.seed(draw_seed(make_stream(7, "explainer.x", int(dataset.test.ids[i]))))  # noqa: NPY002
        rule = package.explain_instance(
            as_numbers(dataset, row[None])[0], lambda x: predict_labels(model, as_codes(dataset, x)), **settings
        )
        selected = explanation.features[i][explanation.features[i] != NO_FEATURE].tolist()
        assert selected == list(dict.fromkeys(rule.features()))
        if selected:
            assert explanation.scores[i][len(selected) - 1] == pytest.approx(rule.precision())
    assert any((explanation.features[i] != NO_FEATURE).any() for i in range(4))


def test_a_feature_with_two_bounds_is_selected_once():
    assert _merge_duplicates([(3, 0.5), (1, 0.6), (3, 0.9)]) == [(3, 0.5), (1, 0.9)]
    assert _merge_duplicates([(3, 0.5), (3, 0.7), (1, 0.9)]) == [(3, 0.7), (1, 0.9)]
    assert _merge_duplicates([]) == []
