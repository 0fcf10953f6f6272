"""Prediction gaps against loops over draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Ledger, LedgerKey
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.prediction_gap import Pgi, Pgu
from cfeval_cli.removal.marginal import Marginal
from tests.metric.inputs import InteractionModel, compute_values, list_remaining_probabilities, make_inputs
from tests.problems import fit_removals, make_dataset, make_linear


@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 3))
def test_gap_is_the_mean_over_draws(seed, additive, k):
    dataset = make_dataset([3, 2, 4, 3], n=8, seed=seed, absent=0.2 if additive else 0.0)
    model = make_linear(dataset, seed) if additive else InteractionModel(dataset, seed, 3)
    inputs = make_inputs(dataset, model, k, seed)
    fitted = fit_removals(dataset, model, {"marginal": Marginal(5, 3)})["marginal"]  # five draws have many combinations
    for metric, replaces_selected in ((Pgi(Marginal(5, 3)), True), (Pgu(Marginal(5, 3)), False)):
        gaps = compute_values(metric, inputs)["marginal"]
        for i, row in enumerate(inputs.codes):
            selected = set(inputs.features[i].tolist())
            replaced = [j for j in range(4) if (j in selected) == replaces_selected and row[j] != ABSENT]
            expected = [
                w * abs(inputs.probability[i] - p)
                for w, p in list_remaining_probabilities(model, inputs, fitted, i, replaced)
            ]
            assert gaps[i] == pytest.approx(sum(expected), abs=1e-9)


def test_equal_removal_of_the_run_shares_model_evaluations():
    dataset = make_dataset([4, 3, 3], n=10, seed=1)
    model = make_linear(dataset, 1)
    for draws, n_new in ((100, 0), (7, 30)):
        inputs = make_inputs(dataset, model, 1, 2)

        list(Comprehensiveness().score(inputs))
        ledger = Ledger()
        second = make_inputs(dataset, model, 1, 2, memory=inputs.memory)
        object.__setattr__(second, "model", ledger.open_client(model, second.model.access, LedgerKey("pgi")))
        list(Pgi(Marginal(draws, 0)).score(second))
        assert (ledger.n_evaluations[LedgerKey("pgi")] > 0) == (n_new > 0)


def test_gap_counts_changes_in_either_direction():
    dataset = make_dataset([4, 3], n=30, seed=3)
    model = make_linear(dataset, 4)
    inputs = make_inputs(dataset, model)
    gap = compute_values(Pgi(Marginal()), inputs)["marginal"]

    drop = compute_values(Comprehensiveness(["marginal"]), inputs)["marginal"]
    assert (gap >= np.abs(drop) - 1e-12).all() and (gap > drop + 1e-3).any()
