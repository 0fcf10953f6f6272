"""recommendation.json is read into typed entries, and the first entry that no run writes is named."""

import copy

import pytest

from cfeval_cli.results.recommendation import dump_recommendation, parse_recommendation
from tests.recommendations import make_recommendation


def test_content_is_read_as_it_was_written():
    recommendation = make_recommendation()
    content = dump_recommendation(recommendation)
    assert dump_recommendation(parse_recommendation(content)) == content
    assert parse_recommendation(content).answers["contribution"].best == "shap"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("k",), "three", r"recommendation\.json: k: "),
        (("answers", "change", "checks"), [{"source": "oracle", "name": "x"}], r"answers\.change\.checks\.0\.source: "),
        (("explainers", "shap"), {}, r"explainers\.shap\.title: "),
        (("explainers",), {}, "answers.contribution names 'lime', which is not among the explainers"),
        (("k",), 9, "answers.contribution has no scores for k = 9"),
        (("answers", "contribution", "scores"), [], "answers.contribution has no scores"),
    ],
)
def test_an_entry_that_no_run_writes_is_named(path, value, message):
    content = copy.deepcopy(dump_recommendation(make_recommendation()))
    entry = content
    for name in path[:-1]:
        entry = entry[name]
    entry[path[-1]] = value
    with pytest.raises(ValueError, match=message):
        parse_recommendation(content)
