"""gradient_input equals captum from zero, and from other baselines the same gradient times the difference."""

import numpy as np
import pytest
import torch

from cfeval_cli.core import ABSENT, Access
from cfeval_cli.explainer.gradient_input import GradientInput
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


@pytest.mark.parametrize("removal", ["zero", "mean", "marginal", "mask"])
def test_captum_called_by_hand_gives_the_same(removal):
    captum = pytest.importorskip("captum.attr")
    dataset = (
        make_text(width=5, words=9, n=30, seed=1) if removal == "mask" else make_dataset([3, 2, 4, 3], n=30, seed=1)
    )
    model, batch = bent(dataset)
    explanation = densify(
        GradientInput(ALL_REMOVALS, removal).fit(dataset, open_client(model, Access.GRADIENT))(batch),
        dataset.n_features,
    )
    for i, codes in enumerate(batch.codes):
        forward = against_the_others(model, int(batch.predicted_classes[i]))
        embeddings, starts, weights = by_hand(dataset, model, codes, removal)
        vectors = torch.as_tensor(embeddings)[None].requires_grad_()
        if removal == "zero":
            expected = captum.InputXGradient(forward).attribute(vectors).detach().numpy()[0].sum(axis=1)
        else:
            gradient = captum.Saliency(forward).attribute(vectors, abs=False).numpy()[0]
            expected = sum(w * (gradient * (embeddings - s)).sum(axis=1) for s, w in zip(starts, weights, strict=True))
        is_present = codes != ABSENT
        assert explanation[i][is_present] == pytest.approx(np.asarray(expected)[is_present], abs=1e-9)


def test_scores_on_the_white_box_equal_truth_signed():
    for dataset in (make_dataset([3, 4, 2], n=40), make_text(n=40)):
        model = draw_linear(dataset, 2, 3)
        batch = make_batch(dataset, model)
        is_present = batch.codes != ABSENT
        explanation = densify(
            GradientInput(ALL_REMOVALS).fit(dataset, open_client(model, Access.GRADIENT))(batch), dataset.n_features
        )
        expected = compute_importance("signed", model, dataset, batch.codes, batch.predicted_classes)
        assert explanation[is_present] == pytest.approx(expected[is_present], abs=1e-9)
