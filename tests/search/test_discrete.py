from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cfeval_cli.core import (
    NO_FEATURE,
    Access,
    Counterfactuals,
    Ledger,
    LedgerKey,
    SupportsBatchedEmbedding,
    SupportsEdits,
)
from cfeval_cli.core.counterfactual import select_changeable
from cfeval_cli.errors import Failure
from cfeval_cli.search.discrete import Discrete
from tests.problems import (
    add_constraints,
    choose_features,
    is_permitted,
    logit,
    make_dataset,
    make_linear,
    make_mixed,
    make_task,
    problems,
    sigmoid,
)


def run_algorithm_1(dataset, model, row, features, pick, access):
    """Return the counterfactual of the paper's loop over candidates; None if a random candidate is picked."""
    before = logit(model, row) > 0
    candidates = []
    options = [
        [
            code
            for code in sorted({*dataset.candidates[j].tolist(), int(row[j])})
            if is_permitted(dataset.features[j], row[j], code)
        ]
        for j in features
    ]
    for values in product(*options):
        changed = sum(int(row[j]) != v for j, v in zip(features, values, strict=True))
        if changed == 0:
            continue  # an instance is not its own counterfactual
        candidate = row.copy()
        candidate[list(features)] = values
        z = logit(model, candidate)
        probability = sigmoid(z) if before else 1.0 - sigmoid(z)
        squared = sum(
            ((model.tables[j][row[j]] - model.tables[j][v]) ** 2).sum() for j, v in zip(features, values, strict=True)
        )
        candidates.append(
            {
                "codes": candidate,
                "changed": changed,
                "flip": (z > 0) != before,
                "probability": probability,
                "distance": np.sqrt(squared),
            }
        )
    if not candidates:  # no change is permitted
        return row
    flips = [t for t in candidates if t["flip"]]
    by_drop = sorted(
        candidates, key=lambda t: (round(t["probability"], 12), t["changed"])
    )  # sorted() keeps value order
    if pick == "largest_drop":
        return by_drop[0]["codes"]
    if flips and pick == "first":
        return min(flips, key=lambda t: t["changed"])["codes"]
    if flips and pick == "nearest":
        return min(flips, key=lambda t: (round(t["distance"], 9), t["changed"]))["codes"]
    return by_drop[0]["codes"] if access >= Access.PROBABILITY else None


@settings(max_examples=150)
@given(
    problems(),
    st.integers(1, 3),
    st.integers(0, 99),
    st.sampled_from(["auto", "first", "largest_drop", "nearest"]),
    st.sampled_from([Access.LABEL, Access.PROBABILITY]),
    st.sampled_from([1, 3, 7, 1000]),
)
def test_counterfactuals_equal_those_of_algorithm_1(problem, k, seed, pick, access, max_batch_rows):
    dataset, model = problem
    search = Discrete(pick=pick, max_batch_rows=max_batch_rows)
    if access not in search.levels:
        return
    features = choose_features(dataset, min(k, dataset.n_features), seed)
    counterfactuals = search.find(make_task(dataset, model, features, access))
    resolved_pick = pick if pick != "auto" else ("first" if access == Access.LABEL else "largest_drop")
    for i, row in enumerate(dataset.test.codes):
        expected = run_algorithm_1(dataset, model, row, features[i], resolved_pick, access)
        untouched = np.delete(np.arange(dataset.n_features), features[i])
        assert (counterfactuals.codes[i][untouched] == row[untouched]).all()
        assert (counterfactuals.codes[i] != row).any()
        if expected is None:
            assert not counterfactuals.flipped[i]
        else:
            assert counterfactuals.codes[i].tolist() == expected.tolist()
        assert counterfactuals.flipped[i] == ((logit(model, counterfactuals.codes[i]) > 0) != (logit(model, row) > 0))


@given(
    st.integers(0, 10_000),
    st.integers(1, 3),
    st.sampled_from(["auto", "first", "largest_drop", "nearest"]),
    st.sampled_from([Access.LABEL, Access.PROBABILITY]),
    st.sampled_from([1, 7, 1000]),
)
def test_numbers_may_keep_their_value_and_constraints_are_kept(seed, k, pick, access, max_batch_rows):
    dataset = make_mixed(seed, n=6, missing=0.3 * (seed % 2), tried=3)
    model = make_linear(dataset, seed=seed)
    if seed % 3:
        dataset = add_constraints(dataset, seed)
    search = Discrete(pick=pick, max_batch_rows=max_batch_rows)
    if access not in search.levels:
        return
    features = choose_features(dataset, k, seed)
    if k > 1:
        features[::3, -1] = NO_FEATURE
    counterfactuals = search.find(make_task(dataset, model, features, access))
    resolved_pick = pick if pick != "auto" else ("first" if access == Access.LABEL else "largest_drop")
    for i, row in enumerate(dataset.test.codes):
        selected = features[i][features[i] != NO_FEATURE]
        expected = run_algorithm_1(dataset, model, row, selected, resolved_pick, access)
        for j in np.flatnonzero(counterfactuals.codes[i] != row):
            assert j in selected and counterfactuals.codes[i][j] in dataset.candidates[j]
            assert is_permitted(dataset.features[j], row[j], counterfactuals.codes[i][j])
        if expected is None:
            assert not counterfactuals.flipped[i]
        else:
            assert counterfactuals.codes[i].tolist() == expected.tolist()


def test_random_fallback_is_uniform_over_candidate_numbers_and_the_own_value():
    dataset = make_mixed(2, n=4000, categories=0, numbers=2, tried=2)
    codes = dataset.test.codes[:1].repeat(4000, axis=0)
    assert not any(codes[0, j] in dataset.candidates[j] for j in range(2))
    dataset = replace(dataset, test=replace(dataset.test, codes=codes))
    task = make_task(dataset, make_linear(dataset, bias=1e6), np.tile([1, 0], (4000, 1)), Access.LABEL)
    sampled_codes, counts = np.unique(Discrete().find(task).codes, axis=0, return_counts=True)
    sizes = [1 + len(dataset.candidates[j]) for j in range(2)]
    assert len(sampled_codes) == sizes[0] * sizes[1] - 1 and not (sampled_codes == codes[0]).all(axis=1).any()
    assert np.abs(counts / 4000 - 1 / len(sampled_codes)).max() < 0.03


def test_random_fallback_is_uniform_over_other_combinations():
    dataset = make_dataset([3, 2], n=6000)
    model = make_linear(dataset, bias=100.0)  # nothing flips
    features = np.tile([0, 1], (6000, 1))
    counterfactuals = Discrete().find(make_task(dataset, model, features, Access.LABEL))
    own = dataset.test.codes @ [2, 1]
    combinations = counterfactuals.codes @ [2, 1]
    assert not counterfactuals.flipped.any() and (combinations != own).all()
    shares = np.bincount((combinations - own) % 6, minlength=6)[1:] / 6000
    assert np.abs(shares - 0.2).max() < 0.025


def test_batches_respect_the_bound_and_cover_all_candidates():
    dataset = make_dataset([4, 4, 4], n=50)
    model = make_linear(dataset)
    batch_sizes = []

    class EditRecordingModel(SupportsEdits, SupportsBatchedEmbedding):
        embed_values, embed_features = model.embed_values, model.embed_features

        def predict_edited(self, codes, features, rows, values):
            batch_sizes.append(len(values))
            return model.predict_edited(codes, features, rows, values)

        def predict_positive(self, codes):
            batch_sizes.append(len(codes))
            return model.predict_positive(codes)

    task = make_task(dataset, EditRecordingModel(), np.tile([0, 2], (50, 1)), Access.PROBABILITY)
    batch_sizes.clear()  # make_task evaluates the model
    Discrete(max_batch_rows=20).find(task)
    assert max(batch_sizes) <= 20
    assert sum(batch_sizes) == 50 * 16 + 50  # every candidate, and the picked one again


def test_random_fallback_depends_on_the_seed_but_not_on_the_order_of_features():
    dataset = make_dataset([4, 5], n=40)
    model = make_linear(dataset, bias=100.0)  # nothing flips
    features, reverse = np.tile([0, 1], (40, 1)), np.tile([1, 0], (40, 1))
    codes = Discrete().find(make_task(dataset, model, features, Access.LABEL)).codes
    assert (Discrete().find(make_task(dataset, model, reverse, Access.LABEL)).codes == codes).all()
    assert (Discrete().find(make_task(dataset, model, features, Access.LABEL, seed=1)).codes != codes).any()


def test_incomplete_explanations_are_searched_in_their_features():
    dataset = make_dataset([3, 3, 3], n=8)
    model = make_linear(dataset, seed=5)
    features = np.array([[0, NO_FEATURE]] * 4 + [[2, 1]] * 4)
    counterfactuals = Discrete().find(make_task(dataset, model, features, Access.PROBABILITY))
    single = Discrete().find(make_task(dataset, model, np.array([[0]] * 8), Access.PROBABILITY))
    assert counterfactuals.codes[:4].tolist() == single.codes[:4].tolist()


@pytest.mark.parametrize("setting", [{"pick": "best"}, {"max_candidates": 0}, {"beam": 0}, {"max_batch_rows": 1.5}])
def test_invalid_settings_are_rejected(setting):
    with pytest.raises(ValueError, match=next(iter(setting))):
        Discrete(**setting)


def test_feature_without_another_value_is_unchanged():
    dataset = make_dataset([1, 3], n=5)
    model = make_linear(dataset, bias=100.0)
    for access in (Access.LABEL, Access.PROBABILITY):
        counterfactuals = Discrete().find(make_task(dataset, model, np.zeros((5, 1), int), access))
        assert (counterfactuals.codes == dataset.test.codes).all() and not counterfactuals.flipped.any()


def test_nan_probabilities_are_reported():
    dataset = make_dataset([3, 3], n=5)
    model = make_linear(dataset)
    broken = type(model)(float("nan"), model.weights, model.tables, model.means)
    task = make_task(dataset, broken, np.zeros((5, 1), int), Access.PROBABILITY)
    with pytest.raises(Failure, match="NaN"):
        Discrete().find(task)


SEARCHES = st.tuples(
    st.sampled_from(["auto", "first", "largest_drop", "nearest"]), st.sampled_from([Access.LABEL, Access.PROBABILITY])
).filter(lambda search: search[1] in Discrete(pick=search[0]).levels)
BATCHES = st.sampled_from([1, 3, 7, 1000])


def make_constrained_task(seed, k, access):
    """Return a task with numbers and constraints, in which some explanations have fewer than k features."""
    dataset = make_mixed(seed, n=6, categories=2, numbers=3, missing=0.3 * (seed % 2), tried=3)
    if seed % 3:
        dataset = add_constraints(dataset, seed)
    features = choose_features(dataset, k, seed)
    features[::3, -1] = NO_FEATURE
    return make_task(dataset, make_linear(dataset, seed=seed), select_changeable(dataset, features), access)


def assert_equal_codes(first, second, *, decided_only=False):
    """Check that two searches have the same edits, where `decided_only` of the instances with a flip only."""
    rows = first.flipped if decided_only else slice(None)
    assert (first.flipped == second.flipped).all()
    assert first.codes[rows].tolist() == second.codes[rows].tolist()


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.integers(1, 4), SEARCHES, BATCHES)
def test_a_beam_with_room_for_all_edits_is_exhaustive(seed, k, search, max_batch_rows):
    pick, access = search
    task = make_constrained_task(seed, k, access)
    beam = Discrete(pick=pick, max_candidates=1, beam=10_000, max_batch_rows=max_batch_rows).find(task)
    every = Discrete(pick=pick).find(task)
    # Without probabilities and without a flip, the edit is random.
    assert_equal_codes(every, beam, decided_only=access == Access.LABEL)
    assert every.is_exhaustive.all()


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 9), SEARCHES)
def test_a_beam_is_never_worse_than_an_edit_of_one_feature(seed, k, width, search):
    pick, access = search
    task = make_constrained_task(seed, k, access)
    beam = Discrete(pick=pick, max_candidates=1, beam=width).find(task)
    changes = (beam.codes != task.codes).sum(axis=1)
    for column in task.features.T:
        single = Discrete(pick=pick).find(replace(task, features=column[:, None]))
        if access == Access.PROBABILITY and pick in ("auto", "largest_drop"):
            is_changed = (single.codes != task.codes).any(axis=1)  # constraints may allow no change
            assert (beam.probability[is_changed] <= single.probability[is_changed]).all()
            continue
        assert beam.flipped[single.flipped].all()
        if pick == "nearest":
            assert (beam.distance[single.flipped] <= single.distance[single.flipped]).all()
        else:
            assert (changes[single.flipped] == 1).all()


@settings(max_examples=150)
@given(st.integers(0, 10_000), st.integers(2, 5), st.integers(1, 9), SEARCHES, BATCHES)
def test_a_beam_keeps_constraints_and_does_not_depend_on_batches(seed, k, width, search, max_batch_rows):
    pick, access = search
    task = make_constrained_task(seed, k, access)
    beam = Discrete(pick=pick, max_candidates=1, beam=width)
    together = beam.find(task)
    for i, row in enumerate(task.codes):
        for j in np.flatnonzero(together.codes[i] != row):
            assert j in task.features[i] and together.codes[i][j] in task.dataset.candidates[j]
            assert is_permitted(task.dataset.features[j], row[j], together.codes[i][j])
    assert_equal_codes(together, replace(beam, max_batch_rows=max_batch_rows).find(task))
    parts = [beam.find(task.select_instances(rows)) for rows in (slice(4, 6), slice(0, 1), slice(1, 4))]
    assert_equal_codes(together, Counterfactuals.concatenate([parts[1], parts[2], parts[0]]))


@given(st.integers(0, 10_000), SEARCHES)
def test_instances_with_few_combinations_are_searched_exhaustively(seed, search):
    pick, access = search
    task = make_constrained_task(seed, 3, access)
    mixed, every = Discrete(pick=pick, max_candidates=30, beam=2).find(task), Discrete(pick=pick).find(task)
    assert_equal_codes(every.take(mixed.is_exhaustive), mixed.take(mixed.is_exhaustive))


def test_the_search_states_which_instances_it_searched_by_beam():
    dataset = make_dataset([4, 3, 3], n=3)
    features = np.array([[0, 1], [0, 2], [1, 2]])
    task = make_task(dataset, make_linear(dataset), features, Access.PROBABILITY)
    assert Discrete(max_candidates=12).find(task).is_exhaustive.all()
    assert Discrete(max_candidates=11).find(task).is_exhaustive.tolist() == [False, False, True]
    single = replace(task, features=features[:, :1])  # all values of a single feature are always evaluated
    assert Discrete(max_candidates=1).find(single).is_exhaustive.all()


@pytest.mark.parametrize("access", [Access.LABEL, Access.PROBABILITY])
def test_evaluations_of_a_beam_are_bounded_with_five_of_twenty_features(access):
    dataset = make_dataset([40] * 20, n=8)  # 100 million combinations
    model, search = make_linear(dataset, bias=100.0), Discrete(beam=50)
    ledger, features = Ledger(), choose_features(dataset, 5, seed=0)
    client = ledger.open_client(model, access, LedgerKey("search"))
    edits = search.find(replace(make_task(dataset, model, features, access), model=client))
    assert not edits.is_exhaustive.any() and (edits.codes != dataset.test.codes).any(axis=1).all()
    n_evaluations = ledger.n_evaluations[LedgerKey("search")] / 8 - 1  # of which the picked one is evaluated again
    # The first feature's values, then those of 40 edits, then those of 50 edits and the unchanged instance.
    assert n_evaluations == pytest.approx(40 + 40 * 40 + 3 * 51 * 40, abs=3 * 40)
    assert n_evaluations <= search.estimate_workload(dataset, features).evaluations


def test_random_edits_of_a_beam_depend_on_the_seed():
    dataset = make_dataset([9, 9, 9], n=40)
    model, search = make_linear(dataset, bias=100.0), Discrete(max_candidates=1, beam=5)  # nothing flips
    features = np.tile([0, 1, 2], (40, 1))
    first, repeated, other = (
        search.find(make_task(dataset, model, features, Access.LABEL, seed=seed)).codes for seed in (0, 0, 1)
    )
    assert (first == repeated).all() and (first != other).any(axis=1).mean() > 0.9
    assert (first != dataset.test.codes).any(axis=1).all()
    assert len(np.unique(first - dataset.test.codes, axis=0)) > 30
