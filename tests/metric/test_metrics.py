"""Metrics against their definitions, written as loops over instances."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, AbsentScore, Access, Classifier, Counterfactuals, MetricInput, ModelSpec
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.metric.aopc import Aopc, AopcSufficiency
from cfeval_cli.metric.axe import Axe
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.converged import Converged
from cfeval_cli.metric.counterfactual import C, CSoft, Proximity, ProximityOfFlips, Validity, ValiditySoft
from cfeval_cli.metric.coverage import Coverage
from cfeval_cli.metric.dfr import Dfr
from cfeval_cli.metric.edits_to_flip import EditsToFlip
from cfeval_cli.metric.erasure import compute_effect_of_selected
from cfeval_cli.metric.faithfulness_correlation import FaithfulnessCorrelation
from cfeval_cli.metric.fixed import Fixed
from cfeval_cli.metric.frozen import Frozen
from cfeval_cli.metric.ground_truth import Hit, Recall
from cfeval_cli.metric.infidelity import Infidelity
from cfeval_cli.metric.naopc import Naopc
from cfeval_cli.metric.plausible import Plausible
from cfeval_cli.metric.prediction_gap import Pgi, Pgu
from cfeval_cli.metric.sparsity import Redundant, Sparsity
from cfeval_cli.metric.sufficiency import Sufficiency
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.search.discrete import Discrete
from tests.problems import (
    TRUTHS,
    add_constraints,
    compute_importance,
    fit_removals,
    is_permitted,
    logit,
    make_dataset,
    make_linear,
    make_mixed,
    make_rows,
    open_client,
    predict_labels,
    problems,
    sigmoid,
)

METRICS = [
    C,
    Comprehensiveness,
    Converged,
    Coverage,
    CSoft,
    Dfr,
    Fixed,
    Hit,
    Proximity,
    ProximityOfFlips,
    Recall,
    Sufficiency,
    Validity,
    ValiditySoft,
    partial(Pgi, Marginal()),
    partial(Pgu, Marginal()),
    Aopc,
    AopcSufficiency,
    Naopc,
    EditsToFlip,
    partial(Frozen, Discrete()),
    Axe,
    FaithfulnessCorrelation,
    Infidelity,
    Sparsity,
    Redundant,
    Plausible,
]


def probability(model, row, label):
    p = sigmoid(logit(model, row))
    return p if label == 1 else 1 - p


@st.composite
def draw_inputs(draw, access=Access.WHITE_BOX, unknown=None, absent=0.2):
    dataset, model = draw(problems(absent=absent, unknown=unknown))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    codes = dataset.test.codes
    n, k = len(codes), draw(st.integers(1, dataset.n_features))
    features = np.full((n, k), NO_FEATURE)
    for i, row in enumerate(codes):
        present = rng.permutation(np.flatnonzero(row != ABSENT))[:k]
        features[i, : len(present)] = present
    rows = make_rows(dataset, model)
    edited = codes.copy()
    for i, row_features in enumerate(features):
        for j in row_features[row_features != NO_FEATURE]:
            edited[i, j] = rng.integers(len(dataset.candidates[j]))
    after = predict_labels(model, edited)
    probabilities = np.array(
        [probability(model, row, label) for row, label in zip(edited, rows.predicted_classes, strict=True)]
    )
    distance = rng.random(n) + 0.1
    edits = {
        Access.LABEL: Counterfactuals(features, after, after != rows.predicted_classes, distance, None, edited),
        Access.PROBABILITY: Counterfactuals(
            features, after, after != rows.predicted_classes, distance * 2, probabilities, edited
        ),
    }
    return model, make_inputs(dataset, model, features, edits, access)


def make_inputs(dataset, model, features, edits, access=Access.WHITE_BOX):
    rows = make_rows(dataset, model)
    return MetricInput(
        rows.ids,
        rows.codes,
        rows.predicted_classes,
        rows.probability,
        dataset=dataset,
        model=open_client(model, access),
        features=features,
        k=features.shape[1],
        complete=(features != NO_FEATURE).all(axis=1),
        counterfactuals=edits,
        removals=fit_removals(dataset, model),
        truth={name: compute_importance(name, model, dataset, rows.codes, rows.predicted_classes) for name in TRUTHS},
    )


def make_deletions(model, inputs):
    """Return the counterfactuals of deleting the selected features."""
    edited = np.where(mark_selected(inputs.codes, inputs.features), np.int32(ABSENT), inputs.codes)
    after = predict_labels(model, edited)
    probabilities = np.array(
        [probability(model, row, label) for row, label in zip(edited, inputs.predicted_classes, strict=True)]
    )
    return Counterfactuals(
        inputs.features, after, after != inputs.predicted_classes, np.ones(len(edited)), probabilities, edited
    )


def aggregate(metric, inputs):
    return {
        s.variant: s.numerator.sum() / s.denominator.sum()
        for s in metric.score(inputs)
        if not isinstance(s, AbsentScore)
    }


@given(draw_inputs())
def test_counterfactual_metrics(model_and_inputs):
    model, inputs = model_and_inputs
    n = len(inputs.codes)
    counterfactuals = inputs.counterfactuals
    edited = counterfactuals[Access.LABEL].codes
    flips = [(logit(model, edited[i]) > 0) != (logit(model, inputs.codes[i]) > 0) for i in range(n)]
    drops = [
        probability(model, inputs.codes[i], inputs.predicted_classes[i])
        - probability(model, edited[i], inputs.predicted_classes[i])
        for i in range(n)
    ]
    label_distance, probability_distance = (
        counterfactuals[Access.LABEL].distance,
        counterfactuals[Access.PROBABILITY].distance,
    )
    assert aggregate(Validity(), inputs) == pytest.approx({"label": sum(flips) / n, "probability": sum(flips) / n})
    assert aggregate(Proximity(), inputs) == pytest.approx(
        {"label": sum(label_distance) / n, "probability": sum(probability_distance) / n}
    )
    if any(flips):
        means = [
            sum(d for d, flip in zip(distance, flips, strict=True) if flip) / sum(flips)
            for distance in (label_distance, probability_distance)
        ]
        assert aggregate(ProximityOfFlips(), inputs) == pytest.approx(
            dict(zip(("label", "probability"), means, strict=True))
        )
    assert aggregate(C(), inputs) == pytest.approx(
        {"label": sum(flips) / sum(label_distance), "probability": sum(flips) / sum(probability_distance)}
    )
    assert aggregate(ValiditySoft(), inputs) == pytest.approx({"probability": sum(drops) / n})
    assert aggregate(CSoft(), inputs) == pytest.approx({"probability": sum(drops) / sum(probability_distance)})


def list_replacements(inputs, variant, removed):
    """Return the values that replace some features of a row, with their weights."""
    if variant == "marginal":
        counts = Counter(tuple(row[j] for j in removed) for row in inputs.dataset.train.codes.tolist())
        return [(values, count / len(inputs.dataset.train)) for values, count in counts.items()]
    return [((ABSENT if variant == "del" else inputs.dataset.mask_code,) * len(removed), 1.0)]


@given(st.one_of(draw_inputs(absent=0.0), draw_inputs(unknown=1, absent=0.0), draw_inputs(unknown=1)))
def test_erasure_metrics(model_and_inputs):
    model, inputs = model_and_inputs
    n = len(inputs.codes)
    variants = ["del", *([] if inputs.dataset.mask_code is None else ["mask"]), "marginal"]
    if (inputs.codes == ABSENT).any() or (inputs.dataset.train.codes == ABSENT).any():
        variants.remove("marginal")  # rows with absent features cannot replace values
        inputs = replace(
            inputs, removals={name: fitted for name, fitted in inputs.removals.items() if name != "marginal"}
        )
    comp, suff, flips = (dict.fromkeys(variants, 0.0) for _ in range(3))
    for variant in variants:
        for i, row in enumerate(inputs.codes):
            present = [j for j in range(len(row)) if row[j] != ABSENT]
            before = probability(model, row, inputs.predicted_classes[i])
            for removed, keep in (
                ([j for j in present if j in inputs.features[i]], False),
                ([j for j in present if j not in inputs.features[i]], True),
            ):
                for values, weight in list_replacements(inputs, variant, removed):
                    edited = row.copy()
                    for j, value in zip(removed, values, strict=True):
                        edited[j] = value
                    drop = before - probability(model, edited, inputs.predicted_classes[i])
                    (suff if keep else comp)[variant] += weight * drop / n
                    if not keep:
                        flips[variant] += weight * ((logit(model, edited) > 0) != (logit(model, row) > 0)) / n
    assert aggregate(Comprehensiveness(), inputs) == pytest.approx(comp)
    assert aggregate(Sufficiency(), inputs) == pytest.approx(suff)
    assert aggregate(Dfr(), inputs) == pytest.approx(flips)
    label_inputs = replace(inputs, model=open_client(model, Access.LABEL), probability=None)
    assert aggregate(Dfr(), label_inputs) == pytest.approx(flips)


@given(draw_inputs())
def test_erasure_is_a_counterfactual_edit(model_and_inputs):
    """Comprehensiveness is validity_soft, and DFR is validity, of the edit that deletes the selected features."""
    model, inputs = model_and_inputs
    as_edit = replace(inputs, counterfactuals={Access.PROBABILITY: make_deletions(model, inputs)})
    soft, hard = aggregate(ValiditySoft(), as_edit)["probability"], aggregate(Validity(), as_edit)["probability"]
    assert aggregate(Comprehensiveness(), inputs)["del"] == pytest.approx(soft)
    assert aggregate(Dfr(), inputs)["del"] == hard
    effect, deletions = compute_effect_of_selected(inputs, inputs.removals["zero"]), make_deletions(model, inputs)
    assert (effect.flip_rate == deletions.flipped).all() and effect.probability == pytest.approx(deletions.probability)
    all_features = replace(inputs, features=np.tile(np.arange(inputs.codes.shape[1]), (len(inputs), 1)))
    result_of_all = replace(all_features, counterfactuals={Access.PROBABILITY: make_deletions(model, all_features)})
    no_features = replace(inputs, features=np.full((len(inputs), 1), NO_FEATURE))
    assert aggregate(Sufficiency(), no_features)["del"] == pytest.approx(
        aggregate(ValiditySoft(), result_of_all)["probability"]
    )


def test_only_limits_the_removals_of_a_metric():
    _, inputs = _make_plain_inputs()
    for metric in (Comprehensiveness, Sufficiency, Dfr):
        assert [score.variant for score in metric().score(inputs)] == ["del", "mask", "marginal"]
        assert [score.variant for score in metric(removals=["marginal", "zero"]).score(inputs)] == ["del", "marginal"]
        assert list(metric(removals=[]).score(inputs)) == []


def test_inapplicable_removal_is_rejected_with_reason():
    _, inputs = _make_plain_inputs()
    with pytest.raises(ValueError, match="toy has no mask token"):
        compute_effect_of_selected(inputs, inputs.removals["mask"])


@given(draw_inputs())
def test_ground_truth(model_and_inputs):
    _, inputs = model_and_inputs
    for name, scores in inputs.truth.items():
        recall = hit = 0.0
        for i, row in enumerate(scores):
            present = [j for j in range(len(row)) if np.isfinite(row[j])]
            orders = list(permutations(present))  # tied features in every order
            bests = [sorted(order, key=lambda j: -row[j])[: inputs.k] for order in orders]
            common = np.array([len(set(best) & set(inputs.features[i])) for best in bests])
            recall += common.mean() / inputs.k / len(scores)
            hit += (common > 0).mean() / len(scores)
        assert aggregate(Recall(), inputs)[name] == pytest.approx(recall)
        assert aggregate(Hit(), inputs)[name] == pytest.approx(hit)


@given(draw_inputs())
def test_coverage_counts_complete_explanations_over_all_instances(model_and_inputs):
    _, inputs = model_and_inputs
    (score,) = Coverage().score(inputs)
    assert score.over_all_instances
    assert score.numerator.sum() == sum(all(j != NO_FEATURE for j in row) for row in inputs.features)


def test_converged_has_a_score_for_iterative_searches_only():
    model, inputs = _make_plain_inputs()
    n = len(inputs.codes)
    exchanged = make_deletions(model, inputs)
    moving = replace(exchanged, converged=np.arange(n) % 4 > 0)
    joined_pair = replace(inputs, counterfactuals={Access.LABEL: exchanged, Access.GRADIENT: moving})
    (score,) = Converged().score(joined_pair)
    assert score.variant == "gradient" and score.numerator.sum() == sum(i % 4 > 0 for i in range(n))


def test_metrics_by_mask_are_absent_without_a_mask_token():
    _, inputs = _make_plain_inputs()
    for metric in (Comprehensiveness(), Sufficiency()):
        absent = [s for s in metric.score(inputs) if isinstance(s, AbsentScore)]
        assert [(s.variant, s.reason) for s in absent] == [("mask", "toy has no mask token")]


@given(st.integers(0, 300), st.integers(1, 3))
def test_explanation_is_fixed_if_no_feature_may_change(seed, k):
    unconstrained = make_mixed(seed, n=6, missing=0.3 * (seed % 2), tried=3)
    model, dataset = make_linear(unconstrained, seed=seed), add_constraints(unconstrained, seed)
    features = np.stack([np.random.default_rng(seed + i).permutation(dataset.n_features)[:k] for i in range(6)])
    if k > 1:
        features[::2, -1] = NO_FEATURE
    scores = list(Fixed().score(make_inputs(dataset, model, features, {})))
    assert len(scores) == any(feature.allowed_change != "any" for feature in dataset.features)
    assert not list(Fixed().score(make_inputs(unconstrained, model, features, {})))
    for score in scores:
        assert score.variant == "all" and (score.denominator == 1).all()
        for i, row in enumerate(dataset.test.codes):
            other_values = [
                v
                for j in features[i][features[i] != NO_FEATURE]
                for v in dataset.get_alternatives(j)
                if v != row[j] and is_permitted(dataset.features[j], row[j], v)
            ]
            assert score.numerator[i] == (not other_values)


def _make_plain_inputs():
    dataset = make_dataset([2, 2])
    model = make_linear(dataset)
    return model, make_inputs(dataset, model, np.zeros((len(dataset.test), 1), int), {})


def test_metrics_are_not_applicable_if_the_model_lacks_the_access_level():
    class ArgmaxLabelModel(Classifier):
        def predict(self, codes):
            raise AssertionError

    spec = ModelSpec(make_dataset([2, 2]), ArgmaxLabelModel)
    not_applicable = {metric().name for metric in METRICS if metric().not_applicable_reason(spec)}
    assert not_applicable == {
        "comprehensiveness", "sufficiency", "validity_soft", "c_soft", "pgi", "pgu", "aopc", "aopc_suff", "naopc",
        "edits_to_flip", "faithfulness_correlation", "infidelity",
    }  # fmt: skip
    assert not any(metric().not_applicable_reason(ModelSpec(spec.dataset, LinearModel)) for metric in METRICS)
