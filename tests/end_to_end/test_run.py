"""Whole runs, from the command line to the tables."""

import ast
import json
import subprocess
from pathlib import Path

import anchor.utils
import numpy as np
import pandas as pd
import pytest
from lime.discretize import QuartileDiscretizer

from cfeval_cli.errors import UserError
from cfeval_cli.pipeline import explain as explain_stage
from cfeval_cli.pipeline import run as pipeline
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.report.page.provenance import list_warnings
from cfeval_cli.results.folder import RunFolder
from cfeval_cli.results.read import read_results
from tests import inside
from tests.conftest import FEW_METRICS, find_only_run
from tests.independent import recomputation
from tests.independent.comparison import check_run
from tests.inside import make_plan

ROOT = Path(__file__).parents[2]
SIX = "explainer=[random,omission,lime,anchor,decision_boundary,lr]"
FAST = ("explainer.lime.n_samples=300", "explainer.decision_boundary.n_samples=100")
N = 18  # instances: two chunks, so that there is something for workers
LEARNT = "model.max_epochs=20"  # as good as all hundred, on so few rows
RUN_SETTINGS = ("k=2", f"n_explain={N}", "resamples=200")
EXTRA_SETTINGS = ("explainer_stability=6", "reparametrisations=2", "bounds=2000", "metric=[core,naopc]", LEARNT)
RESULTS = {"bounds.csv", "bounds_truth.csv", "correlations.csv", "costs.csv", "costs.md", "counterfactuals.parquet",
           "counterfactuals_again.parquet", "dataset.json", "differences.csv", "explanations.parquet",
           "explanations_again.parquet", "instance_agreement.csv", "instances.parquet", "invariance.csv",
           "metric_agreement.csv",
           "metrics.csv", "model.npz", "explainer_stability.csv", "explainer_stability_metrics.csv",
           "recommendation.json", "run.json", "run.log", "scores.parquet",
           "tables.md", "tables.tex", "tau_resamples.parquet", "training.parquet", "truth.parquet"}  # fmt: skip


@pytest.fixture(scope="module")
def full_run(toy, make_run):
    """One run with six explainers, k = 2."""
    return make_run(toy, SIX, *FAST, *RUN_SETTINGS, *EXTRA_SETTINGS)


def test_the_folder_has_every_file_and_the_record_describes_the_run(full_run):
    folder = full_run
    assert {path.name for path in folder.iterdir()} == RESULTS - {"run.log"}
    record = json.loads((folder / "run.json").read_text())
    assert record["schema"] == 8 and record["status"] == "complete" and record["settings"]["seed"] == 0
    assert record["command"][:2] == ["cfeval", "run"] and "k=2" in record["command"]
    assert record["data"]["source"] == "data folder" and record["data"]["rows_read"] == 600
    assert len(record["data"]["sha256"][0]) == 64
    assert set(record["accuracy"]) == {"train", "validation", "test"} and 0.5 < record["accuracy"]["test"] < 1
    assert 0.5 <= record["majority"]["test"] < 0.7 and record["accuracy"]["test"] < record["auc"]["test"] + 0.1
    stages = {(entry["stage"], entry["component"]): entry["seconds"] for entry in record["stages"]}
    assert {("train", ""), ("explain", "lime"), ("search", "lime"), ("score", "")} <= set(stages)
    assert 0 < sum(stages.values()) <= record["seconds"]
    assert (
        record["explainer_settings"]["lime"] | {"n_samples": 300, "order": "signed"}
        == record["explainer_settings"]["lime"]
    )
    assert record["peak_memory_mb"] > 100  # torch alone takes more
    assert record["packages"]["lime"] == "0.2.0.1" and record["packages"]["numpy"] == np.__version__
    head = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=True, cwd=ROOT).stdout
    assert record["git_commit"].removesuffix("-dirty") == head.strip()
    rows = read_model_rows(folder)
    assert rows["explainer", "lime", ""] == N * 300
    assert rows["explainer", "decision_boundary", ""] >= N * 100
    assert rows["explainer", "random", ""] == 0
    assert rows["explainer", "anchor", ""] > N * 100
    n_complete = N * 6 - count_incomplete(folder)
    assert (
        n_complete < rows["metric", "comprehensiveness", ""] <= 101 * n_complete
    )  # deleted, and what others have, 100 times at most


def read_model_rows(folder):
    """Return the model evaluations by part, name and level of access."""
    costs = pd.read_csv(folder / "costs.csv", keep_default_na=False)
    return costs.set_index(["part", "name", "access"])["model_rows"]


def count_incomplete(folder):
    explanations = pd.read_parquet(folder / "explanations.parquet")
    return int((explanations["features"].map(len) < 2).sum())


def test_the_search_evaluates_each_candidate_once(full_run):
    """The rows that a search asked for: the product of its features' values, and one more for the one it took."""
    folder = full_run
    description = json.loads((folder / "dataset.json").read_text())
    values = [len(description["values"][feature["values"]]) for feature in description["features"]]
    rows = read_model_rows(folder)
    explanations = pd.read_parquet(folder / "explanations.parquet")
    for name, group in explanations.groupby("explainer"):
        complete = [features[:2] for features in group["features"] if len(features) >= 2]
        expected = sum(int(np.prod([values[j] for j in features])) + 1 for features in complete)
        assert rows["search", name, "label"] == rows["search", name, "probability"] == expected


def test_every_score_has_its_coverage_and_a_note_below_half(full_run):
    folder = full_run
    metrics = pd.read_csv(folder / "metrics.csv")
    explanations = pd.read_parquet(folder / "explanations.parquet")
    share = explanations.groupby("explainer")["features"].apply(lambda lists: (lists.map(len) >= 2).mean())
    assert metrics["coverage"].to_numpy() == pytest.approx(metrics["explainer"].map(share).to_numpy())
    low = [name for name, value in share.items() if value < 0.5]
    assert ("Under half of the instances: " in (folder / "tables.md").read_text()) == bool(low)


def test_the_printed_table_equals_the_stored_table(toy, tmp_path):
    settings = (
        "explainer=[random,omission,lr]",
        "n_explain=20",
        "bounds=5",
        "explainer_stability=2",
        "reparametrisations=1",
    )
    done = toy.run(*settings, "metric=[core,naopc]", "resamples=100", cwd=tmp_path)
    folder = find_only_run(tmp_path)
    assert {path.name for path in folder.iterdir() if not path.name.startswith(".")} == RESULTS
    assert (folder / ".hydra" / "config.yaml").exists()
    metrics = pd.read_csv(folder / "metrics.csv")
    c = metrics.query("metric == 'c' and variant == 'label' and explainer == 'lr'").iloc[0]
    assert f" {c['value']:.3f}" in done.stdout
    # without a terminal: plain lines, the answer first, and in the end where the files are
    assert "explain: random: 20 to do" in done.stderr and "train: done in" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert done.stdout.startswith("Contribution: ") and "\nMetrics: " in done.stdout
    assert "τ of the metrics is not computed: fewer than 4 explainers that are not controls." in done.stdout
    note = "Contains training data (training.parquet). training=0 leaves it out."
    assert done.stdout.endswith(f"Results: {folder}\n{note}\n")
    for text in ((folder / "tables.md").read_text(), (folder / "tables.tex").read_text()):
        assert f"{c['value']:.4f}" in text
    assert "test accuracy" in done.stderr


def results(folder):
    names = ["metrics.csv", "correlations.csv", "explanations.parquet", "counterfactuals.parquet", "scores.parquet",
             "instances.parquet", "tables.md", "tables.tex", "explainer_stability.csv",
             "explainer_stability_metrics.csv", "bounds.csv", "bounds_truth.csv",
             "explanations_again.parquet"]  # fmt: skip
    return {name: (folder / name).read_bytes() for name in names}


def test_the_same_seed_gives_the_same_bytes_in_any_order_of_explainers(toy, make_run, full_run):
    reversed_six = "explainer=[lr,decision_boundary,anchor,lime,omission,random]"
    folder = make_run(toy, reversed_six, *FAST, *RUN_SETTINGS, *EXTRA_SETTINGS)
    assert results(folder) == results(full_run)
    arrays, expected_arrays = (np.load(folder / "model.npz", allow_pickle=False) for folder in (folder, full_run))
    assert all(np.array_equal(arrays[name], expected_arrays[name]) for name in expected_arrays.files)


@pytest.mark.slow  # the one above has the gist
def test_the_same_seed_gives_the_same_bytes_with_another_order_of_sets(toy, tmp_path, full_run):
    toy.run(SIX, *FAST, *RUN_SETTINGS, *EXTRA_SETTINGS, cwd=tmp_path, env={"PYTHONHASHSEED": "7"})
    assert results(find_only_run(tmp_path)) == results(full_run)


def test_a_sample_of_the_test_set_is_drawn_by_the_seed(toy, make_run):
    samples = {}
    for name, arguments in {
        "all": ["n_explain=null"],
        "one": ["n_explain=12"],
        "again": ["n_explain=12", "k=2"],
    }.items():
        folder = make_run(toy, "explainer=lr", "metric=[recall]", "resamples=0", *arguments)
        samples[name] = pd.read_parquet(folder / "instances.parquet")["instance"].tolist()
    assert samples["one"] == samples["again"] == sorted(samples["one"])
    assert set(samples["one"]) < set(samples["all"])
    assert samples["one"] not in (samples["all"][:12], samples["all"][-12:])


def test_explainers_with_equal_explanations_have_equal_scores(toy, make_run):
    """Omission by zero is lr (closed form); what the search draws at random must not tell them apart."""
    arguments = [
        "explainer=[omission,lr,random]",
        "explainer.omission.removal=zero",
        "truth=[signed]",
        "k=2",
        "distance.space=embedding",
    ]
    folder = make_run(toy, *arguments, "n_explain=20", "resamples=0")
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])["value"]
    pd.testing.assert_series_equal(metrics.xs("omission", level=2), metrics.xs("lr", level=2), check_exact=True)


@pytest.mark.slow  # tests/reliability/test_shapes.py has the gist
def test_explainer_derived_from_another_is_not_computed_again_and_has_the_same_costs(toy, make_run, monkeypatch):
    settings = ("explainer.lime_absolute.n_samples=100", "n_explain=12")
    alone = make_run(toy, "explainer=[lime_absolute,random]", *settings)
    explain, computed_names = explain_stage.compute_explanations, []

    def compute_and_record(job, *arguments, **options):
        computed_names.append(job.name)
        return explain(job, *arguments, **options)

    monkeypatch.setattr(explain_stage, "compute_explanations", compute_and_record)
    joint = make_run(toy, "explainer=[lime,lime_absolute,random]", *settings, "explainer.lime.n_samples=100")
    assert computed_names == ["random", "lime"]
    frames = [pd.read_parquet(folder / "explanations.parquet") for folder in (alone, joint)]
    derived = [frame[frame["explainer"] == "lime_absolute"].reset_index(drop=True) for frame in frames]
    assert len(derived[0]) == 12
    pd.testing.assert_frame_equal(*derived)
    costs = [pd.read_csv(folder / "costs.csv").set_index(["part", "name"])["model_rows"] for folder in (alone, joint)]
    assert costs[0]["explainer", "lime_absolute"] == costs[1]["explainer", "lime_absolute"]
    assert costs[1]["explainer", "lime_absolute"] == costs[1]["explainer", "lime"]


def test_incomplete_explanations_are_skipped_filled_or_used(toy, make_run):
    metric_rows, edits = {}, {}
    for policy in ("skip", "random", "keep"):
        # lr covers all, so that decision_boundary's own instances are the common ones
        settings = ("explainer=[decision_boundary,lr]", "k=2", "resamples=0", "metric=[validity,recall]")
        folder = make_run(toy, *settings, f"incomplete={policy}")
        metric_rows[policy] = pd.read_csv(folder / "metrics.csv").query(
            "explainer == 'decision_boundary' and metric == 'validity'"
        )
        edits[policy] = pd.read_parquet(folder / "counterfactuals.parquet").query("explainer == 'decision_boundary'")
        lengths = edits[policy]["features"].map(len)
        assert (lengths == 2).all() if policy != "keep" else lengths.min() >= 1
    n_selected = (
        pd.read_parquet(folder / "explanations.parquet").query("explainer == 'decision_boundary'")["features"].map(len)
    )
    assert 0 < (n_selected >= 2).sum() < 40  # otherwise this test would show nothing
    short = n_selected.to_numpy() < 2
    filled = edits["random"].query("access == 'label'")["features"].to_numpy()[short]
    second = np.array([features[1] for features in filled])
    lowest = np.array([min(set(range(4)) - {features[0]}) for features in filled])
    assert 0 < (second == lowest).sum() < len(second)  # at random, not the first that comes
    assert (metric_rows["skip"]["n"] == (n_selected >= 2).sum()).all()
    assert (metric_rows["random"]["n"] == 40).all()
    assert (metric_rows["keep"]["n"] == (n_selected >= 1).sum()).all()
    for policy in metric_rows:
        assert metric_rows[policy]["coverage"].tolist() == pytest.approx([(n_selected >= 2).mean()] * 2)


def test_an_explainer_without_explanations_is_absent_with_a_reason(toy, make_run):
    arguments = ["explainer.decision_boundary.n_samples=1", "explainer.decision_boundary.max_edits=1", "k=2"]
    settings = ("n_explain=10", "metric=[c,recall]", "resamples=0")
    folder = make_run(toy, "explainer=[decision_boundary,lr,random]", *arguments, *settings)
    metrics, text = pd.read_csv(folder / "metrics.csv"), (folder / "tables.md").read_text()
    row = metrics.query("explainer == 'decision_boundary' and metric == 'c'").iloc[0]
    assert row["n"] == 0 and np.isnan(row["value"]) and row["note"] == "no usable explanation" and row["coverage"] == 0
    assert pd.read_csv(folder / "correlations.csv")["note"].str.contains("without decision_boundary").any()
    assert "fewer than 4 explainers that are not controls" in text and "†" in text


@pytest.mark.parametrize("distance", ["cosine", "mahalanobis", "constant"])
def test_other_distances(toy, make_run, distance):
    settings = ("explainer=[random,lr]", "n_explain=20", "metric=[proximity,c,recall]", "truth=[signed]", "resamples=0")
    folder = make_run(toy, *settings, f"distance={distance}", "k=2")
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])["value"]
    counterfactuals = pd.read_parquet(folder / "counterfactuals.parquet")
    for (explainer, access), group in counterfactuals.groupby(["explainer", "access"]):
        assert metrics["proximity", access, explainer] == pytest.approx(group["distance"].mean())
        assert metrics["c", access, explainer] == pytest.approx(group["flipped"].sum() / group["distance"].sum())
    assert f"{distance} distance" in json.loads((folder / "run.json").read_text())["setup"]
    if distance == "cosine":
        assert "cosine distance" in (folder / "tables.md").read_text()


def test_adults_is_prepared_as_by_the_anchor_package(adults):
    """The maps are read from the package's source, the bins made by LIME's discretizer."""
    source = ast.parse(Path(anchor.utils.__file__).read_text())
    maps = {}
    for node in ast.walk(source):
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "").endswith("_map"):
            maps.setdefault(node.targets[0].id, ast.literal_eval(node.value))
    raw = pd.read_csv(adults / "adult.data", header=None, skipinitialspace=True, dtype=str)
    toys = {3: "education_map", 5: "married_map", 6: "occupation_map", 13: "country_map"}
    expected = []
    for column in (0, 1, 3, 5, 6, 7, 8, 9, 10, 11, 12, 13):
        cells = raw[column]
        if column in toys:
            cells = cells.map(lambda cell, m=maps[toys[column]]: m.get(cell, cell))
        if column in (10, 11):
            amount = cells.astype(float)
            cells = np.select([amount <= 0, amount <= np.median(amount[amount > 0])], ["None", "Low"], "High")
        if column in (0, 12):
            numbers = cells.astype(float).to_numpy()[:, None]
            cells = QuartileDiscretizer(numbers, [], ["x"]).discretize(numbers)[:, 0].astype(int)
        expected.append(np.asarray(cells))
    dataset = make_plan().dataset.load(adults, 0)
    names = [feature.values for feature in dataset.features]
    assert len(dataset.test) == 1569
    ids, codes = dataset.test.ids, dataset.test.codes
    for j, column in enumerate(expected):
        column_values = codes[:, j] if j in (0, 10) else np.array(names[j])[codes[:, j]]
        assert column_values.tolist() == column[ids].tolist()
    assert dataset.test.labels.tolist() == (raw[14].to_numpy()[ids] == ">50K").tolist()


def test_adults_from_end_to_end(adults, tmp_path, caplog):
    caplog.set_level("INFO")
    words = ["dataset=adults", "search=discrete", "n_explain=4", "cache=off", f"data_dir={adults}", "figures=[]"]
    words += ["explainer_stability=2", "reparametrisations=1", "resamples=100"]
    # nearly as accurate, in half the time
    words += ["model.max_epochs=5", "explainer.lime.n_samples=500", "removal.marginal.draws=30"]
    words += ["report=false"]  # which the end of tests/end_to_end/test_wheel.py has
    folder = inside.run(tmp_path, *words)
    record = json.loads((folder / "run.json").read_text())
    assert record["splits"] == {"train": 12545, "validation": 1568, "test": 1569}
    assert record["data"]["rows_read"] == 32561 and record["data"]["rows_used"] == 15682
    description = json.loads((folder / "dataset.json").read_text())
    assert len(description["features"]) == 12
    assert description["fitted"]["age"]["cuts"] == [28, 37, 48]
    assert description["fitted"]["capital_gain"]["median"] == 7298
    assert record["accuracy"]["test"] > 0.80 > record["reference"]["test_accuracy"]
    assert f"test accuracy {100 * record['accuracy']['test']:.2f} % (paper: 77.57 %)" in caplog.text
    values = check_run(folder)
    assert values["proximity", "label", "lime"] == pytest.approx(2**0.5)
    assert values["recall", "shapley", "lr"] == 1.0
    assert values["validity", "label", "lr"] == values["validity", "probability", "lr"]  # k = 1: a flip exists or not
    correlations = pd.read_csv(folder / "correlations.csv")
    assert set(correlations["truth"]) == {"shapley", "contrast"}
    ranked = correlations.query("variant != 'mask' and subset == 'all'").groupby("metric")["explainers"].agg(set)
    assert {name for name, counts in ranked.items() if counts == {5}} == {
        "edits_to_flip",
    }  # rules have no order
    assert set().union(*ranked) == {5, 6}


@pytest.mark.slow
def test_the_whole_test_set_of_adults_with_two_features(adults, tmp_path):
    explainers = "explainer=[random,omission,decision_boundary,lr]"
    words = ("cache=off", "k=2", "distance.space=embedding", f"data_dir={adults}", "access=probability", FEW_METRICS)
    folder = inside.run(tmp_path, explainers, *words)
    metrics = pd.read_csv(folder / "metrics.csv").query("variant != 'label'")
    expected = recomputation.recompute(folder)
    for row in metrics[metrics["value"].notna()].itertuples():
        assert row.value == pytest.approx(expected[row.metric, row.variant, row.explainer], abs=1e-9, rel=1e-9)
    assert json.loads((folder / "run.json").read_text())["instances"] == 1569


def test_a_folder_with_results_of_the_same_inputs_is_unchanged(toy, tmp_path):
    base_settings = [*toy.arguments[2:], "cache=off", "figures=[]", "report=false", "explainer=[random,lr]"]
    fixed = [
        "n_explain=10",
        "resamples=0",
        "bounds=0",
        "explainer_stability=0",
        "reparametrisations=0",
        "metric=[c,recall]",
    ]
    fixed += ["truth=[signed]", "model.max_epochs=3"]
    (tmp_path / "run").mkdir()
    files = ("metrics.csv", "run.json", "scores.parquet")

    def compute_run(*options):
        """Whether the run was made again."""
        plan, folder = (
            make_plan(*base_settings, *fixed, *options, folder=toy.folder / "conf"),
            RunFolder(tmp_path / "run", []),
        )
        if with_results := pipeline.run(plan, folder, Progress()):
            folder.finish()
        return with_results

    assert compute_run()
    before = {
        name: ((tmp_path / "run" / name).stat().st_mtime_ns, (tmp_path / "run" / name).read_bytes()) for name in files
    }

    def list_changed_files():
        now = {name: (tmp_path / "run" / name).stat().st_mtime_ns for name in files}
        return {name for name in files if now[name] != before[name][0]}

    # how many processes do the work, and what is kept for other runs, are no inputs
    assert not compute_run("n_jobs=2", "cache=disk", f"cache.folder={tmp_path / 'cache'}") and not list_changed_files()
    assert compute_run("redo=true") and list_changed_files() == set(files)
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before["metrics.csv"][1]
    assert not compute_run()
    with pytest.raises(UserError, match=r"complete results of another run\. They are kept.* redo=true"):
        compute_run("model.dim=3")
    assert not compute_run()  # and the results are still there
    assert compute_run("model.dim=3", "redo=true") and not compute_run("model.dim=3")
    (tmp_path / "run" / "scores.parquet").unlink()
    assert compute_run("model.dim=3")


def test_instances_searched_by_beam_are_counted_and_marked(toy, make_run):
    folder = make_run(toy, "explainer=[random,omission]", "k=2", "n_explain=20", "search.max_candidates=12")
    edits = pd.read_parquet(folder / "counterfactuals.parquet")
    counts = (~edits[edits["access"] == "label"].set_index("explainer")["exhaustive"]).groupby("explainer").sum()
    assert 0 < counts["random"] < 20
    results = read_results(folder)
    (warning,) = results.record.warnings
    assert f"beam search: Random {counts['random']} of 20" in warning
    assert f"B{warning[1:]}" in list_warnings(results)
    plain = make_run(toy, "explainer=[random,omission]", "k=2", "n_explain=20")
    assert "exhaustive" not in pd.read_parquet(plain / "counterfactuals.parquet")
