"""Output that cannot be written changes neither the status of a run nor its exit code."""

import json
import os
import subprocess
from contextlib import contextmanager

import pytest

from cfeval_cli.cli import screen
from tests.conftest import CFEVAL, cfeval, environment

SMALL = (
    "explainer=[random,omission]", "metric=[c,recall]", "n_explain=20", "figures=[]", "report=false", "bounds=0",
    "noise=0", "reparametrisations=0", "resamples=100", "n_jobs=1", "cache=off",
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
    return subprocess.run(words, cwd=cwd, env=environment(), stdout=stdout, stderr=stderr, timeout=300).returncode


@pytest.mark.parametrize(("kind", "both"), [("pipe", False), ("disk", False), ("disk", True)])
def test_a_run_is_complete_whatever_becomes_of_its_output(toy, tmp_path, kind, both):
    words = ["run", *toy.arguments, *SMALL, "hydra.run.dir=run"]
    with unwritable(kind) as nowhere, (tmp_path / "errors").open("w+") as errors:
        code = start(words, tmp_path, nowhere, nowhere if both else errors.fileno())
    assert code == 0
    assert json.loads((tmp_path / "run" / "run.json").read_text())["status"] == "complete"
    lost = "cfeval: standard output cannot be written (No space left on device): the rest of it is lost.\n"
    assert ((tmp_path / "errors").read_text().count(lost) == 1) == (kind == "disk" and not both)


def test_a_sweep_is_complete_whatever_becomes_of_its_output(toy, tmp_path):
    words = ["run", "--multirun", *toy.arguments, *SMALL, "seed=1,2", "hydra.sweep.dir=sweep"]
    with unwritable("pipe") as nowhere, (tmp_path / "errors").open("w+") as errors:
        assert start(words, tmp_path, nowhere, errors.fileno()) == 0, (tmp_path / "errors").read_text()
    for job in "01":
        assert json.loads((tmp_path / "sweep" / job / "run.json").read_text())["status"] == "complete"
    assert (tmp_path / "sweep" / "sweep.csv").exists()


@pytest.mark.parametrize(("kind", "code"), [("pipe", 0), ("disk", 1)])
def test_other_commands_fail_only_if_a_reader_misses_their_output(tmp_path, kind, code):
    with unwritable(kind) as nowhere, (tmp_path / "errors").open("w+") as errors:
        assert start(["data", "list"], tmp_path, nowhere, errors.fileno()) == code
    assert "Traceback" not in (tmp_path / "errors").read_text()


def test_streams_that_are_closed_are_replaced(monkeypatch):
    monkeypatch.setattr("sys.stdout", None)
    monkeypatch.setattr("sys.stderr", None)
    screen.protect_streams()
    screen.show([], "Results: here")
    assert not screen.is_output_lost()


@pytest.mark.parametrize("quiet", [[], ["--quiet"]])
def test_training_data_in_the_folder_is_announced_beside_the_results(toy, tmp_path, quiet):
    note = "Contains training data (training.parquet); training=0 leaves it out."
    words = [*toy.arguments, *SMALL, "hydra.run.dir=run", *quiet]
    assert cfeval("run", *words, cwd=tmp_path).stdout.endswith(f"Results: {tmp_path / 'run'}\n{note}\n")
    assert cfeval("run", *words, cwd=tmp_path).stdout.endswith(f"Results: {tmp_path / 'run'}\n{note}\n")  # as before
    assert note not in cfeval("run", *words, "training=0", "redo=true", cwd=tmp_path).stdout
    jobs = cfeval("run", "--multirun", *words, "seed=1,2", "hydra.sweep.dir=sweep", cwd=tmp_path).stdout
    assert jobs.count(note) == 1
