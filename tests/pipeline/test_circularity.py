"""Circular explainers and metrics: as the components declare it, and in the results of a run."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.core import BlackBox, ModelSpec
from cfeval_cli.explainer.decision_boundary import DecisionBoundary
from cfeval_cli.explainer.lr import Lr
from cfeval_cli.explainer.omission import Omission
from cfeval_cli.explainer.random import Random
from cfeval_cli.explainer.shap import Shap
from cfeval_cli.metric.comprehensiveness import Comprehensiveness
from cfeval_cli.metric.counterfactual import Validity, ValiditySoft
from cfeval_cli.metric.ground_truth import Recall
from cfeval_cli.pipeline.circularity import find_circular_truths, mark_circular_rows, replace_declared
from tests.problems import ALL_REMOVALS, REMOVALS, TRUTHS, make_dataset
from tests.statistics.tables import compute_kendall_tau

EXPLAINERS = {
    "random": Random(),
    "lr": Lr(TRUTHS["signed"], "signed"),
    "shap": Shap(),
    "omission": Omission(ALL_REMOVALS),
    "deleting": Omission(ALL_REMOVALS, removal="zero"),
    "boundary": DecisionBoundary(),
}
METRICS = {component.name: component for component in (Comprehensiveness(), Validity(), ValiditySoft(), Recall())}
ROWS = [("comprehensiveness", "del"), ("comprehensiveness", "marginal"), ("validity", "label"),
        ("validity_soft", "probability"), *(("recall", name) for name in TRUTHS)]  # fmt: skip


SPEC = ModelSpec(make_dataset([2, 3]), BlackBox)


def order():
    lines = [
        {"metric": metric, "variant": variant, "explainer": name, "role": METRICS[metric].role}
        for metric, variant in ROWS for name in EXPLAINERS
    ]  # fmt: skip
    return pd.DataFrame(lines)


def plan(k=1):
    settings = SimpleNamespace(k=k)
    return SimpleNamespace(explainers=EXPLAINERS, truths=TRUTHS, metrics=METRICS, removals=REMOVALS, settings=settings)


def test_explainers_are_circular_with_estimated_truths_and_optimised_metrics():
    table = order()
    table = table[mark_circular_rows(plan(), SPEC, table)]
    assert set(table[["metric", "variant", "explainer"]].itertuples(index=False, name=None)) == {
        ("recall", "signed", "lr"), ("recall", "shapley", "shap"), ("recall", "shapley", "omission"),
        ("recall", "signed", "deleting"), ("comprehensiveness", "marginal", "omission"),
        ("comprehensiveness", "del", "deleting"), ("validity", "label", "boundary"),
    }  # fmt: skip


@pytest.mark.parametrize("k", [1, 2])
def test_metrics_are_circular_with_the_truths_they_measure(k):
    soft = {("validity_soft", "probability", "contrast")} if k == 1 else set()
    erasure = {("comprehensiveness", "del", "signed"), ("comprehensiveness", "marginal", "shapley")}
    assert find_circular_truths(plan(k), SPEC, order()) == erasure | soft


def test_measured_circularity_overrides_the_declaration():
    declared = {("a", "", "signed"), ("b", "", "signed")}
    measured = {("b", "", "signed"): 0.94, ("b", "", "contrast"): 0.95, ("c", "", "contrast"): 0.3}
    assert replace_declared(declared, measured) == {("a", "", "signed"), ("b", "", "contrast")}


def test_a_run_states_which_pairs_are_measured_and_which_declared(toy, make_run):
    explainers = "explainer=[omission,decision_boundary,gradient_input,integrated_gradients,lr]"
    settings = [explainers, "n_explain=40", "resamples=0", "model.max_epochs=10"]
    settings += ["truth=[signed,contrast]", "removal=[zero]"]
    settings.append("metric=[comprehensiveness,sufficiency,validity_soft,recall]")
    for count, source in ((40, "Measured"), (0, "Declared")):
        folder = make_run(toy, *settings, f"bounds={count}")
        lines = pd.read_csv(folder / "correlations.csv")
        circular = set(lines.loc[lines["circular"], ["metric", "truth"]].itertuples(index=False, name=None))
        declared = {("comprehensiveness", "signed"), ("validity_soft", "contrast")}
        assert circular == declared | ({("sufficiency", "signed")} if count else set())
        assert lines["circular_share"].notna().all() == bool(count)
        (note,) = [line for line in (folder / "tables.md").read_text().splitlines() if "by construction. " in line]
        assert f"{source}" in note and ("Measured" in note) != ("Declared" in note)
        if count:
            shares = pd.read_csv(folder / "bounds_truth.csv").set_index(["metric", "variant", "truth"])
            keys = pd.MultiIndex.from_frame(lines[["metric", "variant", "truth"]])
            assert np.allclose(shares.loc[keys, "share_informative"], lines["circular_share"])
            assert "100.0%" in note


def test_a_run_marks_circular_rows_and_can_exclude_them_from_every_tau(toy, make_run):
    several = ["explainer=[random,omission,lime,decision_boundary,lr]", "explainer.lime.n_samples=50", "n_explain=15"]
    several += ["resamples=0", "model.max_epochs=10"]
    several.append("metric=[comprehensiveness,sufficiency,validity,validity_soft,recall]")
    keep, drop = make_run(toy, *several), make_run(toy, *several, "circular=drop")
    metrics, other = (pd.read_csv(folder / "metrics.csv") for folder in (keep, drop))
    pd.testing.assert_frame_equal(metrics, other)  # values are what they are
    marked = metrics[metrics["circular"]]
    assert {("comprehensiveness", "marginal", "omission"), ("recall", "shapley", "omission")} <= set(
        marked[["metric", "variant", "explainer"]].itertuples(index=False, name=None)
    )
    before, after = (pd.read_csv(folder / "correlations.csv") for folder in (keep, drop))
    pd.testing.assert_series_equal(before["circular"], after["circular"])
    assert after.loc[after["circular"], "tau"].isna().all() and before.loc[after["circular"], "tau"].notna().all()
    controls = set(metrics.loc[metrics["control"], "explainer"])
    circular = set(marked[["metric", "variant", "explainer"]].itertuples(index=False, name=None))
    value = metrics.set_index(["metric", "variant", "explainer"])["value"].to_dict()
    better = metrics.drop_duplicates(["metric", "variant"]).set_index(["metric", "variant"])["better"].to_dict()
    explainers, n_checked = {}, 0
    for (metric, variant, name), number in value.items():
        if not np.isnan(number):
            explainers.setdefault((metric, variant), []).append(name)
    for line in after[~after["circular"]].itertuples():
        sides = [(line.metric, line.variant), (line.agreement, line.truth)]
        if sides[0] not in explainers:
            continue
        ranked = [name for name in explainers[sides[0]] if not any((*side, name) in circular for side in sides)]
        ranked = [name for name in ranked if line.subset == "all" or name not in controls]
        assert line.explainers == len(ranked)
        first, second = (
            np.array([value[(*side, name)] for name in ranked]) * (1 if better[side] == "higher" else -1)
            for side in sides
        )
        if len(ranked) < 2:
            assert np.isnan(line.tau)
            continue
        assert line.tau == pytest.approx(compute_kendall_tau(first, second), abs=1e-6)
        n_checked += 1
    assert n_checked > 20
    tables = (keep / "tables.md").read_text(), (drop / "tables.md").read_text()
    assert "◦ circular (optimal by construction)" in tables[0] and "circular=drop" not in tables[0]
    assert "left out of every τ (circular=drop)" in tables[1] and "best at this truth by construction" in tables[1]
