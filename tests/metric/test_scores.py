"""Metrics on random feature sets against loops, SciPy and captum."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr

from cfeval_cli.core import NO_FEATURE, AbsentScore, Access, Explanation, Ledger, LedgerKey
from cfeval_cli.metric.faithfulness_correlation import FaithfulnessCorrelation
from cfeval_cli.metric.infidelity import Infidelity
from cfeval_cli.metric.subsets import RandomSubsetMetric
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.zero import Zero
from tests.metric.inputs import InteractionModel, compute_drop, compute_values, draw_sets, make_inputs
from tests.problems import draw_linear, make_dataset, make_linear

REMOVALS = {"zero": Zero(), "marginal": Marginal(4, 1)}


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.sampled_from([0.1, 0.25, 0.6]))
def test_scores_equal_loops_over_the_sets(seed, additive, short, share):
    dataset = make_dataset([3, 2, 3, 2, 3], n=5, seed=seed, absent=0.2 if additive else 0.0)
    model = draw_linear(dataset, seed, 2) if additive else InteractionModel(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 1, seed, removals=REMOVALS, short=short)
    settings = {"subsets": 9, "share": share, "seed": 5}
    variants = {fitted.removal.variant: fitted for fitted in inputs.removals.values() if fitted.replacement is not None}
    metrics = FaithfulnessCorrelation(**settings), Infidelity(**settings)
    correlations, infidelities = (
        {s.variant: s for s in metric.score(inputs) if not isinstance(s, AbsentScore)} for metric in metrics
    )
    assert set(correlations) == set(infidelities) == set(variants)
    for variant, fitted in variants.items():
        for i, row in enumerate(inputs.codes):
            sets = draw_sets(row, 9, share, 5, int(inputs.ids[i]))
            pairs = zip(inputs.explanation.features[i], inputs.explanation.scores[i], strict=True)
            scores = {int(j): s for j, s in pairs if j != NO_FEATURE}
            sums = [sum(scores.get(j, 0.0) for j in features) for features in sets]
            drops = [compute_drop(model, inputs, fitted, i, features) for features in sets]
            if np.ptp(sums) > 1e-9 and np.ptp(drops) > 1e-9:
                assert correlations[variant].denominator[i] == 1
                assert correlations[variant].numerator[i] == pytest.approx(pearsonr(sums, drops)[0], abs=1e-6)
            beta = np.linalg.lstsq(np.array(sums)[:, None], np.array(drops), rcond=None)[0][0]
            expected = np.mean([(beta * a - b) ** 2 for a, b in zip(sums, drops, strict=True)])
            assert infidelities[variant].numerator[i] == pytest.approx(expected, abs=1e-9)


def test_infidelity_equals_captum():
    """With the same sets, a baseline of zero, and captum's own normalisation."""
    import torch
    from captum.metrics import infidelity

    dataset = make_dataset([3, 4, 3, 2, 3], n=12, seed=3)
    model = draw_linear(dataset, 4, 1)
    inputs = make_inputs(dataset, model, 1, removals={"zero": Zero()})
    actual = compute_values(Infidelity(subsets=20, share=0.4, seed=1), inputs)["del"]
    vectors = torch.as_tensor(np.stack([model.embed_values(j, inputs.codes[:, j])[:, 0] for j in range(5)], axis=1))
    sets = [draw_sets(row, 20, 0.4, 1, int(i)) for row, i in zip(inputs.codes, inputs.ids, strict=True)]
    # captum repeats each input n_perturb_samples times in a row.
    is_removed = torch.tensor(
        [[j in features for j in range(5)] for instance_sets in sets for features in instance_sets], dtype=torch.float64
    )

    def forward(inputs, target):
        return model.predict_proba_embedded(inputs[:, :, None])[torch.arange(len(inputs)), target]

    expected = infidelity(
        lambda inputs, target: forward(inputs, target.flatten()),
        lambda inputs: (is_removed, inputs * (1 - is_removed)),
        vectors,
        torch.as_tensor(inputs.explanation.to_dense(5)),
        additional_forward_args=torch.as_tensor(inputs.predicted_classes),
        n_perturb_samples=20,
        normalize=True,
    )
    assert actual == pytest.approx(expected.numpy(), abs=1e-9)


def test_sets_depend_on_neither_scale_nor_explainer():
    dataset = make_dataset([3, 2, 3, 2], n=10, seed=2)
    model = make_linear(dataset, 3)
    inputs = make_inputs(dataset, model, 1, removals=REMOVALS)
    scaled = replace(inputs, explanation=replace(inputs.explanation, scores=1e-200 * inputs.explanation.scores))
    for metric in (FaithfulnessCorrelation(), Infidelity()):
        original, rescaled = compute_values(metric, inputs), compute_values(metric, scaled)
        for variant in original:
            assert original[variant] == pytest.approx(rescaled[variant], abs=1e-9, nan_ok=True)
    ledger = Ledger()
    other = make_inputs(dataset, model, 1, seed=8, removals=REMOVALS, memory=inputs.memory)
    object.__setattr__(other, "model", ledger.open_client(model, Access.GRADIENT, LedgerKey("x")))
    compute_values(Infidelity(), other)
    assert ledger.n_evaluations[LedgerKey("x")] == 0  # the same sets were evaluated for another metric and explainer


def test_effects_of_additive_model_are_faithful_and_zero_scores_have_no_correlation():
    dataset = make_dataset([3, 3, 3, 3], n=10, seed=2)
    model = make_linear(dataset, 3, scale=1)
    inputs = make_inputs(dataset, model, 1, removals={"zero": Zero()})
    effects = model.compute_effects(inputs.codes, inputs.predicted_classes)
    explanation = Explanation.from_scores(effects, np.ones_like(inputs.codes, dtype=bool))
    object.__setattr__(inputs, "explanation", explanation)
    assert np.nanmean(compute_values(FaithfulnessCorrelation(), inputs)["del"]) > 0.9
    object.__setattr__(inputs, "explanation", Explanation(explanation.features, 0 * explanation.scores))
    assert np.isnan(compute_values(FaithfulnessCorrelation(), inputs)["del"]).all()
    assert (compute_values(Infidelity(), inputs)["del"] >= 0).all()


def test_feature_set_without_scores_is_not_applicable_and_invalid_settings_are_rejected():
    dataset = make_dataset([3, 2, 3], n=5)
    inputs = make_inputs(dataset, make_linear(dataset))
    object.__setattr__(inputs, "explanation", None)
    metrics: list[RandomSubsetMetric] = [FaithfulnessCorrelation(), Infidelity()]
    assert all(isinstance(score, AbsentScore) for metric in metrics for score in metric.score(inputs))
    for setting in ({"subsets": 1}, {"share": 0.0}, {"share": 2}, {"seed": -1}):
        with pytest.raises(ValueError, match=next(iter(setting))):
            Infidelity(**setting)
