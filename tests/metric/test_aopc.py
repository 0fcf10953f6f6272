"""AOPC against loops over instances, points of the curve and draws."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, AbsentScore
from cfeval_cli.metric.aopc import Aopc, AopcSufficiency
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.curve import rank_features
from cfeval_cli.metric.erasure import NO_ORDER
from cfeval_cli.metric.sufficiency import Sufficiency
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.mean import Mean
from cfeval_cli.removal.zero import Zero
from tests.metric.inputs import InteractionModel, compute_drop, compute_values, make_inputs
from tests.problems import make_dataset, make_linear, make_text

REMOVALS = {"zero": Zero(), "marginal": Marginal(4, 1)}


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.integers(1, 5))
def test_tables_remove_the_first_features(seed, additive, short, max_length):
    dataset = make_dataset([3, 2, 3, 2], n=6, seed=seed, absent=0.2 if additive else 0.0)
    model = make_linear(dataset, seed) if additive else InteractionModel(dataset, seed)
    inputs = make_inputs(dataset, model, 1, seed, removals=REMOVALS, short=short)
    for metric, keep in ((Aopc(max_features=max_length), False), (AopcSufficiency(max_features=max_length), True)):
        scores = {s.variant: s for s in metric.score(inputs)}
        for fitted in inputs.removals.values():
            if not additive and fitted.removal.name == "zero":
                assert isinstance(scores["del"], AbsentScore)
                continue
            for i, row in enumerate(inputs.codes):
                present = [j for j in range(4) if row[j] != ABSENT]
                order = [j for j in inputs.explanation.features[i].tolist() if j != NO_FEATURE]
                drops = []
                for size in range(1, min(max_length, len(present)) + 1):
                    first = order[:size]
                    removed = [j for j in present if j not in first] if keep else first
                    drops.append(compute_drop(model, inputs, fitted, i, removed))
                assert scores[fitted.removal.variant].numerator[i] == pytest.approx(np.mean(drops), abs=1e-9)


@given(st.integers(0, 10_000))
def test_texts_remove_shares_of_their_words(seed):
    dataset = make_text(width=7, n=8, seed=seed)
    model = make_linear(dataset, seed)
    inputs = make_inputs(dataset, model, 1, seed, removals={"mask": Mask()})
    shares = (0.1, 0.3, 0.5, 1.0)
    scores = compute_values(Aopc(shares=shares), inputs)["mask"]
    for i, row in enumerate(inputs.codes):
        n_present = int((row != ABSENT).sum())
        sizes = [ceil(round(share * n_present, 6)) for share in shares]
        order = inputs.explanation.features[i].tolist()
        drops = [compute_drop(model, inputs, inputs.removals["mask"], i, order[:size]) for size in sizes]
        assert scores[i] == pytest.approx(np.mean(drops), abs=1e-9)


def test_first_point_is_comprehensiveness_and_sufficiency():
    dataset = make_dataset([3, 2, 3], n=20, seed=4)
    model = make_linear(dataset, 5)
    inputs = make_inputs(dataset, model, 1, removals=REMOVALS | {"mean": Mean()})
    for metric, other in (
        (Aopc(max_features=1), Comprehensiveness()),
        (AopcSufficiency(max_features=1), Sufficiency()),
    ):
        values, expected = compute_values(metric, inputs), compute_values(other, inputs)
        assert list(values) == list(expected) == ["del", "marginal", "mean"]
        for variant in values:
            assert values[variant] == pytest.approx(expected[variant], abs=1e-12)


def test_feature_set_without_order_has_no_score():
    dataset = make_dataset([3, 2, 3], n=5)
    inputs = make_inputs(dataset, make_linear(dataset))
    object.__setattr__(inputs, "explanation", None)
    scores = list(Aopc().score(inputs))
    assert scores and all(isinstance(score, AbsentScore) for score in scores)
    assert [score.reason for score in scores if score.variant == "del"] == [NO_ORDER]
    with pytest.raises(ValueError, match="without an order"):
        rank_features(inputs)


@pytest.mark.parametrize("setting", [{"max_features": 0}, {"shares": ()}, {"shares": (0.0,)}, {"shares": (1.5,)}])
def test_invalid_settings_are_rejected(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Aopc(**setting)
