"""Every metric against its definition, written as loops over instances."""

from collections import Counter
from dataclasses import replace
from functools import partial
from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, AbsentScore, Access, Counterfactuals, MetricInput, ModelSpec
from cfeval_cli.core.explanation import named
from cfeval_cli.metric.aopc import Aopc, AopcSufficiency
from cfeval_cli.metric.axe import Axe
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.converged import Converged
from cfeval_cli.metric.counterfactual import C, CSoft, Proximity, ProximityOfFlips, Validity, ValiditySoft
from cfeval_cli.metric.coverage import Coverage
from cfeval_cli.metric.dfr import Dfr
from cfeval_cli.metric.edits_to_flip import EditsToFlip
from cfeval_cli.metric.erasure import removed
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
    importance,
    labels,
    logit,
    make_dataset,
    make_linear,
    make_mixed,
    open_client,
    permitted,
    predicted,
    problems,
    ready,
    sigmoid,
    with_constraints,
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
    n, k = len(codes), draw(st.integers(1, dataset.width))
    features = np.full((n, k), NO_FEATURE)
    for i, row in enumerate(codes):
        there = rng.permutation(np.flatnonzero(row != ABSENT))[:k]
        features[i, : len(there)] = there
    rows = predicted(dataset, model)
    edited = codes.copy()
    for i, chosen in enumerate(features):
        for j in chosen[chosen != NO_FEATURE]:
            edited[i, j] = rng.integers(len(dataset.candidates[j]))
    after = labels(model, edited)
    kept = np.array([probability(model, row, label) for row, label in zip(edited, rows.labels, strict=True)])
    distance = rng.random(n) + 0.1
    found = {
        Access.LABEL: Counterfactuals(features, after, after != rows.labels, distance, None, edited),
        Access.PROBABILITY: Counterfactuals(features, after, after != rows.labels, distance * 2, kept, edited),
    }
    return model, make_inputs(dataset, model, features, found, access)


def make_inputs(dataset, model, features, found, access=Access.WHITE_BOX):
    rows = predicted(dataset, model)
    return MetricInput(
        rows.ids,
        rows.codes,
        rows.labels,
        rows.probability,
        dataset=dataset,
        model=open_client(model, access),
        features=features,
        k=features.shape[1],
        complete=(features != NO_FEATURE).all(axis=1),
        counterfactuals=found,
        removals=ready(dataset, model),
        truth={name: importance(name, model, dataset, rows.codes, rows.labels) for name in TRUTHS},
    )


def deletion(model, inputs):
    """The counterfactuals that taking the explained features away makes."""
    edited = np.where(named(inputs.codes, inputs.features), np.int32(ABSENT), inputs.codes)
    after = labels(model, edited)
    kept = np.array([probability(model, row, label) for row, label in zip(edited, inputs.labels, strict=True)])
    return Counterfactuals(inputs.features, after, after != inputs.labels, np.ones(len(edited)), kept, edited)


def reduced(metric, inputs):
    return {
        s.variant: s.numerator.sum() / s.denominator.sum()
        for s in metric.score(inputs)
        if not isinstance(s, AbsentScore)
    }


@given(draw_inputs())
def test_counterfactual_metrics(model_and_inputs):
    model, inputs = model_and_inputs
    n = len(inputs.codes)
    found = inputs.counterfactuals
    edited = found[Access.LABEL].codes
    flips = [(logit(model, edited[i]) > 0) != (logit(model, inputs.codes[i]) > 0) for i in range(n)]
    drops = [
        probability(model, inputs.codes[i], inputs.labels[i]) - probability(model, edited[i], inputs.labels[i])
        for i in range(n)
    ]
    one, two = found[Access.LABEL].distance, found[Access.PROBABILITY].distance
    assert reduced(Validity(), inputs) == pytest.approx({"label": sum(flips) / n, "probability": sum(flips) / n})
    assert reduced(Proximity(), inputs) == pytest.approx({"label": sum(one) / n, "probability": sum(two) / n})
    if any(flips):
        near = [sum(d for d, flip in zip(far, flips, strict=True) if flip) / sum(flips) for far in (one, two)]
        assert reduced(ProximityOfFlips(), inputs) == pytest.approx(
            dict(zip(("label", "probability"), near, strict=True))
        )
    assert reduced(C(), inputs) == pytest.approx({"label": sum(flips) / sum(one), "probability": sum(flips) / sum(two)})
    assert reduced(ValiditySoft(), inputs) == pytest.approx({"probability": sum(drops) / n})
    assert reduced(CSoft(), inputs) == pytest.approx({"probability": sum(drops) / sum(two)})


def combinations(inputs, way, gone):
    """What takes the place of some features of a row, and how often: all that training rows have, or one value."""
    if way == "marginal":
        counts = Counter(tuple(row[j] for j in gone) for row in inputs.dataset.train.codes.tolist())
        return [(values, count / len(inputs.dataset.train)) for values, count in counts.items()]
    return [((ABSENT if way == "del" else inputs.dataset.unknown,) * len(gone), 1.0)]


@given(st.one_of(draw_inputs(absent=0.0), draw_inputs(unknown=1, absent=0.0), draw_inputs(unknown=1)))
def test_erasure_metrics(model_and_inputs):
    model, inputs = model_and_inputs
    n = len(inputs.codes)
    ways = ["del", *([] if inputs.dataset.unknown is None else ["mask"]), "marginal"]
    if (inputs.codes == ABSENT).any() or (inputs.dataset.train.codes == ABSENT).any():
        ways.remove("marginal")  # a table has no holes that could stand in
        inputs = replace(inputs, removals={name: way for name, way in inputs.removals.items() if name != "marginal"})
    comp, suff, flips = (dict.fromkeys(ways, 0.0) for _ in range(3))
    for how in ways:
        for i, row in enumerate(inputs.codes):
            there = [j for j in range(len(row)) if row[j] != ABSENT]
            before = probability(model, row, inputs.labels[i])
            for gone, keep in (
                ([j for j in there if j in inputs.features[i]], False),
                ([j for j in there if j not in inputs.features[i]], True),
            ):
                for values, weight in combinations(inputs, how, gone):
                    edited = row.copy()
                    for j, value in zip(gone, values, strict=True):
                        edited[j] = value
                    drop = before - probability(model, edited, inputs.labels[i])
                    (suff if keep else comp)[how] += weight * drop / n
                    if not keep:
                        flips[how] += weight * ((logit(model, edited) > 0) != (logit(model, row) > 0)) / n
    assert reduced(Comprehensiveness(), inputs) == pytest.approx(comp)
    assert reduced(Sufficiency(), inputs) == pytest.approx(suff)
    assert reduced(Dfr(), inputs) == pytest.approx(flips)
    seen = replace(inputs, model=open_client(model, Access.LABEL), probability=None)
    assert reduced(Dfr(), seen) == pytest.approx(flips)  # labels are enough


@given(draw_inputs())
def test_erasure_is_a_counterfactual_edit(model_and_inputs):
    """The paper's claim: comprehensiveness is validity_soft, and DFR validity, of the edit that deletes."""
    model, inputs = model_and_inputs
    as_edit = replace(inputs, counterfactuals={Access.PROBABILITY: deletion(model, inputs)})
    soft, hard = reduced(ValiditySoft(), as_edit)["probability"], reduced(Validity(), as_edit)["probability"]
    assert reduced(Comprehensiveness(), inputs)["del"] == pytest.approx(soft)
    assert reduced(Dfr(), inputs)["del"] == hard
    flips, left = removed(inputs, inputs.removals["zero"])
    assert (flips == deletion(model, inputs).flipped).all() and left == pytest.approx(
        deletion(model, inputs).probability
    )
    only = replace(inputs, features=np.tile(np.arange(inputs.codes.shape[1]), (len(inputs), 1)))
    whole = replace(only, counterfactuals={Access.PROBABILITY: deletion(model, only)})
    none = replace(inputs, features=np.full((len(inputs), 1), NO_FEATURE))
    assert reduced(Sufficiency(), none)["del"] == pytest.approx(reduced(ValiditySoft(), whole)["probability"])


def test_a_metric_may_be_of_some_ways_of_removing_only():
    _, inputs = _plain_case()
    for metric in (Comprehensiveness, Sufficiency, Dfr):
        assert [score.variant for score in metric().score(inputs)] == ["del", "mask", "marginal"]
        assert [score.variant for score in metric(only=["marginal", "zero"]).score(inputs)] == ["del", "marginal"]
        assert list(metric(only=[]).score(inputs)) == []


def test_what_cannot_be_removed_is_refused():
    _, inputs = _plain_case()
    with pytest.raises(ValueError, match="toy has no mask token"):
        removed(inputs, inputs.removals["mask"])


@given(draw_inputs())
def test_ground_truth(model_and_inputs):
    _, inputs = model_and_inputs
    for name, scores in inputs.truth.items():
        recall = hit = 0.0
        for i, row in enumerate(scores):
            there = [j for j in range(len(row)) if np.isfinite(row[j])]
            orders = list(permutations(there))  # of features that are tied, the first of an order comes first
            bests = [sorted(order, key=lambda j: -row[j])[: inputs.k] for order in orders]
            common = np.array([len(set(best) & set(inputs.features[i])) for best in bests])
            recall += common.mean() / inputs.k / len(scores)
            hit += (common > 0).mean() / len(scores)
        assert reduced(Recall(), inputs)[name] == pytest.approx(recall)
        assert reduced(Hit(), inputs)[name] == pytest.approx(hit)


@given(draw_inputs())
def test_coverage_counts_complete_explanations_over_everyone(model_and_inputs):
    _, inputs = model_and_inputs
    (score,) = Coverage().score(inputs)
    assert score.everyone
    assert score.numerator.sum() == sum(all(j != NO_FEATURE for j in row) for row in inputs.features)


def test_converged_counts_where_a_search_iterated_and_is_silent_where_none_did():
    model, inputs = _plain_case()
    n = len(inputs.codes)
    still = deletion(model, inputs)
    moving = replace(still, converged=np.arange(n) % 4 > 0)
    both = replace(inputs, counterfactuals={Access.LABEL: still, Access.GRADIENT: moving})
    (score,) = Converged().score(both)
    assert score.variant == "gradient" and score.numerator.sum() == sum(i % 4 > 0 for i in range(n))


def test_without_a_mask_token_the_masked_metrics_are_absent_with_the_reason():
    _, inputs = _plain_case()
    for metric in (Comprehensiveness(), Sufficiency()):
        absent = [s for s in metric.score(inputs) if isinstance(s, AbsentScore)]
        assert [(s.variant, s.reason) for s in absent] == [("mask", "toy has no mask token")]


@given(st.integers(0, 300), st.integers(1, 3))
def test_an_explanation_is_fixed_if_none_of_its_features_may_take_another_value(seed, k):
    plain = make_mixed(seed, n=6, missing=0.3 * (seed % 2), tried=3)
    model, dataset = make_linear(plain, seed=seed), with_constraints(plain, seed)
    features = np.stack([np.random.default_rng(seed + i).permutation(dataset.width)[:k] for i in range(6)])
    if k > 1:
        features[::2, -1] = NO_FEATURE
    scores = list(Fixed().score(make_inputs(dataset, model, features, {})))
    assert len(scores) == any(feature.moves != "any" for feature in dataset.features)
    assert not list(Fixed().score(make_inputs(plain, model, features, {})))
    for score in scores:
        assert score.variant == "all" and (score.denominator == 1).all()
        for i, row in enumerate(dataset.test.codes):
            others = [
                v
                for j in features[i][features[i] != NO_FEATURE]
                for v in dataset.alternatives(j)
                if v != row[j] and permitted(dataset.features[j], row[j], v)
            ]
            assert score.numerator[i] == (not others)


def _plain_case():
    dataset = make_dataset([2, 2])
    model = make_linear(dataset)
    return model, make_inputs(dataset, model, np.zeros((len(dataset.test), 1), int), {})


def test_metrics_sit_out_where_the_model_cannot_answer_but_not_where_they_ask_nothing():
    class Silent:
        def predict(self, codes):
            raise AssertionError

    spec = ModelSpec(make_dataset([2, 2]), Silent)
    out = {metric().name for metric in METRICS if metric().not_applicable_reason(spec)}
    assert out == {
        "comprehensiveness", "sufficiency", "validity_soft", "c_soft", "pgi", "pgu", "aopc", "aopc_suff", "naopc",
        "edits_to_flip", "faithfulness_correlation", "infidelity",
    }  # fmt: skip
    assert not any(metric().not_applicable_reason(ModelSpec(spec.dataset, LinearModel)) for metric in METRICS)
