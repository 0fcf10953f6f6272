"""The answer stage: which truth answers a question, and how scores are broken down."""

from dataclasses import replace

import numpy as np
import pytest

from cfeval_cli.core import ModelSpec
from cfeval_cli.pipeline.answer import describe_column, find_truth
from cfeval_cli.pipeline.context import create_context
from tests.inside import make_plan
from tests.problems import make_mixed
from tests.truth.models import make_random_tree


@pytest.fixture(scope="module")
def context():
    dataset = make_mixed(1, n=40, categories=1, numbers=1, missing=0)
    plan = make_plan("cache=off", "n_jobs=1", "explainer=[random]", "truth=[contrast,shapley]", "k=1")
    model = make_random_tree(dataset, 1)
    return create_context(plan.restrict_to(ModelSpec(dataset, type(model))), dataset, model)


def test_truth_of_a_question_is_the_first_that_is_identifiable():
    plan = make_plan("cache=off", "truth=[signed,contrast,absolute,shapley]")
    assert find_truth(plan, "contribution") == "shapley" and find_truth(plan, "change") == "contrast"
    paper = replace(plan, truths={"signed": plan.truths["signed"]})
    assert find_truth(paper, "contribution") is None and find_truth(paper, "change") is None


def test_scores_are_broken_down_by_predicted_class_category_and_quarter(context):
    dataset, positions = context.dataset, np.arange(len(context.rows))
    classes = describe_column(context, "predicted", positions)
    assert classes == [dataset.classes[label] for label in context.rows.predicted_classes]
    first, second = sorted(range(2), key=lambda j: dataset.features[j].kind)
    category, number = dataset.features[first], dataset.features[second]
    assert (category.kind, number.kind) == ("category", "number")
    values = describe_column(context, category.name, positions)
    assert values == [category.values[code] for code in context.rows.codes[:, first]]
    quarters = describe_column(context, number.name, positions)
    assert len(set(quarters)) <= 4 and all(text[:2] in ("≤ ", "> ") for text in quarters)
    codes = context.rows.codes[:, second]
    for text in set(quarters):  # a quarter is an interval of the values
        inside = codes[[quarter == text for quarter in quarters]]
        outside = codes[[quarter != text for quarter in quarters]]
        assert not ((outside > inside.min()) & (outside < inside.max())).any()
