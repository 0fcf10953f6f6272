"""`cfeval atlas`: the runs that it plans, their aggregation, and its actions."""

import json
import shutil

import pytest

from cfeval_cli.cli import atlas, run
from cfeval_cli.cli.screen import Options
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.study.atlas import store
from cfeval_cli.study.atlas.runs import AtlasRun
from tests.inside import make_plan
from tests.study.atlas.conftest import JUDGE_RUN
from tests.study.atlas.synthetic import make_atlas


@pytest.fixture(scope="session")
def judged_run(toy, make_run):
    return [make_run(toy, *JUDGE_RUN), make_run(toy, *JUDGE_RUN, "model=tree", "k=2")]


def call_atlas(*words):
    """Call `cfeval atlas` in this process."""
    atlas.main(list(map(str, words)))


@pytest.fixture
def runs(monkeypatch):
    """Sweeps are remembered and not made."""
    calls = []

    def main(words, options):
        calls.append(words)

    monkeypatch.setattr(run, "main", main)
    monkeypatch.setattr(atlas, "gather_jobs", lambda *_: None)
    return calls


def axes(words):
    return {key: value.split(",") for key, _, value in (word.partition("=") for word in words) if key in atlas._AXES}


def test_full_atlas_runs_all_judges_on_all_datasets_they_support(monkeypatch, runs, tmp_path, capsys):
    with pytest.raises(Failure, match="of 430 runs are left out"):
        call_atlas("--into", tmp_path)
    tables, texts = sorted((axes(words) for words in runs), key=lambda axis: -len(axis["dataset"]))
    assert tables["dataset"] == ["adults", "german", "compas", "heloc", "pima", "phishing", "breast"]
    assert texts["dataset"] == ["movie_reviews"] and texts["experiment"] == ["atlas_logistic_text"]
    judges = ["additive", "boosted_blind", "logistic", "mlp", "mlp_blind", "tree"]
    assert tables["experiment"] == [f"atlas_{name}" for name in judges]
    assert tables["seed"] == texts["seed"] == ["0", "1", "2", "3", "4"] and tables["k"] == ["1", "3"]
    assert list(axes(runs[0])) == ["seed", "k", "dataset", "experiment"]  # the first is varied last
    assert "~hydra.callbacks.gather" in runs[0]
    assert "430 runs, 0 of them done; all take about" in capsys.readouterr().err


def test_small_atlas_with_settings_of_the_user(monkeypatch, runs, tmp_path):
    with pytest.raises(Failure, match="2 of 2 runs"):
        call_atlas(
            "--scale",
            "small",
            "--into",
            tmp_path,
            "experiment=atlas_tree",
            "dataset=pima",
            "seed=7",
            "redo=true",
        )
    assert len(runs) == 1 and axes(runs[0]) == {
        "k": ["1", "3"],
        "seed": ["7"],
        "dataset": ["pima"],
        "experiment": ["atlas_tree"],
    }
    assert "n_explain=50" in runs[0] and "redo=true" in runs[0]
    with pytest.raises(Failure):
        call_atlas("--into", tmp_path, "executor=local", "experiment=atlas_tree", "dataset=pima")
    assert not [word for word in runs[-1] if "launcher" in word]  # a chosen executor does the work


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["--scale", "huge"], "--scale must be one of full, small"),
        (["experiment=atlas_nobody"], "not a judge of the atlas. There is: atlas_additive"),
        (["dataset=iris"], "dataset=iris is not in the atlas"),
        (["dataset=movie_reviews", "experiment=atlas_tree"], "is not in the atlas"),
        (["seed=one"], "seed=one must be whole numbers"),
        (["pima"], "is not a setting"),
    ],
)
def test_invalid_arguments_are_refused_before_a_run_starts(monkeypatch, runs, tmp_path, words, reason):
    with pytest.raises(UserError, match=reason):
        call_atlas("--into", tmp_path, *words)
    assert not runs


def test_failed_run_is_reported_and_the_page_can_be_remade(monkeypatch, tmp_path, judged_run, capsys):
    def main(words, options):
        raise Failure("not all jobs of the sweep succeeded, see above")

    monkeypatch.setattr(run, "main", main)
    jobs = [AtlasRun("toy", "atlas_tree", 0, 1), AtlasRun("toy", "atlas_tree", 0, 3)]
    place = tmp_path / "runs" / jobs[0].folder
    place.parent.mkdir(parents=True)
    shutil.copytree(judged_run[0], place)
    failures = atlas.run_sweeps([dict.fromkeys(atlas._AXES, "0")], jobs, tmp_path / "runs", [], Options())
    assert list(failures) == ["toy/atlas_tree/0-3"]
    atlas.gather_jobs(jobs, tmp_path, failures, Options())
    stored = store.read_atlas(tmp_path / "atlas.parquet")
    assert stored.n_runs == 1 and stored.excluded == ["toy/atlas_tree/0-3: it failed before anything was computed"]
    assert "Excluded runs: 1" in capsys.readouterr().out
    call_atlas("page", tmp_path / "atlas.parquet", "--into", tmp_path / "again")
    assert (tmp_path / "again" / "atlas.html").read_bytes() == (tmp_path / "atlas.html").read_bytes()


def test_runs_are_added_to_an_atlas(monkeypatch, tmp_path, judged_run, capsys):
    # tables and page are written above
    monkeypatch.setattr(atlas, "_write", lambda calls, into, _: store.write_atlas(calls, into / store.ATLAS_FILE))
    store.write_atlas(store.collect_runs(judged_run[:1]), tmp_path / "atlas.parquet")
    call_atlas("add", judged_run[1], "--into", tmp_path)
    assert "Added" in capsys.readouterr().out and store.read_atlas(tmp_path / "atlas.parquet").n_runs == 2


def test_metric_ranking_is_printed(monkeypatch, tmp_path, capsys):
    store.write_atlas(make_atlas(0.02), tmp_path / "known.parquet")
    call_atlas("rule", tmp_path / "known.parquet")
    assert json.loads(capsys.readouterr().out)["metrics"]["change"][0] == "validity_soft"


@pytest.mark.parametrize(
    "judge", ["additive", "boosted_blind", "logistic", "mlp", "mlp_blind", "tree", "logistic_text"]
)
def test_config_of_every_judge_makes_a_plan(judge):
    calls = make_plan(f"experiment=atlas_{judge}", f"dataset={'movie_reviews' if 'text' in judge else 'pima'}")
    assert (
        calls.settings.resamples,
        calls.settings.explainer_stability,
        calls.settings.bounds,
        calls.settings.reference,
        calls.settings.incomplete,
    ) == (0, 0, 0, None, "keep")
    assert calls.settings.n_explain == (200 if "text" in judge else None)
    assert {"shap", "anchor", "lr"} <= set(calls.explainers) and {"naopc", "axe"} <= set(calls.metrics)
    assert ("used" in calls.truths) == ("blind" in judge)
