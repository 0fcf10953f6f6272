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
    chosen = [*LITTLE, "seed=0,1", f"cache.folder={cache}"]
    names = ("metrics.csv", "scores.parquet", "explanations.parquet", "correlations.csv")
    alone, there = tmp_path / "alone", tmp_path / "there"
    toy.run("--multirun", *LITTLE, "seed=0,1", f"hydra.sweep.dir={alone}", cwd=tmp_path)
    other = f"hydra/launcher={launcher}"
    done = toy.run("--multirun", "--quiet", *chosen, "cache=disk", other, f"hydra.sweep.dir={there}", cwd=tmp_path)
    assert "train" not in done.stderr and "done in" not in done.stderr  # no progress of jobs either
    for job in "01":
        same = [(alone / job / name).read_bytes() == (there / job / name).read_bytes() for name in names]
        assert all(same), names
    assert [row["seed"] for row in gathered(there)] == [row["seed"] for row in gathered(alone)]

    # one job is lost: the other is left as it is, and what was explained is known
    before = (there / "0" / "run.json").read_bytes()
    shutil.rmtree(there / "1")
    again = ("run", "--resume", str(there), *toy.arguments, f"cache.folder={cache}")
    told = run_cfeval(*again, cwd=tmp_path, code=2).stderr
    assert f"was started with {other}. This is not accepted from a folder" in told
    run_cfeval(*again, other, cwd=tmp_path)
    assert (there / "0" / "run.json").read_bytes() == before
    assert (there / "1" / "metrics.csv").read_bytes() == (alone / "1" / "metrics.csv").read_bytes()
    with (there / "1" / "costs.csv").open() as file:
        assert {row["n_cached"] for row in csv.DictReader(file) if row["part"] == "explainer"} == {"20"}
    assert len(gathered(there)) == len(gathered(alone))


def gathered(folder):
    with (folder / "sweep.csv").open() as file:
        return list(csv.DictReader(file))
