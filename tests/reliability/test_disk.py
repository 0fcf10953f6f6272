"""Full or read-only disks and folders that disappear: runs end with a message, and earlier files are intact."""

import contextlib
import json
import os
import shutil
import subprocess
from hashlib import sha256

import pytest

from cfeval_cli.dataset.sources import DataFile, Url
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.study.sweep.gather import gather
from tests.conftest import SMALL_RUN, run_cfeval, serve

SMALL = ("explainer=[random,omission,lr]", "metric=[c,recall]", "truth=[signed]")
LARGE = ("explainer=[random,omission,lr]", "metric=core", "reparametrisations=2")
# as another process could, during explaining
REMOVING = """
import shutil
import numpy as np
from cfeval_cli.core import Explainer, Explanation


class Removing(Explainer):
    access = 0

    def fit(self, dataset, model):
        def function(batch):
            shutil.rmtree("run", ignore_errors=True)
            return Explanation.from_scores(np.zeros(batch.codes.shape), batch.codes >= 0)
        return function
"""


@contextlib.contextmanager
def small_disk(folder, size, *options):
    """A file system of so many kilobytes; skipped where it cannot be mounted."""
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", ",".join([f"size={size}k", *options]), "tmpfs", str(folder)],
        capture_output=True, check=False,
    )  # fmt: skip
    if mount.returncode:
        pytest.skip("no file system can be mounted here")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def get_single_message(process):
    (line,) = [line for line in process.stderr.splitlines() if line.startswith("cfeval: ")]
    assert "Traceback" not in process.stderr and "Logging error" not in process.stderr
    return line


@pytest.mark.parametrize(
    ("room", "settings"),
    [(60, SMALL), *(pytest.param(room, LARGE, marks=pytest.mark.slow) for room in (0, 4, 12, 30, 60, 80, 100, 140))],
)
def test_a_full_disk(toy, make_run, tmp_path, room, settings):
    """However far the run gets, it ends with one message, and the run that was complete before stays whole."""
    run = ["run", *toy.arguments, *SMALL_RUN, *settings, "seed=1", "hydra.run.dir=disk/second"]
    with small_disk(tmp_path / "disk", 2000) as disk:
        shutil.copytree(make_run(toy, *SMALL, "seed=1"), disk / "first")
        before = {path: path.read_bytes() for path in (disk / "first").rglob("*") if path.is_file()}
        free = shutil.disk_usage(disk).free // 1024
        (disk / "filler").write_bytes(b"x" * 1024 * (free - room))
        process = run_cfeval(*run, cwd=tmp_path, code=1)
        assert "No space left on device" in get_single_message(process)
        assert {path: path.read_bytes() for path in before} == before
        files = [path for path in (disk / "second").rglob("*") if path.is_file()]
        assert not [path for path in files if path.name.endswith(".part")]
        for path in files:
            if path.name == "run.json":
                assert json.loads(path.read_text())["status"] in ("running", "failed")
        (disk / "filler").unlink()
        resume = ["run", "--resume", "disk/second", *toy.arguments]
        run_cfeval(*(resume if (disk / "second" / "run.json").exists() else run), cwd=tmp_path)
        other = make_run(toy, *settings, "seed=1")
        for name in ("metrics.csv", "tables.md", "scores.parquet"):
            assert (disk / "second" / name).read_bytes() == (other / name).read_bytes()


def test_a_read_only_disk(toy, make_run, tmp_path):
    with small_disk(tmp_path / "disk", 2000) as disk:
        shutil.copytree(make_run(toy, *SMALL, "seed=1"), disk / "first")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        for folder in ("second", "first"):
            with pytest.raises((OSError, Failure), match="Read-only file system"):
                toy.compute(disk / folder, *SMALL, "seed=2", "redo=true")
        assert len(gather([disk / "first"], tmp_path / "gathered").sweep.runs) == 1  # it can still be read


def test_a_folder_that_is_deleted_during_the_run(toy, tmp_path):
    shutil.copytree(toy.folder / "conf", tmp_path / "conf")
    (tmp_path / "conf" / "explainer").mkdir()
    (tmp_path / "removing.py").write_text(REMOVING)
    (tmp_path / "conf" / "explainer" / "removing.yaml").write_text("removing: {_target_: removing.Removing}\n")
    words = ["--config-dir", "conf", *toy.arguments[2:], *SMALL_RUN, *SMALL[1:], "explainer=[random,removing]"]
    process = run_cfeval("run", *words, "hydra.run.dir=run", cwd=tmp_path, code=1)
    assert "explain: removing" in process.stderr and "Traceback" not in process.stderr
    assert f"cfeval: {tmp_path / 'run'} was removed during the run." in process.stderr
    assert not (tmp_path / "run").exists()  # and it is not made again


def test_a_cache_on_a_full_disk_does_not_keep_a_run_from_ending(toy, make_run, tmp_path, caplog):
    with small_disk(tmp_path / "disk", 40):
        toy.compute(tmp_path / "run", *SMALL, "seed=1", "cache=disk", f"cache.folder={tmp_path / 'disk'}")
        assert "full" in caplog.text
    other = make_run(toy, *SMALL, "seed=1")
    assert (tmp_path / "run" / "metrics.csv").read_bytes() == (other / "metrics.csv").read_bytes()


def test_data_that_does_not_fit_is_not_left_half(tmp_path):
    body = os.urandom(300_000)
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "far.csv").write_bytes(body)
    with serve(tmp_path / "site") as address, small_disk(tmp_path / "disk", 100) as disk:
        file = DataFile("far.csv", sha256(body).hexdigest(), [Url(f"{address}/far.csv")])
        with pytest.raises(UserError, match="No space left on device"):
            file.find(disk)
        assert list(disk.iterdir()) == []
        subprocess.run(["mount", "-o", "remount,size=1000k", str(disk)], check=True)
        assert file.find(disk).path.read_bytes() == body
