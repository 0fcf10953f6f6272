"""Prediction gaps against loops over draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Ledger
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.prediction_gap import Pgi, Pgu
from cfeval_cli.removal.marginal import Marginal
from tests.metric.inputs import Crossed, left_without, make_inputs, values
from tests.problems import make_dataset, make_linear, ready


@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 3))
def test_gaps_are_means_over_training_rows(seed, additive, k):
    dataset = make_dataset([3, 2, 4, 3], n=8, seed=seed, absent=0.2 if additive else 0.0)
    model = make_linear(dataset, seed) if additive else Crossed(dataset, seed, 3)
    inputs = make_inputs(dataset, model, k, seed)
    way = ready(dataset, model, {"marginal": Marginal(5, 3)})["marginal"]  # five draws: combinations are many
    for metric, inside in ((Pgi(Marginal(5, 3)), True), (Pgu(Marginal(5, 3)), False)):
        found = values(metric, inputs)["marginal"]
        for i, row in enumerate(inputs.codes):
            named = set(inputs.features[i].tolist())
            moved = [j for j in range(4) if (j in named) == inside and row[j] != ABSENT]
            gaps = [w * abs(inputs.probability[i] - p) for w, p in left_without(model, inputs, way, i, moved)]
            assert found[i] == pytest.approx(sum(gaps), abs=1e-9)


def test_the_draws_of_the_runs_own_removal_are_asked_once():
    dataset = make_dataset([4, 3, 3], n=10, seed=1)
    model = make_linear(dataset, 1)
    for draws, again in ((100, 0), (7, 30)):
        inputs = make_inputs(dataset, model, 1, 2)

        list(Comprehensiveness().score(inputs))
        ledger = Ledger()
        seen = make_inputs(dataset, model, 1, 2, memory=inputs.memory)
        object.__setattr__(seen, "model", ledger.open_client(model, seen.model.access, "pgi"))
        list(Pgi(Marginal(draws, 0)).score(seen))
        assert (ledger.rows["pgi"] > 0) == (again > 0)


def test_gaps_count_either_direction():
    dataset = make_dataset([4, 3], n=30, seed=3)
    model = make_linear(dataset, 4)
    inputs = make_inputs(dataset, model)
    gap = values(Pgi(Marginal()), inputs)["marginal"]

    drop = values(Comprehensiveness(["marginal"]), inputs)["marginal"]
    assert (gap >= np.abs(drop) - 1e-12).all() and (gap > drop + 1e-3).any()
