"""FeatureSetBounds against brute force: every explanation of every instance, and every way to combine them."""

from itertools import permutations, product

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, ModelSpec
from cfeval_cli.pipeline import bounds
from cfeval_cli.pipeline.bounds import FeatureSetBounds, Goal, Pool, compute_bounds
from cfeval_cli.pipeline.context import create_context
from tests.inside import planned
from tests.problems import logit, make_dataset, make_linear, sigmoid


def context(dataset, model, *overrides):
    plan = planned("cache=off", "n_jobs=1", "explainer=[random,lr]", *overrides)
    return create_context(plan.restrict_to(ModelSpec(dataset, type(model))), dataset, model)


def truths(made):
    return {name: made.truth(name) for name in made.plan.truths}


@st.composite
def pools(draw):
    """A few instances with a few sets each; scores are small whole numbers, so that ties are real."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=5))
    total = sum(sizes)
    numbers = st.lists(st.integers(-3, 3).map(float), min_size=total, max_size=total)
    weights = st.lists(st.integers(0, 3).map(float), min_size=total, max_size=total)
    return sizes, np.array(draw(numbers)), np.array(draw(weights)), draw(st.sampled_from(["higher", "lower"]))


@settings(max_examples=300)
@given(pools(), st.booleans())
def test_the_best_ratio_is_the_best_of_all_combinations(pool, worst):
    sizes, n, d, better = pool
    d = d + 0.5  # a set without distance cannot be compared
    goal = Goal(("c", "label"), better)
    member = np.repeat(np.arange(len(sizes)), sizes)
    made = Pool(member, np.zeros((len(member), 1), dtype=int), {goal: (n, d)}, {})
    instances = np.arange(len(sizes)) % 3 != 1
    found, chosen = made.best(goal, instances, worst=worst)
    ranges = [np.flatnonzero(member == i) for i in np.flatnonzero(instances)]
    ratios = {choice: n[list(choice)].sum() / d[list(choice)].sum() for choice in product(*ranges)}
    extreme = max if (better == "higher") != worst else min
    expected = extreme(ratios.values())
    assert found == pytest.approx(expected)
    best = [choice for choice, ratio in ratios.items() if ratio == pytest.approx(expected, abs=1e-9)]
    assert set(np.flatnonzero(chosen)) == {place for choice in best for place in choice}


@settings(max_examples=200)
@given(pools(), st.data(), st.booleans())
def test_truth_shares_are_means_over_all_instances_and_over_those_whose_sets_differ(pool, data, ratio):
    sizes, n, d, better = pool
    d = d + 0.5 if ratio else np.ones(len(d))
    goal = Goal(("c" if ratio else "dfr", "label"), better)
    member = np.repeat(np.arange(len(sizes)), sizes)
    truth = np.array(data.draw(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=len(n), max_size=len(n))))
    # one feature each, so that all sets of an instance differ
    features = np.concatenate([np.arange(size) for size in sizes])[:, None]
    made = Pool(member, features, {goal: (n, d)}, {"signed": truth})
    line = FeatureSetBounds(made, [goal], np.arange(len(sizes)), True).tabulate().iloc[0]
    ranges = [np.flatnonzero(member == i) for i in range(len(sizes))]
    ratios = {choice: n[list(choice)].sum() / d[list(choice)].sum() for choice in product(*ranges)}
    extreme = (max if better == "higher" else min)(ratios.values())
    best = [choice for choice, value in ratios.items() if value == pytest.approx(extreme, abs=1e-9)]
    optima = [{choice[i] for choice in best} for i in range(len(sizes))]
    telling = [i for i, mine in enumerate(ranges) if len(optima[i]) < len(mine)]
    if not ratio:
        assert telling == [i for i, mine in enumerate(ranges) if len(set(n[mine])) > 1]
    shares = [np.mean([truth[place] for place in mine]) for mine in optima]
    assert line["telling"] == len(telling) and line["truth_signed"] == pytest.approx(np.mean(shares))
    if telling:
        assert line["truth_signed_telling"] == pytest.approx(np.mean([shares[i] for i in telling]))
    else:
        assert np.isnan(line["truth_signed_telling"])


def test_nothing_to_compare_has_no_bounds():
    goal = Goal(("c", "label"), "higher")
    made = Pool(np.array([0, 0]), np.zeros((2, 1), dtype=int), {goal: (np.zeros(2), np.zeros(2))}, {})
    assert np.isnan(made.best(goal, np.array([True]))[0]) and np.isnan(made.best(goal, np.array([False]))[0])


def by_hand(dataset, model, k):
    """For each instance and ordered set: comprehensiveness, and drop, flip and distance of the largest drop."""
    found = {}
    for i, row in enumerate(dataset.test.codes):
        sign = 1 if logit(model, row) > 0 else -1
        before = sigmoid(sign * logit(model, row))
        for features in permutations(np.flatnonzero(row != ABSENT).tolist(), k):
            erased = row.copy()
            erased[list(features)] = ABSENT
            tried = []
            for values in product(*(dataset.candidates[j].tolist() for j in features)):
                edited = row.copy()
                edited[list(features)] = values
                if (edited == row).all():
                    continue
                after = sigmoid(sign * logit(model, edited))
                moves = [model.tables[j][row[j]] - model.tables[j][edited[j]] for j in features]
                flip = (logit(model, edited) > 0) != (sign > 0)
                changed = sum(edited != row)
                tried.append(
                    (
                        round(after, 12),
                        changed,
                        len(tried),
                        before - after,
                        flip,
                        np.sqrt(sum((m**2).sum() for m in moves)),
                    )
                )
            *_, drop, flip, distance = min(tried)
            found[i, features] = (before - sigmoid(sign * logit(model, erased)), drop, float(flip), distance)
    return found


@given(st.integers(0, 10_000), st.sampled_from([1, 2]))
def test_all_sets_are_tried_and_scored_as_written_out(seed, k):
    dataset = make_dataset([2, 3, 2, 3], n=5, seed=seed, absent=0.2)
    model = make_linear(dataset, seed=seed + 1, dim=2)
    done = context(dataset, model, f"k={k}", "distance.space=embedding")
    found = compute_bounds(done, truths(done), lambda _: None)
    hand = by_hand(dataset, model, k)
    able = [i for i, row in enumerate(dataset.test.codes) if (row != ABSENT).sum() >= k]
    assert found.exact and found.instances.tolist() == able
    assert len(found.pool.member) == len({key for key in hand if key[0] in able})
    table = found.tabulate().set_index(["metric", "variant"])
    sets = {(i, frozenset(features)) for i, features in hand if i in able}
    assert (table["sets"] == len(sets)).all()  # whatever the order
    best = {i: max(score[0] for (row, _), score in hand.items() if row == i) for i in able}
    optima = {(i, frozenset(f)) for (i, f), score in hand.items() if i in able and score[0] >= best[i] - 1e-12}
    assert table.loc[("comprehensiveness", "del"), "optima"] == pytest.approx(len(optima) / len(able))

    def options(i, *columns):
        return [[score[c] for c in columns] for (row, _), score in hand.items() if row == i]

    for name, variant, column in (
        ("comprehensiveness", "del", 0),
        ("validity_soft", "probability", 1),
        ("proximity", "probability", 3),
    ):
        ends = [(min(x for (x,) in options(i, column)), max(x for (x,) in options(i, column))) for i in able]
        low, high = np.mean([a for a, _ in ends]), np.mean([b for _, b in ends])
        line = table.loc[(name, variant)]
        expected = (high, low) if name == "proximity" else (low, high)
        assert (line["worst"], line["best"]) == pytest.approx(expected, abs=1e-9)
    # the ratio by bisection: a ratio over r exists exactly if the best of n - r·d adds up to more than zero
    if all(d > 0 for i in able for (d,) in options(i, 3)):
        low, high = -100.0, 100.0
        for _ in range(80):
            middle = (low + high) / 2
            over = sum(max(n - middle * d for n, d in options(i, 1, 3)) for i in able) > 0
            low, high = (middle, high) if over else (low, middle)
        assert table.loc[("c_soft", "probability"), "best"] == pytest.approx(low, abs=1e-9)


def test_greedy_says_so_and_is_never_better_than_all_sets(monkeypatch):
    dataset = make_dataset([3, 2, 3, 2, 2], n=12, seed=3)
    model = make_linear(dataset, seed=4)
    fixed = ("k=2", "removal=[zero,mask]", "metric=paper")  # what others have is drawn otherwise for texts
    done = context(dataset, model, *fixed)
    truth = compute_bounds(done, truths(done), lambda _: None).tabulate()
    text = context(dataset, model, *fixed)
    object.__setattr__(text.dataset, "kind", "text")  # pairs are enumerated for tables only
    found = compute_bounds(text, truths(text), lambda _: None)
    greedy = found.tabulate()
    assert not found.exact and set(greedy["method"]) == {"greedy"} and set(truth["method"]) == {"enumerated"}
    assert len(found.pool.member) < 12 * 20  # of the 20 ordered pairs of an instance
    for one, two in zip(truth.itertuples(), greedy.itertuples(), strict=True):
        sign = 1 if one.better == "higher" else -1
        assert sign * (one.best - two.best) >= -1e-9 and sign * (two.worst - one.worst) >= -1e-9
    # on a model whose logit is a sum, the best single deletion is part of the best pair
    comp = [
        table.set_index(["metric", "variant"]).loc[("comprehensiveness", "del"), "best"] for table in (truth, greedy)
    ]
    assert comp[0] == pytest.approx(comp[1])


def test_large_data_is_sampled_so_that_memory_stays_bounded(monkeypatch):
    dataset = make_dataset([2, 2, 2], n=30)
    model = make_linear(dataset)
    assert len(compute_bounds(context(dataset, model, "bounds=7"), {}, lambda _: None).instances) == 7
    monkeypatch.setattr(bounds, "_MOST", 60)
    assert len(compute_bounds(context(dataset, model, "k=2"), {}, lambda _: None).instances) == 10  # 6 pairs each
    whole = context(dataset, model)
    monkeypatch.setattr(bounds, "_MOST", 1 << 19)
    expected = compute_bounds(whole, truths(whole), lambda _: None).tabulate()
    monkeypatch.setattr(bounds, "_CHUNK", 7)
    pd.testing.assert_frame_equal(compute_bounds(whole, truths(whole), lambda _: None).tabulate(), expected)


@pytest.mark.parametrize("arguments", [["k=1"], ["k=2"], ["k=1", "search=continuous"]], ids=" ".join)
def test_every_explainer_stands_between_the_bounds_and_the_truth_on_top_of_comprehensiveness(toy, made, arguments):
    folder = made(
        toy,
        "explainer=[random,omission,anchor,lr]",
        "explainer.anchor.threshold=0.8",
        "truth=[signed]",
        "support=own",
        "n_explain=15",
        "model.max_epochs=10",
        "resamples=0",
        "bounds=2000",
        *arguments,
    )
    metrics, bounds = pd.read_csv(folder / "metrics.csv"), pd.read_csv(folder / "bounds.csv")
    places = metrics["place"].dropna()
    assert len(places) > 40 and places.between(-1e-6, 1 + 1e-6).all()
    whole = metrics[(metrics["coverage"] == 1) & (metrics["better"] != "none")].merge(bounds, on=["metric", "variant"])
    expected = (whole["value"] - whole["worst"]) / (whole["best"] - whole["worst"])
    there = (whole["best"] - whole["worst"]).abs() > 1e-9
    assert whole["place"][there].to_numpy() == pytest.approx(expected[there].to_numpy())
    table = bounds.set_index(["metric", "variant"])
    assert table.loc[("recall", "signed"), ["worst", "best", "truth_signed"]].tolist()[1:] == [1, 1]
    if "k=1" in arguments:  # deleting a feature takes its whole effect: the best to delete is the truth
        assert table.loc[("comprehensiveness", "del"), "truth_signed"] == pytest.approx(1)
        assert metrics.query("metric == 'comprehensiveness' and variant == 'del' and explainer == 'lr'")[
            "place"
        ].item() == pytest.approx(1)
    assert bounds["telling"].between(0, bounds["instances"]).all() and bounds["telling"].max() == 15
    if arguments != ["k=1"]:
        return
    text = (folder / "tables.md").read_text()
    assert "Bounds of each metric" in text and "on which not all sets score the same" in " ".join(text.split())


def test_without_bounds_there_is_no_file(toy, made):
    folder = made(toy, "explainer=[random,lr]", "n_explain=5", "bounds=0", "metric=[recall]", "resamples=0")
    assert not (folder / "bounds.csv").exists()
    assert "place" not in pd.read_csv(folder / "metrics.csv")
