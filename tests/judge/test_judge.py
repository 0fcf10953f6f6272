"""Judges: which model is trained beside the one that is explained."""

import pytest

from cfeval_cli.judge.judge import Judge
from cfeval_cli.model.distilled import Distilled
from cfeval_cli.model.tree import Tree


def test_a_judge_is_its_model_or_that_model_taught_by_the_explained_one():
    model, explained = Tree(), Tree(max_depth=2)
    assert Judge(model).make_trainable(explained) is model
    assert Judge(model, distill=True).make_trainable(explained) == Distilled(model, explained)


def test_what_is_no_model_and_no_choice_is_refused():
    with pytest.raises(ValueError, match="model must be a model"):
        Judge("tree")
    with pytest.raises(ValueError, match="distill must be true or false"):
        Judge(Tree(), "yes")
