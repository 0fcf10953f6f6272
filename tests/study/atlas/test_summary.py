"""What rows say together, where it is known what they should say."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from cfeval_cli.study.atlas.summary import LEAD, Summary, by_run, differences
from tests.study.atlas.worlds import METRICS, TRUTHS, usual, world


@pytest.fixture(scope="module")
def summary():
    return usual()


def test_the_best_metric_of_each_question_is_found_with_its_mean_and_n(summary):
    best = {one.question: one.best for one in summary.answers}
    assert {question: one.pair[0] for question, one in best.items()} == {
        "contribution": "comprehensiveness",
        "change": "validity_soft",
    }
    for truth, question in TRUTHS.items():
        mine = summary.rows[(summary.rows["truth"] == truth) & (summary.rows["metric"] == best[question].pair[0])]
        told = best[question].lead
        assert told.mean == pytest.approx(mine[LEAD].mean())  # balanced: the mean of means is the mean
        assert told.low < told.mean < told.high and (told.rows, told.data, told.judges) == (len(mine), 4, 4)


def test_what_depends_on_a_constant_is_not_compared_however_well_it_does(summary):
    for answer in summary.answers:
        assert ("aopc", "del") not in [one.pair for one in answer.compared]
        assert answer.metrics[-1].pair == ("aopc", "del") and answer.metrics[-1].arbitrary
        means = [one.lead.mean for one in answer.compared]
        assert means == sorted(means, reverse=True)


def test_what_is_right_by_construction_is_left_out_of_the_second_ranking(summary):
    answer = summary.answers[0]
    first = next(one for one in answer.metrics if one.pair[0] == "comprehensiveness")
    assert first.circular == first.rows and np.isnan(first.clean.mean) and answer.clean.pair == ("aopc", "marginal")
    assert answer.clean.clean.mean == pytest.approx(answer.clean.lead.mean / 2, abs=1e-6)
    additive = summary.rows["judge"].isin(["Additive", "Logistic"]) & (summary.rows["metric"] == "validity_soft")
    assert summary.circular.to_dict("records") == [
        {"metric": "comprehensiveness", "variant": "marginal", "title": "comprehensiveness (marginal)",
         "truth": "shapley", "rows": first.rows, "k": "1, 3"},
        {"metric": "validity_soft", "variant": "probability", "title": "validity_soft (probability)",
         "truth": "contrast", "rows": int((additive & (summary.rows["truth"] == "contrast")).sum()), "k": "1, 3"},
    ]  # fmt: skip


def test_metrics_that_are_truly_behind_are_told_apart_and_twins_are_not():
    twins = {**METRICS, ("infidelity", "marginal"): ("scores", 0.1, 0.85)}
    atlas = world(0.1, metrics=twins)
    answer = Summary(atlas).answers[1]
    assert {one.pair[0] for one in (answer.best, *answer.tied)} == {"validity_soft", "infidelity"}
    # by hand: data sets are the units, and rows in which the best is right by construction do not count
    rows = atlas.rows[(atlas.rows["question"] == "change")]
    rows = rows.assign(identity=rows["judge"].isin(["Additive", "Logistic"]) & (rows["truth"] == "contrast"))
    best, other = answer.best.pair, ("c", "label")
    free = rows if best[0] == "infidelity" else rows[~rows["identity"]]
    wide = free.groupby(["data", "judge", "truth", "seed", "k", "metric"])[LEAD].mean().unstack("metric")
    gaps = wide[best[0]] - wide[other[0]]
    for keys in (["data", "judge", "truth", "seed"], ["data", "judge", "truth"], ["data", "judge"], ["data"]):
        gaps = gaps.groupby(level=keys).mean()
    test = ttest_1samp(gaps, 0.0)
    assert answer.behind[other][:3] == pytest.approx((gaps.mean(), *test.confidence_interval(0.95)))
    assert test.pvalue <= answer.behind[other][3] < 0.05


def test_a_lead_that_is_right_by_construction_in_all_rows_is_no_evidence(summary):
    answer = summary.answers[0]
    assert answer.best.circular == answer.best.rows
    assert {one.pair for one in answer.tied} == {one.pair for one in answer.compared} - {answer.best.pair}


def test_few_data_sets_leave_it_open_and_noise_tells_nothing():
    few = Summary(world(sets=("pima", "heloc"))).answers[0]
    assert few.best is None and not few.sure and few.behind == {}
    noise = {pair: (block, 0.0, 0.0) for pair, (block, *_) in METRICS.items()}
    assert not Summary(world(0.6, metrics=noise)).answers[0].sure


def test_a_metric_that_lacks_many_cells_is_not_compared(summary):
    atlas = summary.atlas
    gone = (atlas.rows["metric"] == "comprehensiveness") & (atlas.rows["data"] == "adults")
    answer = Summary(type(atlas)(atlas.rows[~gone])).answers[0]
    assert "comprehensiveness" not in [one.pair[0] for one in answer.compared] and answer.best.pair[0] == "aopc"


def test_differences_are_taken_in_the_same_run_and_truth(summary):
    rows = summary.rows[summary.rows["question"] == "change"]
    found = differences(by_run(rows, LEAD), [("c", "label"), ("c_soft", "probability")], [("dfr", "marginal")], LEAD)
    line = found.iloc[5]
    mine = rows[
        (rows[["data", "judge", "truth", "seed", "k"]] == line[["data", "judge", "truth", "seed", "k"]]).all(axis=1)
    ]
    tau = mine.set_index("metric")[LEAD]
    assert line[LEAD] == pytest.approx((tau["c"] + tau["c_soft"]) / 2 - tau["dfr"]) and len(found) == 4 * 4 * 3 * 2


def test_variance_is_shared_out_and_the_metric_has_most_of_it(summary):
    found = summary.variance[summary.variance["question"] == "contribution"].set_index("factor")["share"]
    assert found["metric"] > 0.9 and found[["data", "judge", "seed", "k"]].abs().max() < 0.05
    assert found[["metric", "data", "judge", "truth", "seed", "k", "all else"]].sum() == pytest.approx(1)
    assert (summary.variance["rows"] == len(summary.rows) / 2).all()


def test_two_truths_that_rank_metrics_otherwise_are_seen(summary):
    line = summary.stability.iloc[0]
    assert (line["truth"], line["other"], line["metrics"]) == ("contrast", "shapley", 9) and line["tau"] < 0.2


def test_means_by_a_factor_are_of_its_rows(summary):
    found = summary.means("change", "judge")
    line = found[(found["metric"] == "c") & (found["judge"] == "Tree")].iloc[0]
    rows = summary.rows
    mine = rows[(rows["metric"] == "c") & (rows["judge"] == "Tree") & (rows["question"] == "change")]
    assert line["mean"] == pytest.approx(mine[LEAD].mean()) and line["rows"] == len(mine)
