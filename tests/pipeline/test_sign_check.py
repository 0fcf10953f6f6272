"""Scores that are effects on one class for all instances give a warning, those of other conventions do not."""

from dataclasses import replace

import numpy as np
import pytest

from cfeval_cli.core import ABSENT, Classifier, Cost, ExplainerResult, Explanation, ModelSpec
from cfeval_cli.explainer.file import File
from cfeval_cli.explainer.random import Random
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.sign_check import find_reversed_signs
from tests.inside import make_plan
from tests.problems import draw_linear, make_dataset, make_text

TABLE, TEXT = make_dataset([9] * 8, n=60, seed=2), make_text(width=8, words=30, n=60, seed=4)


def make_context(dataset, explainer=None):
    model = draw_linear(dataset, 7, 3)
    plan = make_plan("cache=off", "n_jobs=1", "explainer=[random]").restrict_to(ModelSpec(dataset, type(model)))
    return create_context(replace(plan, explainers={"imported": explainer or File("imported.csv")}), dataset, model)


def make_result(context, scores, present=True):
    is_scored = (context.rows.codes != ABSENT) & present
    return ExplainerResult(Explanation.from_scores(scores, is_scored), Cost(), 0)


def effects_on_class_1(context):
    """Return what each value adds to the logit of class 1, less the mean."""
    codes, everywhere = context.rows.codes, np.ones(len(context.rows), dtype=np.int64)
    return context.model.compute_effects(codes, everywhere) - context.model.compute_mean_effects()[1]


@pytest.mark.parametrize("dataset", [TABLE, TEXT], ids=["table", "text"])
def test_effects_on_class_1_give_a_warning_with_advice(dataset, caplog):
    context = make_context(dataset)
    scores = effects_on_class_1(context)
    warning = find_reversed_signs(context, "imported", make_result(context, scores))
    assert warning in caplog.messages and warning.startswith("explainer.imported: ")
    assert "wrong sign where the model predicts no." in warning
    assert warning.endswith("multiply those of instances predicted as no by -1")
    assert "where the model predicts yes." in find_reversed_signs(context, "imported", make_result(context, -scores))


@pytest.mark.parametrize("dataset", [TABLE, TEXT], ids=["table", "text"])
def test_other_scores_give_no_warning(dataset):
    context = make_context(dataset)
    scores, rng = effects_on_class_1(context), np.random.default_rng(0)
    towards = np.where(context.rows.predicted_classes == 1, 1.0, -1.0)[:, None]
    for other_values in (
        scores * towards,
        -scores * towards,
        abs(scores),
        rng.normal(size=scores.shape),
        np.ones(scores.shape),
    ):
        assert find_reversed_signs(context, "imported", make_result(context, other_values)) is None


def test_scores_that_cannot_be_compared_give_no_warning():
    context = make_context(TABLE)
    scores = effects_on_class_1(context)
    nothing = np.zeros(scores.shape, dtype=bool)
    assert find_reversed_signs(context, "imported", make_result(context, scores, nothing)) is None
    one_class = np.broadcast_to(context.rows.predicted_classes[:, None] == 1, scores.shape)
    assert find_reversed_signs(context, "imported", make_result(context, scores, one_class)) is None
    assert find_reversed_signs(make_context(TABLE, Random()), "imported", make_result(context, scores)) is None

    class LabelModelOfScores(Classifier):
        def predict(self, codes):
            return context.model.predict_positive(codes) > 0.5

    assert (
        find_reversed_signs(replace(context, model=LabelModelOfScores()), "imported", make_result(context, scores))
        is None
    )
