"""The best and the worst order against all orders."""

from dataclasses import replace
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Access, Explanation, Ledger
from cfeval_cli.core.metric import with_counts
from cfeval_cli.core.without import RemovalEffect
from cfeval_cli.metric import lattice
from cfeval_cli.metric.aopc import Aopc
from cfeval_cli.metric.erasure import erased
from cfeval_cli.metric.lattice import Lattice
from cfeval_cli.metric.naopc import Naopc
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.mean import Mean
from cfeval_cli.removal.zero import Zero
from tests.metric.inputs import Crossed, drop_without, make_inputs, values
from tests.problems import make_dataset, make_text, open_client, random_linear


def all_orders(model, inputs, way, i, sizes):
    """The AOPC of all orders of an instance's features, each set of features asked once."""
    there = np.flatnonzero(inputs.codes[i] != ABSENT).tolist()
    known = {}

    def drop(gone):
        if gone not in known:
            known[gone] = drop_without(model, inputs, way, i, gone)
        return known[gone]

    return {
        order: sum(drop(frozenset(order[:size])) for size in sizes) / len(sizes)
        for order in permutations(there, max(sizes))
    }


def ends(model, inputs, way, i, sizes):
    """The smallest and the largest of them."""
    means = all_orders(model, inputs, way, i, sizes).values()
    return min(means), max(means)


def beam_ends(metric, inputs, way):
    """The worst and the best AOPC (2, n) of the orders that the beam search finds."""
    rows = np.arange(len(inputs))
    return [
        metric.drops(inputs, way, rows, order) for order in metric._searched(inputs, metric._coarse(inputs, way), rows)
    ]


def moved(model, inputs, vectors, i, gone):
    """p(ŷ) with the embeddings of some features exchanged."""
    now = [vectors[j] if j in gone else model.tables[j][code] for j, code in enumerate(inputs.codes[i])]
    z = model.bias + sum(float(w @ e) for w, e in zip(model.weights, now, strict=True))
    p = 1 / (1 + np.exp(-z))
    return p if inputs.labels[i] == 1 else 1 - p


@pytest.mark.parametrize("seed", range(4))
def test_sorted_effects_are_the_best_and_the_worst_of_all_orders_of_seven_features(seed):
    dataset = make_dataset([3, 2, 3, 2, 4, 2, 3], n=2, seed=seed, absent=0.1)
    model = random_linear(dataset, seed, 2)
    inputs = make_inputs(dataset, model, 1, seed, ways={"zero": Zero()})
    found, own = values(Naopc(), inputs)["del"], values(Aopc(), inputs)["del"]
    for i, row in enumerate(inputs.codes):
        low, high = ends(model, inputs, inputs.removals["zero"], i, range(1, int((row != ABSENT).sum()) + 1))
        assert found[i] == pytest.approx((own[i] - low) / (high - low), abs=1e-9)
    (score,) = Naopc().score(inputs)
    assert score.method == score.remark == "" and len(score.some) == len(inputs)


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_sorted_effects_by_mean_and_mask_and_for_few_features(seed, longest):
    dataset = make_dataset([3, 2, 3, 2], n=4, seed=seed)
    model = random_linear(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 1, seed, ways={"mean": Mean()})
    metric = Naopc(longest=longest)
    found, own = values(metric, inputs)["mean"], values(Aopc(longest=longest), inputs)["mean"]
    vectors = inputs.removals["mean"].stand_ins.vectors
    for i in range(len(inputs)):
        means = [
            np.mean(
                [inputs.probability[i] - moved(model, inputs, vectors, i, order[:n]) for n in range(1, longest + 1)]
            )
            for order in permutations(range(4))
        ]
        assert found[i] == pytest.approx((own[i] - min(means)) / (max(means) - min(means)), abs=1e-7)
    text = make_text(width=5, n=6, seed=seed)
    model = random_linear(text, seed, 2)
    inputs = make_inputs(text, model, 1, seed, ways={"mask": Mask()})
    metric = Naopc(shares=(0.3, 0.7))
    found, own = values(metric, inputs)["mask"], values(Aopc(shares=(0.3, 0.7)), inputs)["mask"]
    for i, row in enumerate(inputs.codes):
        there = int((row != ABSENT).sum())
        sizes = [int(np.ceil(share * there - 1e-9)) for share in (0.3, 0.7)]
        low, high = ends(model, inputs, inputs.removals["mask"], i, sizes)
        if high - low > 1e-9:
            assert found[i] == pytest.approx((own[i] - low) / (high - low), abs=1e-7)
        else:
            assert np.isnan(found[i]) or high - low > 1e-12


@given(st.integers(0, 10_000), st.booleans())
def test_all_subsets_and_a_beam_that_keeps_everything_find_the_ends_of_all_orders(seed, additive):
    dataset = make_dataset([3, 2, 3, 2, 2], n=3, seed=seed, absent=0.1 * additive)
    assume(all(frequency.any() for frequency in dataset.frequencies))  # every feature has a value in training
    model = random_linear(dataset, seed, 2) if additive else Crossed(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 1, seed, ways={"marginal": Marginal(4, 1)})
    way = inputs.removals["marginal"]
    own = values(Aopc(longest=4), inputs)["marginal"]
    metric = Naopc(longest=4, width=120)
    exact, (worst, best) = values(metric, inputs)["marginal"], beam_ends(metric, inputs, way)
    for i in range(len(inputs)):
        there = int((inputs.codes[i] != ABSENT).sum())
        low, high = ends(model, inputs, way, i, range(1, min(4, there) + 1))
        assert (worst[i], best[i]) == pytest.approx((low, high), abs=1e-9)
        if high - low > 1e-9:
            assert exact[i] == pytest.approx((own[i] - low) / (high - low), abs=1e-7) and 0 <= exact[i] <= 1
    (score,) = metric.score(inputs)
    assert score.method == "worst and best order exact, by all subsets" and score.remark == ""


@pytest.mark.parametrize(("width", "longest"), [(6, 6), (7, 3), (5, 1)])
def test_the_ends_of_random_games_are_those_of_all_orders(width, longest, monkeypatch):
    """A game is a table of values, one for each set: nothing is smooth, additive or monotone."""
    dataset = make_dataset([2] * width, n=5, seed=width)
    inputs = make_inputs(dataset, Crossed(dataset, 1), 1, ways={"marginal": Marginal(2)})
    games = np.random.default_rng(width).random((len(inputs), 2**width))

    def left(inputs, way, rows, gone):
        values = games[rows, gone @ (1 << np.arange(width))]
        return RemovalEffect(values, values, values)

    monkeypatch.setattr(lattice, "erased", left)
    monkeypatch.setattr(lattice, "_CELLS", 40)  # parts of one instance
    rows, way = np.arange(len(inputs)), inputs.removals["marginal"]
    whole = replace(Lattice.of(dataset, way.stand_ins, longest), edits=None)
    found = whole.extremes(inputs, way, rows, Naopc(longest=longest).sizes(inputs, rows))
    for i in range(len(inputs)):
        means = [
            np.mean([inputs.probability[i] - games[i, sum(1 << j for j in order[:n])] for n in range(1, longest + 1)])
            for order in permutations(range(width), longest)
        ]
        assert found[i] == pytest.approx([min(means), max(means)])


def test_of_texts_all_subsets_are_used_where_they_fit():
    text = make_text(width=5, n=6, seed=2)
    model = Crossed(text, 2)
    inputs = make_inputs(text, model, 1, ways={"mask": Mask()})
    metric, own = Naopc(shares=(0.3, 0.5, 0.5)), values(Aopc(shares=(0.3, 0.5, 0.5)), inputs)["mask"]
    found = values(metric, inputs)["mask"]
    for i, row in enumerate(inputs.codes):
        sizes = [int(np.ceil(share * (row != ABSENT).sum() - 1e-9)) for share in (0.3, 0.5, 0.5)]
        low, high = ends(model, inputs, inputs.removals["mask"], i, sizes)
        if high - low > 1e-9:
            assert found[i] == pytest.approx((own[i] - low) / (high - low), abs=1e-7) and 0 <= found[i] <= 1


def test_values_above_one_are_counted_where_a_beam_search_is_used():
    dataset = make_dataset([6, 5, 6, 5, 6, 5], n=40, seed=3)
    model = Crossed(dataset, 3, 3)
    one_instance = 63 * 30
    beam, exact = Naopc(width=1, draws=1, rows=one_instance - 1), Naopc(rows=one_instance)
    above = 0
    for seed in range(5):
        inputs = make_inputs(dataset, model, 1, seed, ways={"marginal": Marginal(30, 1)})
        (score,) = beam.score(inputs)
        n = int((score.numerator > 1).sum())
        assert score.method == "worst and best order approximated by beam search (width 1, 1 draws)"
        assert with_counts(score.remark, score.counts) == f"{n} of 40 values exceed 1"
        above += n
        (score,) = exact.score(inputs)
        assert len(score.some) and score.numerator.min() >= 0 and score.numerator.max() <= 1
        told = f"worst and best order exact, by all subsets, on a sample of {len(score.some)} instances"
        assert with_counts(score.method, score.counts) == told and score.remark == ""
    assert above > 0


def test_where_the_subsets_of_one_instance_fit_a_handful_is_scored_exactly():
    dataset = make_dataset([40] * 6, n=2000, seed=3)  # nearly all edits differ
    inputs = make_inputs(dataset, Crossed(dataset, 3), 1, ways={"marginal": Marginal(30, 1)})
    counts = [len(next(Naopc(rows=63 * 30, seed=seed).score(inputs)).some) for seed in range(20)]
    assert 3 < np.mean(counts) < 7


def test_an_explanation_that_stops_early_can_exceed_1_which_is_counted():
    """Removing more features would raise the prediction again, and every complete order has to."""
    dataset = make_dataset([4, 4, 4, 4], n=60, seed=2)
    inputs = make_inputs(dataset, Crossed(dataset, 2), 1, ways={"marginal": Marginal(5, 1)})
    complete, short = (
        replace(inputs, explanation=Explanation.ragged([[(int(j), 1.0 / (place + 1)) for place, j in enumerate(row)]
                                                      for row in rows]))
        for rows in ([list(range(4))] * 60, [[j % 4] for j in range(60)])
    )  # fmt: skip
    (score,) = Naopc().score(complete)
    assert score.numerator.max() <= 1 and score.method == "worst and best order exact, by all subsets"
    assert score.remark == ""
    (score,) = Naopc().score(short)
    above = int((score.numerator > 1).sum())
    assert above > 0 and score.method == "worst and best order exact, by all subsets"
    assert with_counts(score.remark, score.counts) == f"{above} of 60 values exceed 1 (incomplete orders)"


@given(st.integers(0, 10_000), st.booleans())
def test_what_is_left_without_each_set_is_what_erasing_it_leaves(seed, mask):
    dataset = make_text(width=5, n=4, seed=seed) if mask else make_dataset([3, 2, 9, 2, 4], n=4, seed=seed, absent=0.1)
    model = random_linear(dataset, seed, 2)
    inputs = make_inputs(dataset, model, 1, seed, ways={"way": Mask() if mask else Marginal(4, 1)})
    way, rows = inputs.removals["way"], np.arange(len(inputs))
    whole = Lattice.of(dataset, way.stand_ins, 4)
    wanted = ~((inputs.codes == ABSENT) @ whole.gone.T)
    left = whole._left(inputs, way, rows, wanted)
    assert whole.edits is not None or mask
    for i, row in enumerate(rows):
        own = whole.gone[wanted[i]]
        plain = erased(inputs, way, np.full(len(own), row), own).left
        assert left[i, wanted[i]] == pytest.approx(plain, abs=1e-12)


def test_edits_that_are_the_same_are_evaluated_once():
    """Removed features often get the value that they have: here each of two, with probability one half."""
    dataset = make_dataset([2] * 10, n=50, seed=1)
    model = Crossed(dataset, 1)
    inputs = make_inputs(dataset, model, 1, ways={"marginal": Marginal(100)})
    ledger = Ledger()
    object.__setattr__(inputs, "model", ledger.open_client(model, Access.PROBABILITY, "naopc"))
    (score,) = Naopc(rows=150_000).score(inputs)
    assert len(score.some) == len(inputs)  # of which each has 1,023 sets, with up to 100 draws
    ends = 2**10 * len(inputs)  # all rows that there are
    assert ledger.rows["naopc"] < ends + 10 * 100 * len(inputs)


@given(st.integers(0, 10_000))
def test_orders_that_few_draws_tell_apart_are_scored_with_all_draws(seed):
    """The ends are those of the orders that are best and worst by the few: looked for among all orders, by hand."""
    dataset = make_dataset([6, 5, 6, 5], n=3, seed=seed)
    model = Crossed(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 1, seed, ways={"marginal": Marginal(12, 1), "few": Marginal(3, 1)})
    worst, best = beam_ends(Naopc(longest=3, width=120, draws=3), inputs, inputs.removals["marginal"])
    for i in range(len(inputs)):
        few, every = (all_orders(model, inputs, inputs.removals[way], i, (1, 2, 3)) for way in ("few", "marginal"))
        low, high = (every[end(few, key=few.get)] for end in (min, max))
        assert (worst[i], best[i]) == pytest.approx((low, high), abs=1e-9)


@given(st.integers(0, 10_000))
def test_a_beam_finds_what_sorting_finds(seed):
    """Of a sum the best set of every size is the best of the size before and one more: a beam cannot miss it."""
    dataset = make_dataset([3, 2, 3, 2, 3, 3], n=6, seed=seed)
    model = random_linear(dataset, seed, 2)
    both = [
        values(Naopc(), make_inputs(dataset, model, 1, seed, ways={"zero": Zero()}, access=access))["del"]
        for access in (Access.GRADIENT, Access.PROBABILITY)
    ]
    assert both[0] == pytest.approx(both[1], abs=1e-7)


@pytest.mark.parametrize("subsets", [False, True])
def test_the_sample_belongs_to_the_instances_and_the_rows_are_bounded(subsets):
    dataset = make_dataset([6] * (8 if subsets else 14), n=600, seed=1)
    model = Crossed(dataset, 1)
    inputs = make_inputs(dataset, model, 1, ways={"marginal": Marginal(10)})
    rows = 75_000 if subsets else 150_000  # all subsets of 8 features and 10 draws take 2,550, of 14 more than these
    metric = Naopc(rows=rows, width=2)
    (score,) = metric.score(inputs)
    assert ("all subsets" in score.method) == subsets
    each = (255 if subsets else 2 * 2 * 95) * 10
    assert 0.5 * rows / each < len(score.some) < (3 if subsets else 2) * rows / each
    assert f"on a sample of {len(score.some)} instances" in with_counts(score.method, score.counts)
    ledger = Ledger()
    half = make_inputs(dataset, model, 1, seed=7, ways={"marginal": Marginal(10)})
    object.__setattr__(half, "model", ledger.open_client(model, Access.PROBABILITY, "naopc"))
    (other,) = metric.score(half)  # whoever explains
    assert other.some.tolist() == score.some.tolist() and ledger.rows["naopc"] < 2 * rows
    (again,) = Naopc(rows=rows, width=2, seed=1).score(inputs)
    assert again.some.tolist() != score.some.tolist()


def test_best_and_worst_are_searched_once_for_all_explainers():
    dataset = make_dataset([3, 3, 3], n=10, seed=1)
    model = Crossed(dataset, 1)
    ways = {"marginal": Marginal(5)}
    inputs = make_inputs(dataset, model, 1, ways=ways)
    list(Naopc(width=5).score(inputs))
    ledger = Ledger()
    next_one = make_inputs(dataset, model, 1, seed=9, ways=ways, memory=inputs.memory)
    object.__setattr__(next_one, "model", ledger.open_client(model, Access.PROBABILITY, "naopc"))
    (score,) = Naopc(width=5).score(next_one)
    # the order itself: at most three sets of each instance, with up to five draws
    assert ledger.rows["naopc"] <= len(inputs) * 3 * 5 and score.denominator.all()
    assert open_client(model, Access.PROBABILITY).has_linear_logit is False


@pytest.mark.parametrize("wrong", [{"width": 0}, {"draws": 0}, {"rows": 0}, {"seed": -1}, {"longest": 0}])
def test_settings_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Naopc(**wrong)
