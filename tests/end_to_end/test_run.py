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
from cfeval_cli.results.folder import RunFolder
from cfeval_cli.statistics.metrics_over_seeds import COLUMNS
from cfeval_cli.study.sweep.gather import gather
from tests import inside
from tests.conftest import SCORED, only_run
from tests.end_to_end import outsider, outsider_tables
from tests.inside import planned

ROOT = Path(__file__).parents[2]
SIX = "explainer=[random,omission,lime,anchor,decision_boundary,lr]"
FAST = ("explainer.lime.n_samples=300", "explainer.decision_boundary.n_samples=100")
N = 18  # instances: two chunks, so that there is something for workers
LEARNT = "model.max_epochs=20"  # as good as all hundred, on so few rows
WHOLE = ("k=2", f"n_explain={N}", "resamples=200")
MORE = ("explainer_stability=6", "reparametrisations=2", "bounds=2000", "metric=core", LEARNT)
RESULTS = ["bounds.csv", "correlations.csv", "costs.csv", "costs.md", "counterfactuals.parquet",
           "counterfactuals_again.parquet", "dataset.json", "differences.csv", "explanations.parquet",
           "explanations_again.parquet", "instance_agreement.csv", "instances.parquet", "invariance.csv",
           "metric_agreement.csv",
           "metrics.csv", "model.npz", "explainer_stability.csv", "explainer_stability_metrics.csv",
           "run.json", "run.log", "scores.parquet",
           "tables.md", "tables.tex", "tau_resamples.parquet", "training.parquet", "truth.parquet"]  # fmt: skip


def same_figures(folder, ask=None):
    """Predictions, truths, scores, values, τ, noise and invariance, by one who has the folder and perhaps the model."""
    metrics, run = pd.read_csv(folder / "metrics.csv"), outsider.Run(folder, ask)
    record, beyond, found = run.record, outsider.beyond(run), {}
    same_predictions(run)
    same_truths(run)
    scores = outsider.scored(run)
    for column in ("own_value", "value"):
        found = {
            (m.metric, m.variant, m.explainer): value
            for m, value in zip(metrics.itertuples(), metrics[column], strict=True)
        }
        found = {key: value for key, value in found.items() if not np.isnan(value)}
        theirs = outsider.values(scores, None if column == "own_value" else outsider.counted(run, scores))
        told = {key for key in found if not beyond(*key[:2])}
        assert told == {key for key in theirs if key[0] in record["metrics"]}
        for key in told:
            assert found[key] == pytest.approx(theirs[key], abs=1e-9, rel=1e-9), key
    same_scores(run, metrics, scores)
    same_agreements(run)
    same_noise(run, scores)
    same_invariance(run)
    return found


def same_predictions(run):
    """The instances, by the model that is stored or given."""
    if run.box is None:
        return
    for i in run.rows:
        assert run.box.label(run.rows[i]) == run.label(i)
        if not np.isnan(run.instances.at[i, "predicted_probability"]):
            assert run.before(i) == pytest.approx(run.instances.at[i, "predicted_probability"], abs=1e-12)


def same_truths(run):
    """The importance of every feature, under every definition."""
    if run.box is None or not run.record["truths"]:
        return
    if run.train is not None and isinstance(run.box, outsider.Sum):
        for j, mean in enumerate(run.box.means):
            there = run.train[:, j][run.train[:, j] != -1]
            expected = np.mean([run.box.e[j][v] for v in there], axis=0) if len(there) else np.zeros(len(mean))
            assert mean == pytest.approx(expected, abs=1e-9)
    theirs = outsider.truths(run)
    told = pd.read_parquet(run.folder / "truth.parquet")
    assert set(zip(told["truth"], told["instance"], strict=True)) == set(theirs)
    for line in told.itertuples():
        expected = theirs[line.truth, line.instance]
        assert list(line.importance) == pytest.approx(expected, abs=1e-9, nan_ok=True), (line.truth, line.instance)


def same_scores(run, metrics, theirs):
    """What intervals are made from: numerators, denominators, and who counts."""
    record, stored = run.record, run.stored_scores
    for key, part in theirs.items():
        if key[0] in record["metrics"]:
            assert stored[key].keys() == part.keys()
            ours, other = (np.array([of[i] for i in part]) for of in (stored[key], part))
            assert np.allclose(ours, other, rtol=1e-9, atol=1e-9), key
    shared, (rungs, _) = outsider.common(run, stored), run.explainers
    counts = {}
    for row in run.lines("scores"):
        expected = rungs[row.explainer] or row.instance in shared[row.metric, row.variant]
        assert row.common == expected
        key = (row.metric, row.variant, row.explainer)
        counts.setdefault(key, []).append(expected)
    for m in metrics.itertuples():
        mine = counts.get((m.metric, m.variant, m.explainer), [])
        assert m.own_n == len(mine) and m.n == (sum(mine) if record["settings"]["support"] == "common" else len(mine))


def same_agreements(run):
    lines = pd.read_csv(run.folder / "correlations.csv")
    lines = lines[lines["family"] == "explainers"]
    theirs = outsider.agreements(run)
    for line in lines.to_dict("records"):
        figures = theirs.get(tuple(line[name] for name in ("metric", "variant", "truth", "agreement", "subset")), {})
        for name in ("explainers", "tau", "tau_low", "tau_high"):
            ours, other = line[name], figures.get(name, np.nan)
            if name == "explainers":
                assert ours == (0 if np.isnan(other) else other)
            elif name == "tau" or not np.isnan(ours):  # few instances have no intervals
                assert ours == pytest.approx(other, abs=1e-9, nan_ok=True), (line["metric"], line["variant"], name)


def same_tables(folder):
    """What is made of the scores: intervals, ranks, p, differences, agreement by instance and between metrics."""
    tables = outsider_tables.Tables(outsider.Run(folder))
    alike(pd.read_csv(folder / "metrics.csv"), ["metric", "variant", "explainer"], outsider_tables.intervals(tables))
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    lines = pd.read_csv(folder / "correlations.csv")
    alike(lines[lines["family"] == "explainers"], keys, outsider_tables.correlations(tables))
    alike(pd.read_csv(folder / "instance_agreement.csv"), keys, outsider_tables.by_instance(tables))
    keys = ["metric", "variant", "other_metric", "other_variant"]
    alike(pd.read_csv(folder / "metric_agreement.csv"), keys, outsider_tables.between(tables))
    keys = ["truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant"]
    alike(pd.read_csv(folder / "differences.csv"), keys, outsider_tables.differences(tables))
    if (folder / "tau_resamples.parquet").exists():
        drawn = pd.read_parquet(folder / "tau_resamples.parquet").sort_values("draw", kind="stable")
        keys = ["metric", "variant", "truth", "agreement", "subset"]
        for (metric, variant, truth, agreement, subset), lines in drawn.groupby(keys, sort=False, observed=True):
            expected = tables.tau((metric, variant), (agreement, truth), subset)[1:][lines["draw"].to_numpy()]
            assert np.allclose(lines["tau"], expected, atol=1e-9), (metric, variant, truth, agreement, subset)
    return tables


def alike(told, keys, found):
    """A table against figures by its keys; a line that has no figures is absent there, or says nothing."""
    lines = {tuple(line[name] for name in keys): line for line in told.to_dict("records")}
    assert set(found) <= set(lines)
    for name in next(iter(found.values()), {}):
        ours = np.array([np.nan if pd.isna(line[name]) else float(line[name]) for line in lines.values()])
        theirs = np.array([float(found.get(key, {}).get(name, np.nan)) for key in lines])
        same = np.isclose(ours, theirs, rtol=1e-9, atol=1e-9, equal_nan=True)
        assert same.all(), (name, [key for key, alike in zip(lines, same, strict=True) if not alike])


def same_noise(run, scores):
    folder, record = run.folder, run.record
    if not (folder / "explainer_stability.csv").exists():
        assert not record["settings"]["explainer_stability"]
        return
    names, values = outsider.noise(run, scores)
    told = pd.read_csv(folder / "explainer_stability.csv", keep_default_na=False, na_values={"same_features": ""})
    assert {line["explainer"]: line for line in told.to_dict("records")}.keys() == names.keys()
    for line in told.to_dict("records"):
        assert {name: line[name] for name in names[line["explainer"]]} == pytest.approx(
            names[line["explainer"]], nan_ok=True
        )
    told = pd.read_csv(folder / "explainer_stability_metrics.csv").set_index(["metric", "variant", "explainer"])
    beyond = outsider.beyond(run)
    told = told[[not beyond(*key[:2]) for key in told.index]]
    assert set(told.index) == {key for key in values if key[0] in record["metrics"]}
    for key, line in told.to_dict("index").items():
        assert line == pytest.approx(values[key], abs=1e-9, nan_ok=True), key


def same_invariance(run):
    """How far τ moves in other parameters of the model, and which values move at all."""
    folder = run.folder
    if not (folder / "invariance.csv").exists():
        return
    keys = ["metric", "variant", "truth", "agreement", "subset"]
    told = pd.read_csv(folder / "invariance.csv", keep_default_na=False)
    told = told[told["agreement"] != "order"].set_index(keys)  # which is a ladder's
    found, moved = outsider.invariance(run)
    assert set(told.index) == set(found)
    for key, line in told.to_dict("index").items():
        for name, value in found[key].items():
            same = line[name] == pytest.approx(value, abs=1e-9) if isinstance(value, float) else line[name] == value
            assert same, (key, name, line[name], value)
    metrics = pd.read_csv(folder / "metrics.csv")
    mine = metrics[metrics["moves"].notna() & (metrics["role"] != "fact")]
    assert {(m.metric, m.variant, m.explainer) for m in mine[mine["moves"] == True].itertuples()} == moved  # noqa: E712
    assert told["moves"].any() and not told["moves"].all()


def same_bounds(folder, ask=None):
    """Of the metrics that an outsider can try all sets of."""
    told = pd.read_csv(folder / "bounds.csv").set_index(["metric", "variant"])
    run = outsider.Run(folder, ask)
    found = outsider.bounds(run)
    left = set(told.index) - set(found)
    drawn = {"label"} if outsider.one_largest(run) else {"label", "probability"}
    assert {variant for _, variant in left} <= drawn  # where several edits are as good, a search takes one of them
    assert {metric for metric, _ in left} <= {"proximity", "proximity_flips", "c", "c_soft"}
    for key in set(found) & set(told.index):
        line, (instances, worst, best, telling, truths) = told.loc[key], found[key]
        assert (line["instances"], line["telling"]) == (instances, telling), key
        assert (line["worst"], line["best"]) == pytest.approx((worst, best), abs=1e-9), key
        for truth, shares in truths.items():
            ours = (line[f"truth_{truth}"], line[f"truth_{truth}_telling"])
            assert ours == pytest.approx(shares, abs=1e-9, nan_ok=True), (key, truth)
    places = outsider_tables.standing(outsider_tables.Tables(run))
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])["place"]
    assert len(places) > 10
    for key, place in places.items():
        assert metrics[key] == pytest.approx(place, abs=1e-6, nan_ok=True), key


@pytest.fixture(scope="module")
def whole(toy, tmp_path_factory):
    """One run with six explainers, k = 2."""
    return toy.compute(tmp_path_factory.mktemp("whole"), SIX, *FAST, *WHOLE, *MORE)


def test_an_outsider_recomputes_every_figure(whole):
    ours = same_figures(whole)
    assert ours["recall", "shapley", "lr"] == 1.0 and ours["hit", "shapley", "lr"] == 1.0
    metrics = "comprehensiveness sufficiency dfr validity proximity c validity_soft c_soft recall hit coverage"
    more = {"proximity_flips", "pgi", "naopc", "edits_to_flip"}
    assert {metric for metric, _, _ in ours} == {*metrics.split(), *more}
    lines = pd.read_csv(whole / "metrics.csv")
    assert (lines["own_n"] > lines["n"]).any()  # otherwise this would show nothing of common support
    same_bounds(whole)
    same_tables(whole)


def test_an_outsider_recomputes_what_seeds_say_together(toy, made, tmp_path):
    # rules have no order, so that not all metrics rank the same explainers
    few = ("explainer=[random,omission,anchor,decision_boundary,lr]", "n_explain=35", "reparametrisations=1")
    few += ("model.max_epochs=100",)  # after fewer some τ are so nearly the same that Student's test is unsure
    few += ("metric=[comprehensiveness,aopc,edits_to_flip,validity,validity_soft,c,recall,hit]",)
    folders = [made(toy, *few, f"seed={seed}") for seed in range(3)]
    gather(folders, tmp_path)
    told = pd.read_csv(tmp_path / "seeds_correlations.csv")
    told = told[(told["coefficient"] != "rho") & (told["agreement"] == "recall")]
    found = outsider.seeds(folders)
    keys = ["metric", "variant", "truth", "subset"]
    assert {tuple(line[name] for name in keys) for line in told.to_dict("records")} == set(found)
    for line in told.to_dict("records"):
        figures = found[tuple(line[name] for name in keys)]
        for name in ("seeds", "mean", "deviation", "within", "between", *COLUMNS, "moves"):
            expected = pytest.approx(figures.get(name, np.nan), rel=1e-6, abs=1e-9, nan_ok=True)
            assert line[name] == expected, (line, name)
    assert told["p_holm"].notna().sum() > 50 and (told["moves"] > 0).any() and (told["moves"] == 0).any()


@pytest.mark.parametrize(
    "arguments",
    [
        ["k=1", "metric=core", "reparametrisations=1", "bounds=2000"],
        ["k=1", "metric=field"],
        ["k=1", "access=label", "support=own"],
        ["k=3", "search.pick=nearest", "search.max_batch_rows=7"],
        pytest.param(["k=2", "search.pick=first", "truth=[contrast]"], marks=pytest.mark.slow),
        pytest.param(["k=2", "explainer.omission.removal=zero", "seed=3"], marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
def test_an_outsider_recomputes_every_figure_under_other_settings(toy, made, arguments):
    slow = {"metric=field", "search.max_batch_rows=7"} & set(arguments)
    many = 6 if slow else 31  # so that there are intervals
    folder = made(toy, "explainer=[random,omission,decision_boundary,lr]", f"n_explain={many}", *arguments)
    ours = same_figures(folder)
    if "k=1" in arguments and not slow:
        lines = pd.read_csv(folder / "correlations.csv")
        assert lines.loc[lines["subset"] == "without_controls", "tau_low"].notna().any()
    if "bounds=2000" in arguments:
        same_bounds(folder)
        same_tables(folder)
    if "access=label" in arguments:
        assert all(variant != "probability" for _, variant, _ in ours)
        assert not {"validity_soft", "c_soft", "comprehensiveness", "sufficiency"} & {metric for metric, _, _ in ours}
    if "explainer.omission.removal=zero" in arguments:
        assert ours["recall", "signed", "omission"] == 1.0


def test_the_folder_has_every_file_and_the_record_says_how_it_came_about(whole):
    folder = whole
    assert sorted(p.name for p in folder.iterdir()) == [name for name in RESULTS if name != "run.log"]
    record = json.loads((folder / "run.json").read_text())
    assert record["schema"] == 7 and record["status"] == "complete" and record["settings"]["seed"] == 0
    assert record["command"][:2] == ["cfeval", "run"] and "k=2" in record["command"]
    assert record["data"]["source"] == "data folder" and record["data"]["rows_read"] == 600
    assert len(record["data"]["sha256"]) == 64
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
    rows = record["model_rows"]
    assert rows["explainer.lime"] == N * 300
    assert rows["explainer.decision_boundary"] >= N * 100
    assert rows["explainer.random"] == 0
    assert rows["explainer.anchor"] > N * 100
    used = N * 6 - missing(folder)
    assert used < rows["metric.comprehensiveness"] <= 101 * used  # deleted, and what others have, 100 times at most


def missing(folder):
    told = pd.read_parquet(folder / "explanations.parquet")
    return int((told["features"].map(len) < 2).sum())


def test_the_search_asks_for_each_candidate_once(whole):
    """The rows that a search asked for: the product of its features' values, and one more for the one it took."""
    folder = whole
    described = json.loads((folder / "dataset.json").read_text())
    values = [len(described["values"][feature["values"]]) for feature in described["features"]]
    rows = json.loads((folder / "run.json").read_text())["model_rows"]
    told = pd.read_parquet(folder / "explanations.parquet")
    for name, group in told.groupby("explainer"):
        complete = [features[:2] for features in group["features"] if len(features) >= 2]
        expected = sum(int(np.prod([values[j] for j in features])) + 1 for features in complete)
        assert rows[f"search.{name}.label"] == rows[f"search.{name}.probability"] == expected


def test_coverage_stands_beside_every_score_and_under_half_is_said_in_words(whole):
    folder = whole
    metrics = pd.read_csv(folder / "metrics.csv")
    told = pd.read_parquet(folder / "explanations.parquet")
    share = told.groupby("explainer")["features"].apply(lambda lists: (lists.map(len) >= 2).mean())
    assert metrics["coverage"].to_numpy() == pytest.approx(metrics["explainer"].map(share).to_numpy())
    low = [name for name, value in share.items() if value < 0.5]
    assert ("for under half of the instances" in (folder / "tables.md").read_text()) == bool(low)


def test_what_is_printed_is_what_is_stored(toy, tmp_path):
    few = (
        "explainer=[random,omission,lr]",
        "n_explain=20",
        "bounds=5",
        "explainer_stability=2",
        "reparametrisations=1",
    )
    done = toy.run(*few, "metric=core", "resamples=100", cwd=tmp_path)
    folder = only_run(tmp_path)
    assert sorted(p.name for p in folder.iterdir() if not p.name.startswith(".")) == RESULTS
    assert (folder / ".hydra" / "config.yaml").exists()
    metrics = pd.read_csv(folder / "metrics.csv")
    c = metrics.query("metric == 'c' and variant == 'label' and explainer == 'lr'").iloc[0]
    assert f" {c['value']:.3f}" in done.stdout
    # without a terminal: plain lines, the answer first, and in the end where the files are
    assert "explain: random: 20 to do" in done.stderr and "train: done in" in done.stderr
    assert "\x1b" not in done.stderr + done.stdout
    assert done.stdout.startswith("Verdict: ") and "τ contribution" in done.stdout
    note = "Contains training data (training.parquet). training=0 leaves it out."
    assert done.stdout.endswith(f"Results: {folder}\n{note}\n")
    for text in ((folder / "tables.md").read_text(), (folder / "tables.tex").read_text()):
        assert f"{c['value']:.4f}" in text
    assert "test accuracy" in done.stderr


def results(folder):
    names = ["metrics.csv", "correlations.csv", "explanations.parquet", "counterfactuals.parquet", "scores.parquet",
             "instances.parquet", "tables.md", "tables.tex", "explainer_stability.csv",
             "explainer_stability_metrics.csv", "bounds.csv", "explanations_again.parquet"]  # fmt: skip
    return {name: (folder / name).read_bytes() for name in names}


def test_the_same_seed_gives_the_same_bytes_in_any_order_of_explainers(toy, made, whole):
    reversed_six = "explainer=[lr,decision_boundary,anchor,lime,omission,random]"
    folder = made(toy, reversed_six, *FAST, *WHOLE, *MORE)
    assert results(folder) == results(whole)
    ours, theirs = (np.load(folder / "model.npz", allow_pickle=False) for folder in (folder, whole))
    assert all(np.array_equal(ours[name], theirs[name]) for name in theirs.files)


@pytest.mark.slow  # the one above has the gist
def test_the_same_seed_gives_the_same_bytes_with_another_order_of_sets(toy, tmp_path, whole):
    toy.run(SIX, *FAST, *WHOLE, *MORE, cwd=tmp_path, env={"PYTHONHASHSEED": "7"})
    assert results(only_run(tmp_path)) == results(whole)


@pytest.mark.slow  # tests/reliability/test_shapes.py has the gist
def test_workers_and_cache_change_no_byte(toy, tmp_path, whole):
    """With one process or two, with nothing, some or all explanations known from before."""
    cache = ("cache=disk", f"cache.folder={tmp_path / 'cache'}")
    two = ("n_jobs=2", "executor.min_seconds=0")
    ways = {
        "workers": ("k=2", f"n_explain={N}", *two),
        "some": ("k=2", "n_explain=10", "n_jobs=1", *cache),
        "the rest": ("k=2", f"n_explain={N}", *two, *cache),
        "known": ("k=2", f"n_explain={N}", "n_jobs=1", *cache),
        "other k": ("k=1", f"n_explain={N}", "search=exact", "distance=cosine", *cache),
    }
    folders = {}
    for name, way in ways.items():
        toy.compute(tmp_path / name, SIX, *FAST, *way, *MORE, "resamples=200")
        folders[name] = json.loads((tmp_path / name / "run.json").read_text())
    for name in ("workers", "the rest", "known"):
        assert results(tmp_path / name) == results(whole), name
        assert folders[name]["model_rows"].keys() == folders["known"]["model_rows"].keys()
    known = {name: [one["known"] for one in record["explained"].values()] for name, record in folders.items()}
    assert known["workers"] == known["some"] == [0] * 6
    assert set(known["the rest"]) <= set(range(1, 11))  # of the sample of 10, those that are among the 18
    assert known["known"] == known["other k"] == [N] * 6
    assert folders["known"]["model_rows"] == folders["the rest"]["model_rows"]


def test_a_sample_of_the_test_set_is_drawn_by_the_seed(toy, made):
    chosen = {}
    for name, arguments in {
        "all": ["n_explain=null"],
        "one": ["n_explain=12"],
        "again": ["n_explain=12", "k=2"],
    }.items():
        folder = made(toy, "explainer=lr", "metric=[recall]", "resamples=0", *arguments)
        chosen[name] = pd.read_parquet(folder / "instances.parquet")["instance"].tolist()
    assert chosen["one"] == chosen["again"] == sorted(chosen["one"])
    assert set(chosen["one"]) < set(chosen["all"])
    assert chosen["one"] not in (chosen["all"][:12], chosen["all"][-12:])


def test_two_explainers_that_say_the_same_get_the_same_scores(toy, made):
    """Omission by zero is lr (closed form); what the search draws at random must not tell them apart."""
    arguments = [
        "explainer=[omission,lr,random]",
        "explainer.omission.removal=zero",
        "truth=[signed]",
        "k=2",
        "distance.space=embedding",
    ]
    folder = made(toy, *arguments, "n_explain=20", "resamples=0")
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])["value"]
    pd.testing.assert_series_equal(metrics.xs("omission", level=2), metrics.xs("lr", level=2), check_exact=True)


@pytest.mark.slow  # tests/reliability/test_shapes.py has the gist
def test_an_explainer_that_follows_from_another_is_not_computed_again_and_costs_what_it_would(toy, made, monkeypatch):
    few = ("explainer.lime_absolute.n_samples=100", "n_explain=12")
    alone = made(toy, "explainer=[lime_absolute,random]", *few)
    explain, asked = explain_stage.compute_explanations, []

    def told(job, *rest, **more):
        asked.append(job.name)
        return explain(job, *rest, **more)

    monkeypatch.setattr(explain_stage, "compute_explanations", told)
    both = made(toy, "explainer=[lime,lime_absolute,random]", *few, "explainer.lime.n_samples=100")
    assert asked == ["random", "lime"]
    frames = [pd.read_parquet(folder / "explanations.parquet") for folder in (alone, both)]
    mine = [frame[frame["explainer"] == "lime_absolute"].reset_index(drop=True) for frame in frames]
    assert len(mine[0]) == 12
    pd.testing.assert_frame_equal(*mine)
    costs = [pd.read_csv(folder / "costs.csv").set_index(["part", "name"])["model_rows"] for folder in (alone, both)]
    assert costs[0]["explainer", "lime_absolute"] == costs[1]["explainer", "lime_absolute"]
    assert costs[1]["explainer", "lime_absolute"] == costs[1]["explainer", "lime"]


def test_incomplete_explanations_are_skipped_filled_or_kept(toy, made):
    seen, edits = {}, {}
    for how in ("skip", "random", "keep"):
        # lr covers all, so that decision_boundary's own instances are the common ones
        few = ("explainer=[decision_boundary,lr]", "k=2", "resamples=0", "metric=[validity,recall]")
        folder = made(toy, *few, f"incomplete={how}")
        seen[how] = pd.read_csv(folder / "metrics.csv").query(
            "explainer == 'decision_boundary' and metric == 'validity'"
        )
        edits[how] = pd.read_parquet(folder / "counterfactuals.parquet").query("explainer == 'decision_boundary'")
        lengths = edits[how]["features"].map(len)
        assert (lengths == 2).all() if how != "keep" else lengths.min() >= 1
    told = (
        pd.read_parquet(folder / "explanations.parquet").query("explainer == 'decision_boundary'")["features"].map(len)
    )
    assert 0 < (told >= 2).sum() < 40  # otherwise this test would show nothing
    short = told.to_numpy() < 2
    filled = edits["random"].query("access == 'label'")["features"].to_numpy()[short]
    second = np.array([features[1] for features in filled])
    lowest = np.array([min(set(range(4)) - {features[0]}) for features in filled])
    assert 0 < (second == lowest).sum() < len(second)  # at random, not the first that comes
    assert (seen["skip"]["n"] == (told >= 2).sum()).all()
    assert (seen["random"]["n"] == 40).all()
    assert (seen["keep"]["n"] == (told >= 1).sum()).all()
    for how in seen:
        assert seen[how]["coverage"].tolist() == pytest.approx([(told >= 2).mean()] * 2)


def test_an_explainer_that_never_answers_is_absent_with_a_reason(toy, made):
    arguments = ["explainer.decision_boundary.n_samples=1", "explainer.decision_boundary.max_edits=1", "k=2"]
    few = ("n_explain=10", "metric=[c,recall]", "resamples=0")
    folder = made(toy, "explainer=[decision_boundary,lr,random]", *arguments, *few)
    metrics, text = pd.read_csv(folder / "metrics.csv"), (folder / "tables.md").read_text()
    row = metrics.query("explainer == 'decision_boundary' and metric == 'c'").iloc[0]
    assert row["n"] == 0 and np.isnan(row["value"]) and row["note"] == "no usable explanation" and row["coverage"] == 0
    assert "without decision\\_boundary" in text and "†" in text


@pytest.mark.parametrize("distance", ["cosine", "mahalanobis", "constant"])
def test_other_distances(toy, made, distance):
    few = ("explainer=[random,lr]", "n_explain=20", "metric=[proximity,c,recall]", "truth=[signed]", "resamples=0")
    folder = made(toy, *few, f"distance={distance}", "k=2")
    metrics = pd.read_csv(folder / "metrics.csv").set_index(["metric", "variant", "explainer"])["value"]
    found = pd.read_parquet(folder / "counterfactuals.parquet")
    for (explainer, access), group in found.groupby(["explainer", "access"]):
        assert metrics["proximity", access, explainer] == pytest.approx(group["distance"].mean())
        assert metrics["c", access, explainer] == pytest.approx(group["flipped"].sum() / group["distance"].sum())
    assert f"{distance} distance" in json.loads((folder / "run.json").read_text())["setup"]
    if distance == "cosine":
        assert "cosine distance" in (folder / "tables.md").read_text()


def test_adults_is_prepared_as_the_anchor_package_does_it(adults):
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
    dataset = planned().dataset.load(adults, 0)
    names = [feature.values for feature in dataset.features]
    assert len(dataset.test) == 1569
    ids, codes = dataset.test.ids, dataset.test.codes
    for j, column in enumerate(expected):
        ours = codes[:, j] if j in (0, 10) else np.array(names[j])[codes[:, j]]
        assert ours.tolist() == column[ids].tolist()
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
    described = json.loads((folder / "dataset.json").read_text())
    assert len(described["features"]) == 12
    assert described["fitted"]["age"]["cuts"] == [28, 37, 48]
    assert described["fitted"]["capital_gain"]["median"] == 7298
    assert record["accuracy"]["test"] > 0.80 > record["reference"]["test_accuracy"]
    assert f"test accuracy {100 * record['accuracy']['test']:.2f} % (paper: 77.57 %)" in caplog.text
    ours = same_figures(folder)
    assert ours["proximity", "label", "lime"] == pytest.approx(2**0.5)
    assert ours["recall", "shapley", "lr"] == 1.0
    assert ours["validity", "label", "lr"] == ours["validity", "probability", "lr"]  # k = 1: a flip exists or not
    correlations = pd.read_csv(folder / "correlations.csv")
    assert set(correlations["truth"]) == {"signed", "shapley", "contrast", "absolute"}
    ranked = correlations.query("variant != 'mask' and subset == 'all'").groupby("metric")["explainers"].agg(set)
    assert {name for name, many in ranked.items() if many == {5}} == {"naopc", "edits_to_flip"}  # rules have no order
    assert set().union(*ranked) == {5, 6}


@pytest.mark.slow
def test_the_whole_test_set_of_adults_with_two_features(adults, tmp_path):
    explainers = "explainer=[random,omission,decision_boundary,lr]"
    words = ("cache=off", "k=2", "distance.space=embedding", f"data_dir={adults}", "access=probability", SCORED)
    folder = inside.run(tmp_path, explainers, *words)
    ours = pd.read_csv(folder / "metrics.csv").query("variant != 'label'")
    theirs = outsider.recompute(folder)
    for row in ours[ours["value"].notna()].itertuples():
        assert row.value == pytest.approx(theirs[row.metric, row.variant, row.explainer], abs=1e-9, rel=1e-9)
    assert json.loads((folder / "run.json").read_text())["instances"] == 1569


def test_a_folder_with_the_results_of_the_same_inputs_is_left_as_it_is(toy, tmp_path):
    usual = [*toy.arguments[2:], "cache=off", "figures=[]", "report=false", "explainer=[random,lr]"]
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

    def computed(*more):
        """Whether the run was made again."""
        plan, folder = planned(*usual, *fixed, *more, folder=toy.folder / "conf"), RunFolder(tmp_path / "run", [])
        if with_results := pipeline.run(plan, folder, Progress()):
            folder.finish()
        return with_results

    assert computed()
    before = {
        name: ((tmp_path / "run" / name).stat().st_mtime_ns, (tmp_path / "run" / name).read_bytes()) for name in files
    }

    def changed():
        now = {name: (tmp_path / "run" / name).stat().st_mtime_ns for name in files}
        return {name for name in files if now[name] != before[name][0]}

    # how many processes do the work, and what is kept for other runs, are no inputs
    assert not computed("n_jobs=2", "cache=disk", f"cache.folder={tmp_path / 'cache'}") and not changed()
    assert computed("redo=true") and changed() == set(files)
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == before["metrics.csv"][1]
    assert not computed()
    with pytest.raises(UserError, match=r"complete results of another run\. They are kept.* redo=true"):
        computed("model.dim=3")
    assert not computed()  # and the results are still there
    assert computed("model.dim=3", "redo=true") and not computed("model.dim=3")
    (tmp_path / "run" / "scores.parquet").unlink()
    assert computed("model.dim=3")
