"""gradient_input gives captum's values from zero, and from other baselines the same gradient times the way."""

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


@pytest.mark.parametrize("way", ["zero", "mean", "marginal", "mask"])
def test_captum_called_by_hand_gives_the_same(way):
    captum = pytest.importorskip("captum.attr")
    dataset = make_text(width=5, words=9, n=30, seed=1) if way == "mask" else make_dataset([3, 2, 4, 3], n=30, seed=1)
    model, batch = bent(dataset)
    told = densify(
        GradientInput(ALL_REMOVALS, way).fit(dataset, open_client(model, Access.GRADIENT))(batch), dataset.n_features
    )
    for i, codes in enumerate(batch.codes):
        forward = against_the_others(model, int(batch.labels[i]))
        whole, starts, weights = by_hand(dataset, model, codes, way)
        vectors = torch.as_tensor(whole)[None].requires_grad_()
        if way == "zero":
            expected = captum.InputXGradient(forward).attribute(vectors).detach().numpy()[0].sum(axis=1)
        else:
            gradient = captum.Saliency(forward).attribute(vectors, abs=False).numpy()[0]
            expected = sum(w * (gradient * (whole - s)).sum(axis=1) for s, w in zip(starts, weights, strict=True))
        there = codes != ABSENT
        assert told[i][there] == pytest.approx(np.asarray(expected)[there], abs=1e-9)


def test_on_the_white_box_it_is_truth_signed():
    for dataset in (make_dataset([3, 4, 2], n=40), make_text(n=40)):
        model = draw_linear(dataset, 2, 3)
        batch = make_batch(dataset, model)
        there = batch.codes != ABSENT
        told = densify(
            GradientInput(ALL_REMOVALS).fit(dataset, open_client(model, Access.GRADIENT))(batch), dataset.n_features
        )
        expected = compute_importance("signed", model, dataset, batch.codes, batch.labels)
        assert told[there] == pytest.approx(expected[there], abs=1e-9)
