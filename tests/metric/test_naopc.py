"""The best and the worst order against all orders."""

from itertools import permutations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.metric.aopc import Aopc
from cfeval_cli.metric.naopc import Naopc
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.mean import Mean
from cfeval_cli.removal.zero import Zero
from cfeval_cli.types import ABSENT, Access, Ledger
from cfeval_cli.types.metric import with_counts
from tests.examples import examples
from tests.metric.cases import Crossed, drop_without, make_case, values
from tests.problems import gate, make_dataset, make_text, random_linear


def all_orders(model, case, way, i, sizes):
    """The AOPC of all orders of an instance's features, each set of features asked once."""
    there = np.flatnonzero(case.codes[i] != ABSENT).tolist()
    known = {}

    def drop(gone):
        if gone not in known:
            known[gone] = drop_without(model, case, way, i, gone)
        return known[gone]

    return {
        order: sum(drop(frozenset(order[:size])) for size in sizes) / len(sizes)
        for order in permutations(there, max(sizes))
    }


def ends(model, case, way, i, sizes):
    """The smallest and the largest of them."""
    means = all_orders(model, case, way, i, sizes).values()
    return min(means), max(means)


def moved(model, case, vectors, i, gone):
    """p(ŷ) with the embeddings of some features exchanged."""
    now = [vectors[j] if j in gone else model.tables[j][code] for j, code in enumerate(case.codes[i])]
    z = model.bias + sum(float(w @ e) for w, e in zip(model.weights, now, strict=True))
    p = 1 / (1 + np.exp(-z))
    return p if case.labels[i] == 1 else 1 - p


@pytest.mark.parametrize("seed", range(4))
def test_sorted_effects_are_the_best_and_the_worst_of_all_orders_of_seven_features(seed):
    dataset = make_dataset([3, 2, 3, 2, 4, 2, 3], n=2, seed=seed, absent=0.1)
    model = random_linear(dataset, seed, 2)
    case = make_case(dataset, model, 1, seed, ways={"zero": Zero()})
    found, own = values(Naopc(), case)["del"], values(Aopc(), case)["del"]
    for i, row in enumerate(case.codes):
        low, high = ends(model, case, case.removals["zero"], i, range(1, int((row != ABSENT).sum()) + 1))
        assert found[i] == pytest.approx((own[i] - low) / (high - low), abs=1e-9)
    (score,) = Naopc().score(case)
    assert score.remark == "" and len(score.some) == len(case)


@examples(10)
@given(st.integers(0, 10_000), st.integers(1, 4))
def test_sorted_effects_by_mean_and_mask_and_for_few_features(seed, longest):
    dataset = make_dataset([3, 2, 3, 2], n=4, seed=seed)
    model = random_linear(dataset, seed, 3)
    case = make_case(dataset, model, 1, seed, ways={"mean": Mean()})
    metric = Naopc(longest=longest)
    found, own = values(metric, case)["mean"], values(Aopc(longest=longest), case)["mean"]
    vectors = case.removals["mean"].stand_ins.vectors
    for i in range(len(case)):
        means = [
            np.mean([case.probability[i] - moved(model, case, vectors, i, order[:n]) for n in range(1, longest + 1)])
            for order in permutations(range(4))
        ]
        assert found[i] == pytest.approx((own[i] - min(means)) / (max(means) - min(means)), abs=1e-7)
    text = make_text(width=5, n=6, seed=seed)
    model = random_linear(text, seed, 2)
    case = make_case(text, model, 1, seed, ways={"mask": Mask()})
    metric = Naopc(shares=(0.3, 0.7))
    found, own = values(metric, case)["mask"], values(Aopc(shares=(0.3, 0.7)), case)["mask"]
    for i, row in enumerate(case.codes):
        there = int((row != ABSENT).sum())
        sizes = [int(np.ceil(share * there - 1e-9)) for share in (0.3, 0.7)]
        low, high = ends(model, case, case.removals["mask"], i, sizes)
        if high - low > 1e-9:
            assert found[i] == pytest.approx((own[i] - low) / (high - low), abs=1e-7)
        else:
            assert np.isnan(found[i]) or high - low > 1e-12


@examples(8)
@given(st.integers(0, 10_000), st.booleans())
def test_a_beam_that_keeps_everything_finds_the_ends_of_all_orders(seed, additive):
    dataset = make_dataset([3, 2, 3, 2, 2], n=3, seed=seed)
    model = random_linear(dataset, seed, 2) if additive else Crossed(dataset, seed, 3)
    ways = {"marginal": Marginal(4, 1)}
    case = make_case(dataset, model, 1, seed, ways=ways)
    own = values(Aopc(longest=4), case)["marginal"]
    wide, narrow = Naopc(longest=4, width=120), Naopc(longest=4, width=5)
    exact, five = values(wide, case)["marginal"], values(narrow, case)["marginal"]
    for i in range(len(case)):
        low, high = ends(model, case, case.removals["marginal"], i, range(1, 5))
        assert exact[i] == pytest.approx((own[i] - low) / (high - low), abs=1e-7)
    (score,) = narrow.score(case)
    assert score.remark == "best and worst order by beam search of width 5" and np.isfinite(five).all()


@examples(8)
@given(st.integers(0, 10_000))
def test_orders_that_few_draws_tell_apart_are_scored_with_all_draws(seed):
    """The ends are those of the orders that are best and worst by the few: looked for among all orders, by hand."""
    dataset = make_dataset([6, 5, 6, 5], n=3, seed=seed)
    model = Crossed(dataset, seed, 3)
    case = make_case(dataset, model, 1, seed, ways={"marginal": Marginal(12, 1), "few": Marginal(3, 1)})
    own = values(Aopc(longest=3, only=["marginal"]), case)["marginal"]
    metric = Naopc(longest=3, width=120, draws=3, only=["marginal"])
    found = values(metric, case)["marginal"]
    for i in range(len(case)):
        few, every = (all_orders(model, case, case.removals[way], i, (1, 2, 3)) for way in ("few", "marginal"))
        low, high = (every[end(few, key=few.get)] for end in (min, max))
        assert found[i] == pytest.approx((own[i] - low) / (high - low), abs=1e-7)
    (score,) = metric.score(case)
    assert score.remark == "best and worst order by beam search of width 120 on 3 draws"


@examples(10)
@given(st.integers(0, 10_000))
def test_a_beam_finds_what_sorting_finds(seed):
    """Of a sum the best set of every size is the best of the size before and one more: a beam cannot miss it."""
    dataset = make_dataset([3, 2, 3, 2, 3, 3], n=6, seed=seed)
    model = random_linear(dataset, seed, 2)
    both = [
        values(Naopc(), make_case(dataset, model, 1, seed, ways={"zero": Zero()}, access=access))["del"]
        for access in (Access.GRADIENT, Access.PROBABILITY)
    ]
    assert both[0] == pytest.approx(both[1], abs=1e-7)


def test_the_sample_belongs_to_the_instances_and_the_rows_are_bounded():
    dataset = make_dataset([6, 6, 6, 6], n=300, seed=1)
    model = Crossed(dataset, 1)
    case = make_case(dataset, model, 1, ways={"marginal": Marginal(10)})
    metric = Naopc(rows=40_000, width=2)
    (score,) = metric.score(case)
    each = 2 * 2 * (4 + 3 + 2 + 1) * 10
    assert 0.5 * 40_000 / each < len(score.some) < 2 * 40_000 / each
    assert f"on a sample of {len(score.some)} instances" in with_counts(score.remark, score.counts)
    ledger = Ledger()
    half = make_case(dataset, model, 1, seed=7, ways={"marginal": Marginal(10)})
    object.__setattr__(half, "model", ledger.gate(model, Access.PROBABILITY, "naopc"))
    (other,) = metric.score(half)  # whoever explains
    assert other.some.tolist() == score.some.tolist() and ledger.rows["naopc"] < 2 * 40_000
    (again,) = Naopc(rows=40_000, width=2, seed=1).score(case)
    assert again.some.tolist() != score.some.tolist()


def test_best_and_worst_are_searched_once_for_all_explainers():
    dataset = make_dataset([3, 3, 3], n=10, seed=1)
    model = Crossed(dataset, 1)
    ways = {"marginal": Marginal(5)}
    case = make_case(dataset, model, 1, ways=ways)
    list(Naopc(width=5).score(case))
    ledger = Ledger()
    next_one = make_case(dataset, model, 1, seed=9, ways=ways, memory=case.memory)
    object.__setattr__(next_one, "model", ledger.gate(model, Access.PROBABILITY, "naopc"))
    (score,) = Naopc(width=5).score(next_one)
    # with width 5 every set of three features was asked about
    assert ledger.rows["naopc"] == 0 and score.denominator.all()
    assert gate(model, Access.PROBABILITY).linear is False


@pytest.mark.parametrize("wrong", [{"width": 0}, {"draws": 0}, {"rows": 0}, {"seed": -1}, {"longest": 0}])
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Naopc(**wrong)
