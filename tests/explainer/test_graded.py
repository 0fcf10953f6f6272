"""Graded control explainers return the ground truth as often as declared, and are ranked in this order."""

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.explainer.graded import GradedControl, GradedControls
from cfeval_cli.explainer.lr import Lr
from tests.conftest import find_only_run
from tests.problems import TRUTHS, make_batch, make_dataset, make_linear, open_client

SIGNED = TRUTHS["signed"]


def explain(explainer, dataset, model, component):
    batch = make_batch(dataset, model, component=f"explainer.{component}")
    return explainer.fit(dataset, open_client(model, explainer.access))(batch)


def test_level_returns_the_ground_truth_with_its_probability_else_a_random_order():
    dataset = make_dataset([3] * 5, n=3000)
    model = make_linear(dataset)
    truth = explain(Lr(SIGNED), dataset, model, "lr").features
    for share in (1.0, 0.6, 0.0):
        result = explain(GradedControl(SIGNED, share), dataset, model, f"graded_{share}").features
        assert (np.sort(result, axis=1) == np.arange(5)).all()
        first = (result[:, 0] == truth[:, 0]).mean()
        assert first == pytest.approx(share + (1 - share) / 5, abs=0.025)
        result_of_all = (result == truth).all(axis=1).mean()  # the ranking of the truth, not only its first feature
        assert result_of_all == pytest.approx(share + (1 - share) / 120, abs=0.025)
        other_values = result[result[:, 0] != truth[:, 0]]
        if share < 1:  # what is not true is uniform among the rest: each place is as likely
            places = (other_values[:, 0][:, None] == truth[result[:, 0] != truth[:, 0]]).mean(axis=0)
            assert places[1:] == pytest.approx(np.full(4, 0.25), abs=0.035)


def test_levels_are_independent():
    dataset = make_dataset([3] * 4, n=4000)
    model = make_linear(dataset)
    first, second = (
        explain(GradedControl(SIGNED, 0.0), dataset, model, f"graded_{name}").features[:, 0] for name in ("0", "0.5")
    )
    assert (first == second).mean() == pytest.approx(0.25, abs=0.03)


def test_levels_are_equally_spaced():
    assert [control.quality_level for control in GradedControls(SIGNED, 5).expand("graded").values()] == [
        1,
        0.75,
        0.5,
        0.25,
        0,
    ]
    assert len(GradedControls(SIGNED, 1001).expand("graded")) == 1001
    assert list(GradedControls(SIGNED, 3).expand("steps")) == ["steps_1", "steps_0.5", "steps_0"]
    contrast = GradedControls(TRUTHS["contrast"], 3, "contrast").expand("graded").values()
    assert {(control.truth, control.truth_name) for control in contrast} == {(TRUTHS["contrast"], "contrast")}
    assert {control.truth_name for control in GradedControls(TRUTHS["shapley"], 3).expand("graded").values()} == {
        "shapley"
    }


@pytest.mark.slow
def test_agreement_with_the_known_order_grows_with_the_number_of_instances(toy, tmp_path):
    """τ of recall with the known order tends to 1; the truth it was made from leads."""
    taus = {}
    for size in (5, 57):
        cwd = tmp_path / str(size)
        cwd.mkdir()
        toy.run(
            "explainer=[random,lr,graded]",
            "explainer.graded.quality_levels=6",
            f"n_explain={size}",
            "resamples=200",
            cwd=cwd,
        )
        table = pd.read_csv(find_only_run(cwd) / "correlations.csv")
        ladder = table[table["family"] == "graded"]
        assert set(ladder["agreement"]) == {"order"} and set(ladder["truth"]) == {"shapley"}
        metrics = pd.read_csv(find_only_run(cwd) / "metrics.csv")
        # of few instances no edit of some rung may flip: then it has no distance to a flip, and the others are ranked
        rungs = metrics[metrics["quality_level"].notna() & (metrics["variant"] != "mask")]
        silent = rungs[rungs["value"].isna()]
        assert set(silent["metric"]) <= {"proximity_flips"} and set(silent["note"]) <= {"no counterfactual flips"}
        assert size < 57 or silent.empty
        pairs = ["metric", "variant"]
        ranked = ladder[ladder["variant"] != "mask"].set_index(pairs)["explainers"]
        with_value = rungs.groupby(pairs)["value"].count()
        assert len(ranked) and (ranked == with_value[ranked.index]).all()
        assert (ranked.drop("proximity_flips", level="metric") == 6).all()
        taus[size] = ladder.set_index(["metric", "variant"]).loc[("recall", "shapley"), "tau"]
        named = metrics[(metrics["metric"] == "recall") & (metrics["variant"] == "shapley")].set_index("explainer")
        assert named.loc["graded_1", "value"] == 1 and named.loc["lr", "rank"] == 1  # ranked apart from the rungs
        assert sorted(named["rank"].dropna())[0] == 1 and named["quality_level"].notna().sum() == 6
        text = (find_only_run(cwd) / "tables.md").read_text()
        assert "Truth 0.8" in text and "Graded: 6 control explainers that select the features of shapley" in text
        # the explainers' own table and ranks are what they are without a ladder
        single = tmp_path / f"{size}-alone"
        single.mkdir()
        toy.run("explainer=[random,lr]", f"n_explain={size}", "resamples=200", cwd=single)
        without = pd.read_csv(find_only_run(single) / "metrics.csv")
        pd.testing.assert_frame_equal(
            metrics[metrics["quality_level"].isna()].reset_index(drop=True),
            without,
            check_exact=True,
            check_dtype=False,
        )
    assert taus[57] >= 0.95 and taus[57] >= taus[5]
