"""Every metric against its definition, written as loops over instances."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfeval_cli import gold
from cfeval_cli.metric.converged import Converged
from cfeval_cli.metric.counterfactual import C, CSoft, Proximity, Validity, ValiditySoft
from cfeval_cli.metric.coverage import Coverage
from cfeval_cli.metric.erasure import Comprehensiveness, Dfr, Sufficiency, removed
from cfeval_cli.metric.ground_truth import Hit, Recall
from cfeval_cli.types import ABSENT, NONE, Absent, Access, Case, Counterfactuals, Metric
from tests.problems import gate, logit, problems, sigmoid

METRICS = [
    C,
    Comprehensiveness,
    Converged,
    Coverage,
    CSoft,
    Dfr,
    Hit,
    Proximity,
    Recall,
    Sufficiency,
    Validity,
    ValiditySoft,
]


def probability(model, row, label):
    p = sigmoid(logit(model, row))
    return p if label == 1 else 1 - p


@st.composite
def cases(draw, access=Access.WHITE_BOX, unknown=None):
    dataset, model = draw(problems(absent=0.2, unknown=unknown))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    codes = dataset.test.codes
    n, k = len(codes), draw(st.integers(1, dataset.width))
    features = np.full((n, k), NONE)
    for i, row in enumerate(codes):
        there = rng.permutation(np.flatnonzero(row != ABSENT))[:k]
        features[i, : len(there)] = there
    labels = model.labels(codes)
    edited = codes.copy()
    for i, named in enumerate(features):
        for j in named[named != NONE]:
            edited[i, j] = rng.integers(len(dataset.candidates[j]))
    after = model.labels(edited)
    kept = np.array([probability(model, row, label) for row, label in zip(edited, labels, strict=True)])
    distance = rng.random(n) + 0.1
    found = {
        Access.LABEL: Counterfactuals(features, after, after != labels, distance, None, edited),
        Access.PROBABILITY: Counterfactuals(features, after, after != labels, distance * 2, kept, edited),
    }
    before = np.array([probability(model, row, label) for row, label in zip(codes, labels, strict=True)])
    truth = {name: gold.importance(name, model, dataset, codes, labels) for name in gold.DEFINITIONS}
    complete = (features != NONE).all(axis=1)
    return model, Case(dataset, gate(model, access), codes, labels, before, features, k, complete, found, truth)


def reduced(metric, case):
    return {s.variant: s.numerator.sum() / s.denominator.sum() for s in metric.score(case) if not isinstance(s, Absent)}


@settings(deadline=None)
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
    assert reduced(C(), case) == pytest.approx({"label": sum(flips) / sum(one), "probability": sum(flips) / sum(two)})
    assert reduced(ValiditySoft(), case) == pytest.approx({"probability": sum(drops) / n})
    assert reduced(CSoft(), case) == pytest.approx({"probability": sum(drops) / sum(two)})


@settings(deadline=None)
@given(st.one_of(cases(), cases(unknown=1)))
def test_erasure_metrics(case_of):
    model, case = case_of
    n = len(case.codes)
    ways = {"del": ABSENT} | ({} if case.dataset.unknown is None else {"mask": 1})
    comp, suff, flips = {}, {}, 0
    for how, value in ways.items():
        comp[how] = suff[how] = 0.0
        for i, row in enumerate(case.codes):
            without, only = row.copy(), row.copy()
            for j in range(len(row)):
                if row[j] == ABSENT:
                    continue
                if j in case.features[i]:
                    without[j] = value
                else:
                    only[j] = value
            before = probability(model, row, case.labels[i])
            comp[how] += (before - probability(model, without, case.labels[i])) / n
            suff[how] += (before - probability(model, only, case.labels[i])) / n
            if how == "del":
                flips += (logit(model, without) > 0) != (logit(model, row) > 0)
    assert reduced(Comprehensiveness(), case) == pytest.approx(comp)
    assert reduced(Sufficiency(), case) == pytest.approx(suff)
    assert reduced(Dfr(), case) == pytest.approx({"del": flips / n})


@given(cases())
def test_erasure_is_a_counterfactual_edit(case_of):
    """The paper's claim: comprehensiveness is validity_soft, and DFR validity, of the edit that deletes."""
    _, case = case_of
    deletion = removed(case, ABSENT)
    as_edit = Case(**{**case.__dict__, "counterfactuals": {Access.PROBABILITY: deletion}})
    assert reduced(ValiditySoft(), as_edit)["probability"] == reduced(Comprehensiveness(), case)["del"]
    assert reduced(Validity(), as_edit)["probability"] == reduced(Dfr(), case)["del"]


@given(cases())
def test_ground_truth(case_of):
    _, case = case_of
    for name, scores in case.gold.items():
        recall = hit = 0.0
        for i, row in enumerate(scores):
            there = [j for j in range(len(row)) if np.isfinite(row[j])]
            best = sorted(there, key=lambda j: (-row[j], j))[: case.k]
            common = len(set(best) & set(case.features[i]))
            recall += common / case.k / len(scores)
            hit += (common > 0) / len(scores)
        assert reduced(Recall(), case)[name] == pytest.approx(recall)
        assert reduced(Hit(), case)[name] == pytest.approx(hit)


@given(cases())
def test_coverage_counts_complete_explanations_over_everyone(case_of):
    _, case = case_of
    (score,) = Coverage().score(case)
    assert score.everyone
    assert score.numerator.sum() == sum(all(j != NONE for j in row) for row in case.features)


def test_converged_counts_where_a_search_iterated_and_is_silent_where_none_did():
    _, case = _plain_case()
    n = len(case.codes)
    still = removed(case, ABSENT)
    moving = Counterfactuals(**{**still.__dict__, "converged": np.arange(n) % 4 > 0})
    both = Case(**{**case.__dict__, "counterfactuals": {Access.LABEL: still, Access.GRADIENT: moving}})
    (score,) = Converged().score(both)
    assert score.variant == "gradient" and score.numerator.sum() == sum(i % 4 > 0 for i in range(n))


def test_without_a_mask_token_the_masked_metrics_are_absent_with_the_reason():
    _, case = _plain_case()
    for metric in (Comprehensiveness(), Sufficiency()):
        absent = [s for s in metric.score(case) if isinstance(s, Absent)]
        assert [(s.variant, s.reason) for s in absent] == [("mask", "toy has no mask token")]


def _plain_case():
    from tests.problems import make_dataset, make_linear

    dataset = make_dataset([2, 2])
    model = make_linear(dataset)
    codes = dataset.test.codes
    features = np.zeros((len(codes), 1), int)
    labels, before = model.labels(codes), np.ones(len(codes))
    return model, Case(dataset, gate(model), codes, labels, before, features, 1, np.ones(len(codes), bool), {}, {})


@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_asks_for_what_it_declares_and_stays_in_its_range(metric):
    model, case = _plain_case()
    truth = {name: gold.importance(name, model, case.dataset, case.codes, case.labels) for name in gold.DEFINITIONS}
    found = removed(case, ABSENT)
    before = np.where(case.labels == 1, model.proba(case.codes), 1 - model.proba(case.codes))
    limited = {
        "model": gate(model, metric.access),
        "gold": truth,
        "probability": before,
        "counterfactuals": {
            Access.PROBABILITY: Counterfactuals(**{**found.__dict__, "distance": np.ones(len(before))})
        },
    }
    described: Metric = metric()
    low, high = described.range
    for score in described.score(Case(**{**case.__dict__, **limited})):
        if not isinstance(score, Absent):
            value = score.numerator.sum() / score.denominator.sum()
            assert low <= value <= high
    assert described.better in ("higher", "lower", "none") and described.name and described.title
