"""A run of one of the paper's experiments states how it differs from the paper's table."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.report.paper_answer import PAPER_SETTINGS, identify_experiment, write_paper_answer
from cfeval_cli.report.published import EXPLAINERS, load_figures, parse_figures
from tests.records import change_record, make_metric, make_record

KEY = ("1", "adults")
PUBLISHED = parse_figures(load_figures())
SERIES = {series.pair: series for series in PUBLISHED.list_series(KEY)}
RECORD = make_record(
    data={"name": "adults"}, levels=["label", "probability"], explainers=EXPLAINERS, accuracy={"test": 0.7757},
    explainer_settings={"lime": {"order": "absolute"}}, instances=1569,
    metrics={metric: make_metric(metric) for metric, _ in SERIES},
    settings={**PAPER_SETTINGS, "k": 1, "truth": ["signed"], "seed": 0},
)  # fmt: skip


def make_statistics(change=lambda pair, values: values, taus=None):
    """Return statistics with the paper's own values, but for what is changed."""
    rows = [
        {"metric": pair[0], "variant": pair[1], "explainer": name, "value": value, "quality_level": np.nan}
        for pair, series in SERIES.items()
        for name, value in change(pair, {name: figure.value for name, figure in series.figures.items()}).items()
    ]
    correlations = [
        {"metric": c.metric, "variant": c.variant, "truth": "signed", "agreement": "recall", "subset": "all",
         "explainers": 6, "tau": (taus or {}).get(c.metric, c.figure.value)}
        for c in PUBLISHED.coefficients if (c.table, c.dataset, c.kind) == ("2", "adults", "tau")
    ]  # fmt: skip
    return SimpleNamespace(metrics=pd.DataFrame(rows), correlations=pd.DataFrame(correlations))


def test_run_with_the_values_of_the_paper_reproduces_every_rank():
    answer = write_paper_answer(make_statistics(), RECORD)
    assert answer.headline == (
        "Paper: 60 of the 60 ranks in Table 1 (Adults) are reproduced (order by the ground truth, as in the paper: LR, "
        "LIME, DecisionBoundary, Anchor, Omission, Random)."
    )
    assert answer.details[:2] == [
        "Over all 6 explainers, the highest τ with the ground truth in the paper is that of c (label) and c_soft "
        "(probability) (1.00; here 1.00), as in this run.",
        "The model has a test accuracy of 77.6 %, that of the paper 77.6 %.",
    ]
    assert str(answer) == " ".join([answer.headline, *answer.details])


def test_other_values_and_correlations_are_named():
    def swap(pair, values):
        if pair != ("recall", "signed"):
            return values
        return values | {"lime": values["omission"], "omission": values["lime"]}

    answer = write_paper_answer(make_statistics(swap, taus={"c": 0.2, "c_soft": -0.2, "dfr": 0.8}), RECORD)
    assert answer.statement == "Paper: 58 of the 60 ranks in Table 1 (Adults) are reproduced"
    assert answer.evidence.startswith(
        "order by the ground truth: LR, Omission, DecisionBoundary, Anchor, LIME, Random;"
    )
    assert "(1.00; here 0.20 and -0.20), in this run that of dfr (del) (0.80; in the paper 0.47)." in answer.details[0]


def test_metric_without_a_value_for_an_explainer_is_not_counted():
    def drop(pair, values):
        return {name: value for name, value in values.items() if pair[0] != "dfr" or name != "lime"}

    answer = write_paper_answer(make_statistics(drop), RECORD)
    assert answer.statement.startswith("Paper: 54 of the 54 ranks")


def test_sample_of_the_instances_is_mentioned():
    answer = write_paper_answer(make_statistics(), change_record(RECORD, instances=60, settings={"n_explain": 60}))
    assert "This run explains a sample of 60 test instances, the paper all of them." in answer.details


@pytest.mark.parametrize(
    "changes",
    [{"data": {"name": "pima"}}, {"settings": {"k": 3}}, {"settings": {"support": "common"}}, {"levels": ["label"]},
     {"explainer_settings": {"lime": {"order": "signed"}}}, {"explainers": {"lime": "LIME"}}],
)  # fmt: skip
def test_other_runs_have_no_answer(changes):
    assert identify_experiment(RECORD) == KEY
    assert write_paper_answer(make_statistics(), change_record(RECORD, **changes)) is None
