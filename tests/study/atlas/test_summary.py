"""The summary of synthetic atlases with known means."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from cfeval_cli.study.atlas.summary import LEADING_TAU, AtlasSummary, compute_differences, pivot_runs
from tests.study.atlas.synthetic import METRICS, TRUTHS, make_atlas, summarise_default


@pytest.fixture(scope="module")
def summary():
    return summarise_default()


def test_best_metric_of_each_question_has_its_mean_and_size(summary):
    best = {question.question: question.best for question in summary.questions}
    assert {question: metric.pair[0] for question, metric in best.items()} == {
        "contribution": "comprehensiveness",
        "change": "validity_soft",
    }
    for truth, question in TRUTHS.items():
        is_best = summary.rows["metric"] == best[question].pair[0]
        rows = summary.rows[(summary.rows["truth"] == truth) & is_best]
        tau = best[question].tau
        assert tau.mean == pytest.approx(rows[LEADING_TAU].mean())  # balanced: the mean of means is the mean
        assert tau.low < tau.mean < tau.high and (tau.n_rows, tau.n_data_sets, tau.n_judges) == (len(rows), 4, 4)


def test_metric_that_is_not_identifiable_is_not_compared(summary):
    for question in summary.questions:
        assert ("aopc", "del") not in [metric.pair for metric in question.compared]
        assert question.metrics[-1].pair == ("aopc", "del") and question.metrics[-1].is_arbitrary
        means = [metric.tau.mean for metric in question.compared]
        assert means == sorted(means, reverse=True)


def test_circular_rows_are_left_out_of_tau_without_circular(summary):
    question = summary.get_question("contribution")
    first = next(metric for metric in question.metrics if metric.pair[0] == "comprehensiveness")
    assert first.n_circular == first.n_rows and np.isnan(first.tau_without_circular.mean)
    second = question.best_without_circular
    assert second.pair == ("aopc", "marginal")
    assert second.tau_without_circular.mean == pytest.approx(second.tau.mean / 2, abs=1e-6)
    additive = summary.rows["judge"].isin(["Additive", "Logistic"]) & (summary.rows["metric"] == "validity_soft")
    assert summary.circular_metrics.to_dict("records") == [
        {"metric": "comprehensiveness", "variant": "marginal", "title": "comprehensiveness (marginal)",
         "truth": "shapley", "rows": first.n_rows, "k": "1, 3"},
        {"metric": "validity_soft", "variant": "probability", "title": "validity_soft (probability)",
         "truth": "contrast", "rows": int((additive & (summary.rows["truth"] == "contrast")).sum()), "k": "1, 3"},
    ]  # fmt: skip


def test_lower_metrics_are_significantly_different_and_equal_ones_are_not():
    with_equal = {**METRICS, ("infidelity", "marginal"): ("scores", 0.1, 0.85)}
    atlas = make_atlas(0.1, metrics=with_equal)
    question = AtlasSummary(atlas).get_question("change")
    assert {metric.pair[0] for metric in (question.best, *question.tied)} == {"validity_soft", "infidelity"}
    # recomputed: the units are data sets, and rows in which the best metric is circular do not count
    rows = atlas.rows[(atlas.rows["question"] == "change")]
    rows = rows.assign(identity=rows["judge"].isin(["Additive", "Logistic"]) & (rows["truth"] == "contrast"))
    best, other = question.best.pair, ("c", "label")
    evidence = rows if best[0] == "infidelity" else rows[~rows["identity"]]
    wide = evidence.groupby(["data", "judge", "truth", "seed", "k", "metric"])[LEADING_TAU].mean().unstack("metric")
    differences = wide[best[0]] - wide[other[0]]
    for keys in (["data", "judge", "truth", "seed"], ["data", "judge", "truth"], ["data", "judge"], ["data"]):
        differences = differences.groupby(level=keys).mean()
    test = ttest_1samp(differences, 0.0)
    result = question.differences[other]
    expected = (differences.mean(), *test.confidence_interval(0.95))
    assert (result.mean, result.low, result.high) == pytest.approx(expected)
    assert test.pvalue <= result.p < 0.05


def test_lead_of_circular_metric_is_not_significant(summary):
    question = summary.get_question("contribution")
    assert question.best.n_circular == question.best.n_rows
    assert question.tied == [metric for metric in question.compared if metric is not question.best]


def test_few_data_sets_and_noise_are_inconclusive():
    few_data_sets = AtlasSummary(make_atlas(sets=("pima", "heloc"))).questions[0]
    assert few_data_sets.best is None and not few_data_sets.is_conclusive and few_data_sets.differences == {}
    no_signal = {pair: (block, 0.0, 0.0) for pair, (block, *_) in METRICS.items()}
    assert not AtlasSummary(make_atlas(0.6, metrics=no_signal)).questions[0].is_conclusive


def test_metric_with_missing_cells_is_not_compared(summary):
    atlas = summary.atlas
    is_missing = (atlas.rows["metric"] == "comprehensiveness") & (atlas.rows["data"] == "adults")
    question = AtlasSummary(type(atlas)(atlas.rows[~is_missing])).get_question("contribution")
    assert "comprehensiveness" not in [metric.pair[0] for metric in question.compared]
    assert question.best.pair[0] == "aopc"


def test_differences_are_computed_within_run_and_truth(summary):
    rows = summary.rows[summary.rows["question"] == "change"]
    pairs, other_metrics = [("c", "label"), ("c_soft", "probability")], [("dfr", "marginal")]
    differences = compute_differences(pivot_runs(rows, LEADING_TAU), pairs, other_metrics, LEADING_TAU)
    line = differences.iloc[5]
    of_run = rows[
        (rows[["data", "judge", "truth", "seed", "k"]] == line[["data", "judge", "truth", "seed", "k"]]).all(axis=1)
    ]
    tau = of_run.set_index("metric")[LEADING_TAU]
    assert (
        line[LEADING_TAU] == pytest.approx((tau["c"] + tau["c_soft"]) / 2 - tau["dfr"])
        and len(differences) == 4 * 4 * 3 * 2
    )


def test_variance_shares_sum_to_one_and_metric_explains_most(summary):
    shares = summary.variance[summary.variance["question"] == "contribution"].set_index("factor")["share"]
    assert shares["metric"] > 0.9 and shares[["data", "judge", "seed", "k"]].abs().max() < 0.05
    assert shares[["metric", "data", "judge", "truth", "seed", "k", "residual"]].sum() == pytest.approx(1)
    assert (summary.variance["rows"] == len(summary.rows) / 2).all()


def test_disagreement_of_two_truths_is_detected(summary):
    line = summary.truth_agreement.iloc[0]
    assert (line["truth"], line["other"], line["metrics"]) == ("contrast", "shapley", 9) and line["tau"] < 0.2


def test_means_by_factor_are_those_of_its_rows(summary):
    means = summary.compute_means("change", "judge")
    line = means[(means["metric"] == "c") & (means["judge"] == "Tree")].iloc[0]
    rows = summary.rows
    of_metric = rows[(rows["metric"] == "c") & (rows["judge"] == "Tree") & (rows["question"] == "change")]
    assert line["mean"] == pytest.approx(of_metric[LEADING_TAU].mean()) and line["rows"] == len(of_metric)
