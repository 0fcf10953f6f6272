"""Agreement, its intervals, differences between metrics and agreement by instance, each against loops written out."""

import math
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.statistics.bootstrap import Bootstrap
from cfeval_cli.statistics.correlation import RankCorrelations, list_families
from cfeval_cli.statistics.hypothesis_tests import adjust_holm, compute_bootstrap_p_values
from cfeval_cli.statistics.instance_agreement import tabulate_instance_agreement
from cfeval_cli.statistics.resampled_values import ResampledValues
from cfeval_cli.statistics.scores import Scores
from cfeval_cli.statistics.subsets import ALL_EXPLAINERS, WITHOUT_CONTROLS, select_subset
from cfeval_cli.statistics.tau_differences import find_identical_metrics
from tests.statistics.tables import (
    EXPLAINERS,
    build,
    compute_kendall_tau,
    compute_sign,
    conclude,
    list_drawn_rows,
    summarise,
)


def compute_values(drawn_rows, metric, variant, better="higher"):
    """The value of each explainer over some instances, the better the larger."""
    result = []
    for explainer in EXPLAINERS:
        terms = [a[metric, variant, explainer] for a in drawn_rows if (metric, variant, explainer) in a]
        result.append(sum(n for n, _ in terms) / sum(d for _, d in terms) if terms else np.nan)
    return [(1 if better == "higher" else -1) * value for value in result]


@given(st.integers(0, 10_000))
def test_intervals_of_tau_equal_a_loop_over_resamples(seed):
    scores, order = build(seed, n=8, gaps=True)
    result = conclude(scores, order, Bootstrap(seed, n_resamples=25, confidence=0.8, min_instances=1))
    taus = {}
    for metric, variant, better in (("c", "label", "higher"), ("sufficiency", "del", "lower")):
        resampled_taus = []
        for drawn_rows in list_drawn_rows(scores, 25, seed):
            u, truth = (
                compute_values(drawn_rows, metric, variant, better),
                compute_values(drawn_rows, "recall", "signed"),
            )
            resampled_taus.append(np.nan if np.isnan([*u, *truth]).any() else compute_kendall_tau(u, truth))
        taus[metric] = np.array(resampled_taus)
        line = result.correlations[result.correlations["metric"] == metric].iloc[0]
        assert (line["tau_low"], line["tau_high"]) == pytest.approx(tuple(np.nanquantile(resampled_taus, [0.1, 0.9])))
        assert line["tau_se"] == pytest.approx(np.nanstd(resampled_taus, ddof=1))
        assert (line["family"], line["explainers"]) == ("explainers", 4)
    (line,) = select_subset(result.differences).to_dict("records")
    gaps = taus[line["metric"]] - taus[line["than_metric"]]
    assert line["difference"] >= 0 and (line["low"], line["high"]) == pytest.approx(
        tuple(np.nanquantile(gaps, [0.1, 0.9]))
    )
    valid_gaps = gaps[~np.isnan(gaps)]
    expected = 2 * (1 + min((valid_gaps <= 0).sum(), (valid_gaps >= 0).sum())) / (1 + len(valid_gaps))
    assert line["p"] == pytest.approx(min(1, expected)) and line["same"] == (not gaps[~np.isnan(gaps)].any())


@given(st.lists(st.floats(0, 1), min_size=1, max_size=9))
def test_holm_rejects_step_by_step(p):
    """A hypothesis is rejected at level a exactly if its adjusted p is at most a: the procedure, run at each level."""
    adjusted = adjust_holm(np.array(p))
    for level in [*adjusted.tolist(), 0.05, 0.5]:
        rejected, remaining = set(), sorted(range(len(p)), key=lambda i: p[i])
        while remaining and p[remaining[0]] * len(remaining) <= level * (1 + 1e-12):
            rejected.add(remaining.pop(0))
        if level < 1:
            assert rejected == {i for i in range(len(p)) if adjusted[i] <= level * (1 + 1e-12)}


def test_holm_by_hand():
    assert adjust_holm(np.array([0.01, 0.04, 0.03])).tolist() == pytest.approx([0.03, 0.06, 0.06])


def test_metrics_that_always_agree_are_one_hypothesis():
    tau = np.array([[0.5, 0.5, 0.1, 0.5], [0.4, 0.4, 0.2, 0.4], [np.nan, np.nan, 0.2, 0.1]])
    first_equal = find_identical_metrics(tau).tolist()
    assert first_equal[0] == first_equal[1] and len({first_equal[0], first_equal[2], first_equal[3]}) == 3
    scores, order = build(3, n=30)
    double = scores[scores["metric"] == "c"].assign(variant="probability")
    facts_again = order[order["metric"] == "c"].assign(variant="probability")
    result = conclude(
        pd.concat([scores, double]),
        pd.concat([order, facts_again], ignore_index=True),
        Bootstrap(0, n_resamples=200, min_instances=1),
    ).differences
    result = select_subset(result)
    equal_line = result[result["same"]].iloc[0]
    assert (
        (equal_line["metric"], equal_line["than_metric"]) == ("c", "c")
        and equal_line["p_holm"] == 1
        and equal_line["difference"] == 0
    )
    different = result[~result["same"]]
    assert (
        len(different) == 2 and (different["p_holm"] == different["p"]).all()
    )  # one hypothesis: nothing to correct for


def test_p_values_are_above_zero_and_at_most_one():
    assert compute_bootstrap_p_values(np.array([[1.0], [1.0], [2.0]])).tolist() == [0.5]
    assert compute_bootstrap_p_values(np.zeros((5, 1))).tolist() == [1.0]


def test_metrics_that_rank_different_explainers_are_not_compared():
    scores, order = build(3, n=30)
    variants = {"c": "probability", "sufficiency": "mask"}  # the same metrics, of which b has no value
    without_b = scores[scores["metric"].isin(variants) & (scores["explainer"] != "b")]
    joined_scores = pd.concat([scores, without_b.assign(variant=without_b["metric"].map(variants))])
    summary_again = order[order["metric"].isin(variants)]
    rows = pd.concat([order, summary_again.assign(variant=summary_again["metric"].map(variants))], ignore_index=True)
    config = Bootstrap(3, n_resamples=50)
    result = select_subset(conclude(joined_scores, rows, config).differences)
    equal = result["variant"].isin(variants.values()) == result["than_variant"].isin(variants.values())
    assert len(result) == 6 and equal.sum() == 2 and not result["same"].any()
    assert result.loc[~equal, ["difference", "low", "high", "p", "p_holm"]].isna().all(axis=None)
    figures = ["metric", "difference", "low", "high", "p"]
    (expected,) = select_subset(conclude(scores, order, config).differences)[figures].to_numpy().tolist()
    assert result.loc[equal & (result["variant"].isin(["label", "del"])), figures].to_numpy().tolist() == [expected]
    without = [frame[frame["explainer"] != "b"] for frame in (scores, order)]
    (part,) = select_subset(conclude(*without, config).differences)[figures].to_numpy().tolist()
    assert result.loc[equal & (result["variant"].isin(variants.values())), figures].to_numpy().tolist() == [part]
    assert result.loc[equal, "p_holm"].tolist() == pytest.approx(
        adjust_holm(result.loc[equal, "p"].to_numpy()).tolist()
    )


@given(st.integers(0, 10_000), st.booleans(), st.sampled_from([(), ("a",), ("b", "d"), ("a", "b", "c")]))
def test_agreement_by_instance_counts_pairs_of_explainers(seed, gaps, controls):
    scores, order = build(seed, n=7, gaps=gaps, controls=controls)
    result = conclude(
        scores, order, Bootstrap(seed, n_resamples=20, confidence=0.8, min_instances=1)
    ).instance_agreement
    ids = sorted(scores["instance"].unique())
    value_of = {(r.metric, r.explainer, r.instance): r.numerator / r.denominator for r in scores.itertuples()}

    def counts(metric, better, instance, names):
        gain = pairs = n_ordered = 0
        for a, b in combinations(names, 2):
            keys = [(m, e, instance) for m in (metric, "recall") for e in (a, b)]
            if not all(key in value_of for key in keys):
                continue
            u, truth = value_of[keys[0]] - value_of[keys[1]], value_of[keys[2]] - value_of[keys[3]]
            pairs += 1
            n_ordered += compute_sign(truth) != 0
            gain += compute_sign(u) * compute_sign(truth) * (1 if better == "higher" else -1)
        return gain, pairs, n_ordered

    from cfeval_cli.seeding import make_stream

    resampled = make_stream(seed, "bootstrap").integers(0, len(ids), (20, len(ids)))
    for metric, better in (("c", "higher"), ("sufficiency", "lower")):
        remaining = [name for name in EXPLAINERS if name not in controls]
        for subset, names in ((ALL_EXPLAINERS, EXPLAINERS), (WITHOUT_CONTROLS, remaining)):
            lines = select_subset(result[result["metric"] == metric], subset)
            table = [counts(metric, better, i, names) for i in ids]
            shares = [gain / pairs if pairs else np.nan for gain, pairs, _ in table]
            n_defined = sum(pairs > 0 for _, pairs, _ in table)
            if not n_defined:
                assert lines.empty
                continue
            (line,) = lines.to_dict("records")
            assert line["tau"] == pytest.approx(np.nanmean(shares)) and line["instances"] == n_defined
            assert line["ordered"] == sum(n_ordered > 0 for *_, n_ordered in table)
            assert line["pairs"] == sum(n_ordered for *_, n_ordered in table)
            pooled = sum(o for *_, o in table)
            expected = sum(g for g, *_ in table) / pooled if pooled else np.nan
            assert line["d"] == pytest.approx(expected, nan_ok=True)
            resampled_taus = [[shares[i] for i in row if table[i][1]] for row in resampled]
            means = [np.mean(a) for a in resampled_taus if a]
            ends = tuple(np.quantile(means, [0.1, 0.9]))
            assert (line["tau_low"], line["tau_high"]) == pytest.approx(ends)


def test_results_do_not_depend_on_the_size_of_blocks():
    frame, summary = build(5, n=40, gaps=True)
    scores, bootstrap = Scores.from_frame(frame), Bootstrap(0, n_resamples=50, min_instances=1)
    resampled = ResampledValues.compute(scores, summarise(frame, summary), bootstrap)
    (family,) = list_families(resampled, "")
    at_once, in_blocks = (
        RankCorrelations.compute(resampled, family, bootstrap, max_pairs=max_pairs) for max_pairs in (1 << 19, 300)
    )
    for name in ("tau", "rho", "p_tau", "p_rho"):
        assert np.array_equal(getattr(at_once, name), getattr(in_blocks, name), equal_nan=True)
    rows_at_once, rows_in_blocks = (
        pd.DataFrame(tabulate_instance_agreement(scores, resampled, family, bootstrap, max_pairs))
        for max_pairs in (1 << 20, 100)
    )
    assert len(rows_at_once) and rows_at_once.to_csv() == rows_in_blocks.to_csv()


def test_fewer_than_thirty_instances_have_no_intervals():
    for size, large in ((29, False), (30, True)):
        scores, order = build(6, n=size)
        result = conclude(scores, order, Bootstrap(0, n_resamples=100))
        assert result.metrics["value"].notna().all() and result.metrics["value_low"].notna().all() == large
        correlations = select_subset(result.correlations)
        assert correlations[["tau", "p_tau"]].notna().all(axis=None)
        assert correlations[["tau_low", "tau_se", "rho_high"]].notna().all(axis=None) == large
        figures = result.differences[["difference", "low", "high", "p", "p_holm"]].notna()
        assert figures.all(axis=None) == large and figures.any(axis=None) == large
        assert result.instance_agreement["tau"].notna().all()
        assert result.instance_agreement[["tau_low", "d_high"]].notna().all(axis=None) == large
    # one explainer that has few leaves the others their intervals, but not τ its
    scores, order = build(6, n=40)
    partial = scores[(scores["explainer"] != "b") | (scores["instance"] < 20) | (scores["metric"] == "coverage")]
    result = conclude(partial, order, Bootstrap(0, n_resamples=100))
    lows = result.metrics[result.metrics["metric"] == "c"].set_index("explainer")["value_low"]
    assert lows.isna().tolist() == [name == "b" for name in lows.index]
    assert result.correlations["tau_low"].isna().all() and result.differences["p"].isna().all()


def test_graded_controls_have_correlations_but_no_differences():
    scores, order = build(4, n=50)
    order["quality_level"] = order["explainer"].map({"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.0})
    result = conclude(scores, order, Bootstrap(0, n_resamples=100), "signed")
    assert set(result.correlations["family"]) == {"graded"} and result.differences.empty
    value_of = {"a": 1.0, "b": 0.5, "c": 0.25, "d": 0.0}
    for metric, better in (("c", "higher"), ("sufficiency", "lower"), ("recall", "higher")):
        line = result.correlations[result.correlations["metric"] == metric].iloc[0]
        values = result.metrics[result.metrics["metric"] == metric].set_index("explainer")["value"]
        u = [values[name] * (1 if better == "higher" else -1) for name in value_of]
        assert line["tau"] == pytest.approx(compute_kendall_tau(u, list(value_of.values())))


@pytest.mark.slow
def test_intervals_cover_the_true_tau_of_distinct_explainers():
    """Of 300 samples of a population whose τ is known, the 95 % interval holds it in at least 90 %."""
    rng = np.random.default_rng(7)
    means = {"c": [0.2, 0.5, 0.45, 0.8], "recall": [0.1, 0.3, 0.5, 0.9]}  # b and c are near in the metric
    truth = compute_kendall_tau(means["c"], means["recall"])
    n_covered, trials, size = 0, 300, 400
    for trial in range(trials):
        rows, order = [], []
        for (metric, variant), better in ((("c", "label"), "higher"), (("recall", "signed"), "higher")):
            for name, mean in zip(EXPLAINERS, means[metric], strict=True):
                key = {"metric": metric, "variant": variant, "explainer": name}
                facts = {
                    "quality_level": np.nan,
                    "better": better,
                    "access": "label",
                    "low": 0.0,
                    "high": 1.0,
                    "note": "",
                }
                facts |= {
                    "method": "",
                    "remark": "",
                    "quantity": None,
                    "empty": "",
                    "control": False,
                    "circular": False,
                    "role": "truth" if metric == "recall" else "judged",
                }
                order.append({**key, **facts})
                hits = (rng.random(size) < mean).astype(float)
                rows.append(pd.DataFrame({**key, "instance": np.arange(size), "numerator": hits, "denominator": 1.0}))
        result = conclude(pd.concat(rows), pd.DataFrame(order), Bootstrap(trial, n_resamples=500)).correlations.iloc[0]
        n_covered += result["tau_low"] - 1e-9 <= truth <= result["tau_high"] + 1e-9
    assert n_covered / trials >= 0.9, f"{n_covered} of {trials}"


@pytest.mark.parametrize("seed", range(3))
def test_stored_resamples_of_tau_give_its_interval(seed):
    scores, order = build(seed, n=40, controls=("a",))
    result = conclude(scores, order, Bootstrap(seed, n_resamples=300))
    stored = result.tau_resamples.astype(dict.fromkeys(("metric", "variant", "truth", "agreement", "subset"), str))
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    for line in result.correlations.to_dict("records"):
        terms = stored[(stored[keys] == [line[key] for key in keys]).all(axis=1)]
        assert terms["draw"].tolist() == list(range(300)) or math.isnan(line["tau"])
        if not math.isnan(line["tau"]):
            ends = np.percentile(terms["tau"], [2.5, 97.5])
            assert ends == pytest.approx([line["tau_low"], line["tau_high"]])
    assert len(conclude(scores, order, Bootstrap(seed, n_resamples=900)).tau_resamples) < 2 * len(stored)
    assert conclude(scores, order, Bootstrap(seed, n_resamples=0)).tau_resamples is None
