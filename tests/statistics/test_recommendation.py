"""The recommendation: whom it believes, whom it names, and what it says if the evidence contradicts itself."""

import json

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.explainer_comparison import compare_explainers
from cfeval_cli.statistics.recommendation import (
    ExplainerProperties,
    JudgeEvidence,
    PreferredMetrics,
    RunEvidence,
    find_disagreements,
    recommend,
    select_cheapest,
)
from cfeval_cli.statistics.scores import Scores

HOW = Bootstrap(0, 500)
RULE = PreferredMetrics("a test", {"contribution": ["comprehensiveness", "aopc"], "change": ["validity_soft"]})
QUESTIONS = {"shapley": "contribution", "contrast": "change"}


def view(cells, n=60, questions=QUESTIONS, seed=0):
    """Scores that scatter around a mean for each (metric, variant) and explainer."""
    rng = np.random.default_rng(seed)
    scores, metrics = [], []
    for (metric, variant), means in cells.items():
        for name, mean in means.items():
            values = mean + rng.normal(0, 0.1, n)
            scores += [(i, name, metric, variant, value, 1.0) for i, value in enumerate(values)]
            metrics.append((metric, variant, name, np.nan, name == "random", "higher", values.mean()))
    return RunEvidence(
        Scores.from_frame(
            pd.DataFrame(scores, columns=["instance", "explainer", "metric", "variant", "numerator", "denominator"])
        ),
        pd.DataFrame(metrics, columns=["metric", "variant", "explainer", "quality_level", "control", "better",
                                       "value"]),
        questions, {"del"}, "recall",
    )  # fmt: skip


def people(a, b, c, random=5.0):
    return {"a": a, "b": b, "c": c, "random": random}


COSTS = ExplainerProperties({"a": 10.0, "b": 2.0, "c": 1.0, "random": 0.0}, {"a": 1.0}, {"b": 0.5})
FULL = {
    ("recall", "signed"): people(0, 0, 9), ("recall", "shapley"): people(1, 1, 0),
    ("comprehensiveness", "del"): people(0, 0, 9), ("comprehensiveness", "marginal"): people(1, 1, 0),
    ("validity_soft", "probability"): people(0, 1, 0),
}  # fmt: skip


def test_the_truth_comes_before_the_rule_and_the_cheapest_of_the_best_is_named():
    told = recommend(view(FULL), [], RULE, COSTS, HOW)["questions"]
    one = told["contribution"]
    assert one["believed"] == "reference" and one["explainer"] == "b" and set(one["reference"]["tied"]) == {"a", "b"}
    assert (
        one["rule"]["metric"] == "comprehensiveness" and one["rule"]["variant"] == "marginal"
    )  # not the arbitrary one
    assert "random" not in one["reference"]["values"] and one["contradictions"] == []
    two = told["change"]  # of which the run has no truth
    assert two["believed"] == "rule" and two["explainer"] == "b" and two["reference"] is None
    json.dumps(told, allow_nan=False)


def test_the_second_metric_of_the_rule_counts_where_the_first_is_not():
    cells = {("aopc", "marginal"): people(0, 0, 1)}
    told = recommend(view(cells), [], RULE, COSTS, HOW)["questions"]["contribution"]
    assert told["rule"]["metric"] == "aopc" and told["explainer"] == "c"


@pytest.mark.parametrize("seed", range(3))
def test_a_rule_that_the_truth_surely_contradicts_is_told(seed):
    cells = FULL | {("comprehensiveness", "marginal"): people(0, 0, 1)}
    told = recommend(view(cells, seed=seed), [], RULE, COSTS, HOW)["questions"]["contribution"]
    assert told["contradictions"] == ["reference"] and told["explainer"] == "b"
    unsure = FULL | {("comprehensiveness", "marginal"): people(1, 0, 0)}  # who is as good as b
    told = recommend(view(unsure), [], RULE, COSTS, HOW)["questions"]["contribution"]
    assert told["contradictions"] == []


def test_judges_check_the_rule_and_contradict_it_if_half_of_them_do():
    right, wrong = view(FULL), view(FULL | {("recall", "shapley"): people(0, 0, 1)})
    said = {}
    for many in (0, 1, 2, 3):
        judges = [JudgeEvidence(f"j{i}", wrong if i < many else right) for i in range(3)]
        said[many] = recommend(right, judges, RULE, COSTS, HOW)["questions"]["contribution"]
        assert [one["holds"] for one in said[many]["judges"]] == [i >= many for i in range(3)]
    assert [said[many]["contradictions"] for many in range(4)] == [[], [], ["judges"], ["judges"]]
    line = said[1]["judges"][0]
    told = wrong.scores.to_frame().query("metric == 'recall'")
    value = told.groupby(["variant", "explainer"], observed=True)["numerator"].mean()
    assert line["regret"] == pytest.approx(value["shapley", "c"] - value["shapley", line["picked"]])
    assert said[0]["judges"][0]["p"] is None or said[0]["judges"][0]["p"] >= 0.05


def test_nothing_is_recommended_where_nothing_can_be_told():
    alike = {("recall", "shapley"): people(1, 1.001, 1)}
    told = recommend(view(alike), [], RULE, COSTS, HOW)["questions"]
    assert told["contribution"]["explainer"] is None and told["contribution"]["cheapest"] == "c"
    assert told["contribution"]["reference"]["needed"] > 60
    assert told["change"]["believed"] is None and "neither the truth nor a metric" in told["change"]["because"]
    few = recommend(view(FULL, n=12), [], RULE, COSTS, HOW)["questions"]["contribution"]
    assert few["believed"] is None and "fewer than 30 instances" in few["because"]


def test_equally_cheap_ones_go_by_their_worth():
    found = compare_explainers(
        view({("m", "v"): people(1, 1.01, 0)}).scores, ("m", "v"), ["a", "b", "c"], "higher", HOW
    )
    assert select_cheapest(found, {"a": 1.0, "b": 1.0, "c": 0.0}) == found.best
    assert select_cheapest(found, {"a": 1.0}) == "a"


@pytest.mark.parametrize("seed", range(3))
def test_the_instances_that_explainers_disagree_about_are_those_of_a_loop(seed):
    rng = np.random.default_rng(seed)
    named = {name: np.stack([rng.permutation(6)[:2] for _ in range(30)]) for name in "abc"}
    named["c"][:4] = -1  # it says nothing
    ids = rng.permutation(100)[:30]

    def apart(i):
        sets = [set(of[i].tolist()) - {-1} for of in named.values()]
        pairs = [(x, y) for p, x in enumerate(sets) for y in sets[:p] if x and y]
        return np.mean([1 - len(x & y) / len(x | y) for x, y in pairs])

    wanted = sorted(range(30), key=lambda i: (-round(apart(i), 6), ids[i]))[:3]
    found = find_disagreements(named, ids, 6)
    assert [one["instance"] for one in found] == [ids[i] for i in wanted]
    assert [one["apart"] for one in found] == pytest.approx([apart(i) for i in wanted], abs=1e-6)
    assert find_disagreements({"a": named["a"]}, ids, 6) == []
    assert find_disagreements({"a": named["a"], "b": named["a"]}, ids, 6) == []


def test_the_rule_that_is_shipped_answers_both_questions_and_says_where_it_is_from():
    rule = PreferredMetrics.shipped()
    assert set(rule.believed) == {"contribution", "change"} and all(rule.believed.values()) and rule.source
