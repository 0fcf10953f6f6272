"""A killed run is resumed where it ended, and its tables equal those of an undisturbed run."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import Toy, run_cfeval
from tests.reliability.places import Place, follow_command

TIMES = {"run.json", "run.log", "costs.csv", "costs.md", "report.html"}  # files that contain durations
# an explainer that records the instances that it explains
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
EXPLAINERS = (
    "random",
    "omission",
    "lime",
    "patient",
    "lr",
)  # in the order of the run: LR, which uses the truth, is last
STAGES = (
    "data", "train", "truth: shapley", "truth: contrast", *(f"explain: {name}" for name in EXPLAINERS),
    "explainer stability", "answer", *(f"search: {name}" for name in EXPLAINERS),
    "score", "explainer stability: scores", "bounds", "invariance", "conclude", "check", "tables", "figures and page",
)  # fmt: skip
FILES = {
    "run.json": 9, "dataset.json": 1, "model.npz": 1, "instances.parquet": 1, "explanations.parquet": 5,
    "counterfactuals.parquet": 1, "scores.parquet": 1, "metrics.csv": 1, "correlations.csv": 1, "differences.csv": 1,
    "instance_agreement.csv": 1, "metric_agreement.csv": 1, "truth.parquet": 1, "bounds.csv": 1,
    "bounds_truth.csv": 1, "invariance.csv": 1,
    "tables.md": 1, "tau_resamples.parquet": 1, "training.parquet": 1,
    "explainer_stability.csv": 1, "explainer_stability_metrics.csv": 1,
    "explanations_again.parquet": 1, "counterfactuals_again.parquet": 1,
    "recommendation.json": 2, "tables.tex": 1, "costs.csv": 1, "costs.md": 1, "report.html": 1,
}  # fmt: skip
CHUNK, NOISE, INSTANCES = 16, 20, 57
N_RECOMPUTED = 3  # explanations from the cache, and as many from worker processes, that the end of a run computes again
WORKERS = ("n_jobs=2", "executor.min_seconds=0")


@dataclass(frozen=True)
class Bench:
    """A folder with an explainer of its own, and an undisturbed run to compare with."""

    folder: Path
    explainers: tuple[str, ...]  # in the order of the run
    settings: tuple[str, ...]

    def make_own_settings(self, name):
        """Return settings that are not accepted from a folder: a class of the user, and a path."""
        other_explainers = ",".join(explainer for explainer in self.explainers if explainer != "patient")
        return [f"explainer=[patient,{other_explainers}]", f"explainer.patient.log={self.folder / f'log-{name}'}"]

    def make_command(self, name, *options):
        own_settings = self.make_own_settings(name)
        if "lime" in self.explainers:
            own_settings.append("explainer.lime.n_samples=200")
        return [
            "run", *Toy(self.folder).arguments, *self.settings, *own_settings, *options,
            f"hydra.run.dir={self.folder / name}",
        ]  # fmt: skip

    def make_resume_command(self, name, *options):
        folder = str(self.folder / name)
        return ["run", "--resume", folder, *Toy(self.folder).arguments, *self.make_own_settings(name), *options]

    def list_explained(self, name):
        log = self.folder / f"log-{name}.txt"
        return log.read_text().split() if log.exists() else []

    def read_tables(self, name):
        paths = {path.relative_to(self.folder / name): path for path in (self.folder / name).rglob("*")}
        files = {key: path for key, path in paths.items() if path.is_file() and key.parts[0] != ".hydra"}
        return {str(key): path.read_bytes() for key, path in files.items() if key.name not in TIMES}


def prepare_bench(toy, folder, explainers, settings):
    for name in ("conf", "data"):
        shutil.copytree(toy.folder / name, folder / name)
    (folder / "conf" / "explainer").mkdir()
    (folder / "patient.py").write_text(PATIENT)
    (folder / "conf" / "explainer" / "patient.yaml").write_text("patient: {_target_: patient.Patient, log: ''}\n")
    bench = Bench(folder, explainers, settings)
    run_cfeval(*bench.make_command("whole", "n_jobs=1"), cwd=folder)
    return bench


@pytest.fixture(scope="module")
def bench(toy, tmp_path_factory):
    """Without LIME, which takes each worker two seconds to import, and with one truth."""
    explainers = tuple(name for name in EXPLAINERS if name != "lime")
    fewer_settings = (*SETTINGS, "truth=[signed]", "reparametrisations=1", "bounds=10")
    return prepare_bench(toy, tmp_path_factory.mktemp("bench"), explainers, fewer_settings)


@pytest.fixture(scope="module")
def large_bench(toy, tmp_path_factory):
    return prepare_bench(toy, tmp_path_factory.mktemp("bench"), EXPLAINERS, SETTINGS)


@pytest.fixture(scope="module")
def counts(large_bench):
    """Count the Python calls and chunks of each stage, and list the files in the order of writing."""
    return follow_command(
        large_bench.make_command("counted", "n_jobs=1", "report=true"), large_bench.folder, counting=True
    )


def check(bench, place, *options):
    """Kill a run at a place, resume it, and compare."""
    name = f"{place.kind} {place.name} {place.number} {place.group} {len(options)}".replace(":", "").replace(" ", "-")
    report = follow_command(bench.make_command(name, *options), bench.folder, place)
    before, folder = bench.list_explained(name), bench.folder / name
    record = json.loads((folder / "run.json").read_text()) if (folder / "run.json").exists() else None
    assert record is None or record["status"] == "running"
    assert (record is None) == ((place.name, place.number) == ("run.json", 1))
    if place.kind in ("call", "chunk"):
        assert report["stage"] == place.name
    run_cfeval(
        *(bench.make_command(name, *options) if record is None else bench.make_resume_command(name)), cwd=bench.folder
    )
    assert bench.read_tables(name) == bench.read_tables("whole"), place
    # stored explanations are not computed again, except for the check of cache and workers at the end
    expected, repetitions = bench.list_explained("whole"), bench.list_explained(name)[len(before) :]
    first, second = expected[:INSTANCES], expected[INSTANCES:]
    last = max((place + 1 for place, entry in enumerate(repetitions) if entry in second), default=0)
    repetitions, rechecked = repetitions[:last], repetitions[last:]
    n_explained, repeated = (
        report["stages"].get(stage, {"items": 0})["items"] for stage in ("explain: patient", "explainer stability")
    )
    repeated = min(max(repeated - NOISE * bench.explainers.index("patient"), 0), NOISE)
    assert set(before) >= {*first[:n_explained], *second[:repeated]}
    # one chunk may be stored but not reported yet
    ends = ((n_explained, repeated), (n_explained + CHUNK, repeated), (n_explained, repeated + CHUNK))
    assert set(repetitions) in [{*first[a:], *second[b:]} for a, b in ends]
    assert len(repetitions) == len(set(repetitions))
    assert len(set(rechecked)) == len(rechecked)
    from_cache, from_workers = (
        set(rechecked) & explained for explained in (set(first) - set(repetitions), set(repetitions))
    )
    assert from_cache | from_workers == set(rechecked) and from_cache <= set(before)
    assert len(from_cache) == N_RECOMPUTED * (len(set(first) - set(repetitions)) > 0)
    # workers compute all but the first of three chunks or more
    n_repeated = len(set(first) & set(repetitions))
    assert len(from_workers) == N_RECOMPUTED * (set(WORKERS) <= set(options) and n_repeated > 2 * CHUNK)
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "complete" and not list(folder.rglob("*.part")) + list(folder.glob("unfinished*"))
    return report


def test_run_killed_three_times_equals_an_undisturbed_run(bench):
    """Kill a run while workers explain, while it explains with a second seed, and while it writes."""
    folder, command, expected = (
        bench.folder / "again",
        bench.make_command("again", *WORKERS),
        bench.list_explained("whole"),
    )
    for place in (
        Place("chunk", "explain: patient", 3, group=True),
        Place("chunk", "explainer stability", 5),
        Place("written", "metrics.csv", 1),
    ):
        report = follow_command(command, bench.folder, place)
        assert json.loads((folder / "run.json").read_text())["status"] == "running"
        if place.name == "explain: patient":
            n_stored = place.number * CHUNK
            assert report["stages"][place.name]["items"] == n_stored  # there, and no further
            before = bench.list_explained("again")
            assert set(expected[:n_stored]) <= set(before) <= set(expected[:INSTANCES]) and len(before) == len(
                set(before)
            )
        command = bench.make_resume_command("again", "n_jobs=1")
    run_cfeval(*command, cwd=bench.folder)
    assert bench.read_tables("again") == bench.read_tables("whole")
    # stored explanations are not computed again; two resumed runs reached the check of the cache
    repetitions, rechecked = (
        bench.list_explained("again")[len(before) : -2 * N_RECOMPUTED],
        bench.list_explained("again")[-2 * N_RECOMPUTED :],
    )
    assert repetitions == expected[n_stored:]
    assert rechecked[:N_RECOMPUTED] == rechecked[N_RECOMPUTED:] and set(rechecked) <= set(expected[:INSTANCES])
    assert json.loads((folder / "run.json").read_text())["status"] == "complete"
    assert not list(folder.rglob("*.part")) + list(folder.glob("unfinished*"))
    # a complete run is not changed
    stamps = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    output = run_cfeval(*command, cwd=bench.folder).stdout
    assert output == f"The run is complete. Results: {folder}\n"
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == stamps


@pytest.mark.slow
def test_the_places_cover_all_stages_and_files(counts):
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
@pytest.mark.parametrize("options", [["n_jobs=1"], WORKERS], ids=["alone", "workers"])
@pytest.mark.parametrize("place", CHUNKS, ids=lambda place: f"{place.name} {place.number}")
def test_killed_after_a_chunk(large_bench, place, options):
    report = check(large_bench, place, *options)
    if place.name.startswith("explain"):
        assert report["stages"][place.name]["items"] == min(place.number * CHUNK, 57)


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
    command = [word if word != "cache=off" else "cache=disk" for word in bench.make_command("a", "n_jobs=1", *cache)]
    follow_command(command, bench.folder, Place("chunk", "explain: patient", 2))
    first, expected = bench.list_explained("a"), bench.list_explained("whole")
    assert first == expected[: 2 * CHUNK]
    command[-1] = f"hydra.run.dir={bench.folder / 'b'}"
    run_cfeval(*command, cwd=bench.folder)
    assert bench.read_tables("b") == bench.read_tables("whole")
    assert bench.list_explained("a")[:-N_RECOMPUTED] == expected
    assert set(bench.list_explained("a")[-N_RECOMPUTED:]) <= set(first)  # which checks the cache


SWEEP = ("explainer=[random,lr]", "metric=[c,recall]", "truth=[signed]", "n_explain=20", "resamples=0",
         "bounds=0", "--multirun", "k=1,9")  # fmt: skip


@pytest.mark.parametrize("is_repeated", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_sweep_goes_on(toy, tmp_path, is_repeated):
    """Finished jobs are skipped, a failed one is named and tried again, perhaps twice, the exit code tells."""
    process = toy.run(*SWEEP, "hydra.sweep.dir=sweep", cwd=tmp_path, code=2)
    assert "job 1: k=9 exceeds the 4 features" in process.stderr and "Not gathered: 1 (failed)" in process.stdout
    first = (tmp_path / "sweep" / "0" / "run.json").stat().st_mtime_ns
    config = toy.arguments
    if is_repeated:
        process = run_cfeval("run", "--resume", "sweep", *config, cwd=tmp_path, code=2)
        assert process.stdout.count("computed before, with the same inputs") == 1
        assert "Not gathered: 1 (failed)" in process.stdout and "job 1: k=9 exceeds" in process.stderr
    process = run_cfeval("run", "--resume=sweep", *config, "k=1,2", cwd=tmp_path)
    assert process.stdout.count("computed before, with the same inputs") == 1 and "Gathered 2 runs" in process.stdout
    assert (tmp_path / "sweep" / "0" / "run.json").stat().st_mtime_ns == first
