"""Output that cannot be written changes neither the status of a run nor its exit code."""

import json
import os
import subprocess
from contextlib import contextmanager

import pytest

from cfeval_cli.cli import screen
from tests.conftest import CFEVAL, make_environment

SMALL = (
    "explainer=[random,omission]", "metric=[c,recall]", "n_explain=20", "figures=[]", "report=false", "bounds=0",
    "explainer_stability=0", "reparametrisations=0", "resamples=100", "n_jobs=1", "cache=off",
)  # fmt: skip


@contextmanager
def unwritable(kind):
    """A file descriptor: a pipe whose reader has ended, or a full disk."""
    if kind == "pipe":
        reader, writer = os.pipe()
        os.close(reader)
    else:
        writer = os.open("/dev/full", os.O_WRONLY)
    try:
        yield writer
    finally:
        os.close(writer)


def start(arguments, cwd, stdout, stderr):
    words = [str(CFEVAL), *arguments]
    return subprocess.run(words, cwd=cwd, env=make_environment(), stdout=stdout, stderr=stderr, timeout=300).returncode


@pytest.mark.parametrize(
    ("kind", "is_stderr_closed", "sweep"), [("pipe", False, True), ("disk", False, False), ("disk", True, False)]
)
def test_a_run_is_complete_without_standard_output(toy, tmp_path, kind, is_stderr_closed, sweep):
    own = ["--multirun", "seed=1,2", "hydra.sweep.dir=sweep"] if sweep else ["hydra.run.dir=run"]
    words = ["run", *toy.arguments, *SMALL, *own]
    with unwritable(kind) as nowhere, (tmp_path / "errors").open("w+") as errors:
        code = start(words, tmp_path, nowhere, nowhere if is_stderr_closed else errors.fileno())
    assert code == 0
    for folder in ("sweep/0", "sweep/1") if sweep else ("run",):
        assert json.loads((tmp_path / folder / "run.json").read_text())["status"] == "complete"
    assert (tmp_path / "sweep" / "sweep.csv").exists() == sweep
    message = "cfeval: standard output cannot be written (No space left on device): the rest of it is lost.\n"
    assert ((tmp_path / "errors").read_text().count(message) == 1) == (kind == "disk" and not is_stderr_closed)


@pytest.mark.parametrize(("kind", "code"), [("pipe", 0), ("disk", 1)])
def test_other_commands_fail_only_if_a_reader_misses_their_output(tmp_path, kind, code):
    with unwritable(kind) as nowhere, (tmp_path / "errors").open("w+") as errors:
        assert start(["data", "list"], tmp_path, nowhere, errors.fileno()) == code
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_streams_that_are_closed_are_replaced(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    screen.protect_streams()
    screen.print_tables([], "Results: here")
    assert not screen.is_output_lost()
