"""Judges: the model that is trained beside the explained model."""

import pytest

from cfeval_cli.judge.judge import Judge
from cfeval_cli.model.distilled import Distilled
from cfeval_cli.model.tree import Tree


def test_model_is_trained_on_labels_or_distilled():
    model, explained = Tree(), Tree(max_depth=2)
    assert Judge(model).make_trainable(explained) is model
    assert Judge(model, distill=True).make_trainable(explained) == Distilled(model, explained)


def test_invalid_settings_are_rejected():
    with pytest.raises(ValueError, match="model must derive from"):
        Judge("tree")
    with pytest.raises(ValueError, match="distill must be true or false"):
        Judge(Tree(), "yes")
