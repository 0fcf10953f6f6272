"""Compare the files of a run folder with the independent recomputation."""

import numpy as np
import pandas as pd
import pytest

from tests.independent import recomputation, statistics


def check_run(folder, ask=None):
    """Predictions, truths, scores, values, τ, noise and invariance, by one who has the folder and perhaps the model."""
    metrics, run = pd.read_csv(folder / "metrics.csv"), recomputation.Run(folder, ask)
    record, beyond, found = run.record, recomputation.beyond(run), {}
    check_predictions(run)
    check_truths(run)
    scores = recomputation.scored(run)
    for column in ("own_value", "value"):
        found = {
            (m.metric, m.variant, m.explainer): value
            for m, value in zip(metrics.itertuples(), metrics[column], strict=True)
        }
        found = {key: value for key, value in found.items() if not np.isnan(value)}
        theirs = recomputation.values(scores, None if column == "own_value" else recomputation.counted(run, scores))
        told = {key for key in found if not beyond(*key[:2])}
        assert told == {key for key in theirs if key[0] in record["metrics"]}
        for key in told:
            assert found[key] == pytest.approx(theirs[key], abs=1e-9, rel=1e-9), key
    check_scores(run, metrics, scores)
    check_agreements(run)
    check_stability(run, scores)
    check_invariance(run)
    return found


def check_predictions(run):
    """The instances, by the model that is stored or given."""
    if run.box is None:
        return
    for i in run.rows:
        assert run.box.label(run.rows[i]) == run.label(i)
        if not np.isnan(run.instances.at[i, "predicted_probability"]):
            assert run.before(i) == pytest.approx(run.instances.at[i, "predicted_probability"], abs=1e-12)


def check_truths(run):
    """The importance of every feature, under every definition."""
    if run.box is None or not run.record["truths"]:
        return
    if run.train is not None and isinstance(run.box, recomputation.Sum):
        for j, mean in enumerate(run.box.means):
            there = run.train[:, j][run.train[:, j] != -1]
            expected = np.mean([run.box.e[j][v] for v in there], axis=0) if len(there) else np.zeros(len(mean))
            assert mean == pytest.approx(expected, abs=1e-9)
    theirs = recomputation.truths(run)
    told = pd.read_parquet(run.folder / "truth.parquet")
    assert set(zip(told["truth"], told["instance"], strict=True)) == set(theirs)
    for line in told.itertuples():
        expected = theirs[line.truth, line.instance]
        assert list(line.importance) == pytest.approx(expected, abs=1e-9, nan_ok=True), (line.truth, line.instance)


def check_scores(run, metrics, theirs):
    """What intervals are made from: numerators, denominators, and who counts."""
    record, stored = run.record, run.stored_scores
    for key, part in theirs.items():
        if key[0] in record["metrics"]:
            assert stored[key].keys() == part.keys()
            ours, other = (np.array([of[i] for i in part]) for of in (stored[key], part))
            assert np.allclose(ours, other, rtol=1e-9, atol=1e-9), key
    shared, (rungs, _) = recomputation.common(run, stored), run.explainers
    counts = {}
    for row in run.lines("scores"):
        expected = rungs[row.explainer] or row.instance in shared[row.metric, row.variant]
        assert row.common == expected
        key = (row.metric, row.variant, row.explainer)
        counts.setdefault(key, []).append(expected)
    for m in metrics.itertuples():
        mine = counts.get((m.metric, m.variant, m.explainer), [])
        assert m.own_n == len(mine) and m.n == (sum(mine) if record["settings"]["support"] == "common" else len(mine))


def check_agreements(run):
    lines = pd.read_csv(run.folder / "correlations.csv")
    lines = lines[lines["family"] == "explainers"]
    theirs = recomputation.agreements(run)
    for line in lines.to_dict("records"):
        figures = theirs.get(tuple(line[name] for name in ("metric", "variant", "truth", "agreement", "subset")), {})
        for name in ("explainers", "tau", "tau_low", "tau_high"):
            ours, other = line[name], figures.get(name, np.nan)
            if name == "explainers":
                assert ours == (0 if np.isnan(other) else other)
            elif name == "tau" or not np.isnan(ours):  # few instances have no intervals
                assert ours == pytest.approx(other, abs=1e-9, nan_ok=True), (line["metric"], line["variant"], name)


def check_tables(folder):
    """What is made of the scores: intervals, ranks, p, differences, agreement by instance and between metrics."""
    tables = statistics.Tables(recomputation.Run(folder))
    compare_table(pd.read_csv(folder / "metrics.csv"), ["metric", "variant", "explainer"], statistics.intervals(tables))
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    lines = pd.read_csv(folder / "correlations.csv")
    compare_table(lines[lines["family"] == "explainers"], keys, statistics.correlations(tables))
    compare_table(pd.read_csv(folder / "instance_agreement.csv"), keys, statistics.by_instance(tables))
    keys = ["metric", "variant", "other_metric", "other_variant"]
    compare_table(pd.read_csv(folder / "metric_agreement.csv"), keys, statistics.between(tables))
    keys = ["truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant"]
    compare_table(pd.read_csv(folder / "differences.csv"), keys, statistics.differences(tables))
    if (folder / "tau_resamples.parquet").exists():
        drawn = pd.read_parquet(folder / "tau_resamples.parquet").sort_values("draw", kind="stable")
        keys = ["metric", "variant", "truth", "agreement", "subset"]
        for (metric, variant, truth, agreement, subset), lines in drawn.groupby(keys, sort=False, observed=True):
            expected = tables.tau((metric, variant), (agreement, truth), subset)[1:][lines["draw"].to_numpy()]
            assert np.allclose(lines["tau"], expected, atol=1e-9), (metric, variant, truth, agreement, subset)
    return tables


def compare_table(told, keys, found):
    """A table against figures by its keys; a line that has no figures is absent there, or says nothing."""
    lines = {tuple(line[name] for name in keys): line for line in told.to_dict("records")}
    assert set(found) <= set(lines)
    for name in next(iter(found.values()), {}):
        ours = np.array([np.nan if pd.isna(line[name]) else float(line[name]) for line in lines.values()])
        theirs = np.array([float(found.get(key, {}).get(name, np.nan)) for key in lines])
        same = np.isclose(ours, theirs, rtol=1e-9, atol=1e-9, equal_nan=True)
        assert same.all(), (name, [key for key, alike in zip(lines, same, strict=True) if not alike])


def check_stability(run, scores):
    folder, record = run.folder, run.record
    if not (folder / "explainer_stability.csv").exists():
        assert not record["settings"]["explainer_stability"]
        return
    names, values = recomputation.noise(run, scores)
    told = pd.read_csv(folder / "explainer_stability.csv", keep_default_na=False, na_values={"same_features": ""})
    assert {line["explainer"]: line for line in told.to_dict("records")}.keys() == names.keys()
    for line in told.to_dict("records"):
        assert {name: line[name] for name in names[line["explainer"]]} == pytest.approx(
            names[line["explainer"]], nan_ok=True
        )
    told = pd.read_csv(folder / "explainer_stability_metrics.csv").set_index(["metric", "variant", "explainer"])
    beyond = recomputation.beyond(run)
    told = told[[not beyond(*key[:2]) for key in told.index]]
    assert set(told.index) == {key for key in values if key[0] in record["metrics"]}
    for key, line in told.to_dict("index").items():
        assert line == pytest.approx(values[key], abs=1e-9, nan_ok=True), key


def check_invariance(run):
    """How far τ moves in other parameters of the model, and which values move at all."""
    folder = run.folder
    if not (folder / "invariance.csv").exists():
        return
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    told = pd.read_csv(folder / "invariance.csv", keep_default_na=False)
    told = told[told["agreement"] != "order"].set_index(keys)  # which is a ladder's
    found, moved = recomputation.invariance(run)
    assert set(told.index) == set(found)
    for key, line in told.to_dict("index").items():
        for name, value in found[key].items():
            same = line[name] == pytest.approx(value, abs=1e-9) if isinstance(value, float) else line[name] == value
            assert same, (key, name, line[name], value)
    metrics = pd.read_csv(folder / "metrics.csv")
    mine = metrics[metrics["not_identifiable"].notna() & (metrics["role"] != "fact")]
    assert {(m.metric, m.variant, m.explainer) for m in mine[mine["not_identifiable"] == True].itertuples()} == moved  # noqa: E712
    assert told["not_identifiable"].any() and not told["not_identifiable"].all()


def check_bounds(folder, ask=None):
    """Of the metrics that an outsider can try all sets of."""
    told = pd.read_csv(folder / "bounds.csv").set_index(["metric", "variant"])
    agreement = pd.read_csv(folder / "bounds_truth.csv").set_index(["metric", "variant", "truth"])
    run = recomputation.Run(folder, ask)
    found = recomputation.bounds(run)
    left = set(told.index) - set(found)
    drawn = {"label"} if recomputation.one_largest(run) else {"label", "probability"}
    assert {variant for _, variant in left} <= drawn  # where several edits are as good, a search takes one of them
    assert {metric for metric, _ in left} <= {"proximity", "proximity_flips", "c", "c_soft"}
    for key in set(found) & set(told.index):
        line, (instances, worst, best, telling, truths) = told.loc[key], found[key]
        assert (line["instances"], line["informative"]) == (instances, telling), key
        assert (line["worst"], line["best"]) == pytest.approx((worst, best), abs=1e-9), key
        for truth, shares in truths.items():
            actual = tuple(agreement.loc[(*key, truth), ["share", "share_informative"]])
            assert actual == pytest.approx(shares, abs=1e-9, nan_ok=True), (key, truth)
    places = statistics.standing(statistics.Tables(run))
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])["normalised"]
    assert len(places) > 10
    for key, place in places.items():
        assert metrics[key] == pytest.approx(place, abs=1e-6, nan_ok=True), key
