"""NAOPC against the AOPC of all orders."""

from dataclasses import replace
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Access, Explanation, Ledger, LedgerKey
from cfeval_cli.core.metric import fill_in_counts
from cfeval_cli.core.removal_effect import RemovalEffect
from cfeval_cli.metric import lattice
from cfeval_cli.metric.aopc import Aopc
from cfeval_cli.metric.erasure import compute_erasure
from cfeval_cli.metric.lattice import Lattice
from cfeval_cli.metric.naopc import Naopc
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.mean import Mean
from cfeval_cli.removal.zero import Zero
from tests.metric.inputs import InteractionModel, compute_drop, compute_values, make_inputs
from tests.problems import draw_linear, make_dataset, make_text, open_client


def compute_all_orders(model, inputs, fitted, i, sizes):
    """Return the AOPC of every order of the features of an instance."""
    present = np.flatnonzero(inputs.codes[i] != ABSENT).tolist()

    @cache
    def drop(removed):
        return compute_drop(model, inputs, fitted, i, removed)

    return {
        order: sum(drop(frozenset(order[:size])) for size in sizes) / len(sizes)
        for order in permutations(present, max(sizes))
    }


def compute_extremes(model, inputs, fitted, i, sizes):
    """Return the smallest and the largest AOPC over all orders."""
    aopc = compute_all_orders(model, inputs, fitted, i, sizes).values()
    return min(aopc), max(aopc)


def search_extremes(metric, inputs, fitted):
    """Return the worst and the best AOPC (2, n) of the orders that beam search finds."""
    rows = np.arange(len(inputs))
    orders = metric._search_orders(inputs, metric._fit_coarse_removal(inputs, fitted), rows)
    return [metric.compute_mean_drops(inputs, fitted, rows, ranks) for ranks in orders]


def predict_moved(model, inputs, vectors, i, removed):
    """Return p(ŷ) with the embeddings of some features replaced."""
    embeddings = [vectors[j] if j in removed else model.tables[j][code] for j, code in enumerate(inputs.codes[i])]
    z = model.bias + sum(float(w @ e) for w, e in zip(model.weights, embeddings, strict=True))
    p = 1 / (1 + np.exp(-z))
    return p if inputs.predicted_classes[i] == 1 else 1 - p


@pytest.mark.parametrize("seed", range(4))
def test_sorted_effects_give_the_extremes_of_all_orders(seed):
    dataset = make_dataset([3, 2, 3, 2, 4, 2, 3], n=2, seed=seed, absent=0.1)
    model = draw_linear(dataset, seed, 2)
    inputs = make_inputs(dataset, model, 1, seed, removals={"zero": Zero()})
    scores, aopc = compute_values(Naopc(), inputs)["del"], compute_values(Aopc(), inputs)["del"]
    for i, row in enumerate(inputs.codes):
        low, high = compute_extremes(
            model, inputs, inputs.removals["zero"], i, range(1, int((row != ABSENT).sum()) + 1)
        )
        assert scores[i] == pytest.approx((aopc[i] - low) / (high - low), abs=1e-9)
    (score,) = Naopc().score(inputs)
    assert score.method == score.remark == "" and len(score.positions) == len(inputs)


@given(st.integers(0, 10_000), st.integers(1, 4))
def test_sorted_effects_are_exact_for_mean_and_mask_and_short_curves(seed, max_length):
    dataset = make_dataset([3, 2, 3, 2], n=4, seed=seed)
    model = draw_linear(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 1, seed, removals={"mean": Mean()})
    metric = Naopc(max_features=max_length)
    scores, aopc = compute_values(metric, inputs)["mean"], compute_values(Aopc(max_features=max_length), inputs)["mean"]
    vectors = inputs.removals["mean"].replacement.vectors
    for i in range(len(inputs)):
        means = [
            np.mean(
                [
                    inputs.probability[i] - predict_moved(model, inputs, vectors, i, order[:n])
                    for n in range(1, max_length + 1)
                ]
            )
            for order in permutations(range(4))
        ]
        assert scores[i] == pytest.approx((aopc[i] - min(means)) / (max(means) - min(means)), abs=1e-7)
    text = make_text(width=5, n=6, seed=seed)
    model = draw_linear(text, seed, 2)
    inputs = make_inputs(text, model, 1, seed, removals={"mask": Mask()})
    metric = Naopc(shares=(0.3, 0.7))
    scores, aopc = compute_values(metric, inputs)["mask"], compute_values(Aopc(shares=(0.3, 0.7)), inputs)["mask"]
    for i, row in enumerate(inputs.codes):
        n_present = int((row != ABSENT).sum())
        sizes = [int(np.ceil(share * n_present - 1e-9)) for share in (0.3, 0.7)]
        low, high = compute_extremes(model, inputs, inputs.removals["mask"], i, sizes)
        if high - low > 1e-9:
            assert scores[i] == pytest.approx((aopc[i] - low) / (high - low), abs=1e-7)
        else:
            assert np.isnan(scores[i]) or high - low > 1e-12


@given(st.integers(0, 10_000), st.booleans())
def test_all_subsets_and_exhaustive_beam_find_the_extremes_of_all_orders(seed, additive):
    dataset = make_dataset([3, 2, 3, 2, 2], n=3, seed=seed, absent=0.1 * additive)
    assume(all(frequency.any() for frequency in dataset.frequencies))  # every feature has a value in training
    model = draw_linear(dataset, seed, 2) if additive else InteractionModel(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 1, seed, removals={"marginal": Marginal(4, 1)})
    fitted = inputs.removals["marginal"]
    aopc = compute_values(Aopc(max_features=4), inputs)["marginal"]
    metric = Naopc(max_features=4, width=120)
    scores, (worst, best) = compute_values(metric, inputs)["marginal"], search_extremes(metric, inputs, fitted)
    for i in range(len(inputs)):
        n_present = int((inputs.codes[i] != ABSENT).sum())
        low, high = compute_extremes(model, inputs, fitted, i, range(1, min(4, n_present) + 1))
        assert (worst[i], best[i]) == pytest.approx((low, high), abs=1e-9)
        if high - low > 1e-9:
            assert scores[i] == pytest.approx((aopc[i] - low) / (high - low), abs=1e-7) and 0 <= scores[i] <= 1
    (score,) = metric.score(inputs)
    assert score.method == "worst and best order exact, by all subsets" and score.remark == ""


@pytest.mark.parametrize(("width", "max_length"), [(6, 6), (7, 3), (5, 1)])
def test_lattice_finds_the_extremes_of_random_games(width, max_length, monkeypatch):
    """A game assigns a random value to each set, so that it is neither additive nor monotone."""
    dataset = make_dataset([2] * width, n=5, seed=width)
    inputs = make_inputs(dataset, InteractionModel(dataset, 1), 1, removals={"marginal": Marginal(2)})
    games = np.random.default_rng(width).random((len(inputs), 2**width))

    def look_up(inputs, fitted, rows, is_removed):
        values = games[rows, is_removed @ (1 << np.arange(width))]
        return RemovalEffect(values, values, values)

    monkeypatch.setattr(lattice, "compute_erasure", look_up)
    monkeypatch.setattr(lattice, "_MAX_ARRAY_ELEMENTS", 40)  # one instance at a time
    rows, fitted = np.arange(len(inputs)), inputs.removals["marginal"]
    lattice_without_edits = replace(Lattice.build(dataset, fitted.replacement, max_length), edits=None)
    extremes = lattice_without_edits.compute_extremes(
        inputs, fitted, rows, Naopc(max_features=max_length).count_removals_per_point(inputs, rows)
    )
    for i in range(len(inputs)):
        means = [
            np.mean(
                [inputs.probability[i] - games[i, sum(1 << j for j in order[:n])] for n in range(1, max_length + 1)]
            )
            for order in permutations(range(width), max_length)
        ]
        assert extremes[i] == pytest.approx([min(means), max(means)])


def test_all_subsets_are_exact_for_texts():
    text = make_text(width=5, n=6, seed=2)
    model = InteractionModel(text, 2)
    inputs = make_inputs(text, model, 1, removals={"mask": Mask()})
    metric, aopc = Naopc(shares=(0.3, 0.5, 0.5)), compute_values(Aopc(shares=(0.3, 0.5, 0.5)), inputs)["mask"]
    scores = compute_values(metric, inputs)["mask"]
    for i, row in enumerate(inputs.codes):
        sizes = [int(np.ceil(share * (row != ABSENT).sum() - 1e-9)) for share in (0.3, 0.5, 0.5)]
        low, high = compute_extremes(model, inputs, inputs.removals["mask"], i, sizes)
        if high - low > 1e-9:
            assert scores[i] == pytest.approx((aopc[i] - low) / (high - low), abs=1e-7) and 0 <= scores[i] <= 1


def test_beam_search_counts_values_above_one():
    dataset = make_dataset([6, 5, 6, 5, 6, 5], n=40, seed=3)
    model = InteractionModel(dataset, 3, 3)
    rows_per_instance = 63 * 30
    beam, exact = Naopc(width=1, draws=1, rows=rows_per_instance - 1), Naopc(rows=rows_per_instance)
    above = 0
    for seed in range(5):
        inputs = make_inputs(dataset, model, 1, seed, removals={"marginal": Marginal(30, 1)})
        (score,) = beam.score(inputs)
        n = int((score.numerator > 1).sum())
        assert score.method == "worst and best order approximated by beam search (width 1, 1 draws)"
        assert fill_in_counts(score.remark, score.counts) == f"{n} of 40 values exceed 1"
        above += n
        (score,) = exact.score(inputs)
        assert len(score.positions) and score.numerator.min() >= 0 and score.numerator.max() <= 1
        method = f"worst and best order exact, by all subsets, on a sample of {len(score.positions)} instances"
        assert fill_in_counts(score.method, score.counts) == method and score.remark == ""
    assert above > 0


def test_few_instances_are_scored_exactly_if_the_subsets_of_one_fit():
    dataset = make_dataset([40] * 6, n=2000, seed=3)  # nearly all edited rows are distinct
    inputs = make_inputs(dataset, InteractionModel(dataset, 3), 1, removals={"marginal": Marginal(30, 1)})
    counts = [len(next(Naopc(rows=63 * 30, seed=seed).score(inputs)).positions) for seed in range(20)]
    assert 3 < np.mean(counts) < 7


def test_incomplete_orders_above_one_are_counted():
    """Removing more features would raise p(ŷ) again, and every complete order removes them."""
    dataset = make_dataset([4, 4, 4, 4], n=60, seed=2)
    inputs = make_inputs(dataset, InteractionModel(dataset, 2), 1, removals={"marginal": Marginal(5, 1)})
    complete, short = (
        replace(inputs, explanation=Explanation.from_lists([[(int(j), 1.0 / (place + 1)) for place, j in enumerate(row)]
                                                      for row in rows]))
        for rows in ([list(range(4))] * 60, [[j % 4] for j in range(60)])
    )  # fmt: skip
    (score,) = Naopc().score(complete)
    assert score.numerator.max() <= 1 and score.method == "worst and best order exact, by all subsets"
    assert score.remark == ""
    (score,) = Naopc().score(short)
    above = int((score.numerator > 1).sum())
    assert above > 0 and score.method == "worst and best order exact, by all subsets"
    assert fill_in_counts(score.remark, score.counts) == f"{above} of 60 values exceed 1 (incomplete orders)"


@given(st.integers(0, 10_000), st.booleans())
def test_numbered_edits_equal_plain_erasure(seed, mask):
    dataset = make_text(width=5, n=4, seed=seed) if mask else make_dataset([3, 2, 9, 2, 4], n=4, seed=seed, absent=0.1)
    model = draw_linear(dataset, seed, 2)
    inputs = make_inputs(dataset, model, 1, seed, removals={"removal": Mask() if mask else Marginal(4, 1)})
    fitted, rows = inputs.removals["removal"], np.arange(len(inputs))
    result_of_all = Lattice.build(dataset, fitted.replacement, 4)
    is_needed = ~((inputs.codes == ABSENT) @ result_of_all.is_removed.T)
    remaining = result_of_all._compute_probabilities(inputs, fitted, rows, is_needed)
    assert result_of_all.edits is not None or mask
    for i, row in enumerate(rows):
        sets = result_of_all.is_removed[is_needed[i]]
        expected = compute_erasure(inputs, fitted, np.full(len(sets), row), sets).probability
        assert remaining[i, is_needed[i]] == pytest.approx(expected, abs=1e-12)


def test_equal_edits_are_evaluated_once():
    """Here each removed feature gets one of two values, so that it keeps its own with probability one half."""
    dataset = make_dataset([2] * 10, n=50, seed=1)
    model = InteractionModel(dataset, 1)
    inputs = make_inputs(dataset, model, 1, removals={"marginal": Marginal(100)})
    ledger = Ledger()
    object.__setattr__(inputs, "model", ledger.open_client(model, Access.PROBABILITY, LedgerKey("naopc")))
    (score,) = Naopc(rows=150_000).score(inputs)
    assert len(score.positions) == len(inputs)  # each has 1,023 sets with up to 100 draws
    n_distinct = 2**10 * len(inputs)  # all possible rows of the instances
    assert ledger.n_evaluations[LedgerKey("naopc")] < n_distinct + 10 * 100 * len(inputs)


@given(st.integers(0, 10_000))
def test_orders_found_with_few_draws_are_scored_with_all_draws(seed):
    """The extremes are those of the orders that are best and worst with few draws, among all orders."""
    dataset = make_dataset([6, 5, 6, 5], n=3, seed=seed)
    model = InteractionModel(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 1, seed, removals={"marginal": Marginal(12, 1), "few": Marginal(3, 1)})
    worst, best = search_extremes(Naopc(max_features=3, width=120, draws=3), inputs, inputs.removals["marginal"])
    for i in range(len(inputs)):
        overrides, full = (
            compute_all_orders(model, inputs, inputs.removals[name], i, (1, 2, 3)) for name in ("few", "marginal")
        )
        low, high = (full[extreme(overrides, key=overrides.get)] for extreme in (min, max))
        assert (worst[i], best[i]) == pytest.approx((low, high), abs=1e-9)


@given(st.integers(0, 10_000))
def test_beam_search_is_exact_for_linear_logits(seed):
    """The best set of each size is the best set of the size before plus one feature, so that a beam finds it."""
    dataset = make_dataset([3, 2, 3, 2, 3, 3], n=6, seed=seed)
    model = draw_linear(dataset, seed, 2)
    scores = [
        compute_values(Naopc(), make_inputs(dataset, model, 1, seed, removals={"zero": Zero()}, access=access))["del"]
        for access in (Access.GRADIENT, Access.PROBABILITY)
    ]
    assert scores[0] == pytest.approx(scores[1], abs=1e-7)


@pytest.mark.parametrize("subsets", [False, True])
def test_sample_is_the_same_for_all_explainers_and_evaluations_are_bounded(subsets):
    dataset = make_dataset([6] * (8 if subsets else 14), n=600, seed=1)
    model = InteractionModel(dataset, 1)
    inputs = make_inputs(dataset, model, 1, removals={"marginal": Marginal(10)})
    rows = (
        75_000 if subsets else 150_000
    )  # all subsets of 8 features with 10 draws take 2,550 rows, those of 14 features more than `rows`
    metric = Naopc(rows=rows, width=2)
    (score,) = metric.score(inputs)
    assert ("all subsets" in score.method) == subsets
    rows_per_instance = (255 if subsets else 2 * 2 * 95) * 10
    assert 0.5 * rows / rows_per_instance < len(score.positions) < (3 if subsets else 2) * rows / rows_per_instance
    assert f"on a sample of {len(score.positions)} instances" in fill_in_counts(score.method, score.counts)
    ledger = Ledger()
    second = make_inputs(dataset, model, 1, seed=7, removals={"marginal": Marginal(10)})
    object.__setattr__(second, "model", ledger.open_client(model, Access.PROBABILITY, LedgerKey("naopc")))
    (other,) = metric.score(second)
    assert other.positions.tolist() == score.positions.tolist() and ledger.n_evaluations[LedgerKey("naopc")] < 2 * rows
    (reseeded,) = Naopc(rows=rows, width=2, seed=1).score(inputs)
    assert reseeded.positions.tolist() != score.positions.tolist()


def test_extremes_are_computed_once_for_all_explainers():
    dataset = make_dataset([3, 3, 3], n=10, seed=1)
    model = InteractionModel(dataset, 1)
    removals = {"marginal": Marginal(5)}
    inputs = make_inputs(dataset, model, 1, removals=removals)
    list(Naopc(width=5).score(inputs))
    ledger = Ledger()
    second = make_inputs(dataset, model, 1, seed=9, removals=removals, memory=inputs.memory)
    object.__setattr__(second, "model", ledger.open_client(model, Access.PROBABILITY, LedgerKey("naopc")))
    (score,) = Naopc(width=5).score(second)
    # Only the order itself is evaluated: at most three sets of each instance with up to five draws.
    assert ledger.n_evaluations[LedgerKey("naopc")] <= len(inputs) * 3 * 5 and score.denominator.all()
    assert open_client(model, Access.PROBABILITY).has_linear_logit is False


@pytest.mark.parametrize("setting", [{"width": 0}, {"draws": 0}, {"rows": 0}, {"seed": -1}, {"max_features": 0}])
def test_invalid_settings_are_rejected(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Naopc(**setting)
