"""Whole runs agree with the independent recomputation, from the files of the run folder and the model alone."""

import json

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.results import validation
from cfeval_cli.statistics.metrics_over_seeds import COLUMNS
from cfeval_cli.study.sweep.gather import gather
from tests import inside
from tests.independent import recomputation
from tests.independent.comparison import check_bounds, check_run, check_tables

ALL_EXPLAINERS = "explainer=[random,omission,lime,anchor,decision_boundary,lr]"
FAST = ("explainer.lime.n_samples=300", "explainer.decision_boundary.n_samples=100")
FAST_TRAINING = ("model.learning_rate.text=0.03", "model.max_epochs=6")  # as accurate as the default, in fewer epochs
SMALL = ("explainer=[random,omission,decision_boundary,lr]", "n_explain=6")
ADDITIVE = ("model=additive", "model.bags=2", "model.max_rounds=100")  # half the time of the default
NO_LR = ("explainer=[random,omission,decision_boundary]", "n_explain=6", "truth.shapley.budget=1000000")
FOREST = ("k=1", "model=estimator", "model.estimator._target_=sklearn.ensemble.RandomForestClassifier",
          "+model.estimator.n_estimators=3", "+model.estimator.max_depth=3")  # fmt: skip


def test_all_explainers_and_metrics(toy, make_run):
    size = ("k=2", "n_explain=18", "resamples=200", "explainer_stability=6", "reparametrisations=2", "bounds=2000")
    folder = make_run(toy, ALL_EXPLAINERS, *FAST, *size, "metric=[core,naopc]", "model.max_epochs=20")
    values = check_run(folder)
    assert values["recall", "shapley", "lr"] == 1.0 and values["hit", "shapley", "lr"] == 1.0
    metrics = "comprehensiveness sufficiency dfr validity proximity c validity_soft c_soft recall hit coverage"
    other_metrics = {"proximity_flips", "pgi", "naopc", "edits_to_flip"}
    assert {metric for metric, _, _ in values} == {*metrics.split(), *other_metrics}
    lines = pd.read_csv(folder / "metrics.csv")
    assert (lines["own_n"] > lines["n"]).any()  # otherwise common support would not be tested
    check_bounds(folder)
    check_tables(folder)


def get_prediction_function(data, *overrides, seed=0):
    """Train the model of a run again, and return its prediction function."""
    plan = inside.make_plan(*data.arguments[2:], *overrides, folder=data.folder / "conf")
    model = plan.model.fit(plan.dataset.load(plan.settings.data_dir, seed), seed)
    return lambda codes: model.predict_proba(codes.astype(np.int32))


@pytest.mark.parametrize(
    "arguments",
    [
        (*ADDITIVE, "metric=[core,naopc]", "k=2", "bounds=20", "explainer_stability=4"),
        (*ADDITIVE, "metric=field", "model.blind=[shape]", "seed=2"),
        ("model=tree", "metric=[core,naopc]", "k=2", "bounds=20", "seed=1"),
        (
            "model=tree",
            "metric=field",
            "truth=[shapley,contrast,used,responsibility]",
            "model.blind=[colour]",
        ),
        ("removal=[zero,mean,marginal]", "metric=field", "k=2", "seed=4"),
    ],
    ids=lambda arguments: " ".join(argument for argument in arguments if argument not in ADDITIVE[1:])[:50],
)
def test_models_stored_in_the_run_folder(toy, make_run, arguments):
    explainers = NO_LR if "model=tree" in arguments else SMALL
    folder = make_run(toy, *explainers, *arguments)
    run = recomputation.Run(folder)
    assert not any(recomputation.make_exclusion_test(run)(*pair) for pair in list_metrics(folder))
    check_run(folder)
    if "bounds=20" in arguments:
        check_bounds(folder)


def list_metrics(folder):
    """Return metrics and variants that have a value."""
    metrics = pd.read_csv(folder / "metrics.csv")
    return set(metrics.loc[metrics["value"].notna(), ["metric", "variant"]].itertuples(index=False, name=None))


def test_model_given_as_a_function(toy, make_run):
    arguments = (*FOREST, "metric=[core,naopc]", "bounds=20", "explainer_stability=4")
    folder = make_run(toy, *NO_LR, *arguments)
    assert json.loads((folder / "run.json").read_text())["truths"]["shapley"]["method"].startswith("exact")
    ask = get_prediction_function(toy, *FOREST)
    check_run(folder, ask)
    check_bounds(folder, ask)
    check_tables(folder)


def test_metrics_that_follow_from_the_run_folder_without_the_model(toy, make_run):
    folder = make_run(toy, *NO_LR, *FOREST, "metric=[core,naopc]", "bounds=20", "explainer_stability=4")
    values = check_run(folder)
    is_excluded = recomputation.make_exclusion_test(recomputation.Run(folder))
    computable = {metric for metric, variant, _ in values if not is_excluded(metric, variant)}
    assert computable == {
        "validity", "validity_soft", "proximity", "proximity_flips", "c", "c_soft", "recall", "hit", "coverage",
    }  # fmt: skip


def test_three_classes(toy, make_run, tmp_path):
    words = ["dataset=wine", f"data_dir={tmp_path}", "model=additive", "model.bags=1", "model.max_rounds=50"]
    words += ["dataset.candidates=4", "metric=[core,naopc]", "explainer=[random,omission,lr]", "n_explain=4"]
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
    check_run(inside.run(tmp_path / "run", *words, "n_jobs=1"))


def test_numbers_with_constraints(loans, make_run):
    constraints = ("+dataset.immutable=[home]", "+dataset.only={age: up}")
    explainers = ("explainer=[random,omission]", "n_explain=6", "truth.shapley.budget=1000000")
    values = check_run(make_run(loans, *explainers, *constraints, "model=tree", "metric=field", "k=2"))
    assert any(metric == "fixed" for metric, _, _ in values)


def test_run_folder_without_training_rows(toy, make_run):
    folder = make_run(toy, *SMALL, "metric=[core,naopc]", "training=359")  # of 480
    assert not (folder / "training.parquet").exists()
    assert "training.parquet" not in validation.read_verified_record(folder).files
    values = check_run(folder)
    is_excluded = recomputation.make_exclusion_test(recomputation.Run(folder))
    assert {variant for metric, variant, _ in values if is_excluded(metric, variant)} == {"marginal"}
    assert (make_run(toy, *SMALL, "metric=[recall]", "training=480") / "training.parquet").exists()


def test_correlations_over_seeds(toy, make_run, tmp_path):
    # rules have no order, so that not all metrics rank the same explainers
    settings = ("explainer=[random,omission,anchor,decision_boundary,lr]", "n_explain=35", "reparametrisations=1")
    settings += ("model.max_epochs=100",)  # after fewer some τ are so nearly the same that Student's test is unsure
    settings += ("metric=[comprehensiveness,aopc,edits_to_flip,validity,validity_soft,c,recall,hit]",)
    folders = [make_run(toy, *settings, f"seed={seed}") for seed in range(3)]
    gather(folders, tmp_path)
    stored = pd.read_csv(tmp_path / "seeds_correlations.csv")
    stored = stored[(stored["coefficient"] != "rho") & (stored["agreement"] == "recall")]
    recomputed = recomputation.aggregate_seeds(folders)
    keys = ["metric", "variant", "truth", "subset"]
    assert {tuple(line[name] for name in keys) for line in stored.to_dict("records")} == set(recomputed)
    for line in stored.to_dict("records"):
        figures = recomputed[tuple(line[name] for name in keys)]
        for name in ("seeds", "mean", "deviation", "within", "between", *COLUMNS, "not_identifiable"):
            expected = pytest.approx(figures.get(name, np.nan), rel=1e-6, abs=1e-9, nan_ok=True)
            assert line[name] == expected, (line, name)
    assert (
        stored["p_holm"].notna().sum() > 30
        and (stored["not_identifiable"] > 0).any()
        and (stored["not_identifiable"] == 0).any()
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ["k=1", "metric=[core,naopc]", "reparametrisations=1", "bounds=2000"],
        ["k=1", "metric=field"],
        ["k=1", "access=label", "support=own"],
        ["k=3", "search.pick=nearest", "search.max_batch_rows=7"],
        pytest.param(["k=2", "search.pick=first", "truth=[contrast]"], marks=pytest.mark.slow),
        pytest.param(["k=2", "explainer.omission.removal=zero", "truth=[signed]", "seed=3"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_other_settings(toy, make_run, arguments):
    is_slow = {"metric=field", "search.max_batch_rows=7"} & set(arguments)
    n_instances = 6 if is_slow else 31  # so that there are intervals
    folder = make_run(toy, "explainer=[random,omission,decision_boundary,lr]", f"n_explain={n_instances}", *arguments)
    values = check_run(folder)
    if "k=1" in arguments and not is_slow:
        lines = pd.read_csv(folder / "correlations.csv")
        assert lines.loc[lines["subset"] == "without_controls", "tau_low"].notna().any()
    if "bounds=2000" in arguments:
        check_bounds(folder)
        check_tables(folder)
    if "access=label" in arguments:
        assert all(variant != "probability" for _, variant, _ in values)
        assert not {"validity_soft", "c_soft", "comprehensiveness", "sufficiency"} & {metric for metric, _, _ in values}
    if "explainer.omission.removal=zero" in arguments:
        assert values["recall", "signed", "omission"] == 1.0


def test_numbers(loans, make_run):
    settings = ("n_explain=10", "k=2", "reparametrisations=1", "metric=[core,naopc]")
    check_run(make_run(loans, ALL_EXPLAINERS, *FAST, *settings))
    folder = make_run(loans, "explainer=[lr]", "search=continuous", "search.steps=100", "n_explain=8")
    check_run(folder)
    assert pd.read_parquet(folder / "counterfactuals.parquet")["vectors"].notna().all()


@pytest.mark.parametrize(
    "arguments",
    [
        [ALL_EXPLAINERS, "metric=[core,naopc]", "search=continuous", "k=1"],
        ["metric=[core,naopc]", "reparametrisations=2", "search=discrete", "k=1"],
        ["search=exact", "k=2"],
        [
            "search=discrete",
            "k=2",
            "dataset.search_words=6",
            "search.pick=nearest",
            "explainer.omission.removal=marginal",
        ],
    ],
    ids=lambda a: " ".join(a[-2:]),
)
def test_texts(toy_text, make_run, arguments):
    explainers = ["explainer=[random,omission,decision_boundary,lr]"] if ALL_EXPLAINERS not in arguments else FAST
    has_moved_embeddings, has_search_words = "search=continuous" in arguments, "dataset.search_words=6" in arguments
    folder = make_run(toy_text, *explainers, *FAST_TRAINING, "n_explain=10", *arguments)
    values, text = (
        check_run(folder),
        (folder / "tables.md").read_text() if has_moved_embeddings or has_search_words else "",
    )
    assert ("6 words to search among" in text) == has_search_words
    assert ("comprehensiveness", "mask", "lr") in values and values["recall", "shapley", "lr"] == 1.0
    if has_moved_embeddings:
        assert values["converged", "gradient", "lr"] > 0.95 and "Converged (gradient)" in text
    if "search=exact" in arguments:
        assert all(value == 1.0 for (metric, _, _), value in values.items() if metric == "validity")
    instances = pd.read_parquet(folder / "instances.parquet")
    assert (instances["text"].str.split().map(len) == instances["codes"].map(lambda c: (c != -1).sum())).all()


@pytest.mark.parametrize("search", ["continuous", "exact"])
def test_searches_in_embedding_space(toy, make_run, search):
    explainers = "explainer=[random,omission,decision_boundary,lr]"
    values = check_run(make_run(toy, explainers, f"search={search}", "k=2", "n_explain=7"))
    assert {variant for metric, variant, _ in values if metric == "c"} == {"gradient"}
