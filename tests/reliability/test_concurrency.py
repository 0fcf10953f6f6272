"""Runs that start in the same second, with one cache, one data folder and nothing downloaded yet."""

import hashlib
import http.server
import json
import subprocess
import threading
from pathlib import Path

import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.folder.checked import read
from tests.conftest import CFEVAL, TOY, serving

RUNS = 8


class Counting(http.server.BaseHTTPRequestHandler):
    """Gives one file, slowly, and counts how often."""

    body, asked = b"", 0

    def do_GET(self):
        Counting.asked += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        half = len(self.body) // 2
        self.wfile.write(self.body[:half])
        threading.Event().wait(0.5)
        self.wfile.write(self.body[half:])

    def log_message(self, *_):
        pass


@pytest.fixture
def site(toy):
    Counting.body, Counting.asked = (toy.folder / "data" / "toy.csv").read_bytes(), 0
    with serving(Counting) as address:
        yield f"{address}/toy.csv"


def test_eight_runs_in_the_same_second(site, tmp_path):
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    digest = hashlib.sha256(Counting.body).hexdigest()
    file = f"name: toy.csv, sha256: {digest}, sources: [{{_target_: cfeval_cli.dataset.sources.Url, url: '{site}'}}]"
    (tmp_path / "conf" / "dataset" / "toy.yaml").write_text(TOY.replace("name: toy.csv", file))
    words = [
        "run", "--config-dir", "conf", "dataset=toy", "explainer=[random,omission,lr]", "n_explain=30",
        "resamples=100", "figures=[]", "report=false", "n_jobs=1",
        # the same second, whenever each of them gets there
        "hydra.run.dir=outputs/${now:%Y-%m-%d}/at-the-same-time",
    ]  # fmt: skip
    started = [
        subprocess.Popen(
            [str(CFEVAL), *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        for _ in range(RUNS)
    ]
    for process in started:
        _, told = process.communicate(timeout=280)
        assert process.returncode == 0, told
    folders = sorted(tmp_path.glob("outputs/*/*"))
    assert len(folders) == RUNS
    assert all(read(folder)["status"] == "complete" for folder in folders)  # every file as its hash says
    assert len({(folder / "metrics.csv").read_bytes() for folder in folders}) == 1
    assert {json.loads((folder / "run.json").read_text())["data"]["sha256"] for folder in folders} == {digest}
    assert Counting.asked == 1  # the others waited for the one that fetched
    assert (tmp_path / "data" / "toy.csv").read_bytes() == Counting.body
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["cache", "toy.csv"]
    kept = Disk(str(tmp_path / "data" / "cache")).sections()
    assert len(kept) == len({label for label, *_ in kept}) == 3 + 2 + 1  # explainers, levels of the search, the model


def test_sweeps_get_folders_of_their_own(toy, tmp_path):
    words = [
        "--multirun",
        "seed=1",
        "explainer=[random,lr]",
        "n_explain=10",
        "resamples=0",
        "cache=off",
        "figures=[]",
        "report=false",
    ]
    started = [
        subprocess.Popen(
            [str(CFEVAL), "run", *toy.arguments, *words, "hydra.sweep.dir=multirun/${now:%Y}"], cwd=tmp_path,
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        )
        for _ in range(2)
    ]  # fmt: skip
    for process in started:
        _, told = process.communicate(timeout=200)
        assert process.returncode == 0, told
    assert len(list(tmp_path.glob("multirun/*/sweep.csv"))) == 2
    assert len(list(tmp_path.glob("multirun/*/0/metrics.csv"))) == 2
    assert not Path(tmp_path / "outputs").exists()
