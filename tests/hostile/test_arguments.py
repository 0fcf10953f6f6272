"""Command lines of any kind: one message and exit code 1 or 2, or what was asked for; never a traceback."""

import os
import sys

import numpy as np
import pytest

from cfeval_cli.cli import main as cli
from cfeval_cli.settings import compose
from cfeval_cli.settings.build import build_plan
from tests.hostile.amounts import parametrize_seeds
from tests.hostile.mutations import list_names, mutate

KEYS = [
    "k", "seed", "n_explain", "access", "truth", "agreement", "incomplete", "support", "bounds", "resamples",
    "reparametrisations", "explainer_stability", "training", "confidence", "figures", "redo", "n_jobs",
    "data_dir", "dataset", "model", "explainer", "search", "distance", "metric", "executor", "cache", "experiment",
    "explainer.lime.n_samples",
    "search.pick", "model.dim", "model.learning_rate", "model.learning_rate.tabular", "dataset.columns",
    "dataset.features", "dataset.file.name", "dataset.split",
    "hydra.run.dir", "nothing", "a.b.c", "", "dataset.file.sources", "explainer.lime", "+x", "++k", "~k",
    "~explainer", "k@x", "explainer@y", "cache.max_mb", "distance.space",
]  # fmt: skip
VALUES = [
    "", "0", "-1", "1", "1.5", "1e400", "nan", "inf", "null", "true", "many", "[]", "[1,2]", "{}", "{a:1}", "[[[[",
    "]]", "{a:", "'", '"', "\\", "${k}", "${nothing}",
    "${oc.env:HOME}", "${oc.env:NO_SUCH_THING}", "${", "${oc.decode:x}", "${now:%}", "x" * 3000, "[" * 500, "\x1b[2J",
    "é", "\udcff", "a b", "1,2", "range(3)", "glob(*)", "choice(1,2)",
    "sort(1)", "int(x)", "lr", "lime", "[lr,lime]", "adults", "../../etc/passwd", "/etc/passwd", "cosine", "discrete",
    "{_target_:os.getcwd}", "?" * 3, "???", "99999999999999999999", "\n", "%", "*",
]  # fmt: skip
COMMANDS = {
    "gather": ["nowhere", ".", "--into", "", "/dev/null", "x=y", "-h", "--", "\udcff", "\x1b[2J"],
    "paper": ["audit", "compare", "nowhere", ".", "--csv", "/nowhere/x", "--md", "--tables", "7", "--into",
              "/dev/null", "", "\x1b[2J", "x=y"],
    "data": ["list", "verify", "cache", "fetch", "adults", "nothing", "x=y", "data_dir=/dev/null/x",
             "--config-dir", "/nowhere", "--clear", "", "k=[", "\x1b[2J", "\udcff=1", "cache=off"],
}  # fmt: skip


def some(rng, options, max_size):
    return [options[i] for i in rng.integers(0, len(options), int(rng.integers(0, max_size + 1)))]


def overrides(rng):
    found = [
        f"{key}={value}"
        for key, value in zip(some(rng, KEYS, 3), [VALUES[i] for i in rng.integers(0, len(VALUES), 3)], strict=False)
    ]
    if found and rng.random() < 0.2:
        found[0] = (
            mutate(found[0].encode("utf-8", "surrogateescape"), rng, 2)[:5000]
            .decode("utf-8", "surrogateescape")
            .replace("\0", "")
        )
    return found


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in (
        "HYDRA_FULL_ERROR",
        *(f"{library}_NUM_THREADS" for library in ("OMP", "OPENBLAS", "MKL")),
    ):
        monkeypatch.setenv(name, "")  # which the command sets, and the test puts back
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr("signal.signal", lambda *_: None)
    return tmp_path


@parametrize_seeds("command lines")
def test_a_command_line_is_understood_or_refused_in_one_message(here, capsys, monkeypatch, seeds):
    """Composition and the plan of a run in this process, without the run; and the other commands as they are."""
    refused = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        if seed % 2:
            given, code = overrides(rng), 0
            try:
                with compose.packaged_configs():
                    cfg = compose.compose_run(given)
                build_plan(cfg)
            except Exception as error:
                code = cli.print_error(error)
                assert code == 2, (seed, given, error)
        else:
            command = list(COMMANDS)[seed // 2 % 3]
            given = [command, *some(rng, COMMANDS[command], 4)]
            if command == "data" and "fetch" in given:
                given = [word for word in given if word != "adults"]  # which would be fetched
            monkeypatch.setattr(sys, "argv", ["cfeval", *given])
            monkeypatch.setenv("HYDRA_FULL_ERROR", "")  # which the command before has set
            try:
                cli.main()
                code = 0
            except SystemExit as error:
                code = error.code or 0
        said = capsys.readouterr()
        assert code in (0, 1, 2) and "Traceback" not in said.err and "HYDRA_FULL_ERROR" not in said.err, (
            seed,
            given,
            said.err,
        )
        assert "\x1b" not in said.err + said.out, (seed, given)
        if code:
            refused += 1
            assert said.err.startswith(("cfeval: ", "usage: ")) or "[HYDRA]" in said.err, (seed, given, said)
    assert 0.3 * len(seeds) < refused


WHOLE = [
    ["run", "k=\udcff"], ["run", "--\x1b[2J"], ["paper", "audit", "\x1b[2J"], ["\x1b[2J"], ["run", "\x1b[2J"],
    ["run", "--cfg"],
    ["run", "--cfg", "x"], ["run", "="], ["run", "dataset=1.5"], ["run", "explainer=[[["], ["data"], ["paper", "x"],
    ["run", "dataset=../../../etc/passwd"], ["run", "+explainer=\x1b[2J"], ["run", "--config-dir", "/nowhere", "kk=1"],
    ["run", "--config-dir", "/nowhere"], ["run", "hydra.run.dir=/proc/x"],
]  # fmt: skip


@pytest.mark.parametrize(
    "words", [pytest.param(words, marks=[pytest.mark.slow] * (i > 2)) for i, words in enumerate(WHOLE)]
)
def test_some_whole_commands(tmp_path, words):
    import subprocess

    from tests.conftest import CFEVAL
    from tests.hostile.test_names import HIDDEN

    done = subprocess.run(
        [CFEVAL, *map(os.fsencode, words)], cwd=tmp_path, capture_output=True, check=False, timeout=100
    )
    said = (done.stdout + done.stderr).decode()
    assert done.returncode in (1, 2) and "Traceback" not in said and not HIDDEN.search(said), said
    assert list_names(tmp_path) == set()
