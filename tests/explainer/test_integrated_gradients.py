"""integrated_gradients equals captum, and on the white box the truth signed or shapley."""

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
@pytest.mark.parametrize("removal", ["zero", "mean", "marginal", "mask"])
def test_captum_called_by_hand_gives_the_same(removal, steps):
    captum = pytest.importorskip("captum.attr")
    dataset = (
        make_text(width=5, words=9, n=30, seed=1) if removal == "mask" else make_dataset([3, 2, 4, 3], n=30, seed=1)
    )
    model, batch = bent(dataset, 3)
    explanation = densify(
        IntegratedGradients(ALL_REMOVALS, removal, steps).fit(dataset, open_client(model, Access.GRADIENT))(batch),
        dataset.n_features,
    )
    for i, codes in enumerate(batch.codes):
        package = captum.IntegratedGradients(against_the_others(model, int(batch.predicted_classes[i])))
        embeddings, starts, weights = by_hand(dataset, model, codes, removal)
        size = torch.as_tensor(np.stack([embeddings] * len(starts)))
        values = package.attribute(size, torch.as_tensor(np.stack(starts)), n_steps=steps).numpy().sum(axis=2)
        is_present = codes != ABSENT
        assert explanation[i][is_present] == pytest.approx(
            (np.array(weights) @ values)[is_present], abs=1e-6
        )  # captum steps in float32


@pytest.mark.parametrize("dataset", [make_dataset([3, 4, 2], n=12), make_text(n=12)], ids=["table", "text"])
def test_baseline_zero_gives_signed_and_mean_of_a_table_gives_shapley(dataset):
    model = draw_linear(dataset, 2, 3)
    batch = make_batch(dataset, model)
    is_present = batch.codes != ABSENT
    pairs = {"zero": "signed"} if dataset.padded else {"zero": "signed", "auto": "shapley", "marginal": "shapley"}
    for removal, truth in pairs.items():
        explain = IntegratedGradients(ALL_REMOVALS, removal).fit(dataset, open_client(model, Access.GRADIENT))
        explanation = densify(explain(batch), len(is_present[0]))
        expected = compute_importance(truth, model, dataset, batch.codes, batch.predicted_classes)
        assert explanation[is_present] == pytest.approx(expected[is_present], abs=1e-9)


def test_a_prediction_with_probability_one_is_explained():
    """Where p rounds to 1 its logarithm against the other's would be infinite."""
    dataset = make_dataset([3, 4, 2], n=10)
    model = draw_linear(dataset, 2, 3, scale=300.0)
    batch = make_batch(dataset, model)
    assert (model.predict_positive(batch.codes).round(15) % 1 == 0).any()
    explain = IntegratedGradients(ALL_REMOVALS, "zero").fit(dataset, open_client(model, Access.GRADIENT))
    explanation = densify(explain(batch), 3)
    assert explanation == pytest.approx(
        compute_importance("signed", model, dataset, batch.codes, batch.predicted_classes), rel=1e-9
    )


def test_invalid_settings_are_refused():
    with pytest.raises(ValueError, match="steps must be a whole number"):
        IntegratedGradients(ALL_REMOVALS, steps=0)
