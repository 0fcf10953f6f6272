"""random, omission and lr: explainers with a closed form."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given

from cfeval_cli.core import ABSENT, Access, BlackBox, ModelSpec
from cfeval_cli.core.ranking import find_top_k
from cfeval_cli.explainer.lr import Lr
from cfeval_cli.explainer.omission import Omission
from cfeval_cli.explainer.random import Random
from cfeval_cli.model.linear import LinearModel
from tests.problems import (
    ALL_REMOVALS,
    REMOVALS,
    TRUTHS,
    compute_importance,
    logit,
    make_batch,
    make_dataset,
    make_linear,
    open_client,
    problems,
    sigmoid,
)

LR = Lr(TRUTHS["signed"])


def explain(explainer, dataset, model, access=None):
    batch = make_batch(dataset, model)
    return explainer.fit(dataset, open_client(model, explainer.access if access is None else access))(batch)


def test_random_order_is_uniform_and_depends_on_the_seed():
    dataset = make_dataset([2, 2, 2, 2], n=4000)
    model = make_linear(dataset)
    explanation = explain(Random(), dataset, model)
    for place in range(4):
        shares = np.bincount(explanation.features[:, place], minlength=4) / 4000
        assert np.abs(shares - 0.25).max() < 0.03
    function = Random().fit(dataset, open_client(model, Access.NOTHING))
    assert (function(make_batch(dataset, model, seed=1)).features != explanation.features).any()


@given(problems(unknown=1))
def test_omission_equals_the_drop_in_probability(problem):
    dataset, model = problem
    for removal in ("marginal", "mask", "zero"):
        explanation = explain(Omission(REMOVALS, removal), dataset, model)
        for i, row in enumerate(dataset.test.codes):
            before = sigmoid(logit(model, row))
            sign = 1 if before > 0.5 else -1
            for selected, score in zip(explanation.features[i], explanation.scores[i], strict=True):
                stand_ins = {"mask": {1: 1.0}, "zero": {ABSENT: 1.0}}.get(removal) or dict(
                    enumerate(dataset.frequencies[selected])
                )
                after = 0.0
                for value, weight in stand_ins.items():
                    other = row.copy()
                    other[selected] = value
                    after += weight * sigmoid(logit(model, other))
                assert score == pytest.approx(sign * (before - after), abs=1e-12)


@given(problems())
def test_omission_by_zero_has_the_order_of_effects(problem):
    """Deleting feature j takes c_j from the logit, and the sigmoid keeps the order (closed form)."""
    dataset, model = problem
    zero, lr = explain(Omission(REMOVALS, "zero"), dataset, model), explain(LR, dataset, model)
    for i, row in enumerate(dataset.test.codes):
        effect = dict(zip(lr.features[i], lr.scores[i], strict=True))
        drop = dict(zip(zero.features[i], zero.scores[i], strict=True))
        for a in range(len(row)):
            for b in range(len(row)):
                if effect[a] > effect[b]:  # probabilities so near 0 that they round to the same may tie
                    assert drop[a] > drop[b] or drop[a] == pytest.approx(drop[b], abs=1e-12)


def test_omission_uses_marginal_on_tables_and_refuses_a_missing_mask():
    dataset = make_dataset([3, 2])
    model = make_linear(dataset)
    auto, marginal = (explain(Omission(REMOVALS, removal), dataset, model) for removal in ("auto", "marginal"))
    assert (auto.scores == marginal.scores).all()
    text = replace(make_dataset([3, 2], unknown=1), kind="text")
    auto, mask = (explain(Omission(REMOVALS, removal), text, model) for removal in ("auto", "mask"))
    assert (auto.scores == mask.scores).all() and (auto.scores != marginal.scores).any()
    spec = ModelSpec(dataset, LinearModel)
    Omission(REMOVALS).check(spec)
    with pytest.raises(ValueError, match=r"removal=mask.*toy"):
        Omission(REMOVALS, "mask").check(spec)
    with pytest.raises(ValueError, match=r"removal=zero.*embeddings.*removal=auto"):
        Omission(REMOVALS, "zero").check(ModelSpec(dataset, BlackBox))


@pytest.mark.parametrize("definition", TRUTHS)
def test_lr_equals_the_ranking_of_the_ground_truth(definition):
    dataset = make_dataset([3, 2, 4])
    model = make_linear(dataset)
    explanation = explain(Lr(TRUTHS[definition], definition), dataset, model)
    batch = make_batch(dataset, model)
    scores = compute_importance(definition, model, dataset, batch.codes, batch.predicted_classes)
    assert (explanation.features == find_top_k(scores, 3)).all()


def test_message_names_the_invalid_setting():
    with pytest.raises(ValueError, match="removal"):
        Omission(REMOVALS, "erase")
    with pytest.raises(ValueError, match="inapplicable"):
        Omission(REMOVALS, inapplicable="perhaps")


def test_omission_is_not_applicable_instead_of_refused_with_skip():
    dataset, table = make_dataset([3, 2]), ModelSpec(make_dataset([3, 2]), LinearModel)
    assert Omission(ALL_REMOVALS, "mask", "skip").not_applicable_reason(table) == "toy has no mask token"
    assert Omission(ALL_REMOVALS, "mask").not_applicable_reason(table) is None  # it is refused
    for name in ("zero", "mean"):
        assert Omission(ALL_REMOVALS, name, "skip").not_applicable_reason(table) is None
        assert "needs" in Omission(ALL_REMOVALS, name, "skip").not_applicable_reason(ModelSpec(dataset, BlackBox))
    assert Omission(ALL_REMOVALS, "marginal", "skip").not_applicable_reason(ModelSpec(dataset, BlackBox)) is None
