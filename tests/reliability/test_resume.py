"""A run that is killed goes on where it was, and nobody can tell from the tables."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Toy, run_cfeval
from tests.reliability.places import Place, followed

TIMES = {"run.json", "run.log", "costs.csv", "costs.md", "report.html"}  # what tells how long it took
# an explainer that writes down what it was asked
PATIENT = """
from dataclasses import dataclass
from pathlib import Path
import numpy as np
from cfeval_cli.core import Explainer, Explanation, Fingerprinted


@dataclass(frozen=True)
class Patient(Explainer, Fingerprinted):
    log: str
    access = 0

    def fit(self, dataset, model):
        def function(batch):
            with Path(f"{self.log}.txt").open("a") as log:  # the content of a file that a setting names would count
                log.write("".join(f"{batch.seed}:{i}\\n" for i in batch.ids))
            scores = np.stack([batch.make_rng(row).random(batch.codes.shape[1]) for row in range(len(batch))])
            return Explanation.from_scores(scores, batch.codes >= 0)
        return function

    def fingerprint(self):
        return ""
"""
SETTINGS = (
    "metric=[comprehensiveness,dfr,c,c_soft,recall]",
    "k=2",
    "explainer_stability=20",
    "reparametrisations=3",
    "resamples=100",
    "figures=[]",
    "cache=off",
    "report=false",
)
EXPLAINERS = ("random", "omission", "lime", "patient", "lr")  # as they are asked: the truth comes last
STAGES = (
    "data", "train", "truth: signed",
    *(f"explain: {name}" for name in EXPLAINERS), *(f"search: {name}" for name in EXPLAINERS),
    "score", "explainer stability", "bounds", "invariance", "conclude", "check", "tables", "figures and page",
)  # fmt: skip
FILES = {
    "run.json": 9, "dataset.json": 1, "model.npz": 1, "instances.parquet": 1, "explanations.parquet": 5,
    "counterfactuals.parquet": 1, "scores.parquet": 1, "metrics.csv": 1, "correlations.csv": 1, "differences.csv": 1,
    "instance_agreement.csv": 1, "metric_agreement.csv": 1, "truth.parquet": 1, "bounds.csv": 1,
    "bounds_truth.csv": 1, "invariance.csv": 1,
    "tables.md": 1, "tau_resamples.parquet": 1, "training.parquet": 1,
    "explainer_stability.csv": 1, "explainer_stability_metrics.csv": 1,
    "explanations_again.parquet": 1, "counterfactuals_again.parquet": 1,
    "tables.tex": 1, "costs.csv": 1, "costs.md": 1, "report.html": 1,
}  # fmt: skip
CHUNK, NOISE, INSTANCES = 16, 20, 57
RECOMPUTED = 3  # explanations from the cache, and as many from worker processes, that the end of a run computes again
WORKERS = ("n_jobs=2", "executor.min_seconds=0")


@dataclass(frozen=True)
class Bench:
    """A place with an explainer of its own, and an undisturbed run to compare with."""

    folder: Path
    explainers: tuple[str, ...]  # as they are asked
    settings: tuple[str, ...]

    def own(self, name):
        """What a folder may not choose: a class of one's own, and a path."""
        others = ",".join(one for one in self.explainers if one != "patient")
        return [f"explainer=[patient,{others}]", f"explainer.patient.log={self.folder / f'log-{name}'}"]

    def words(self, name, *more):
        chosen = self.own(name)
        if "lime" in self.explainers:
            chosen.append("explainer.lime.n_samples=200")
        return [
            "run", *Toy(self.folder).arguments, *self.settings, *chosen, *more, f"hydra.run.dir={self.folder / name}",
        ]  # fmt: skip

    def resume(self, name, *more):
        folder = str(self.folder / name)
        return ["run", "--resume", folder, *Toy(self.folder).arguments, *self.own(name), *more]

    def explained(self, name):
        log = self.folder / f"log-{name}.txt"
        return log.read_text().split() if log.exists() else []

    def tables(self, name):
        found = {path.relative_to(self.folder / name): path for path in (self.folder / name).rglob("*")}
        kept = {key: path for key, path in found.items() if path.is_file() and key.parts[0] != ".hydra"}
        return {str(key): path.read_bytes() for key, path in kept.items() if key.name not in TIMES}


def prepared(toy, folder, explainers, settings):
    for name in ("conf", "data"):
        shutil.copytree(toy.folder / name, folder / name)
    (folder / "conf" / "explainer").mkdir()
    (folder / "patient.py").write_text(PATIENT)
    (folder / "conf" / "explainer" / "patient.yaml").write_text("patient: {_target_: patient.Patient, log: ''}\n")
    made = Bench(folder, explainers, settings)
    run_cfeval(*made.words("whole", "n_jobs=1"), cwd=folder)
    return made


@pytest.fixture(scope="module")
def bench(toy, tmp_path_factory):
    """Without LIME, which takes each worker two seconds to import, and with one truth."""
    explainers = tuple(name for name in EXPLAINERS if name != "lime")
    few = (*SETTINGS, "truth=[signed]", "reparametrisations=1", "bounds=10")
    return prepared(toy, tmp_path_factory.mktemp("bench"), explainers, few)


@pytest.fixture(scope="module")
def large_bench(toy, tmp_path_factory):
    return prepared(toy, tmp_path_factory.mktemp("bench"), EXPLAINERS, SETTINGS)


@pytest.fixture(scope="module")
def counts(large_bench):
    """How many Python calls and chunks each stage of a run takes, and which files it writes in which order."""
    return followed(large_bench.words("counted", "n_jobs=1", "report=true"), large_bench.folder, counting=True)


def check(bench, place, *more):
    """Kill a run at a place, resume it, and compare."""
    name = f"{place.kind} {place.name} {place.number} {place.group} {len(more)}".replace(":", "").replace(" ", "-")
    told = followed(bench.words(name, *more), bench.folder, place)
    before, folder = bench.explained(name), bench.folder / name
    record = json.loads((folder / "run.json").read_text()) if (folder / "run.json").exists() else None
    assert record is None or record["status"] == "running"
    assert (record is None) == ((place.name, place.number) == ("run.json", 1))
    if place.kind in ("call", "chunk"):
        assert told["stage"] == place.name
    run_cfeval(*(bench.words(name, *more) if record is None else bench.resume(name)), cwd=bench.folder)
    assert bench.tables(name) == bench.tables("whole"), place
    # what had been kept is not asked again, but for a few explanations at the end that check cache and workers
    whole, again = bench.explained("whole"), bench.explained(name)[len(before) :]
    first, second = whole[:INSTANCES], whole[INSTANCES:]
    last = max((place + 1 for place, one in enumerate(again) if one in second), default=0)
    again, rechecked = again[:last], again[last:]
    done, repeated = (
        told["stages"].get(stage, {"items": 0})["items"] for stage in ("explain: patient", "explainer stability")
    )
    repeated = min(max(repeated - NOISE * bench.explainers.index("patient"), 0), NOISE)
    assert set(before) >= {*first[:done], *second[:repeated]}
    # one chunk may have been kept, and not been told yet
    ends = ((done, repeated), (done + CHUNK, repeated), (done, repeated + CHUNK))
    assert set(again) in [{*first[a:], *second[b:]} for a, b in ends]
    assert len(again) == len(set(again))
    assert len(set(rechecked)) == len(rechecked)
    from_cache, from_workers = (set(rechecked) & explained for explained in (set(first) - set(again), set(again)))
    assert from_cache | from_workers == set(rechecked) and from_cache <= set(before)
    assert len(from_cache) == RECOMPUTED * (len(set(first) - set(again)) > 0)
    # with workers, all but the first of three chunks or more are theirs
    left = len(set(first) & set(again))
    assert len(from_workers) == RECOMPUTED * (set(WORKERS) <= set(more) and left > 2 * CHUNK)
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "complete" and not list(folder.rglob("*.part")) + list(folder.glob("unfinished*"))
    return told


def test_killed_with_its_workers_and_again_and_again(bench):
    """While workers explain, when it goes on and explains a second time, and when it writes: as if nothing was."""
    folder, words, whole = bench.folder / "again", bench.words("again", *WORKERS), bench.explained("whole")
    for place in (
        Place("chunk", "explain: patient", 3, group=True),
        Place("chunk", "explainer stability", 5),
        Place("written", "metrics.csv", 1),
    ):
        told = followed(words, bench.folder, place)
        assert json.loads((folder / "run.json").read_text())["status"] == "running"
        if place.name == "explain: patient":
            kept = place.number * CHUNK
            assert told["stages"][place.name]["items"] == kept  # there, and no further
            before = bench.explained("again")
            assert set(whole[:kept]) <= set(before) <= set(whole[:INSTANCES]) and len(before) == len(set(before))
        words = bench.resume("again", "n_jobs=1")
    run_cfeval(*words, cwd=bench.folder)
    assert bench.tables("again") == bench.tables("whole")
    # what had been kept was not asked again; two resumed runs came to the check of the cache
    again, rechecked = (
        bench.explained("again")[len(before) : -2 * RECOMPUTED],
        bench.explained("again")[-2 * RECOMPUTED :],
    )
    assert again == whole[kept:]
    assert rechecked[:RECOMPUTED] == rechecked[RECOMPUTED:] and set(rechecked) <= set(whole[:INSTANCES])
    assert json.loads((folder / "run.json").read_text())["status"] == "complete"
    assert not list(folder.rglob("*.part")) + list(folder.glob("unfinished*"))
    # a run that is complete is left alone
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    printed = run_cfeval(*words, cwd=bench.folder).stdout
    assert printed == f"The run is complete. Results: {folder}\n"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == stamps


@pytest.mark.slow
def test_the_places_are_all_that_there_are(counts):
    assert tuple(counts["stages"]) == STAGES
    assert {name: counts["files"].count(name) for name in counts["files"]} == FILES
    chunks = {title: stage["chunks"] for title, stage in counts["stages"].items()}
    assert [chunks[f"explain: {name}"] for name in EXPLAINERS] == [4] * 5
    assert [chunks[f"search: {name}"] for name in EXPLAINERS] == [2] * 5


CHUNKS = [
    *(Place("chunk", f"explain: {name}", number, group=number == 2) for name in EXPLAINERS for number in (1, 2, 4)),
    *(Place("chunk", f"search: {name}", number) for name, number in (("patient", 1), ("lime", 2), ("lr", 1))),
]


@pytest.mark.slow
@pytest.mark.parametrize("more", [["n_jobs=1"], WORKERS], ids=["alone", "workers"])
@pytest.mark.parametrize("place", CHUNKS, ids=lambda place: f"{place.name} {place.number}")
def test_killed_after_a_chunk(large_bench, place, more):
    told = check(large_bench, place, *more)
    if place.name.startswith("explain"):
        assert told["stages"][place.name]["items"] == min(place.number * CHUNK, 57)


# a file is there in part, or whole beside its place
WRITTEN = [
    Place(("begun", "written")[(list(FILES).index(file) + number) % 2], file, number)
    for file, often in FILES.items() for number in range(1, often + 1)
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("place", [*STAGES, *WRITTEN], ids=str)
def test_killed_anywhere_within_a_stage_or_while_a_file_is_written(large_bench, counts, place):
    """Within a stage at a call that is drawn from all that it takes."""
    if isinstance(place, str):
        rng = np.random.default_rng([20, STAGES.index(place)])
        number = int(rng.integers(1, counts["stages"][place]["calls"] + 1))
        place = Place("call", place, number, group=bool(rng.integers(2)))
    check(large_bench, place, "n_jobs=1", "report=true")


def test_the_same_command_again_goes_on_through_the_cache(bench):
    """Into a folder of its own, with nothing in common but the cache."""
    cache = [f"cache.folder={bench.folder / 'cache'}"]
    words = [word if word != "cache=off" else "cache=disk" for word in bench.words("a", "n_jobs=1", *cache)]
    followed(words, bench.folder, Place("chunk", "explain: patient", 2))
    first, whole = bench.explained("a"), bench.explained("whole")
    assert first == whole[: 2 * CHUNK]
    words[-1] = f"hydra.run.dir={bench.folder / 'b'}"
    run_cfeval(*words, cwd=bench.folder)
    assert bench.tables("b") == bench.tables("whole")
    assert bench.explained("a")[:-RECOMPUTED] == whole
    assert set(bench.explained("a")[-RECOMPUTED:]) <= set(first)  # which checks the cache


SWEEP = ("explainer=[random,lr]", "metric=[c,recall]", "truth=[signed]", "n_explain=20", "resamples=0",
         "bounds=0", "--multirun", "k=1,9")  # fmt: skip


@pytest.mark.parametrize("twice", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sweep_goes_on(toy, tmp_path, twice):
    """Finished jobs are skipped, a failed one is named and tried again, perhaps twice, the exit code tells."""
    done = toy.run(*SWEEP, "hydra.sweep.dir=sweep", cwd=tmp_path, code=2)
    assert "job 1: k=9 exceeds the 4 features" in done.stderr and "Not gathered: 1 (failed)" in done.stdout
    first = (tmp_path / "sweep" / "0" / "run.json").stat().st_mtime_ns
    config = toy.arguments
    if twice:
        done = run_cfeval("run", "--resume", "sweep", *config, cwd=tmp_path, code=2)
        assert done.stdout.count("computed before, with the same inputs") == 1
        assert "Not gathered: 1 (failed)" in done.stdout and "job 1: k=9 exceeds" in done.stderr
    done = run_cfeval("run", "--resume=sweep", *config, "k=1,2", cwd=tmp_path)
    assert done.stdout.count("computed before, with the same inputs") == 1 and "Gathered 2 runs" in done.stdout
    assert (tmp_path / "sweep" / "0" / "run.json").stat().st_mtime_ns == first
