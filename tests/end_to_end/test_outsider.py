"""An outsider recomputes runs of other models and settings, from the folder and, if it is not in there, the model."""

import json

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.results import validation as checked
from tests import inside
from tests.end_to_end import outsider
from tests.end_to_end.test_numbers import loans  # noqa: F401
from tests.end_to_end.test_run import same_bounds, same_figures, same_tables

FEW = ("explainer=[random,omission,decision_boundary,lr]", "n_explain=6")
ADDITIVE = ("model=additive", "model.bags=2", "model.max_rounds=100")  # which takes half the time
NO_LR = ("explainer=[random,omission,decision_boundary]", "n_explain=6", "truth.shapley.budget=1000000")
FOREST = ("model=estimator", "model.estimator._target_=sklearn.ensemble.RandomForestClassifier",
          "+model.estimator.n_estimators=3", "+model.estimator.max_depth=3")  # fmt: skip


def asked(data, *overrides, seed=0):
    """The model of such a run, trained again: what somebody has whose model is in no folder."""
    plan = inside.planned(*data.arguments[2:], *overrides, folder=data.folder / "conf")
    model = plan.model.fit(plan.dataset.load(plan.settings.data_dir, seed), seed)
    return lambda codes: model.predict_proba(codes.astype(np.int32))


@pytest.mark.parametrize(
    "arguments",
    [
        (*ADDITIVE, "metric=core", "k=2", "bounds=20", "explainer_stability=4"),
        (*ADDITIVE, "metric=field", "model.blind=[shape]", "seed=2"),
        ("model=tree", "metric=core", "k=2", "bounds=20", "seed=1"),
        (
            "model=tree",
            "metric=field",
            "truth=[shapley,contrast,used,responsibility]",
            "model.blind=[colour]",
        ),
        ("removal=[zero,mean,marginal]", "metric=field", "k=2", "seed=4"),
    ],
    ids=lambda arguments: " ".join(one for one in arguments if one not in ADDITIVE[1:])[:50],
)
def test_a_model_that_is_in_the_folder(toy, made, arguments):
    few = NO_LR if "model=tree" in arguments else FEW
    folder = made(toy, *few, *arguments)
    run = outsider.Run(folder)
    assert not any(outsider.beyond(run)(*pair) for pair in everything(folder))
    same_figures(folder)
    if "bounds=20" in arguments:
        same_bounds(folder)


def everything(folder):
    """Metric and variant of all that has a value."""
    metrics = pd.read_csv(folder / "metrics.csv")
    return set(metrics.loc[metrics["value"].notna(), ["metric", "variant"]].itertuples(index=False, name=None))


def test_a_model_that_is_asked(toy, made):
    arguments = (*FOREST, "metric=core", "bounds=20", "explainer_stability=4")
    folder = made(toy, *NO_LR, *arguments)
    assert json.loads((folder / "run.json").read_text())["truths"]["shapley"]["how"].startswith("exact")
    ask = asked(toy, *FOREST)
    same_figures(folder, ask)
    same_bounds(folder, ask)
    same_tables(folder)


def test_without_the_model_all_is_recomputed_that_needs_no_other_predictions(toy, made):
    folder = made(toy, *NO_LR, *FOREST, "metric=core", "bounds=20", "explainer_stability=4")
    found = same_figures(folder)
    beyond = outsider.beyond(outsider.Run(folder))
    left = {metric for metric, variant, _ in found if not beyond(metric, variant)}
    assert left == {
        "validity", "validity_soft", "proximity", "proximity_flips", "c", "c_soft", "recall", "hit", "coverage",
    }  # fmt: skip


def test_three_classes(toy, made, tmp_path):
    words = ["dataset=wine", f"data_dir={tmp_path}", "model=additive", "model.bags=1", "model.max_rounds=50"]
    words += ["dataset.candidates=4", "metric=core", "explainer=[random,omission,lr]", "n_explain=4"]
    words += [
        "bounds=0",
        "explainer_stability=0",
        "reparametrisations=0",
        "resamples=100",
        "report=false",
        "figures=[]",
        "cache=off",
    ]
    (tmp_path / "run").mkdir()
    same_figures(inside.run(tmp_path / "run", *words, "n_jobs=1"))


def test_numbers_and_constraints(loans, made):  # noqa: F811
    constraints = ("+dataset.immutable=[home]", "+dataset.only={age: up}")
    few = ("explainer=[random,omission]", "n_explain=6", "truth.shapley.budget=1000000")
    found = same_figures(made(loans, *few, *constraints, "model=tree", "metric=field", "k=2"))
    assert any(metric == "fixed" for metric, _, _ in found)


def test_training_rows_can_be_kept_out_of_the_folder(toy, made):
    folder = made(toy, *FEW, "metric=core", "training=359")  # of 480
    assert not (folder / "training.parquet").exists()
    assert "training.parquet" not in checked.read_verified_record(folder).files
    found = same_figures(folder)
    beyond = outsider.beyond(outsider.Run(folder))
    assert {variant for metric, variant, _ in found if beyond(metric, variant)} == {"marginal"}
    assert (made(toy, *FEW, "metric=[recall]", "training=480") / "training.parquet").exists()
