"""A small table with its own config, and the command line as a user calls it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import http.server
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any

import numpy as np
import pytest
from hypothesis import settings

# `make test` draws the same few examples each time. `make test-slow` draws new ones, as many as hypothesis does by
# default; the output of a failure has the line that repeats it.
settings.register_profile("ci", derandomize=True, deadline=None, max_examples=15)
settings.register_profile("full", deadline=None, max_examples=100, print_blob=True)
settings.load_profile("ci")

CFEVAL = Path(sys.executable).parent / "cfeval"
SLOW_TEST_TIMEOUT = 1800  # seconds
# the command after a prelude, which may import NumPy before `main` limits the threads
ONE_THREAD = 'import os\nfor name in ("OMP", "OPENBLAS", "MKL"): os.environ[f"{name}_NUM_THREADS"] = "1"'
MAIN = 'import sys\nfrom cfeval_cli.cli.main import main\nsys.argv[0] = "cfeval"\nsys.exit(main())'
LOCAL_VARIABLES = (
    "CFEVAL_DATA",
    "COLUMNS",
    "NO_COLOR",
)  # of the user; tests do not depend on them

# fewer metrics than by default; tests of metrics choose metric=core
FEW_METRICS = (
    "metric=[comprehensiveness,sufficiency,dfr,validity,proximity,proximity_flips,c,validity_soft,c_soft,recall,hit]"
)

TOY = """\
_target_: cfeval_cli.dataset.tabular.TabularData
name: toy
file: {_target_: cfeval_cli.dataset.sources.DataFile, name: toy.csv}
columns: [size, shape, colour, weight, label]
label: label
classes: ["no", "yes"]
features:
  size: {_target_: cfeval_cli.dataset.tabular.Quartiles}
  shape: {_target_: cfeval_cli.dataset.tabular.Category}
  colour: {_target_: cfeval_cli.dataset.tabular.Category}
  weight: {_target_: cfeval_cli.dataset.tabular.Quartiles}
"""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Set the time limit of slow tests."""
    for item in items:
        if item.get_closest_marker("slow") and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SLOW_TEST_TIMEOUT))


@dataclass(frozen=True)
class Toy:
    """A folder with a small dataset for --config-dir and data_dir."""

    folder: Path
    dataset: str = "toy"

    @property
    def arguments(self) -> list[str]:
        return [
            "--config-dir",
            str(self.folder / "conf"),
            f"dataset={self.dataset}",
            f"data_dir={self.folder / 'data'}",
        ]

    def run(self, *arguments: str, cwd: Path, code: int = 0, **options: object) -> subprocess.CompletedProcess[str]:
        # No cache, so that each test computes its results, and only what most tests need.
        defaults = ("cache=off", "n_jobs=1", "figures=[]", "report=false", "resamples=200",
                 "explainer_stability=0", "bounds=0",
                 "reparametrisations=0", FEW_METRICS)  # fmt: skip
        words = [*self.arguments, *drop_overridden(defaults, arguments), *arguments]
        return run_cfeval("run", *words, cwd=cwd, code=code, **options)

    def compute(self, into: Path, *overrides: str) -> Path:
        """Run in this process, into a folder."""
        from tests import inside

        into.mkdir(exist_ok=True)
        defaults = [*self.arguments[2:], *SMALL_RUN, *drop_overridden([FEW_METRICS], overrides)]
        return inside.run(into, *overrides, defaults=defaults, folder=self.folder / "conf")


def drop_overridden(defaults: Sequence[str], overrides: Sequence[str]) -> list[str]:
    """Return the default settings whose keys are not overridden."""
    keys = {setting.partition("=")[0].lstrip("+~") for setting in overrides}
    return [setting for setting in defaults if setting.partition("=")[0] not in keys]


def make_environment(env: dict[str, str] | None = None) -> dict[str, str]:
    """Return the environment of a command, the same for every user who runs the tests."""
    return {**{key: value for key, value in os.environ.items() if key not in LOCAL_VARIABLES}, **(env or {})}


def run_cfeval(
    *arguments: str, cwd: Path, code: int = 0, env: dict[str, str] | None = None, executable: Path = CFEVAL
) -> subprocess.CompletedProcess[str]:
    """Run the command as a user does, and check its exit code."""
    words = [str(executable), *map(str, arguments)]
    process = subprocess.run(
        words, cwd=cwd, env=make_environment(env), capture_output=True, text=True, timeout=300, check=False
    )
    assert process.returncode == code, f"exit code {process.returncode}\n{process.stdout}\n{process.stderr}"
    return process


def start_cfeval(
    words: Sequence[str], cwd: Path, output: IO[str], *, env: dict[str, str] | None = None, prelude: str = ""
) -> subprocess.Popen[str]:
    """Start the command in a process group of its own; a `prelude` of Python runs in it first, to inject faults."""
    command = [str(CFEVAL)] if not prelude else [sys.executable, "-P", "-c", f"{ONE_THREAD}\n{prelude}\n{MAIN}"]
    return subprocess.Popen(
        [*command, *words], cwd=cwd, env=make_environment(env), stdout=output, stderr=output, text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell in the background ignores it
    )  # fmt: skip


def get_shared_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder that all processes of this test run share."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def make_once(folder: Path, make: Callable[[Path], object]) -> Path:
    """Make a folder in the first process that needs it; other processes wait for it."""
    with Path(f"{folder}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        marker = Path(f"{folder}.made")
        if not marker.exists():
            shutil.rmtree(folder, ignore_errors=True)  # of a failure, which each process is to see
            folder.mkdir()
            make(folder)
            marker.touch()
    return folder


@pytest.fixture(scope="session")
def toy(tmp_path_factory) -> Toy:
    return Toy(make_once(get_shared_folder(tmp_path_factory) / "toy", write_toy))


def write_toy(folder: Path) -> None:
    (folder / "conf" / "dataset").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "conf" / "dataset" / "toy.yaml").write_text(TOY)
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(600):
        size, weight = rng.integers(1, 100, 2)
        shape, colour = rng.choice(["round", "square", "flat"]), rng.choice(["red", "blue", "green", "?"])
        chance = 0.5 + 0.35 * ((size > 50) - 0.5) + 0.3 * (colour == "red") - 0.2 * (shape == "flat")
        lines.append(f"{size}, {shape}, {colour}, {weight}, {'yes' if rng.random() < chance else 'no'}")
    (folder / "data" / "toy.csv").write_text("\n".join(lines) + "\n")


# settings of a small run, with only what most tests need
SMALL_RUN = (
    "cache=off", "n_jobs=1", "figures=[]", "report=false", "bounds=0", "explainer_stability=0", "reparametrisations=0",
    "n_explain=40", "resamples=100",
)  # fmt: skip


@pytest.fixture(scope="session")
def make_run(tmp_path_factory):
    """Make a run of a toy dataset once for all tests and processes; with `copy`, return a copy that may be changed."""
    from tests import inside

    def make(toy: Toy, *overrides: str, copy: bool = False) -> Path:
        defaults = [*toy.arguments[2:], *SMALL_RUN, *drop_overridden([FEW_METRICS], overrides)]
        own = toy.folder / "conf"
        key = hashlib.sha256(json.dumps([*defaults, *overrides, str(own)]).encode()).hexdigest()[:16]
        folder = make_once(
            get_shared_folder(tmp_path_factory) / f"run-{key}",
            lambda into: inside.run(into, *overrides, defaults=defaults, folder=own),
        )
        if not copy:
            return folder
        changed = tmp_path_factory.mktemp("copy") / "run"
        shutil.copytree(folder, changed)
        return changed

    return make


@contextlib.contextmanager
def serve(handler: Any) -> Iterator[str]:
    """Yield the address of a local web server; `handler` is a folder, or a class of handlers."""
    if isinstance(handler, Path):
        handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(handler))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join(10)


def seal(folder: Path, record: dict[str, object], overrides: list[str]) -> None:
    """Write run.json as a complete run does, with the hashes of all files in the folder."""
    from cfeval_cli.results.validation import SCHEMA_VERSION

    files = {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.parent.name != ".hydra" and path.name != "run.json"
    }
    text, record_path = (
        json.dumps({"schema": SCHEMA_VERSION, "overrides": overrides, "files": files, **record}),
        folder / "run.json",
    )
    if not record_path.exists() or record_path.read_text() != text:  # another process may read it
        part = folder.with_name(f"{folder.name}-{os.getpid()}.part")
        part.write_text(text)
        part.replace(record_path)


def reseal(folder: Path) -> None:
    """Write run.json again with the hashes of changed files, as an attacker could."""
    record = json.loads((folder / "run.json").read_text())
    seal(folder, {name: value for name, value in record.items() if name != "files"}, record.get("overrides", []))


def find_only_run(cwd: Path) -> Path:
    """Return the only run folder below a folder."""
    (folder,) = cwd.glob("outputs/*/*")
    return folder


TOY_TEXT = """\
_target_: cfeval_cli.dataset.text.Text
name: toy_text
classes: [negative, positive]
search_words: null
corpora:
  - _target_: cfeval_cli.dataset.text.Lines
    rows: 400
    negative: {{_target_: cfeval_cli.dataset.sources.DataFile, name: toy.neg}}
    positive: {{_target_: cfeval_cli.dataset.sources.DataFile, name: toy.pos}}
embedding:
  _target_: cfeval_cli.dataset.glove.Glove
  title: none
  path: {folder}/data/vectors.txt
  table: {{_target_: cfeval_cli.dataset.sources.DataFile, name: none.npy}}
  index: {{_target_: cfeval_cli.dataset.sources.DataFile, name: none.parquet}}
"""


@pytest.fixture(scope="session")
def toy_text(tmp_path_factory) -> Toy:
    return Toy(make_once(get_shared_folder(tmp_path_factory) / "toy_text", write_toy_text), "toy_text")


def write_toy_text(folder: Path) -> None:
    (folder / "conf" / "dataset").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "conf" / "dataset" / "toy_text.yaml").write_text(TOY_TEXT.format(folder=folder))
    rng = np.random.default_rng(0)
    plain = ["the", "film", "is", "a", "story", "of", "--", ",", ".", "and", "n't", "it's", "in"]
    moods = {"pos": ["good", "great", "fine", "warm", "funny"], "neg": ["bad", "dull", "poor", "cold", "tired"]}
    for mood, words in moods.items():
        lines = [" ".join(rng.choice([*plain, *words, *words], size=rng.integers(1, 9))) for _ in range(200)]
        (folder / "data" / f"toy.{mood}").write_text("\n".join(lines) + "\n")
    words = [*plain, *moods["pos"], *moods["neg"][:4]]  # "tired" is unknown
    vectors = "".join(f"{word} {' '.join(f'{x:.4f}' for x in rng.normal(size=6))}\n" for word in words)
    (folder / "data" / "vectors.txt").write_text(vectors)


@pytest.fixture(scope="session")
def adults() -> Path:
    """Return the folder with the real data, downloaded if necessary; skip the test if no source has it."""
    from hydra.utils import instantiate

    from cfeval_cli.errors import UserError
    from tests.inside import compose_config

    folder = Path(os.environ.get("CFEVAL_DATA", Path(__file__).parents[1] / "data"))
    file = instantiate(compose_config().dataset.file, _convert_="all")
    if file.check_state(folder) == "missing":
        try:
            file.find(folder)
        except UserError as error:
            pytest.skip(f"no source has the Adults data: {error}")
    return file.find(folder).path.parent  # a damaged file is a failure, not a reason to skip


LOANS = """\
_target_: cfeval_cli.dataset.tabular.TabularData
name: loans
file: {_target_: cfeval_cli.dataset.sources.DataFile, name: loans.csv}
columns: [age, income, home, default]
label: default
classes: ["no", "yes"]
missing: [-9]
candidates: 8
features:
  age: {_target_: cfeval_cli.dataset.tabular.Number}
  income: {_target_: cfeval_cli.dataset.tabular.Number}
  home: {_target_: cfeval_cli.dataset.tabular.Category}
"""


@pytest.fixture(scope="session")
def loans(tmp_path_factory) -> Toy:
    return Toy(make_once(get_shared_folder(tmp_path_factory) / "loans", write_loans), "loans")


def write_loans(folder: Path) -> None:
    (folder / "conf" / "dataset").mkdir(parents=True)
    (folder / "data").mkdir()
    (folder / "conf" / "dataset" / "loans.yaml").write_text(LOANS)
    rng = np.random.default_rng(0)
    lines = []
    for _ in range(500):
        age, income, home = rng.integers(18, 80), rng.lognormal(3, 1), rng.choice(["own", "rent", ""])
        bad = rng.random() < 1 / (1 + np.exp(-(0.05 * (age - 50) - 0.02 * (income - 30) + (home == "rent"))))
        income_text = "-9" if rng.random() < 0.1 else f"{income:.3f}"
        lines.append(f"{age},{income_text},{home},{'yes' if bad else 'no'}")
    (folder / "data" / "loans.csv").write_text("\n".join(lines) + "\n")
