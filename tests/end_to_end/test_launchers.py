"""Hydra's launchers: other processes do the jobs of a sweep, and nothing of the results tells."""

import csv
import shutil

import pytest

from tests.conftest import run_cfeval

LITTLE = ("explainer=[random,lr]", "n_explain=20", "resamples=100", "bounds=0", "n_jobs=1")


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_jobs_in_other_processes_share_the_cache_are_gathered_and_go_on(toy, tmp_path, launcher):
    cache = tmp_path / "cache"
    settings = [*LITTLE, "seed=0,1", f"cache.folder={cache}"]
    names = ("metrics.csv", "scores.parquet", "explanations.parquet", "correlations.csv")
    sequential, launched = tmp_path / "alone", tmp_path / "there"
    toy.run("--multirun", *LITTLE, "seed=0,1", f"hydra.sweep.dir={sequential}", cwd=tmp_path)
    other = f"hydra/launcher={launcher}"
    process = toy.run(
        "--multirun", "--quiet", *settings, "cache=disk", other, f"hydra.sweep.dir={launched}", cwd=tmp_path
    )
    assert "train" not in process.stderr and "done in" not in process.stderr  # no progress of jobs either
    for job in "01":
        is_equal = [(sequential / job / name).read_bytes() == (launched / job / name).read_bytes() for name in names]
        assert all(is_equal), names
    assert [row["seed"] for row in gather_rows(launched)] == [row["seed"] for row in gather_rows(sequential)]

    # one job is lost: the other is left as it is, and what was explained is known
    before = (launched / "0" / "run.json").read_bytes()
    shutil.rmtree(launched / "1")
    resume_command = ("run", "--resume", str(launched), *toy.arguments, f"cache.folder={cache}")
    message = run_cfeval(*resume_command, cwd=tmp_path, code=2).stderr
    assert f"was started with {other}. These words are not accepted from a folder" in message
    run_cfeval(*resume_command, other, cwd=tmp_path)
    assert (launched / "0" / "run.json").read_bytes() == before
    assert (launched / "1" / "metrics.csv").read_bytes() == (sequential / "1" / "metrics.csv").read_bytes()
    with (launched / "1" / "costs.csv").open() as file:
        assert {row["n_cached"] for row in csv.DictReader(file) if row["part"] == "explainer"} == {"20"}
    assert len(gather_rows(launched)) == len(gather_rows(sequential))


def gather_rows(folder):
    with (folder / "sweep.csv").open() as file:
        return list(csv.DictReader(file))
