"""The recommendation in words: every kind of answer is one plain sentence, with its evidence behind it."""

import dataclasses
from types import SimpleNamespace

import pytest

from cfeval_cli.report.notes import describe_run
from cfeval_cli.report.recommendation import describe_recommendation, write_recommendation
from cfeval_cli.report.render.markdown import render_markdown
from tests.recommendations import ANSWER, FACTS, SCORES, make_alternative, make_recommendation
from tests.records import make_metric, make_record

RECORD = make_record(metrics={"aopc": make_metric("AOPC")})
EVIDENCE = "it selects the reference top feature for 70 % of 40 instances, 95 % CI [57, 83]; Omission 57 %, LIME 30 %"


def describe(recommendation):
    return describe_recommendation(recommendation, RECORD, ["age", "sex"])


def get_headline(**changes):
    return describe(make_recommendation(**changes)).headlines[0]


def test_inconclusive_answer_names_the_best_first():
    assert get_headline() == f"Contribution: inconclusive between SHAP and Omission; SHAP scored highest ({EVIDENCE})."


def test_conclusive_answer_says_which_explainer_to_use():
    assert get_headline(confidence_set=["shap"]) == f"Contribution: use SHAP ({EVIDENCE})."


def test_wording_depends_on_the_confidence_set_alone():
    shorter = [score for score in SCORES if score.explainer != "lime"]
    assert get_headline(scores=shorter).startswith("Contribution: inconclusive between SHAP and Omission; SHAP scored")


def test_reweighted_scores_are_marked():
    assert "for 70 % of 40 instances, reweighted to the test distribution, 95 % CI" in get_headline(is_reweighted=True)
    tables = describe(make_recommendation(is_reweighted=True)).tables
    assert "scores are reweighted to the test set" in render_markdown(tables[0])


def test_instances_sampled_by_class_are_named_below_tables():
    record = make_record(settings={"n_explain": 50, "min_per_class": 30}, splits={"test": 90}, accuracy={"test": 0.8})
    assert "at least 30 of each predicted class, where available; metrics are plain means" in describe_run(record)
    for settings in ({"n_explain": 90, "min_per_class": 30}, {"n_explain": 50, "min_per_class": 0}):
        record = make_record(settings=settings, splits={"test": 90}, accuracy={"test": 0.8})
        assert "predicted class" not in describe_run(record)


def test_several_features_are_a_share_of_the_top_k():
    headline = get_headline(k=3, confidence_set=["shap"])
    assert "it selects 80 % of the reference top 3 features on 40 instances, 95 % CI [57, 83]" in headline


def test_missing_reference_is_not_computed():
    assert describe(make_recommendation()).headlines[1] == (
        "Change: not computed, because truth.contrast needs probabilities, which this model does not return."
    )


def test_few_instances_are_inconclusive():
    headline = get_headline(n_instances=20)
    assert headline.startswith(
        "Contribution: inconclusive, because 20 instances are too few (at least 30); SHAP scored"
    )


def test_single_explainer_is_scored_without_a_choice():
    assert "SHAP is the only explainer that is not a control" in get_headline(
        scores=[SCORES[0], SCORES[3]], confidence_set=["shap"]
    )


def test_circular_best_is_stated_with_the_best_other_explainer():
    scores = [dataclasses.replace(SCORES[0], is_circular=True), *SCORES[1:]]
    details = describe(make_recommendation(scores=scores)).answers["contribution"].details
    assert details[0] == (
        "SHAP approximates the reference attributions by construction. Of the others, Omission scored highest (57 %)."
    )


def test_all_circular_explainers_are_named():
    scores = [dataclasses.replace(score, is_circular=True) for score in SCORES[:2]] + SCORES[2:]
    details = describe(make_recommendation(scores=scores)).answers["contribution"].details
    assert details[0].startswith(
        "SHAP and Omission approximate the reference attributions by construction. Of the others, LIME"
    )


def test_stability_and_cost_of_the_best_are_stated():
    details = describe(make_recommendation()).answers["contribution"].details
    assert details[0] == (
        "SHAP uses 1,000 model evaluations per instance; under another explainer seed 90 % of its top features are the "
        "same (38 instances)."
    )
    facts = FACTS | {"shap": dataclasses.replace(FACTS["shap"], evaluations=None, stability=None)}
    recommendation = dataclasses.replace(make_recommendation(), explainers=facts)
    details = describe(recommendation).answers["contribution"].details
    assert details[0] == "SHAP: its stability was not computed; its cost is unknown."


def test_unstable_best_is_pointed_out():
    scores = [SCORES[2], *SCORES[:2]]
    details = describe(make_recommendation(scores=scores, confidence_set=["lime"])).answers["contribution"].details
    assert details[0] == (
        "LIME uses 5,000 model evaluations per instance; it is unstable: under another explainer seed only 60 % of "
        "its top features are the same (38 instances)."
    )


@pytest.mark.parametrize(
    ("alternative", "expected"),
    [
        (
            make_alternative(is_non_inferior=True),
            "Omission is non-inferior (margin: 5 percentage points) and uses 3.6 % of the model evaluations of SHAP.",
        ),
        (
            make_alternative(is_non_inferior=False, n_required=400),
            "Omission uses 3.6 % of the model evaluations of SHAP, but is not shown to be non-inferior (margin: 5 "
            "percentage points); about 400 instances are needed to show it.",
        ),
    ],
)
def test_cheaper_explainer_is_an_alternative_only_if_it_is_non_inferior(alternative, expected):
    details = describe(make_recommendation(alternative=alternative)).answers["contribution"].details
    assert expected in details


def test_required_sample_size_follows_an_inconclusive_answer():
    details = describe(make_recommendation()).answers["contribution"].details
    assert details[1:] == ["About 150 instances are needed to separate SHAP from Omission."]
    details = describe(make_recommendation(n_to_separate=30)).answers["contribution"].details
    assert details[1:] == ["More than 40 instances are needed to separate SHAP from Omission."]
    details = describe(make_recommendation(n_to_separate=None)).answers["contribution"].details
    assert details[1:] == ["SHAP and Omission have the same score."]


def test_checks_do_not_replace_the_answer():
    answer = describe(make_recommendation()).answers["contribution"]
    assert answer.checks[0] == "Metric AOPC (marginal) disagrees: it ranks LIME first."
    assert "indirectly" in answer.checks[1] and answer.headline.startswith("Contribution: inconclusive between SHAP")


def test_tables_have_every_score_difference_and_group():
    text = describe(make_recommendation())
    scores, mass, differences, groups = map(render_markdown, text.tables)
    assert "recall@1" in scores and "recall@5" in scores and "**70% \\[57%, 83%\\]**" in scores
    assert "Random" in scores and "mass@5" in mass and "| SHAP | **80%** | 82% |" in mass
    assert "SHAP − Omission" in differences and "≤ 0.0001" in differences and "0.300" in differences
    assert "predicted = yes" in groups and "| 12 |" in groups
    assert text.notes == ["The explainers differ most on instance 3 (SHAP: age; LIME: sex)."]


def test_unknown_cost_is_a_dash_with_a_reason():
    facts = FACTS | {"shap": dataclasses.replace(FACTS["shap"], evaluations=None)}
    recommendation = dataclasses.replace(make_recommendation(), explainers=facts)
    row = next(line for line in render_markdown(describe(recommendation).tables[0]).splitlines() if "SHAP" in line)
    assert row.count("–") == 1


def test_run_without_a_recommendation_has_no_text():
    assert write_recommendation(SimpleNamespace(recommendation=None)) is None
    assert ANSWER.best == "shap"
