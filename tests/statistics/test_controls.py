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
from tests.statistics.tables import EXPLAINERS, build, conclude, drawn_rows, tau

HOW = {"resamples": 25, "confidence": 0.8, "min_instances": 1}


def values(chosen, metric, names, better="higher"):
    """The value of each of some explainers over some instances, the better the larger."""
    variant, found = {"c": "label", "sufficiency": "del", "recall": "signed"}[metric], []
    for explainer in names:
        mine = [one[metric, variant, explainer] for one in chosen if (metric, variant, explainer) in one]
        found.append(sum(n for n, _ in mine) / sum(d for _, d in mine) if mine else np.nan)
    return [(1 if better == "higher" else -1) * value for value in found]


def everyone(scores):
    """All instances, each once."""
    known = {}
    for row in scores.itertuples():
        known.setdefault(row.instance, {})[row.metric, row.variant, row.explainer] = (row.numerator, row.denominator)
    return list(known.values())


@given(st.integers(0, 10_000), st.sampled_from([("a",), ("a", "d"), ()]), st.booleans())
def test_tau_its_interval_and_its_p_are_those_of_a_loop_over_who_is_left(seed, controls, gaps):
    scores, order = build(seed, n=8, gaps=gaps, controls=controls)
    found = conclude(scores, order, Bootstrap(seed, **HOW))
    left = [name for name in EXPLAINERS if name not in controls]
    taus, lines = {}, select_subset(found.correlations, WITHOUT_CONTROLS).set_index("metric")
    for metric, better in (("c", "higher"), ("sufficiency", "lower")):
        line = lines.loc[metric]
        ours, truth = values(everyone(scores), metric, left, better), values(everyone(scores), "recall", left)
        assert line["explainers"] == len(left)
        assert line["tau"] == pytest.approx(tau(ours, truth))
        if len({round(v, 9) for v in ours}) == len({round(v, 9) for v in truth}) == len(left):
            assert line["tau"] == pytest.approx(stats.kendalltau(ours, truth).statistic)
        hits = [tau(ours, order) >= tau(ours, truth) - 1e-9 for order in permutations(truth)]
        assert line["p_tau"] == pytest.approx(np.mean(hits))
        drawn = []
        for chosen in drawn_rows(scores, 25, seed):
            ours, truth = values(chosen, metric, left, better), values(chosen, "recall", left)
            drawn.append(np.nan if np.isnan([*ours, *truth]).any() else tau(ours, truth))
        ends = tuple(np.nanquantile(drawn, [0.1, 0.9]))
        assert (line["tau_low"], line["tau_high"]) == pytest.approx(ends)
        assert line["tau_se"] == pytest.approx(np.nanstd(drawn, ddof=1))
        taus[metric] = np.array([line["tau"], *drawn])
    assert lines["rho"].isna().all()
    (line,) = select_subset(found.differences, WITHOUT_CONTROLS).to_dict("records")
    gaps_of = taus[line["metric"]] - taus[line["than_metric"]]
    assert line["difference"] == pytest.approx(gaps_of[0])
    there = gaps_of[1:][~np.isnan(gaps_of[1:])]
    ends = tuple(np.quantile(there, [0.1, 0.9]))
    assert (line["low"], line["high"]) == pytest.approx(ends)
    expected = min(1.0, 2 * (1 + min((there <= 0).sum(), (there >= 0).sum())) / (1 + len(there)))
    assert line["p"] == pytest.approx(expected)
    same = not there.any() and gaps_of[0] == 0
    assert line["same"] == same
    assert line["p_holm"] == pytest.approx(1.0 if same else expected)  # one pair: nothing to correct


def test_without_controls_both_figures_are_the_same_bits():
    found = conclude(*build(3, n=30), Bootstrap(0, **HOW))
    for table, absent in ((found.correlations, ["rho", "rho_low", "rho_high", "rho_se", "p_rho"]),
                          (found.differences, []), (found.instance_agreement, [])):  # fmt: skip
        both = (select_subset(table, of) for of in (ALL_EXPLAINERS, WITHOUT_CONTROLS))
        of_all, rest = (lines.drop(columns=["subset", *absent]).reset_index(drop=True) for lines in both)
        assert len(of_all)
        pd.testing.assert_frame_equal(of_all, rest, check_exact=True)
    assert not has_controls(found.correlations)


@pytest.mark.parametrize("controls", [("a", "b", "c"), ("a", "b", "c", "d")])
def test_who_is_left_alone_has_no_tau_and_the_reason_is_told(controls):
    found = conclude(*build(3, n=30, controls=controls), Bootstrap(0, **HOW))
    of_all, rest = (select_subset(found.correlations, of) for of in (ALL_EXPLAINERS, WITHOUT_CONTROLS))
    assert of_all["tau"].notna().all() and (of_all["note"] == "").all() and len(rest) == len(of_all)
    assert rest["tau"].isna().all() and (rest["explainers"] == 4 - len(controls)).all()
    assert (rest["note"] == "without controls fewer than two explainers are left").all()
    of_all, rest = (select_subset(found.differences, of) for of in (ALL_EXPLAINERS, WITHOUT_CONTROLS))
    assert of_all["p"].notna().all() and rest["p_holm"].isna().all() and not rest["same"].any()
    assert set(found.instance_agreement["subset"]) == set(found.tau_resamples["subset"]) == {ALL_EXPLAINERS}
    assert has_controls(found.correlations)


def test_where_no_explainer_is_ranked_the_note_is_the_same_in_each_subset():
    scores, order = build(3, n=30, controls=("a",))
    order.loc[(order["metric"] == "c") & (order["explainer"] != "a"), "note"] = "it has no value"
    found = conclude(scores[(scores["metric"] != "c") | (scores["explainer"] == "a")], order, Bootstrap(0, **HOW))
    lines = found.correlations[found.correlations["metric"] == "c"]
    assert lines["tau"].isna().all() and lines["subset"].tolist() == [ALL_EXPLAINERS, WITHOUT_CONTROLS]
    assert lines["note"].nunique() == 1 and "it has no value" in lines["note"].iloc[0]


def test_a_ladder_has_no_controls():
    scores, order = build(4, n=30, controls=("a",))
    order["quality_level"] = order["explainer"].map({"b": 1.0, "c": 0.5, "d": 0.0}).astype(float)
    lines = conclude(scores, order, Bootstrap(0, **HOW), "signed").correlations
    ladder = lines[lines["family"] == "graded"]
    assert ladder["tau"].notna().all() and (ladder["subset"] == ALL_EXPLAINERS).all()
    assert not ladder["note"].str.contains("controls").any()


@given(st.integers(2, 40))
def test_enough_resamples_let_a_difference_pass_holm_even_if_one_resample_is_against_it(metrics):
    many, pairs = choose_n_resamples(metrics, 1000, 100), metrics * (metrics - 1) // 2
    assert many >= DEFAULT_RESAMPLES and not is_underpowered(many, pairs)
    gaps = np.ones((many, 1))
    gaps[0] = -1.0
    p = np.ones(pairs)
    p[0] = compute_bootstrap_p_values(gaps)[0]
    assert adjust_holm(p)[0] < 0.05
    p[0] = compute_bootstrap_p_values(np.ones((many, 1)))[0]
    assert adjust_holm(p)[0] < 0.05


@given(st.integers(1, 3000), st.integers(1, 300))
def test_too_few_resamples_are_those_with_which_nothing_can_pass(resamples, pairs):
    p = np.ones(pairs)
    p[0] = compute_bootstrap_p_values(np.ones((resamples, 1)))[0]
    assert (
        is_underpowered(resamples, pairs)
        == (min(1.0, 2 / (resamples + 1)) * pairs >= 0.05)
        == (adjust_holm(p)[0] >= 0.05)
    )


def test_many_scores_or_values_are_resampled_less_often_but_never_less_than_usual():
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


def test_what_has_no_differences_takes_the_first_resamples_only():
    scores, order = build(5, n=40, controls=("a",))
    few, many = Bootstrap(0, resamples=30, min_instances=1), Bootstrap(0, resamples=90, min_instances=1)
    both = Bootstrap(0, resamples=90, min_instances=1, max_interval_resamples=30)
    of_few, of_many, of_both = (conclude(scores, order, how) for how in (few, many, both))
    for name in ("instance_agreement", "metric_agreement"):
        assert getattr(of_both, name).to_csv() == getattr(of_few, name).to_csv()
    for name in ("metrics", "correlations", "differences"):
        assert getattr(of_both, name).to_csv() == getattr(of_many, name).to_csv()
