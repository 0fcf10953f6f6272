"""Compare the files of a run folder with the independent recomputation."""

import numpy as np
import pandas as pd
import pytest

from tests.independent import recomputation, statistics


def check_run(folder, ask=None):
    """Check predictions, truths, scores, values, τ, explainer stability and invariance; return the stored values."""
    metrics, run = pd.read_csv(folder / "metrics.csv"), recomputation.Run(folder, ask)
    record, is_excluded, stored_values = run.record, recomputation.make_exclusion_test(run), {}
    check_predictions(run)
    check_truths(run)
    scores = recomputation.compute_scores(run)
    for column in ("own_value", "value"):
        stored_values = {
            (m.metric, m.variant, m.explainer): value
            for m, value in zip(metrics.itertuples(), metrics[column], strict=True)
        }
        stored_values = {key: value for key, value in stored_values.items() if not np.isnan(value)}
        recomputed = recomputation.compute_values(
            scores, None if column == "own_value" else recomputation.find_used_instances(run, scores)
        )
        keys = {key for key in stored_values if not is_excluded(*key[:2])}
        assert keys == {key for key in recomputed if key[0] in record["metrics"]}
        for key in keys:
            assert stored_values[key] == pytest.approx(recomputed[key], abs=1e-9, rel=1e-9), key
    check_scores(run, metrics, scores)
    check_agreements(run)
    check_stability(run, scores)
    check_invariance(run)
    return stored_values


def check_predictions(run):
    """Check the predictions of the stored or given model."""
    if run.box is None:
        return
    for i in run.rows:
        assert run.box.label(run.rows[i]) == run.label(i)
        if not np.isnan(run.instances.at[i, "predicted_probability"]):
            assert run.get_original_probability(i) == pytest.approx(
                run.instances.at[i, "predicted_probability"], abs=1e-12
            )


def check_truths(run):
    """Check the importance of every feature, under every truth."""
    if run.box is None or not run.record["truths"]:
        return
    if run.train is not None and isinstance(run.box, recomputation.Sum):
        for j, mean in enumerate(run.box.means):
            codes = run.train[:, j][run.train[:, j] != -1]
            expected = np.mean([run.box.e[j][v] for v in codes], axis=0) if len(codes) else np.zeros(len(mean))
            assert mean == pytest.approx(expected, abs=1e-9)
    recomputed = recomputation.compute_truths(run)
    stored = pd.read_parquet(run.folder / "truth.parquet")
    assert set(zip(stored["truth"], stored["instance"], strict=True)) == set(recomputed)
    for line in stored.itertuples():
        expected = recomputed[line.truth, line.instance]
        assert list(line.importance) == pytest.approx(expected, abs=1e-9, nan_ok=True), (line.truth, line.instance)


def check_scores(run, metrics, recomputed):
    """Check numerators, denominators, and the instances that values use."""
    record, stored = run.record, run.stored_scores
    for key, part in recomputed.items():
        if key[0] in record["metrics"]:
            assert stored[key].keys() == part.keys()
            stored_pairs, recomputed_pairs = (np.array([of[i] for i in part]) for of in (stored[key], part))
            assert np.allclose(stored_pairs, recomputed_pairs, rtol=1e-9, atol=1e-9), key
    common_instances, (rungs, _) = recomputation.find_common_instances(run, stored), run.explainers
    counts = {}
    for row in run.read_lines("scores"):
        expected = rungs[row.explainer] or row.instance in common_instances[row.metric, row.variant]
        assert row.common == expected
        key = (row.metric, row.variant, row.explainer)
        counts.setdefault(key, []).append(expected)
    for m in metrics.itertuples():
        is_common = counts.get((m.metric, m.variant, m.explainer), [])
        assert m.own_n == len(is_common) and m.n == (
            sum(is_common) if record["settings"]["support"] == "common" else len(is_common)
        )


def check_agreements(run):
    lines = pd.read_csv(run.folder / "correlations.csv")
    lines = lines[lines["family"] == "explainers"]
    recomputed = recomputation.compute_agreements(run)
    for line in lines.to_dict("records"):
        figures = recomputed.get(
            tuple(line[name] for name in ("metric", "variant", "truth", "agreement", "subset")), {}
        )
        for name in ("explainers", "tau", "tau_low", "tau_high"):
            stored_value, recomputed_value = line[name], figures.get(name, np.nan)
            if name == "explainers":
                assert stored_value == (0 if np.isnan(recomputed_value) else recomputed_value)
            elif name == "tau" or not np.isnan(stored_value):  # few instances have no intervals
                assert stored_value == pytest.approx(recomputed_value, abs=1e-9, nan_ok=True), (
                    line["metric"],
                    line["variant"],
                    name,
                )


def check_tables(folder):
    """Check intervals, ranks, p, differences, and agreement by instance and between metrics."""
    tables = statistics.Tables(recomputation.Run(folder))
    compare_table(
        pd.read_csv(folder / "metrics.csv"), ["metric", "variant", "explainer"], statistics.compute_intervals(tables)
    )
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    lines = pd.read_csv(folder / "correlations.csv")
    compare_table(lines[lines["family"] == "explainers"], keys, statistics.compute_correlations(tables))
    compare_table(pd.read_csv(folder / "instance_agreement.csv"), keys, statistics.compute_instance_agreement(tables))
    keys = ["metric", "variant", "other_metric", "other_variant"]
    compare_table(pd.read_csv(folder / "metric_agreement.csv"), keys, statistics.compute_metric_agreement(tables))
    keys = ["truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant"]
    compare_table(pd.read_csv(folder / "differences.csv"), keys, statistics.compute_differences(tables))
    if (folder / "tau_resamples.parquet").exists():
        resamples = pd.read_parquet(folder / "tau_resamples.parquet").sort_values("draw", kind="stable")
        keys = ["metric", "variant", "truth", "agreement", "subset"]
        for (metric, variant, truth, agreement, subset), lines in resamples.groupby(keys, sort=False, observed=True):
            expected = tables.tau((metric, variant), (agreement, truth), subset)[1:][lines["draw"].to_numpy()]
            assert np.allclose(lines["tau"], expected, atol=1e-9), (metric, variant, truth, agreement, subset)
    return tables


def compare_table(table, keys, recomputed):
    """Compare a table with recomputed figures by key; rows without recomputed figures must be empty."""
    lines = {tuple(line[name] for name in keys): line for line in table.to_dict("records")}
    assert set(recomputed) <= set(lines)
    for name in next(iter(recomputed.values()), {}):
        stored_values = np.array([np.nan if pd.isna(line[name]) else float(line[name]) for line in lines.values()])
        recomputed_values = np.array([float(recomputed.get(key, {}).get(name, np.nan)) for key in lines])
        is_equal = np.isclose(stored_values, recomputed_values, rtol=1e-9, atol=1e-9, equal_nan=True)
        assert is_equal.all(), (name, [key for key, equal in zip(lines, is_equal, strict=True) if not equal])


def check_stability(run, scores):
    folder, record = run.folder, run.record
    if not (folder / "explainer_stability.csv").exists():
        assert not record["settings"]["explainer_stability"]
        return
    names, values = recomputation.compute_explainer_stability(run, scores)
    stored = pd.read_csv(folder / "explainer_stability.csv", keep_default_na=False, na_values={"same_features": ""})
    assert {line["explainer"]: line for line in stored.to_dict("records")}.keys() == names.keys()
    for line in stored.to_dict("records"):
        assert {name: line[name] for name in names[line["explainer"]]} == pytest.approx(
            names[line["explainer"]], nan_ok=True
        )
    stored = pd.read_csv(folder / "explainer_stability_metrics.csv").set_index(["metric", "variant", "explainer"])
    is_excluded = recomputation.make_exclusion_test(run)
    stored = stored[[not is_excluded(*key[:2]) for key in stored.index]]
    assert set(stored.index) == {key for key in values if key[0] in record["metrics"]}
    for key, line in stored.to_dict("index").items():
        assert line == pytest.approx(values[key], abs=1e-9, nan_ok=True), key


def check_invariance(run):
    """Check the ranges of τ under reparametrisation, and which values change."""
    folder = run.folder
    if not (folder / "invariance.csv").exists():
        return
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    stored = pd.read_csv(folder / "invariance.csv", keep_default_na=False)
    stored = stored[stored["agreement"] != "order"].set_index(keys)  # of graded controls
    recomputed, changed_values = recomputation.compute_invariance(run)
    assert set(stored.index) == set(recomputed)
    for key, line in stored.to_dict("index").items():
        for name, value in recomputed[key].items():
            is_equal = line[name] == pytest.approx(value, abs=1e-9) if isinstance(value, float) else line[name] == value
            assert is_equal, (key, name, line[name], value)
    metrics = pd.read_csv(folder / "metrics.csv")
    with_flag = metrics[metrics["not_identifiable"].notna() & (metrics["role"] != "fact")]
    assert {
        (m.metric, m.variant, m.explainer) for m in with_flag[with_flag["not_identifiable"].astype(bool)].itertuples()
    } == changed_values
    assert stored["not_identifiable"].any() and not stored["not_identifiable"].all()


def check_bounds(folder, ask=None):
    """Check the bounds of the metrics whose sets can all be scored."""
    stored = pd.read_csv(folder / "bounds.csv").set_index(["metric", "variant"])
    agreement = pd.read_csv(folder / "bounds_truth.csv").set_index(["metric", "variant", "truth"])
    run = recomputation.Run(folder, ask)
    recomputed = recomputation.compute_bounds(run)
    missing_pairs = set(stored.index) - set(recomputed)
    ambiguous_variants = {"label"} if recomputation.has_unique_best_edit(run) else {"label", "probability"}
    assert {
        variant for _, variant in missing_pairs
    } <= ambiguous_variants  # the search takes one of several equal edits
    assert {metric for metric, _ in missing_pairs} <= {"proximity", "proximity_flips", "c", "c_soft"}
    for key in set(recomputed) & set(stored.index):
        line, (instances, worst, best, telling, truths) = stored.loc[key], recomputed[key]
        assert (line["instances"], line["informative"]) == (instances, telling), key
        assert (line["worst"], line["best"]) == pytest.approx((worst, best), abs=1e-9), key
        for truth, shares in truths.items():
            stored_shares = tuple(agreement.loc[(*key, truth), ["share", "share_informative"]])
            assert stored_shares == pytest.approx(shares, abs=1e-9, nan_ok=True), (key, truth)
    normalised_values = statistics.compute_normalised_values(statistics.Tables(run))
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])["normalised"]
    assert len(normalised_values) > 10
    for key, value in normalised_values.items():
        assert metrics[key] == pytest.approx(value, abs=1e-6, nan_ok=True), key
