"""integrated_gradients gives captum's values, and on the white box the truth signed or shapley."""

import numpy as np
import pytest
import torch

from cfeval_cli.core import ABSENT, Access
from cfeval_cli.explainer.integrated_gradients import IntegratedGradients
from tests.explainer.test_gradients import against_the_others, bent, by_hand
from tests.problems import (
    ALL_REMOVALS,
    compute_importance,
    densify,
    draw_linear,
    make_batch,
    make_dataset,
    make_text,
    open_client,
)


@pytest.mark.parametrize("steps", [50, 7])
@pytest.mark.parametrize("way", ["zero", "mean", "marginal", "mask"])
def test_captum_called_by_hand_gives_the_same(way, steps):
    captum = pytest.importorskip("captum.attr")
    dataset = make_text(width=5, words=9, n=30, seed=1) if way == "mask" else make_dataset([3, 2, 4, 3], n=30, seed=1)
    model, batch = bent(dataset, 3)
    told = densify(
        IntegratedGradients(ALL_REMOVALS, way, steps).fit(dataset, open_client(model, Access.GRADIENT))(batch),
        dataset.n_features,
    )
    for i, codes in enumerate(batch.codes):
        package = captum.IntegratedGradients(against_the_others(model, int(batch.labels[i])))
        whole, starts, weights = by_hand(dataset, model, codes, way)
        many = torch.as_tensor(np.stack([whole] * len(starts)))
        values = package.attribute(many, torch.as_tensor(np.stack(starts)), n_steps=steps).numpy().sum(axis=2)
        there = codes != ABSENT
        assert told[i][there] == pytest.approx((np.array(weights) @ values)[there], abs=1e-6)  # captum steps in float32


@pytest.mark.parametrize("dataset", [make_dataset([3, 4, 2], n=12), make_text(n=12)], ids=["table", "text"])
def test_baseline_zero_gives_signed_and_mean_of_a_table_gives_shapley(dataset):
    model = draw_linear(dataset, 2, 3)
    batch = make_batch(dataset, model)
    there = batch.codes != ABSENT
    pairs = {"zero": "signed"} if dataset.padded else {"zero": "signed", "auto": "shapley", "marginal": "shapley"}
    for way, truth in pairs.items():
        explain = IntegratedGradients(ALL_REMOVALS, way).fit(dataset, open_client(model, Access.GRADIENT))
        told = densify(explain(batch), len(there[0]))
        expected = compute_importance(truth, model, dataset, batch.codes, batch.labels)
        assert told[there] == pytest.approx(expected[there], abs=1e-9)


def test_a_prediction_that_is_as_sure_as_can_be_is_explained():
    """Where p rounds to 1 its logarithm against the other's would be infinite."""
    dataset = make_dataset([3, 4, 2], n=10)
    model = draw_linear(dataset, 2, 3, scale=300.0)
    batch = make_batch(dataset, model)
    assert (model.predict_positive(batch.codes).round(15) % 1 == 0).any()
    explain = IntegratedGradients(ALL_REMOVALS, "zero").fit(dataset, open_client(model, Access.GRADIENT))
    told = densify(explain(batch), 3)
    assert told == pytest.approx(compute_importance("signed", model, dataset, batch.codes, batch.labels), rel=1e-9)


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="steps must be a whole number"):
        IntegratedGradients(ALL_REMOVALS, steps=0)
