"""Prediction gaps against loops over draws."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.core import ABSENT, Ledger
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.prediction_gap import Pgi, Pgu
from cfeval_cli.removal.marginal import Marginal
from tests.metric.cases import Crossed, left_without, make_case, values
from tests.problems import make_dataset, make_linear, ready


@given(st.integers(0, 10_000), st.booleans(), st.integers(1, 3))
def test_gaps_are_means_over_training_rows(seed, additive, k):
    dataset = make_dataset([3, 2, 4, 3], n=8, seed=seed, absent=0.2 if additive else 0.0)
    model = make_linear(dataset, seed) if additive else Crossed(dataset, seed, 3)
    case = make_case(dataset, model, k, seed)
    way = ready(dataset, model, {"marginal": Marginal(5, 3)})["marginal"]  # five draws: combinations are many
    for metric, inside in ((Pgi(Marginal(5, 3)), True), (Pgu(Marginal(5, 3)), False)):
        found = values(metric, case)["marginal"]
        for i, row in enumerate(case.codes):
            named = set(case.features[i].tolist())
            moved = [j for j in range(4) if (j in named) == inside and row[j] != ABSENT]
            gaps = [w * abs(case.probability[i] - p) for w, p in left_without(model, case, way, i, moved)]
            assert found[i] == pytest.approx(sum(gaps), abs=1e-9)


def test_the_draws_of_the_runs_own_removal_are_asked_once():
    dataset = make_dataset([4, 3, 3], n=10, seed=1)
    model = make_linear(dataset, 1)
    for draws, again in ((100, 0), (7, 30)):
        case = make_case(dataset, model, 1, 2)

        list(Comprehensiveness().score(case))
        ledger = Ledger()
        seen = make_case(dataset, model, 1, 2, memory=case.memory)
        object.__setattr__(seen, "model", ledger.gate(model, seen.model.access, "pgi"))
        list(Pgi(Marginal(draws, 0)).score(seen))
        assert (ledger.rows["pgi"] > 0) == (again > 0)


def test_gaps_count_either_direction():
    dataset = make_dataset([4, 3], n=30, seed=3)
    model = make_linear(dataset, 4)
    case = make_case(dataset, model)
    gap = values(Pgi(Marginal()), case)["marginal"]

    drop = values(Comprehensiveness(["marginal"]), case)["marginal"]
    assert (gap >= np.abs(drop) - 1e-12).all() and (gap > drop + 1e-3).any()
