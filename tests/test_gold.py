import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli import gold
from cfeval_cli.model.logistic import Linear
from cfeval_cli.types import ABSENT
from tests.problems import logit, problems


@given(problems(absent=0.2))
def test_each_definition_written_out(problem):
    dataset, model = problem
    codes, labels = dataset.test.codes, model.labels(dataset.test.codes)
    told = {name: gold.importance(name, model, dataset, codes, labels) for name in gold.DEFINITIONS}
    for i, row in enumerate(codes):
        sign = 1 if labels[i] == 1 else -1
        for j, own in enumerate(row):
            if own == ABSENT:
                assert all(scores[i, j] == -np.inf for scores in told.values())
                continue
            c = [float(model.weights[j] @ e) for e in model.tables[j]]
            mean = float(np.dot(dataset.frequencies[j], c))
            drops = []
            for v in range(len(c)):
                if v != own:
                    other = row.copy()
                    other[j] = v
                    drops.append(sign * (logit(model, row) - logit(model, other)))
            assert told["signed"][i, j] == pytest.approx(sign * c[own])
            assert told["absolute"][i, j] == pytest.approx(abs(c[own]))
            assert told["centered"][i, j] == pytest.approx(sign * (c[own] - mean))
            assert told["contrast"][i, j] == pytest.approx(max(drops))


@given(problems(), st.integers(-5, 5), st.integers(0, 3))
def test_centered_and_contrast_do_not_depend_on_where_the_constant_stands(problem, delta, feature):
    """Adding δ to every effect of a feature and taking it from the bias changes no prediction."""
    dataset, model = problem
    j = feature % dataset.width
    # an extra embedding dimension of weight 1 carries the shift
    tables = tuple(np.c_[t, np.full(len(t), delta if i == j else 0.0)] for i, t in enumerate(model.tables))
    weights = np.c_[model.weights, np.ones(len(tables))]
    means = np.c_[model.means, [delta if i == j else 0.0 for i in range(len(tables))]]
    shifted = Linear(model.bias - delta, weights, tables, means)
    codes = dataset.test.codes
    labels = model.labels(codes)
    assert shifted.proba(codes) == pytest.approx(model.proba(codes))
    for name in ("centered", "contrast"):
        a, b = (gold.importance(name, m, dataset, codes, labels) for m in (model, shifted))
        assert a == pytest.approx(b)
    signed = [gold.importance("signed", m, dataset, codes, labels)[:, j] for m in (model, shifted)]
    assert np.abs(signed[1] - signed[0]) == pytest.approx(abs(delta))


def test_top_orders_by_importance_then_by_feature_and_leaves_out_what_is_absent():
    scores = np.array([[1.0, 3.0, 3.0, -np.inf]])
    assert gold.top(scores, 2).tolist() == [[1, 2]]
    assert gold.top(scores, 4).tolist() == [[1, 2, 0, -1]]
    assert gold.top(scores, 6).tolist() == [[1, 2, 0, -1, -1, -1]]
