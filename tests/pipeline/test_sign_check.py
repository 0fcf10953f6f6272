"""Scores that are effects on one class for all instances are noticed; scores of other conventions are not accused."""

from dataclasses import replace

import numpy as np
import pytest

from cfeval_cli.core import ABSENT, Cost, ExplainerResult, Explanation, ModelSpec
from cfeval_cli.explainer.file import File
from cfeval_cli.explainer.random import Random
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.sign_check import find_reversed_signs
from tests.inside import planned
from tests.problems import make_dataset, make_text, random_linear

TABLE, TEXT = make_dataset([9] * 8, n=60, seed=2), make_text(width=8, words=30, n=60, seed=4)


def study_of(dataset, explainer=None):
    model = random_linear(dataset, 7, 3)
    plan = planned("cache=off", "n_jobs=1", "explainer=[random]").restrict_to(ModelSpec(dataset, type(model)))
    return create_context(replace(plan, explainers={"mine": explainer or File("mine.csv")}), dataset, model)


def explained(context, scores, present=True):
    there = (context.rows.codes != ABSENT) & present
    return ExplainerResult(Explanation.from_scores(scores, there), Cost(), 0)


def effects_on_class_1(context):
    """What each value adds to the logit of class 1, less the mean."""
    codes, everywhere = context.rows.codes, np.ones(len(context.rows), dtype=np.int64)
    return context.model.compute_effects(codes, everywhere) - context.model.compute_mean_effects()[1]


@pytest.mark.parametrize("dataset", [TABLE, TEXT], ids=["table", "text"])
def test_effects_on_class_1_are_noticed_and_the_way_out_is_named(dataset, caplog):
    context = study_of(dataset)
    scores = effects_on_class_1(context)
    warning = find_reversed_signs(context, "mine", explained(context, scores))
    assert warning in caplog.messages and warning.startswith("explainer.mine: ")
    assert "wrong sign where the model predicts no." in warning
    assert warning.endswith("multiply those of instances predicted as no by -1")
    assert "where the model predicts yes." in find_reversed_signs(context, "mine", explained(context, -scores))


@pytest.mark.parametrize("dataset", [TABLE, TEXT], ids=["table", "text"])
def test_other_scores_are_not_accused(dataset):
    context = study_of(dataset)
    scores, rng = effects_on_class_1(context), np.random.default_rng(0)
    towards = np.where(context.rows.labels == 1, 1.0, -1.0)[:, None]
    for given in (
        scores * towards,
        -scores * towards,
        abs(scores),
        rng.normal(size=scores.shape),
        np.ones(scores.shape),
    ):
        assert find_reversed_signs(context, "mine", explained(context, given)) is None


def test_what_cannot_be_compared_is_left_alone():
    context = study_of(TABLE)
    scores = effects_on_class_1(context)
    nothing = np.zeros(scores.shape, dtype=bool)
    assert find_reversed_signs(context, "mine", explained(context, scores, nothing)) is None
    one_class = np.broadcast_to(context.rows.labels[:, None] == 1, scores.shape)
    assert find_reversed_signs(context, "mine", explained(context, scores, one_class)) is None
    assert find_reversed_signs(study_of(TABLE, Random()), "mine", explained(context, scores)) is None

    class Labels:
        def predict(self, codes):
            return context.model.predict_positive(codes) > 0.5

    assert find_reversed_signs(replace(context, model=Labels()), "mine", explained(context, scores)) is None
