"""Erasure down the list, by loops over instances, points and draws."""

from math import ceil

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, NO_FEATURE, AbsentScore
from cfeval_cli.metric.aopc import Aopc, AopcSufficiency
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.curve import places
from cfeval_cli.metric.sufficiency import Sufficiency
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.mean import Mean
from cfeval_cli.removal.zero import Zero
from tests.metric.inputs import Crossed, drop_without, make_inputs, values
from tests.problems import make_dataset, make_linear, make_text

WAYS = {"zero": Zero(), "marginal": Marginal(4, 1)}


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.integers(1, 5))
def test_tables_by_the_first_features(seed, additive, short, longest):
    dataset = make_dataset([3, 2, 3, 2], n=6, seed=seed, absent=0.2 if additive else 0.0)
    model = make_linear(dataset, seed) if additive else Crossed(dataset, seed)
    inputs = make_inputs(dataset, model, 1, seed, ways=WAYS, short=short)
    for metric, keep in ((Aopc(longest=longest), False), (AopcSufficiency(longest=longest), True)):
        scores = {s.variant: s for s in metric.score(inputs)}
        for way in inputs.removals.values():
            if not additive and way.removal.name == "zero":
                assert isinstance(scores["del"], AbsentScore)
                continue
            for i, row in enumerate(inputs.codes):
                there = [j for j in range(4) if row[j] != ABSENT]
                order = [j for j in inputs.explanation.features[i].tolist() if j != NO_FEATURE]
                drops = []
                for size in range(1, min(longest, len(there)) + 1):
                    first = order[:size]
                    gone = [j for j in there if j not in first] if keep else first
                    drops.append(drop_without(model, inputs, way, i, gone))
                assert scores[way.removal.variant].numerator[i] == pytest.approx(np.mean(drops), abs=1e-9)


@given(st.integers(0, 10_000))
def test_texts_by_shares_of_their_words(seed):
    dataset = make_text(width=7, n=8, seed=seed)
    model = make_linear(dataset, seed)
    inputs = make_inputs(dataset, model, 1, seed, ways={"mask": Mask()})
    shares = (0.1, 0.3, 0.5, 1.0)
    found = values(Aopc(shares=shares), inputs)["mask"]
    for i, row in enumerate(inputs.codes):
        there = int((row != ABSENT).sum())
        sizes = [ceil(round(share * there, 6)) for share in shares]
        order = inputs.explanation.features[i].tolist()
        drops = [drop_without(model, inputs, inputs.removals["mask"], i, order[:size]) for size in sizes]
        assert found[i] == pytest.approx(np.mean(drops), abs=1e-9)


def test_of_one_feature_it_is_comprehensiveness_and_sufficiency():
    dataset = make_dataset([3, 2, 3], n=20, seed=4)
    model = make_linear(dataset, 5)
    inputs = make_inputs(dataset, model, 1, ways=WAYS | {"mean": Mean()})
    for metric, other in ((Aopc(longest=1), Comprehensiveness()), (AopcSufficiency(longest=1), Sufficiency())):
        one, two = values(metric, inputs), values(other, inputs)
        assert list(one) == list(two) == ["del", "marginal", "mean"]
        for variant in one:
            assert one[variant] == pytest.approx(two[variant], abs=1e-12)


def test_a_set_has_no_order():
    dataset = make_dataset([3, 2, 3], n=5)
    inputs = make_inputs(dataset, make_linear(dataset))
    object.__setattr__(inputs, "explanation", None)
    found = list(Aopc().score(inputs))
    assert found and all(isinstance(score, AbsentScore) for score in found)
    assert [score.reason for score in found if score.variant == "del"] == [
        "an explainer that names a set of features puts the others in no order"
    ]
    with pytest.raises(ValueError, match="no order"):
        places(inputs)


@pytest.mark.parametrize("wrong", [{"longest": 0}, {"shares": ()}, {"shares": (0.0,)}, {"shares": (1.5,)}])
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Aopc(**wrong)
