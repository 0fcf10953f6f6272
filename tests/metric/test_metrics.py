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
    gate,
    importance,
    labels,
    logit,
    make_dataset,
    make_linear,
    make_mixed,
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
def cases(draw, access=Access.WHITE_BOX, unknown=None, absent=0.2):
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
    return model, make_case(dataset, model, features, found, access)


def make_case(dataset, model, features, found, access=Access.WHITE_BOX):
    rows = predicted(dataset, model)
    return MetricInput(
        rows.ids,
        rows.codes,
        rows.labels,
        rows.probability,
        dataset=dataset,
        model=gate(model, access),
        features=features,
        k=features.shape[1],
        complete=(features != NO_FEATURE).all(axis=1),
        counterfactuals=found,
        removals=ready(dataset, model),
        truth={name: importance(name, model, dataset, rows.codes, rows.labels) for name in TRUTHS},
    )


def deletion(model, case):
    """The counterfactuals that taking the explained features away makes."""
    edited = np.where(named(case.codes, case.features), np.int32(ABSENT), case.codes)
    after = labels(model, edited)
    kept = np.array([probability(model, row, label) for row, label in zip(edited, case.labels, strict=True)])
    return Counterfactuals(case.features, after, after != case.labels, np.ones(len(edited)), kept, edited)


def reduced(metric, case):
    return {
        s.variant: s.numerator.sum() / s.denominator.sum() for s in metric.score(case) if not isinstance(s, AbsentScore)
    }


@given(cases())
def test_counterfactual_metrics(case_of):
    model, case = case_of
    n = len(case.codes)
    found = case.counterfactuals
    edited = found[Access.LABEL].codes
    flips = [(logit(model, edited[i]) > 0) != (logit(model, case.codes[i]) > 0) for i in range(n)]
    drops = [
        probability(model, case.codes[i], case.labels[i]) - probability(model, edited[i], case.labels[i])
        for i in range(n)
    ]
    one, two = found[Access.LABEL].distance, found[Access.PROBABILITY].distance
    assert reduced(Validity(), case) == pytest.approx({"label": sum(flips) / n, "probability": sum(flips) / n})
    assert reduced(Proximity(), case) == pytest.approx({"label": sum(one) / n, "probability": sum(two) / n})
    if any(flips):
        near = [sum(d for d, flip in zip(far, flips, strict=True) if flip) / sum(flips) for far in (one, two)]
        assert reduced(ProximityOfFlips(), case) == pytest.approx(
            dict(zip(("label", "probability"), near, strict=True))
        )
    assert reduced(C(), case) == pytest.approx({"label": sum(flips) / sum(one), "probability": sum(flips) / sum(two)})
    assert reduced(ValiditySoft(), case) == pytest.approx({"probability": sum(drops) / n})
    assert reduced(CSoft(), case) == pytest.approx({"probability": sum(drops) / sum(two)})


def combinations(case, way, gone):
    """What takes the place of some features of a row, and how often: all that training rows have, or one value."""
    if way == "marginal":
        counts = Counter(tuple(row[j] for j in gone) for row in case.dataset.train.codes.tolist())
        return [(values, count / len(case.dataset.train)) for values, count in counts.items()]
    return [((ABSENT if way == "del" else case.dataset.unknown,) * len(gone), 1.0)]


@given(st.one_of(cases(absent=0.0), cases(unknown=1, absent=0.0), cases(unknown=1)))
def test_erasure_metrics(case_of):
    model, case = case_of
    n = len(case.codes)
    ways = ["del", *([] if case.dataset.unknown is None else ["mask"]), "marginal"]
    if (case.codes == ABSENT).any() or (case.dataset.train.codes == ABSENT).any():
        ways.remove("marginal")  # a table has no holes that could stand in
        case = replace(case, removals={name: way for name, way in case.removals.items() if name != "marginal"})
    comp, suff, flips = (dict.fromkeys(ways, 0.0) for _ in range(3))
    for how in ways:
        for i, row in enumerate(case.codes):
            there = [j for j in range(len(row)) if row[j] != ABSENT]
            before = probability(model, row, case.labels[i])
            for gone, keep in (
                ([j for j in there if j in case.features[i]], False),
                ([j for j in there if j not in case.features[i]], True),
            ):
                for values, weight in combinations(case, how, gone):
                    edited = row.copy()
                    for j, value in zip(gone, values, strict=True):
                        edited[j] = value
                    drop = before - probability(model, edited, case.labels[i])
                    (suff if keep else comp)[how] += weight * drop / n
                    if not keep:
                        flips[how] += weight * ((logit(model, edited) > 0) != (logit(model, row) > 0)) / n
    assert reduced(Comprehensiveness(), case) == pytest.approx(comp)
    assert reduced(Sufficiency(), case) == pytest.approx(suff)
    assert reduced(Dfr(), case) == pytest.approx(flips)
    seen = replace(case, model=gate(model, Access.LABEL), probability=None)
    assert reduced(Dfr(), seen) == pytest.approx(flips)  # labels are enough


@given(cases())
def test_erasure_is_a_counterfactual_edit(case_of):
    """The paper's claim: comprehensiveness is validity_soft, and DFR validity, of the edit that deletes."""
    model, case = case_of
    as_edit = replace(case, counterfactuals={Access.PROBABILITY: deletion(model, case)})
    soft, hard = reduced(ValiditySoft(), as_edit)["probability"], reduced(Validity(), as_edit)["probability"]
    assert reduced(Comprehensiveness(), case)["del"] == pytest.approx(soft)
    assert reduced(Dfr(), case)["del"] == hard
    flips, left = removed(case, case.removals["zero"])
    assert (flips == deletion(model, case).flipped).all() and left == pytest.approx(deletion(model, case).probability)
    only = replace(case, features=np.tile(np.arange(case.codes.shape[1]), (len(case), 1)))
    whole = replace(only, counterfactuals={Access.PROBABILITY: deletion(model, only)})
    none = replace(case, features=np.full((len(case), 1), NO_FEATURE))
    assert reduced(Sufficiency(), none)["del"] == pytest.approx(reduced(ValiditySoft(), whole)["probability"])


def test_a_metric_may_be_of_some_ways_of_removing_only():
    _, case = _plain_case()
    for metric in (Comprehensiveness, Sufficiency, Dfr):
        assert [score.variant for score in metric().score(case)] == ["del", "mask", "marginal"]
        assert [score.variant for score in metric(only=["marginal", "zero"]).score(case)] == ["del", "marginal"]
        assert list(metric(only=[]).score(case)) == []


def test_what_cannot_be_removed_is_refused():
    _, case = _plain_case()
    with pytest.raises(ValueError, match="toy has no mask token"):
        removed(case, case.removals["mask"])


@given(cases())
def test_ground_truth(case_of):
    _, case = case_of
    for name, scores in case.truth.items():
        recall = hit = 0.0
        for i, row in enumerate(scores):
            there = [j for j in range(len(row)) if np.isfinite(row[j])]
            orders = list(permutations(there))  # of features that are tied, the first of an order comes first
            bests = [sorted(order, key=lambda j: -row[j])[: case.k] for order in orders]
            common = np.array([len(set(best) & set(case.features[i])) for best in bests])
            recall += common.mean() / case.k / len(scores)
            hit += (common > 0).mean() / len(scores)
        assert reduced(Recall(), case)[name] == pytest.approx(recall)
        assert reduced(Hit(), case)[name] == pytest.approx(hit)


@given(cases())
def test_coverage_counts_complete_explanations_over_everyone(case_of):
    _, case = case_of
    (score,) = Coverage().score(case)
    assert score.everyone
    assert score.numerator.sum() == sum(all(j != NO_FEATURE for j in row) for row in case.features)


def test_converged_counts_where_a_search_iterated_and_is_silent_where_none_did():
    model, case = _plain_case()
    n = len(case.codes)
    still = deletion(model, case)
    moving = replace(still, converged=np.arange(n) % 4 > 0)
    both = replace(case, counterfactuals={Access.LABEL: still, Access.GRADIENT: moving})
    (score,) = Converged().score(both)
    assert score.variant == "gradient" and score.numerator.sum() == sum(i % 4 > 0 for i in range(n))


def test_without_a_mask_token_the_masked_metrics_are_absent_with_the_reason():
    _, case = _plain_case()
    for metric in (Comprehensiveness(), Sufficiency()):
        absent = [s for s in metric.score(case) if isinstance(s, AbsentScore)]
        assert [(s.variant, s.reason) for s in absent] == [("mask", "toy has no mask token")]


@given(st.integers(0, 300), st.integers(1, 3))
def test_an_explanation_is_fixed_if_none_of_its_features_may_take_another_value(seed, k):
    plain = make_mixed(seed, n=6, missing=0.3 * (seed % 2), tried=3)
    model, dataset = make_linear(plain, seed=seed), with_constraints(plain, seed)
    features = np.stack([np.random.default_rng(seed + i).permutation(dataset.width)[:k] for i in range(6)])
    if k > 1:
        features[::2, -1] = NO_FEATURE
    scores = list(Fixed().score(make_case(dataset, model, features, {})))
    assert len(scores) == any(feature.moves != "any" for feature in dataset.features)
    assert not list(Fixed().score(make_case(plain, model, features, {})))
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
    return model, make_case(dataset, model, np.zeros((len(dataset.test), 1), int), {})


def test_metrics_sit_out_where_the_model_cannot_answer_but_not_where_they_ask_nothing():
    class Silent:
        def predict(self, codes):
            raise AssertionError

    subject = ModelSpec(make_dataset([2, 2]), Silent)
    out = {metric().name for metric in METRICS if metric().sits_out(subject)}
    assert out == {
        "comprehensiveness", "sufficiency", "validity_soft", "c_soft", "pgi", "pgu", "aopc", "aopc_suff", "naopc",
        "edits_to_flip", "faithfulness_correlation", "infidelity",
    }  # fmt: skip
    assert not any(metric().sits_out(ModelSpec(subject.dataset, LinearModel)) for metric in METRICS)
