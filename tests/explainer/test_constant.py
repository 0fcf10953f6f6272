"""constant ranks features by their mean importance over the training rows, the same for all instances."""

import numpy as np
import pytest

from cfeval_cli.core import ABSENT, BlackBox, ModelSpec
from cfeval_cli.explainer import constant
from cfeval_cli.explainer.constant import ConstantScores
from tests.problems import (
    TRUTHS,
    compute_importance,
    densify,
    draw_linear,
    make_batch,
    make_dataset,
    make_text,
    open_client,
    predict_labels,
)


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("dataset", [make_dataset([3, 2, 4, 5], n=30), make_text(n=30)], ids=["table", "text"])
def test_scores_are_means_over_the_training_rows_with_the_feature(truth, dataset, monkeypatch):
    monkeypatch.setattr(constant, "_MAX_BATCH_ROWS", 7)
    model = draw_linear(dataset, 1, 2)
    batch = make_batch(dataset, model)
    explanation = densify(
        ConstantScores(TRUTHS[truth], truth).fit(dataset, open_client(model))(batch), dataset.n_features
    )
    train = dataset.train.codes
    all_settings = compute_importance(truth, model, dataset, train, predict_labels(model, train))
    for j in range(dataset.n_features):
        mean = np.mean([all_settings[i, j] for i in range(len(train)) if train[i, j] != ABSENT])
        is_present = batch.codes[:, j] != ABSENT
        assert explanation[is_present, j] == pytest.approx(np.full(is_present.sum(), mean), abs=1e-9)
        assert np.isnan(explanation[~is_present, j]).all()


def test_all_instances_of_a_table_have_the_same_order():
    dataset = make_dataset([3, 2, 4, 5], n=30)
    model = draw_linear(dataset, 1, 2)
    explanation = ConstantScores(TRUTHS["shapley"]).fit(dataset, open_client(model))(make_batch(dataset, model))
    assert (explanation.features == explanation.features[0]).all() and (np.diff(explanation.scores[0]) <= 0).all()
    assert (
        "needs a logit" in ConstantScores(TRUTHS["shapley"]).not_applicable_reason(ModelSpec(dataset, BlackBox))
        and ConstantScores.is_control
    )
