"""against is the ranking of the truth reversed."""

import numpy as np
import pytest

from cfeval_cli.core import ABSENT, BlackBox, ModelSpec
from cfeval_cli.explainer.against import Against
from cfeval_cli.explainer.lr import Lr
from tests.problems import TRUTHS, draw_linear, make_batch, make_dataset, make_text, open_client


@pytest.mark.parametrize("truth", TRUTHS)
@pytest.mark.parametrize("dataset", [make_dataset([3, 2, 4, 5], n=30), make_text(n=30)], ids=["table", "text"])
def test_order_is_the_reverse_of_the_ground_truth(truth, dataset):
    model = draw_linear(dataset, 1, 2)
    batch = make_batch(dataset, model)
    explanation, reference = (
        first(TRUTHS[truth], truth).fit(dataset, open_client(model))(batch) for first in (Against, Lr)
    )
    for i, codes in enumerate(batch.codes):
        size = int((codes != ABSENT).sum())
        assert explanation.features[i, :size].tolist() == reference.features[i, :size][::-1].tolist()
        assert np.array_equal(explanation.scores[i, :size], -reference.scores[i, :size][::-1])
        assert (explanation.features[i, size:] < 0).all()


def test_reason_for_models_without_the_ground_truth():
    assert "needs a logit that is a sum of effects" in Against(TRUTHS["shapley"]).not_applicable_reason(
        ModelSpec(make_dataset([2, 2]), BlackBox)
    )
    assert Against.is_control
