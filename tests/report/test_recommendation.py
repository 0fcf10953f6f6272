"""The recommendation in words: what is said of each kind of answer."""

import copy
from pathlib import Path
from types import SimpleNamespace

import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.report.recommendation import write_recommendation
from cfeval_cli.results.recommendation import parse_recommendation
from tests.records import make_metric, make_record

DUELS = {"lime": {"difference": 0.02, "low": -0.1, "high": 0.2, "p": 0.61},
         "anchor": {"difference": 0.4, "low": 0.3, "high": 0.5, "p": 0.0004}}  # fmt: skip
CONTEST = {
    "metric": "recall", "variant": "shapley", "instances": 100, "tied": ["shap", "lime"], "decides": True,
    "values": {"shap": 0.9, "lime": 0.88, "anchor": 0.5}, "needed": 30, "left_out": [], "duels": DUELS,
}  # fmt: skip
ANSWER = {
    "explainer": "lime", "cheapest": "lime", "believed": "reference", "truth": "shapley", "because": "it is so",
    "reference": CONTEST, "rule": None, "judges": [], "contradictions": [],
}  # fmt: skip
FACTS = {"model_rows": 1000.0, "coverage": 1.0, "stability": None}
TOLD = {
    "questions": {"contribution": ANSWER, "change": ANSWER}, "rule": {"source": "a guess", "believed": {}},
    "explainers": {"shap": FACTS, "lime": FACTS | {"model_rows": 200.0}, "anchor": FACTS},
    "disagree": [{"instance": 7, "apart": 1.0, "named": {"shap": [0], "lime": [1], "anchor": []}}],
}  # fmt: skip
RECORD = make_record(
    explainers={"shap": "SHAP", "lime": "LIME", "anchor": "Anchor"},
    truths={"shapley": {"method": "sampled, 9 rows", "instances": 100, "error": 0.004, "largest_error": 0.01}},
    metrics={"aopc": make_metric("AOPC", block="erasure", details=[])},
)


def said(**changes):
    told = copy.deepcopy(TOLD)
    told["questions"]["contribution"] |= changes
    folder = SimpleNamespace(
        recommendation_record=parse_recommendation(told),
        record=RECORD,
        data=SimpleNamespace(feature_names=["age", "sex"]),
    )
    return write_recommendation(folder)


def test_cheapest_of_the_explainers_not_significantly_worse_is_recommended():
    found = said()
    assert found.headlines[0] == (
        "What contributed? Use LIME. SHAP scores highest; LIME is not significantly different (p = 0.610, "
        "Holm-adjusted). LIME uses 20.0% of the model evaluations of SHAP. SHAP is significantly better than Anchor "
        "(p < 0.001, Holm-adjusted)."
    )
    told = " ".join(found.points)
    assert "shapley (sampled, 9 rows, mean standard error 0.0040) on 100 instances: SHAP 0.900" in told
    assert "Closest to the best, SHAP: LIME, 0.020 [-0.100, 0.200] lower." in told
    assert (
        "instances 7 (SHAP: age, LIME: sex, Anchor: nothing)" in told
        and "Source of the metric-based ranking: a guess." in told
    )
    bold = [cell.text for row in found.table.rows for cell in row.cells if cell.bold]
    assert bold == ["0.8800", "0.8800"] and found.table.title == "Which explainer to use on this model"


def test_contradiction_comes_first():
    rule = CONTEST | {"metric": "aopc", "variant": "marginal", "tied": ["anchor"]}
    fidelity = {"test": 0.95, "low": 0.9, "high": 0.99, "rows": 100}
    judge = {"judge": "tree", "fidelity": fidelity, "picked": "anchor", "best": "shap", "regret": 0.3}
    found = said(rule=rule, contradictions=["reference", "judges"], judges=[judge | {"holds": False, "p": 0.01}])
    assert found.headlines[0].startswith(
        "What contributed? Contradiction: the reference attributions of this model rank SHAP first, the metric-based "
        "ranking Anchor; 1 of 1 judges on these data (tree) contradict the metric-based ranking. Use LIME."
    )
    judges = "the metric-based ranking holds on 0 of 1: tree (0.300 below the best, significant, fidelity 95.0%)"
    assert judges in " ".join(found.points)


def test_tie_is_reported_with_required_sample_size():
    open_one = CONTEST | {"tied": ["shap", "lime", "anchor"], "decides": False, "needed": 4321}
    assert said(explainer=None, reference=open_one).headlines[0] == (
        "What contributed? SHAP, LIME and Anchor are not significantly different on 100 instances; about 4,321 would "
        "separate the best from another. LIME uses the fewest model evaluations."
    )
    unknown = said(explainer=None, reference=open_one | {"needed": None}).headlines[0]
    assert "not significantly different on 100 instances. LIME uses" in unknown
    equal = open_one | {"needed": None, "values": dict.fromkeys(open_one["values"], 0.5)}
    assert (
        said(explainer=None, reference=equal)
        .headlines[0]
        .startswith("What contributed? SHAP, LIME and Anchor have the same value on 100 instances. LIME uses")
    )
    none = said(explainer=None, cheapest=None, believed=None, reference=None, because="there is one explainer")
    assert none.headlines[0] == "What contributed? Inconclusive: there is one explainer."


def test_damaged_file_is_named_and_missing_file_gives_none():
    with pytest.raises(ValueError, match=r"recommendation\.json: questions must be a mapping, not 3"):
        parse_recommendation(TOLD | {"questions": 3})
    folder = SimpleNamespace(
        recommendation_record=parse_recommendation(TOLD),
        record=RECORD,
        data=SimpleNamespace(feature_names=[]),
        folder=Path("x"),
    )
    with pytest.raises(UserError, match=r"recommendation\.json is damaged"):
        write_recommendation(folder)  # features that the data do not have
    folder.recommendation_record = None
    assert write_recommendation(folder) is None
