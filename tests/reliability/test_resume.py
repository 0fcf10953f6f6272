"""A run that is killed goes on where it was, and nobody can tell from the tables."""

import json
import os
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from cfeval_cli.storage.files import locked
from tests.conftest import CFEVAL, Toy, cfeval

TIMES = {"run.json", "run.log", "costs.csv", "costs.md"}  # what tells how long it took
# an explainer that takes its time, and writes down what it was asked
PATIENT = """
import time
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from cfeval_cli.types import Explanation


@dataclass(frozen=True)
class Patient:
    log: str
    access = 0

    def fit(self, dataset, model):
        def function(batch):
            time.sleep(0.03 * len(batch))
            with Path(self.log).open("a") as log:
                log.write("".join(f"{i}\\n" for i in batch.ids))
            scores = np.stack([batch.rng(row).random(batch.codes.shape[1]) for row in range(len(batch))])
            return Explanation.ranked(scores, batch.codes >= 0)
        return function
"""
SETTINGS = (
    "explainer=[patient,random,omission,lime,lr]",
    "explainer.lime.n_samples=200",
    "k=2",
    "resamples=100",
    "figures=[]",
    "cache=off",
    "report=false",
)


@dataclass(frozen=True)
class Bench:
    """A place with an explainer of its own, and an undisturbed run to compare with."""

    toy: Toy
    folder: Path

    def words(self, name, *more):
        log = self.folder / f"{name}.log"
        own = f"hydra.searchpath=[file://{self.folder / 'conf'}]"
        return [
            "run", *self.toy.arguments, *SETTINGS, own, f"explainer.patient.log={log}", *more,
            f"hydra.run.dir={self.folder / name}",
        ]  # fmt: skip

    def resume(self, name, *more):
        own = f"hydra.searchpath=[file://{self.folder / 'conf'}]"
        config = ["--config-dir", str(self.toy.folder / "conf"), own]
        log = f"explainer.patient.log={self.folder / name}.log"  # which may not be there yet
        return ["run", "--resume", str(self.folder / name), *config, log, *more]

    def explained(self, name):
        log = self.folder / f"{name}.log"
        return log.read_text().split() if log.exists() else []

    def moment(self, name, share, process):
        """Seconds to wait: before anything is written for the first tenth, then from the first record on."""
        begun, ended = json.loads((self.folder / "seconds").read_text())
        if share < 0.1:
            return 10 * share * begun
        while not (self.folder / name / "run.json").exists() and process.poll() is None:
            time.sleep(0.01)
        return (share - 0.1) / 0.9 * (ended - begun)

    def tables(self, name):
        found = {path.relative_to(self.folder / name): path for path in (self.folder / name).rglob("*")}
        kept = {key: path for key, path in found.items() if path.is_file() and key.parts[0] != ".hydra"}
        return {str(key): path.read_bytes() for key, path in kept.items() if key.name not in TIMES}

    def kill_after(self, name, share, *more, group=False):
        """Start a run, and end it as nothing can be caught, after a share of its time; whether it had not ended."""
        with subprocess.Popen(
            [str(CFEVAL), *self.words(name, *more)], cwd=self.folder, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True,
        ) as process:  # fmt: skip
            try:
                process.wait(self.moment(name, share, process))
                return False
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL) if group else process.kill()
                return True


@pytest.fixture(scope="module")
def bench(toy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    (folder / "conf" / "explainer").mkdir(parents=True)
    (folder / "patient.py").write_text(PATIENT)
    (folder / "conf" / "explainer" / "patient.yaml").write_text("patient: {_target_: patient.Patient, log: ''}\n")
    made = Bench(toy, folder)
    started = time.monotonic()
    with subprocess.Popen(
        [str(CFEVAL), *made.words("whole", "n_jobs=1")], cwd=folder, stderr=subprocess.DEVNULL
    ) as run:
        while not (folder / "whole" / "run.json").exists() and run.poll() is None:
            time.sleep(0.01)
        begun = time.monotonic() - started
    assert run.returncode == 0
    (folder / "seconds").write_text(json.dumps([begun, time.monotonic() - started]))
    return made


def check(bench, number, share):
    """Kill a run after a share of the time that one takes, resume it, and compare."""
    workers = ["n_jobs=2", "executor.min_seconds=0"] if number % 3 == 2 else ["n_jobs=1"]
    name = f"killed{number}"
    killed = bench.kill_after(name, share, *workers, group=bool(number % 2))
    before, folder = bench.explained(name), bench.folder / name
    record = json.loads((folder / "run.json").read_text()) if (folder / "run.json").exists() else None
    if killed and record is not None:
        assert record["status"] in ("running", "complete")
    # the first chunk of all may be in hand for each worker, and nothing else is asked twice
    again = bench.resume(name) if record is not None else bench.words(name, *workers)
    cfeval(*again, cwd=bench.folder)
    assert bench.tables(name) == bench.tables("whole"), f"killed after {share:.3f} of the time"
    asked, instances = bench.explained(name), bench.explained("whole")
    assert set(asked) == set(instances)
    assert len(asked) <= len(instances) + (2 if number % 3 == 2 else 1) * 16
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "complete" and not list(folder.rglob("*.part")) + list(folder.glob("unfinished*"))
    return len(before)


@pytest.mark.parametrize(("number", "share"), [(1, 0.5), (2, 0.8)])
def test_killed(bench, number, share):
    check(bench, number, share)


@pytest.mark.slow
def test_killed_at_twenty_random_moments(bench):
    shares = np.random.default_rng(20).uniform(0, 1, 20)
    with ThreadPoolExecutor(2) as pool:
        reached = list(pool.map(lambda one: check(bench, 100 + one[0], one[1]), enumerate(shares)))
    assert len(set(reached)) > 2  # they were at different places


def test_the_same_command_again_goes_on_through_the_cache(bench):
    """Into a folder of its own, with nothing in common but the cache."""
    cache = [f"cache.folder={bench.folder / 'cache'}"]
    words = [word if word != "cache=off" else "cache=disk" for word in bench.words("a", "n_jobs=1", *cache)]
    with subprocess.Popen([str(CFEVAL), *words], cwd=bench.folder, start_new_session=True) as process:
        time.sleep(bench.moment("a", 0.8, process))
        process.kill()
    first = len(bench.explained("a"))
    words[-1] = f"hydra.run.dir={bench.folder / 'b'}"
    cfeval(*words, cwd=bench.folder)
    whole = bench.explained("whole")
    assert bench.tables("b") == bench.tables("whole") and first > 0
    assert len(bench.explained("a")) <= len(whole) + 16


def test_a_run_that_is_complete_is_left_alone(bench):
    before = {path: path.stat().st_mtime_ns for path in (bench.folder / "whole").rglob("*")}
    told = cfeval(*bench.resume("whole"), cwd=bench.folder).stdout
    assert told == f"Nothing is left to do, the run is complete. Results: {bench.folder / 'whole'}\n"
    assert {path: path.stat().st_mtime_ns for path in (bench.folder / "whole").rglob("*")} == before


def test_two_runs_do_not_write_to_the_same_folder(bench):
    (bench.folder / "held").mkdir()
    with locked(bench.folder / "held", wait=False) as held:
        assert held
        done = cfeval(*bench.words("held"), cwd=bench.folder, code=2)
    assert f"another run is writing to {bench.folder / 'held'}" in done.stderr
    assert not (bench.folder / "held" / "run.json").exists() and not bench.explained("held")


def test_a_sweep_goes_on(toy, tmp_path):
    """Finished jobs are skipped, a failed one is named and tried again, the exit code tells."""
    quick = ["explainer=[random,lr]", "n_explain=20", "resamples=0", "--multirun", "seed=0,1", "k=1,9"]
    done = toy.run(*quick, "hydra.sweep.dir=sweep", cwd=tmp_path, code=2)
    assert (
        "job 1: k=9 is more than the 4 features" in done.stderr
        and "Not gathered: 1 (failed), 3 (failed)" in done.stdout
    )
    first = {name: (tmp_path / "sweep" / name / "run.json").stat().st_mtime_ns for name in "02"}
    config = ["--config-dir", str(toy.folder / "conf")]
    done = cfeval("run", "--resume", "sweep", *config, cwd=tmp_path, code=2)
    assert done.stdout.count("computed before, with the same inputs") == 2
    assert "Not gathered: 1 (failed), 3 (failed)" in done.stdout and "job 3: k=9 is more" in done.stderr
    assert {name: (tmp_path / "sweep" / name / "run.json").stat().st_mtime_ns for name in "02"} == first
    done = cfeval("run", "--resume=sweep", *config, "k=1,2", cwd=tmp_path)
    assert done.stdout.count("computed before") == 2 and "Gathered 4 runs" in done.stdout
