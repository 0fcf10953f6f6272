"""Scores against what removing random sets does: by loops, by SciPy, and by captum."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import pearsonr

from cfeval_cli.core import NO_FEATURE, AbsentScore, Access, Ledger
from cfeval_cli.metric.faithfulness_correlation import FaithfulnessCorrelation
from cfeval_cli.metric.infidelity import Infidelity
from cfeval_cli.metric.subsets import Subsets
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.zero import Zero
from tests.metric.inputs import Crossed, drop_without, make_inputs, sets_of, values
from tests.problems import make_dataset, make_linear, random_linear

WAYS = {"zero": Zero(), "marginal": Marginal(4, 1)}


@given(st.integers(0, 10_000), st.booleans(), st.booleans(), st.sampled_from([0.1, 0.25, 0.6]))
def test_against_loops_over_the_sets(seed, additive, short, share):
    dataset = make_dataset([3, 2, 3, 2, 3], n=5, seed=seed, absent=0.2 if additive else 0.0)
    model = random_linear(dataset, seed, 2) if additive else Crossed(dataset, seed, 3)
    inputs = make_inputs(dataset, model, 1, seed, ways=WAYS, short=short)
    settings = {"subsets": 9, "share": share, "seed": 5}
    variants = {way.removal.variant: way for way in inputs.removals.values() if way.stand_ins is not None}
    metrics = FaithfulnessCorrelation(**settings), Infidelity(**settings)
    alike, apart = (
        {s.variant: s for s in metric.score(inputs) if not isinstance(s, AbsentScore)} for metric in metrics
    )
    assert set(alike) == set(apart) == set(variants)
    for variant, way in variants.items():
        for i, row in enumerate(inputs.codes):
            chosen = sets_of(row, 9, share, 5, int(inputs.ids[i]))
            told = zip(inputs.explanation.features[i], inputs.explanation.scores[i], strict=True)
            scores = {int(j): s for j, s in told if j != NO_FEATURE}
            sums = [sum(scores.get(j, 0.0) for j in one) for one in chosen]
            drops = [drop_without(model, inputs, way, i, one) for one in chosen]
            if np.ptp(sums) > 1e-9 and np.ptp(drops) > 1e-9:
                assert alike[variant].denominator[i] == 1
                assert alike[variant].numerator[i] == pytest.approx(pearsonr(sums, drops)[0], abs=1e-6)
            beta = np.linalg.lstsq(np.array(sums)[:, None], np.array(drops), rcond=None)[0][0]
            expected = np.mean([(beta * a - b) ** 2 for a, b in zip(sums, drops, strict=True)])
            assert apart[variant].numerator[i] == pytest.approx(expected, abs=1e-9)


def test_infidelity_is_captums():
    """With the same sets, a baseline of zero, and captum's own normalisation."""
    import torch
    from captum.metrics import infidelity

    dataset = make_dataset([3, 4, 3, 2, 3], n=12, seed=3)
    model = random_linear(dataset, 4, 1)
    inputs = make_inputs(dataset, model, 1, ways={"zero": Zero()})
    ours = values(Infidelity(subsets=20, share=0.4, seed=1), inputs)["del"]
    vectors = torch.as_tensor(np.stack([model.embed_values(j, inputs.codes[:, j])[:, 0] for j in range(5)], axis=1))
    sets = [sets_of(row, 20, 0.4, 1, int(i)) for row, i in zip(inputs.codes, inputs.ids, strict=True)]
    # captum repeats each input so many times, one after the other
    gone = torch.tensor([[j in one for j in range(5)] for mine in sets for one in mine], dtype=torch.float64)

    def forward(inputs, target):
        return model.predict_proba_embedded(inputs[:, :, None])[torch.arange(len(inputs)), target]

    theirs = infidelity(
        lambda inputs, target: forward(inputs, target.flatten()),
        lambda inputs: (gone, inputs * (1 - gone)),
        vectors,
        torch.as_tensor(inputs.explanation.table(5)),
        additional_forward_args=torch.as_tensor(inputs.labels),
        n_perturb_samples=20,
        normalize=True,
    )
    assert ours == pytest.approx(theirs.numpy(), abs=1e-9)


def test_neither_scale_nor_explainer_changes_the_sets():
    dataset = make_dataset([3, 2, 3, 2], n=10, seed=2)
    model = make_linear(dataset, 3)
    inputs = make_inputs(dataset, model, 1, ways=WAYS)
    from dataclasses import replace

    scaled = replace(inputs, explanation=replace(inputs.explanation, scores=1e-200 * inputs.explanation.scores))
    for metric in (FaithfulnessCorrelation(), Infidelity()):
        one, two = values(metric, inputs), values(metric, scaled)
        for variant in one:
            assert one[variant] == pytest.approx(two[variant], abs=1e-9, nan_ok=True)
    ledger = Ledger()
    other = make_inputs(dataset, model, 1, seed=8, ways=WAYS, memory=inputs.memory)
    object.__setattr__(other, "model", ledger.open_client(model, Access.GRADIENT, "x"))
    values(Infidelity(), other)
    assert ledger.rows["x"] == 0  # the same sets, asked before by another metric for another explainer


def test_the_gold_of_a_sum_is_faithful_and_scores_of_zero_tell_nothing():
    dataset = make_dataset([3, 3, 3, 3], n=10, seed=2)
    model = make_linear(dataset, 3, scale=1)
    inputs = make_inputs(dataset, model, 1, ways={"zero": Zero()})
    effects = model.compute_effects(inputs.codes, inputs.labels)
    from cfeval_cli.core import Explanation

    gold = Explanation.ranked(effects, np.ones_like(inputs.codes, dtype=bool))
    object.__setattr__(inputs, "explanation", gold)
    assert np.nanmean(values(FaithfulnessCorrelation(), inputs)["del"]) > 0.9
    object.__setattr__(inputs, "explanation", Explanation(gold.features, 0 * gold.scores))
    assert np.isnan(values(FaithfulnessCorrelation(), inputs)["del"]).all()
    assert (values(Infidelity(), inputs)["del"] >= 0).all()


def test_a_set_has_no_scores_and_settings_are_checked():
    dataset = make_dataset([3, 2, 3], n=5)
    inputs = make_inputs(dataset, make_linear(dataset))
    object.__setattr__(inputs, "explanation", None)
    assert all(isinstance(score, AbsentScore) for score in Infidelity().score(inputs))
    assert issubclass(Infidelity, Subsets)
    for wrong in ({"subsets": 1}, {"share": 0.0}, {"share": 2}, {"seed": -1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Infidelity(**wrong)
