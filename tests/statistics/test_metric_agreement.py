"""How far metrics agree with each other, against τ written out."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics import metric_agreement
from cfeval_cli.statistics.bootstrap import Bootstrap
from tests.statistics.tables import EXPLAINERS, build, conclude, summarise


def sign(x):
    return 0 if abs(x) < 1e-12 else np.sign(x)


@given(st.integers(0, 10_000))
def test_every_two_metrics_are_compared(seed):
    scores, order = build(seed, n=8)
    table = conclude(scores, order, Bootstrap(0, n_resamples=20, min_instances=1)).metric_agreement
    assert list(table.columns) == metric_agreement.COLUMNS
    metrics = summarise(scores, order)
    value = {(row.metric, row.explainer): row.value for row in metrics.itertuples()}
    u, v = ({e: sg * value[m, e] for e in EXPLAINERS} for m, sg in (("c", 1), ("sufficiency", -1)))
    signs = [(sign(u[a] - u[b]), sign(v[a] - v[b])) for a, b in combinations(EXPLAINERS, 2)]
    if not any(x for x, _ in signs) or not any(y for _, y in signs):
        assert table.empty  # a metric that ties all explainers agrees with none
        return
    (line,) = table.itertuples()
    assert (line.metric, line.variant, line.other_metric, line.other_variant) == ("c", "label", "sufficiency", "del")
    assert line.explainers == 4 and line.tau == pytest.approx(np.mean([x * y for x, y in signs]))
    assert -1 <= line.tau_low <= line.tau_high <= 1


def test_truths_and_a_single_explainer_have_no_agreement():
    scores, order = build(3)
    table = conclude(scores, order, Bootstrap(0, n_resamples=20, min_instances=1)).metric_agreement
    assert "recall" not in {*table["metric"], *table["other_metric"]}
    result = conclude(
        scores[scores["explainer"] == "a"],
        order[order["explainer"] == "a"],
        Bootstrap(0, n_resamples=20, min_instances=1),
    )
    assert result.metric_agreement.empty
    no_truth = conclude(
        scores[scores["metric"] != "recall"],
        order[order["metric"] != "recall"],
        Bootstrap(0, n_resamples=20, min_instances=1),
    )
    assert no_truth.correlations.empty and len(no_truth.metric_agreement) == len(table)
