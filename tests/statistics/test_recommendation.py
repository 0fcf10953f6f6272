"""The answer to which explainer is most faithful, from reference attributions and rankings of features."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics.metric_ranking import PreferredMetrics
from cfeval_cli.statistics.recommendation import (
    Answer,
    Check,
    ExplainerFacts,
    ReferenceSample,
    answer_question,
    compute_captured_mass,
    find_disagreements,
)

N_FEATURES = 6


def make_sample(noise, size=60, seed=0, classes=None, n_features=N_FEATURES):
    """Return a sample in which each explainer ranks the features by the importance with noise."""
    importance = np.random.default_rng(seed).normal(size=(size, n_features))
    ranks = {}
    for number, (name, scale) in enumerate(noise.items()):
        scores = importance + scale * np.random.default_rng([seed, number, 1]).normal(size=importance.shape)
        ranks[name] = np.argsort(np.argsort(-scores, axis=1), axis=1)
    classes = np.zeros(size, dtype=np.int64) if classes is None else classes
    return ReferenceSample(importance, ranks, np.ones(size), classes, {"predicted": [str(c) for c in classes]})


def make_facts(sample, **changes):
    facts = {name: {"title": name.upper(), "evaluations": 100.0, "stability": 1.0} for name in sample.ranks}
    return {name: ExplainerFacts(**(entry | changes.get(name, {}))) for name, entry in facts.items()}


def answer(sample, facts=None, circular=(), **options):
    options = {"k": 2, "margin": 0.05, "confidence": 0.95, "seed": 0} | options
    return answer_question("shapley", sample, facts or make_facts(sample), circular, **options)


@given(st.integers(0, 10_000))
def test_scores_are_recall_and_captured_mass_written_out(seed):
    sample = make_sample({"a": 1.0, "b": 3.0}, size=12, seed=seed)
    result = answer(sample)
    for score in result.scores:
        for k in range(1, 6):
            recalls, masses = [], []
            for row, ranks in zip(sample.importance, sample.ranks[score.explainer], strict=True):
                best, selected = set(np.argsort(-row)[:k]), set(np.flatnonzero(ranks < k))
                recalls.append(len(best & selected) / k)
                total = sum(max(row[j], 0) for j in best)
                if total > 0:
                    masses.append(sum(max(row[j], 0) for j in selected) / total)
            assert score.recall[k - 1] == pytest.approx(np.mean(recalls))
            assert score.mass[k - 1] == pytest.approx(np.mean(masses))


def test_features_that_are_not_returned_count_as_missed():
    sample = make_sample({"full": 0.0, "short": 0.0}, size=40)
    sample.ranks["short"][sample.ranks["short"] >= 1] = N_FEATURES  # returns one feature
    recall = {score.explainer: score.recall for score in answer(sample).scores}
    assert recall["full"][:3] == (1.0, 1.0, 1.0) and recall["short"][:3] == pytest.approx((1.0, 1 / 2, 1 / 3))


def test_instances_without_positive_importance_have_no_mass_and_are_counted():
    importance = np.array([[-1.0, -2.0, -np.inf], [3.0, 1.0, -1.0]])
    is_selected = np.array([[True, False, False], [False, True, False]])
    assert compute_captured_mass(importance, is_selected, 1).tolist() == pytest.approx([np.nan, 1 / 3], nan_ok=True)
    sample = make_sample({"a": 0.0}, size=40)
    sample.importance[3:, 0] = 1.0
    sample.importance[:3] = -np.abs(sample.importance[:3])
    assert answer(sample).n_without_mass == 3


def test_best_is_named_first_and_controls_are_never_named():
    sample = make_sample({"weak": 3.0, "strong": 0.3, "truth": 0.0, "random": 99.0}, size=100)
    facts = make_facts(sample, truth={"is_control": True}, random={"is_control": True})
    result = answer(sample, facts)
    assert result.best == "strong" and result.confidence_set == ["strong"] and result.is_conclusive
    assert [score.explainer for score in result.scores] == ["strong", "weak", "truth", "random"]
    assert result.n_to_separate is None


def test_equal_explainers_are_inconclusive_and_ties_are_broken_by_cost():
    sample = make_sample({"b": 1.0}, size=100)
    sample.ranks["a"] = sample.ranks["b"].copy()
    facts = make_facts(sample, a={"evaluations": 50.0})
    result = answer(sample, facts)
    assert result.confidence_set == ["a", "b"] and not result.is_conclusive
    assert result.n_to_separate is None and result.differences[0].p == 1.0  # there is no difference to be shown


def test_few_instances_are_inconclusive_without_intervals():
    result = answer(make_sample({"good": 0.1, "bad": 9.0}, size=29))
    assert result.best == "good" and not result.is_conclusive and result.scores[0].low is None
    assert result.differences == () and result.alternative is None


def test_no_contender_gives_a_reason():
    sample = make_sample({"random": 1.0}, size=40)
    result = answer(sample, make_facts(sample, random={"is_control": True}))
    assert result.best is None and "control" in result.reason


def test_non_inferior_alternative_is_cheaper_and_stable():
    sample = make_sample({"best": 0.2}, size=300)
    sample.ranks["twin"] = sample.ranks["best"].copy()
    sample.ranks["best"], cheap = sample.ranks["best"], {"evaluations": 10.0}
    assert answer(sample, make_facts(sample, twin={"evaluations": 60.0})).alternative is None
    # Of equal scores the cheaper one is the best: the other must score higher to leave it an alternative.
    sample.ranks["twin"][0] = (sample.ranks["twin"][0] + 3) % N_FEATURES
    result = answer(sample, make_facts(sample, twin=cheap))
    assert result.alternative.explainer == "twin" and result.alternative.is_non_inferior
    assert result.alternative.cost_share == pytest.approx(0.1)
    for excluded in ({"stability": 0.6}, {"evaluations": None}, {"is_control": True}):
        assert answer(sample, make_facts(sample, twin=cheap | excluded)).alternative is None
    assert answer(sample, make_facts(sample, twin=cheap, best={"evaluations": None})).alternative is None


def test_unproven_alternative_has_a_required_sample_size():
    sample = make_sample({"best": 1.0, "cheap": 1.0}, size=60, seed=1)
    first, second = (answer(sample).scores[i].explainer for i in (0, 1))
    result = answer(sample, make_facts(sample, **{second: {"evaluations": 1.0}}), margin=0.08)
    assert result.best == first and result.alternative.explainer == second
    assert not result.alternative.is_non_inferior and result.alternative.n_required > 60


@pytest.mark.parametrize("n_noise", [1, 3, 5])
@pytest.mark.parametrize("seed", range(5))
def test_noise_explainers_change_neither_the_best_nor_the_confidence_set(seed, n_noise):
    sample = make_sample({"a": 1.0, "b": 1.2, "c": 1.5}, size=80, seed=seed)
    alone = answer(sample)
    rng = np.random.default_rng(seed)
    for number in range(n_noise):
        sample.ranks[f"noise{number}"] = np.argsort(rng.random(sample.importance.shape), axis=1)
    beside = answer(sample)
    assert beside.best == alone.best and beside.confidence_set == alone.confidence_set
    if not alone.is_conclusive:
        assert not beside.is_conclusive


def test_oversampled_classes_are_weighted():
    classes = np.repeat([0, 1], 30)
    sample = make_sample({"a": 0.0}, size=60, classes=classes)
    sample.ranks["a"][classes == 1] = N_FEATURES  # nothing for the rare class
    sample.weights[classes == 1] = 1 / 9
    result = answer(sample)
    assert result.scores[0].recall[1] == pytest.approx(0.9)
    groups = {group.value: group for group in result.groups}
    assert groups["0"].recall["a"] == 1.0 and groups["1"].recall["a"] == 0.0 and groups["1"].n_instances == 30


def test_small_groups_have_no_interval():
    classes = np.repeat([0, 1], [50, 10])
    groups = {group.value: group for group in answer(make_sample({"a": 1.0}, 60, classes=classes)).groups}
    assert "a" in groups["0"].low and groups["1"].low == {} and groups["1"].n_instances == 10


def test_circular_explainers_are_marked():
    result = answer(make_sample({"a": 0.0, "b": 1.0}), circular=["a"])
    assert {score.explainer: score.is_circular for score in result.scores} == {"a": True, "b": False}


def test_checks_agree_if_they_rank_a_member_of_the_confidence_set_first():
    result = Answer(confidence_set=["a", "b"]).add_checks(
        [Check("metric", "c", first=["b"]), Check("judge", "tree", first=["c"])]
    )
    assert [check.agrees for check in result.checks] == [True, False]
    assert Answer(reason="none").add_checks([Check("metric", "c", first=["b"])]).checks == ()


def test_first_metric_with_values_for_all_explainers_makes_the_ranking():
    values = pd.DataFrame(
        [
            ("c", "label", "a", 1.0, "higher"),
            ("aopc", "zero", "a", 9.0, "higher"), ("aopc", "zero", "b", 1.0, "higher"),
            ("aopc", "marginal", "a", 0.2, "lower"), ("aopc", "marginal", "b", 0.1, "lower"),
            ("aopc", "marginal", "random", 0.0, "lower"),
        ],
        columns=["metric", "variant", "explainer", "value", "better"],
    )  # fmt: skip
    preferred = PreferredMetrics("a test", {"change": ["c", "missing", "aopc"]})
    check = preferred.rank_first("change", values, ["a", "b"], {"zero"})
    assert (check.name, check.variant, check.first) == ("aopc", "marginal", ["b"])
    assert preferred.rank_first("contribution", values, ["a", "b"], set()) is None


def test_preferred_metrics_of_the_package_cover_both_questions():
    preferred = PreferredMetrics.load()
    assert set(preferred.metrics) == {"contribution", "change"} and all(preferred.metrics.values()) and preferred.source


@given(st.integers(0, 10_000))
def test_disagreements_are_the_largest_mean_distances_between_sets(seed):
    rng = np.random.default_rng(seed)
    selected = {name: np.array([rng.permutation(5)[:2] for _ in range(8)]) for name in "abc"}
    selected["c"][rng.random(8) < 0.3] = -1
    ids = rng.permutation(8)

    def get_distance(row):
        sets = [{int(j) for j in features[row] if j >= 0} for features in selected.values()]
        pairs = [(a, b) for i, a in enumerate(sets) for b in sets[i + 1 :] if a and b]
        return np.mean([1 - len(a & b) / len(a | b) for a, b in pairs]) if pairs else 0.0

    expected = sorted(range(8), key=lambda row: (-round(get_distance(row), 6), ids[row]))[:3]
    result = find_disagreements(selected, ids, 5)
    assert [entry.instance for entry in result] == [ids[row] for row in expected if get_distance(row) > 0]


def test_sample_size_is_about_the_explainers_of_the_confidence_set():
    """Explainer b is second, but always below a, and eliminated; c is lower and may be the best."""
    rng = np.random.default_rng(0)
    a = rng.permutation(np.arange(100) < 63)
    b = a & ~np.isin(np.arange(100), np.flatnonzero(a)[:8])
    c = rng.permutation(np.arange(100) < 54)
    importance = np.tile([2.0, 1.0], (100, 1))
    ranks = {
        name: np.stack([~hits, hits], axis=1).astype(np.int64) for name, hits in zip("abc", (a, b, c), strict=True)
    }
    sample = ReferenceSample(importance, ranks, np.ones(100), np.zeros(100, dtype=np.int64), {})
    result = answer(sample, k=1)
    difference = a.astype(float) - c
    expected = difference.var(ddof=1) * ((1.959964 + 0.841621) / difference.mean()) ** 2
    assert list(result.confidence_set) == ["a", "c"] and result.n_to_separate == pytest.approx(expected, rel=0.1)
