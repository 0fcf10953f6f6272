"""τ without controls, its interval, its p and differences, against loops over the explainers that are left."""

from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from cfeval_cli.statistics.bootstrap import DEFAULT_RESAMPLES, Bootstrap, choose_n_resamples
from cfeval_cli.statistics.hypothesis_tests import adjust_holm, compute_bootstrap_p_values, is_underpowered
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, has_controls, select_subset
from tests.statistics.tables import EXPLAINERS, build, compute_kendall_tau, conclude, list_drawn_rows

SETTINGS = {"n_resamples": 25, "confidence": 0.8, "min_instances": 1}


def compute_values(drawn_rows, metric, names, better="higher"):
    """The value of each of some explainers over some instances, the better the larger."""
    variant, result = {"c": "label", "sufficiency": "del", "recall": "signed"}[metric], []
    for explainer in names:
        terms = [row[metric, variant, explainer] for row in drawn_rows if (metric, variant, explainer) in row]
        result.append(sum(n for n, _ in terms) / sum(d for _, d in terms) if terms else np.nan)
    return [(1 if better == "higher" else -1) * value for value in result]


def list_instances(scores):
    """All instances, each once."""
    instances = {}
    for row in scores.itertuples():
        instances.setdefault(row.instance, {})[row.metric, row.variant, row.explainer] = (
            row.numerator,
            row.denominator,
        )
    return list(instances.values())


@given(st.integers(0, 10_000), st.sampled_from([("a",), ("a", "d"), ()]), st.booleans())
def test_tau_interval_and_p_equal_a_loop_without_controls(seed, controls, gaps):
    scores, order = build(seed, n=8, gaps=gaps, controls=controls)
    result = conclude(scores, order, Bootstrap(seed, **SETTINGS))
    remaining = [name for name in EXPLAINERS if name not in controls]
    taus, lines = {}, select_subset(result.correlations, WITHOUT_CONTROLS).set_index("metric")
    for metric, better in (("c", "higher"), ("sufficiency", "lower")):
        line = lines.loc[metric]
        u, truth = (
            compute_values(list_instances(scores), metric, remaining, better),
            compute_values(list_instances(scores), "recall", remaining),
        )
        assert line["explainers"] == len(remaining)
        assert line["tau"] == pytest.approx(compute_kendall_tau(u, truth))
        if len({round(v, 9) for v in u}) == len({round(v, 9) for v in truth}) == len(remaining):
            assert line["tau"] == pytest.approx(stats.kendalltau(u, truth).statistic)
        hits = [compute_kendall_tau(u, order) >= compute_kendall_tau(u, truth) - 1e-9 for order in permutations(truth)]
        assert line["p_tau"] == pytest.approx(np.mean(hits))
        resampled = []
        for drawn_rows in list_drawn_rows(scores, 25, seed):
            u, truth = (
                compute_values(drawn_rows, metric, remaining, better),
                compute_values(drawn_rows, "recall", remaining),
            )
            resampled.append(np.nan if np.isnan([*u, *truth]).any() else compute_kendall_tau(u, truth))
        ends = tuple(np.nanquantile(resampled, [0.1, 0.9]))
        assert (line["tau_low"], line["tau_high"]) == pytest.approx(ends)
        assert line["tau_se"] == pytest.approx(np.nanstd(resampled, ddof=1))
        taus[metric] = np.array([line["tau"], *resampled])
    assert lines["rho"].isna().all()
    (line,) = select_subset(result.differences, WITHOUT_CONTROLS).to_dict("records")
    gaps_of = taus[line["metric"]] - taus[line["than_metric"]]
    assert line["difference"] == pytest.approx(gaps_of[0])
    valid_gaps = gaps_of[1:][~np.isnan(gaps_of[1:])]
    ends = tuple(np.quantile(valid_gaps, [0.1, 0.9]))
    assert (line["low"], line["high"]) == pytest.approx(ends)
    expected = min(1.0, 2 * (1 + min((valid_gaps <= 0).sum(), (valid_gaps >= 0).sum())) / (1 + len(valid_gaps)))
    assert line["p"] == pytest.approx(expected)
    is_same = not valid_gaps.any() and gaps_of[0] == 0
    assert line["same"] == is_same
    assert line["p_holm"] == pytest.approx(1.0 if is_same else expected)  # one pair: nothing to correct


def test_subsets_are_equal_if_no_explainer_is_a_control():
    result = conclude(*build(3, n=30), Bootstrap(0, **SETTINGS))
    for table, absent in ((result.correlations, ["rho", "rho_low", "rho_high", "rho_se", "p_rho"]),
                          (result.differences, []), (result.instance_agreement, [])):  # fmt: skip
        parts = (select_subset(table, of) for of in (ALL_EXPLAINERS, WITHOUT_CONTROLS))
        of_all, remaining_lines = (lines.drop(columns=["subset", *absent]).reset_index(drop=True) for lines in parts)
        assert len(of_all)
        pd.testing.assert_frame_equal(of_all, remaining_lines, check_exact=True)
    assert not has_controls(result.correlations)


@pytest.mark.parametrize("controls", [("a", "b", "c"), ("a", "b", "c", "d")])
def test_fewer_than_two_remaining_explainers_have_no_tau_and_a_reason(controls):
    result = conclude(*build(3, n=30, controls=controls), Bootstrap(0, **SETTINGS))
    of_all, remaining_lines = (select_subset(result.correlations, of) for of in (ALL_EXPLAINERS, WITHOUT_CONTROLS))
    assert of_all["tau"].notna().all() and (of_all["note"] == "").all() and len(remaining_lines) == len(of_all)
    assert remaining_lines["tau"].isna().all() and (remaining_lines["explainers"] == 4 - len(controls)).all()
    assert (remaining_lines["note"] == "without controls fewer than two explainers are left").all()
    of_all, remaining_lines = (select_subset(result.differences, of) for of in (ALL_EXPLAINERS, WITHOUT_CONTROLS))
    assert of_all["p"].notna().all() and remaining_lines["p_holm"].isna().all() and not remaining_lines["same"].any()
    assert set(result.instance_agreement["subset"]) == set(result.tau_resamples["subset"]) == {ALL_EXPLAINERS}
    assert has_controls(result.correlations)


def test_metric_without_ranked_explainers_has_the_same_note_in_each_subset():
    scores, order = build(3, n=30, controls=("a",))
    order.loc[(order["metric"] == "c") & (order["explainer"] != "a"), "note"] = "it has no value"
    result = conclude(scores[(scores["metric"] != "c") | (scores["explainer"] == "a")], order, Bootstrap(0, **SETTINGS))
    lines = result.correlations[result.correlations["metric"] == "c"]
    assert lines["tau"].isna().all() and lines["subset"].tolist() == [ALL_EXPLAINERS, WITHOUT_CONTROLS]
    assert lines["note"].nunique() == 1 and "it has no value" in lines["note"].iloc[0]


def test_graded_controls_have_one_subset():
    scores, order = build(4, n=30, controls=("a",))
    order["quality_level"] = order["explainer"].map({"b": 1.0, "c": 0.5, "d": 0.0}).astype(float)
    lines = conclude(scores, order, Bootstrap(0, **SETTINGS), "signed").correlations
    ladder = lines[lines["family"] == "graded"]
    assert ladder["tau"].notna().all() and (ladder["subset"] == ALL_EXPLAINERS).all()
    assert not ladder["note"].str.contains("controls").any()


@given(st.integers(2, 40))
def test_chosen_resamples_allow_significance_despite_one_contrary_resample(metrics):
    count, pairs = choose_n_resamples(metrics, 1000, 100), metrics * (metrics - 1) // 2
    assert count >= DEFAULT_RESAMPLES and not is_underpowered(count, pairs)
    gaps = np.ones((count, 1))
    gaps[0] = -1.0
    p = np.ones(pairs)
    p[0] = compute_bootstrap_p_values(gaps)[0]
    assert adjust_holm(p)[0] < 0.05
    p[0] = compute_bootstrap_p_values(np.ones((count, 1)))[0]
    assert adjust_holm(p)[0] < 0.05


@given(st.integers(1, 3000), st.integers(1, 300))
def test_underpowered_resamples_allow_no_significance(resamples, pairs):
    p = np.ones(pairs)
    p[0] = compute_bootstrap_p_values(np.ones((resamples, 1)))[0]
    assert (
        is_underpowered(resamples, pairs)
        == (min(1.0, 2 / (resamples + 1)) * pairs >= 0.05)
        == (adjust_holm(p)[0] >= 0.05)
    )


def test_large_runs_have_fewer_resamples_but_at_least_the_default():
    free = choose_n_resamples(16, 1000, 100)
    assert free == 9600
    assert (
        DEFAULT_RESAMPLES < choose_n_resamples(16, 1_000_000, 100) < free
        and choose_n_resamples(16, 10**9, 100) == DEFAULT_RESAMPLES
    )
    assert (
        DEFAULT_RESAMPLES < choose_n_resamples(16, 1000, 10_000) < free
        and choose_n_resamples(16, 1000, 10**9) == DEFAULT_RESAMPLES
    )
    assert choose_n_resamples(0, 0, 0) == choose_n_resamples(1, 1, 1) == DEFAULT_RESAMPLES


def test_agreement_uses_the_first_resamples_only():
    scores, order = build(5, n=40, controls=("a",))
    small, count = Bootstrap(0, n_resamples=30, min_instances=1), Bootstrap(0, n_resamples=90, min_instances=1)
    parts = Bootstrap(0, n_resamples=90, min_instances=1, max_interval_resamples=30)
    of_few, of_many, of_both = (conclude(scores, order, config) for config in (small, count, parts))
    for name in ("instance_agreement", "metric_agreement"):
        assert getattr(of_both, name).to_csv() == getattr(of_few, name).to_csv()
    for name in ("metrics", "correlations", "differences"):
        assert getattr(of_both, name).to_csv() == getattr(of_many, name).to_csv()
