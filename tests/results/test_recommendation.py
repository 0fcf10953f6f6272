"""recommendation.json is read into typed entries, and the first entry that no run writes is named."""

import copy

import pytest

from cfeval_cli.results.recommendation import parse_recommendation

ANSWER = {
    "explainer": "lime", "cheapest": "lime", "believed": "rule", "truth": None, "because": "it is so",
    "reference": None, "judges": [], "contradictions": [],
    "rule": {
        "metric": "aopc", "variant": "del", "instances": 40, "values": {"lime": 0.9, "shap": 0.2}, "tied": ["lime"],
        "decides": True, "needed": None, "left_out": [],
        "duels": {"shap": {"difference": 0.7, "low": 0.6, "high": 0.8, "p": 0.001}},
    },
}  # fmt: skip
CONTENT = {
    "questions": {"contribution": ANSWER, "change": ANSWER | {"believed": None, "rule": None}},
    "rule": {"source": "a guess", "believed": {"change": ["c"]}}, "disagree": [],
    "explainers": {"lime": {"model_rows": 100.0, "coverage": 1.0, "stability": None}},
}  # fmt: skip


def test_an_answer_has_the_contest_that_it_rests_on():
    questions = parse_recommendation(CONTENT).questions
    assert questions.contribution.basis is questions.contribution.rule and questions.contribution.rule.best == "lime"
    assert questions.change.basis is None


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("rule", "source"), 3, "rule.source must be a word, not 3"),
        (("questions", "change", "believed"), "judges", "believed must be one of reference, rule, not 'judges'"),
        (("questions", "contribution", "rule", "decides"), "yes", "rule.decides must be true or false"),
        (("explainers", "lime", "coverage"), 2.0, "explainers.lime.coverage must be at most 1"),
        (("disagree",), [{"instance": 3}], "disagree.0.named is missing"),
    ],
)
def test_an_entry_that_no_run_writes_is_named(path, value, message):
    content = copy.deepcopy(CONTENT)
    entry = content
    for name in path[:-1]:
        entry = entry[name]
    entry[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        parse_recommendation(content)
