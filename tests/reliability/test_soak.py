"""Many small runs in one process: nothing grows, nothing is left behind."""

import json
import os
import subprocess
import sys

import pytest

CODE = """
import contextlib, gc, io, json, os, sys
from pathlib import Path

def grown():
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, len(os.listdir("/proc/self/fd"))

words, runs = json.loads(sys.argv[1]), int(sys.argv[2])
from cfeval_cli.cli.main import main
seen = []
for number in range(runs):
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        main(["run", *words, f"seed={number % 5}", f"hydra.run.dir=runs/{number}"])
    seen.append(grown())
print(json.dumps(seen))
"""


def run_many_times(toy, tmp_path, runs):
    tmp = tmp_path / "tmp"
    tmp.mkdir()
    words = [*toy.arguments, "explainer=[random,omission,lr]", "n_explain=50", "resamples=100", "n_jobs=2"]
    words += [
        "executor.min_seconds=0",
        f"cache.folder={tmp_path / 'cache'}",
        "cache.max_mb=0.2",
        "figures=[]",
        "report=false",
    ]
    process = subprocess.run(
        [sys.executable, "-c", CODE, json.dumps(words), str(runs)], cwd=tmp_path, capture_output=True, text=True,
        env={**os.environ, "TMPDIR": str(tmp)}, check=False, timeout=1500,
    )  # fmt: skip
    assert process.returncode == 0, process.stderr
    folders = list((tmp_path / "runs").iterdir())
    assert len(folders) == runs and len({len(list(folder.iterdir())) for folder in folders}) == 1
    assert not [
        path for path in tmp_path.rglob("*") if path.name.endswith(".part") or path.name.startswith("unfinished")
    ]
    assert [path.name for path in tmp.iterdir() if path.name.startswith("cfeval-")] == []
    return json.loads(process.stdout), sorted(path.name for path in tmp.iterdir())


@pytest.mark.slow
def test_two_hundred_runs_leave_no_trace(toy, tmp_path):
    measurements, remaining = run_many_times(toy, tmp_path, 200)
    memory, files = zip(*measurements, strict=True)
    early, late = max(memory[20:40]), max(memory[-20:])
    assert late < early + 25, f"{early:.0f} MB after 40 runs, {late:.0f} MB after 200"
    assert max(files[-20:]) <= max(files[20:40])
    assert remaining == []
