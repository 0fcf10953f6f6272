"""lime and anchor: the adapters give what the packages give when called by hand."""

import numpy as np
import pytest
from anchor.anchor_tabular import AnchorTabularExplainer
from lime.lime_tabular import LimeTabularExplainer

from cfeval_cli.core import NO_FEATURE, Batch
from cfeval_cli.explainer.anchor import Anchor
from cfeval_cli.explainer.lime import Lime, _find_interval
from cfeval_cli.seeding import draw_seed, make_stream
from tests.problems import make_batch, make_dataset, make_linear, open_client, predict_labels

DATASET = make_dataset([3, 4, 2, 3, 5], n=60, seed=3)
MODEL = make_linear(DATASET, seed=4, scale=1)
CODES = DATASET.test.codes[:12]
LABELS = predict_labels(MODEL, CODES)


def batch(rows=slice(None), name="explainer.x"):
    return Batch(DATASET.test.ids[:12][rows], CODES[rows], LABELS[rows], seed=7, component=name)


def test_both_classes_are_predicted():
    assert set(LABELS.tolist()) == {0, 1}


@pytest.mark.parametrize("order", ["absolute", "signed"])
def test_lime_gives_the_packages_coefficients(order):
    explanation = Lime(n_samples=500, kernel_width=1.1, order=order).fit(DATASET, open_client(MODEL))(batch())
    for i, row in enumerate(CODES):
        package = LimeTabularExplainer(
            DATASET.train.codes.astype(float),
            categorical_features=range(5),
            feature_selection="none",
            kernel_width=1.1,
            random_state=draw_seed(make_stream(7, "explainer.x", int(DATASET.test.ids[i]))),
        )
        label = int(LABELS[i])
        expected = package.explain_instance(
            row.astype(float),
            lambda x: MODEL.predict_proba(x.astype(int)),
            labels=(label,),
            num_features=5,
            num_samples=500,
        ).local_exp[label]
        assert dict(zip(explanation.features[i], explanation.scores[i], strict=True)) == pytest.approx(
            dict(expected), rel=0, abs=1e-8
        )
        size = np.abs(explanation.scores[i]) if order == "absolute" else explanation.scores[i]
        assert (np.diff(size) <= 0).all()
        if order == "absolute":
            assert explanation.features[i].tolist() == [j for j, _ in expected]


def test_lime_recovers_the_effects_of_a_nearly_linear_model():
    model = make_linear(DATASET, seed=4, scale=1)
    small = type(model)(model.bias / 40, model.weights / 40, model.tables, model.means / 40)
    codes = DATASET.test.codes[:20]
    explanation = Lime(n_samples=4000).fit(DATASET, open_client(small))(make_batch(DATASET, small, 0, "l", slice(20)))
    for i, row in enumerate(codes):
        sign = 1 if predict_labels(small, codes)[i] else -1
        for j, score in zip(explanation.features[i], explanation.scores[i], strict=True):
            effects = small.compute_value_effects(j, 1)
            other_values = DATASET.frequencies[j].copy()
            other_values[row[j]] = 0
            contrast = (
                effects[row[j]] - other_values @ effects / other_values.sum()
            )  # LIME compares with the other values
            assert score == pytest.approx(sign * contrast / 4, abs=0.004)  # the sigmoid's slope at 0 is 1/4


def test_anchor_gives_the_packages_rule():
    settings = {"threshold": 0.9, "delta": 0.2, "tau": 0.3, "batch_size": 37}
    explanation = Anchor(**settings).fit(DATASET, open_client(MODEL))(batch())
    names = {j: list(feature.values) for j, feature in enumerate(DATASET.features)}
    for i, row in enumerate(CODES):
        np.random.seed(draw_seed(make_stream(7, "explainer.x", int(DATASET.test.ids[i]))))  # noqa: NPY002
        package = AnchorTabularExplainer(["no", "yes"], [f"f{j}" for j in range(5)], DATASET.train.codes, names)
        rule = package.explain_instance(row, lambda x: predict_labels(MODEL, x.astype(np.int32)), **settings)
        selected = explanation.features[i][explanation.features[i] != NO_FEATURE].tolist()
        assert selected == rule.features()
        if selected:
            assert explanation.scores[i][len(selected) - 1] == pytest.approx(rule.precision())


def test_lime_finds_the_part_of_many_values_as_of_few():
    points = np.random.default_rng(0).random(1000)
    for size in (1, 2, 16, 17, 40):
        ends = np.linspace(0, 1, size + 1)[1:-1]
        points[: size - 1] = ends  # a point at an end belongs to the part after it
        assert (_find_interval(ends, points) == [sum(end <= point for end in ends) for point in points]).all()


def test_anchor_of_a_constant_model_is_empty():
    constant = make_linear(DATASET, bias=1000.0)
    explanation = Anchor().fit(DATASET, open_client(constant))(make_batch(DATASET, constant, 0, "a", slice(3)))
    assert (explanation.top_k(1) == NO_FEATURE).all()


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda: Lime(n_samples=1), "n_samples"),
        (lambda: Lime(kernel_width=0), "kernel_width"),
        (lambda: Lime(order="none"), "order"),
        (lambda: Anchor(threshold=1.5), "threshold"),
        (lambda: Anchor(batch_size=0), "batch_size"),
    ],
)
def test_invalid_settings_are_refused(make, key):
    with pytest.raises(ValueError, match=key):
        make()
