"""Runs that start in the same second, with one cache, one data folder and nothing downloaded yet."""

import contextlib
import hashlib
import http.server
import json
import tempfile
import time

import pytest

from cfeval_cli.cache.disk import Disk
from cfeval_cli.results.validation import read_verified_record
from tests.conftest import TOY, serve, start_cfeval

RUNS = 2
# each run shows that it has come to its data
MEETING = """
import os, pathlib
from contextlib import contextmanager
from cfeval_cli.pipeline.progress import Progress
stage = Progress.track_stage


@contextmanager
def shown(self, title, total=None, *rest, **options):
    pathlib.Path({folder!r}, str(os.getpid())).touch()
    with stage(self, title, total, *rest, **options) as advance:
        yield advance


Progress.track_stage = shown
"""


class CountingServer(http.server.BaseHTTPRequestHandler):
    """Gives one file, the second half when all runs are at their data, and counts how often."""

    body, n_requests, meeting_folder = b"", 0, None

    def do_GET(self):
        CountingServer.n_requests += 1
        self.send_response(200)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        middle = len(self.body) // 2
        self.wfile.write(self.body[:middle])
        deadline = time.monotonic() + 300  # in case one of them does not come
        while len(list(self.meeting_folder.iterdir())) < RUNS and time.monotonic() < deadline:
            time.sleep(0.01)
        self.wfile.write(self.body[middle:])

    def log_message(self, *_):
        pass


def run_together(number, words, cwd, prelude=""):
    """Several commands at the same time, all of which succeed."""
    with contextlib.ExitStack() as stack:
        outputs = [stack.enter_context(tempfile.TemporaryFile("w+")) for _ in range(number)]
        processes = [start_cfeval(words, cwd, output, prelude=prelude) for output in outputs]
        for process, output in zip(processes, outputs, strict=True):
            code = process.wait(300)
            output.seek(0)
            assert code == 0, output.read()


@pytest.fixture
def site(toy):
    CountingServer.body, CountingServer.n_requests = (toy.folder / "data" / "toy.csv").read_bytes(), 0
    with serve(CountingServer) as address:
        yield f"{address}/toy.csv"


def test_runs_in_the_same_second(site, tmp_path):
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    digest = hashlib.sha256(CountingServer.body).hexdigest()
    file = f"name: toy.csv, sha256: {digest}, sources: [{{_target_: cfeval_cli.dataset.sources.Url, url: '{site}'}}]"
    (tmp_path / "conf" / "dataset" / "toy.yaml").write_text(TOY.replace("name: toy.csv", file))
    words = [
        "run", "--config-dir", "conf", "dataset=toy", "explainer=[random,omission,lr]", "n_explain=10",
        "metric=[c,recall]", "truth=[signed]", "resamples=0", "bounds=0", "explainer_stability=0",
        "reparametrisations=0", "figures=[]", "report=false", "n_jobs=1",
        # the same second, whenever each of them gets there
        "hydra.run.dir=outputs/${now:%Y-%m-%d}/at-the-same-time",
    ]  # fmt: skip
    CountingServer.meeting_folder = tmp_path / "met"
    CountingServer.meeting_folder.mkdir()
    run_together(RUNS, words, tmp_path, MEETING.format(folder=str(CountingServer.meeting_folder)))
    folders = sorted(tmp_path.glob("outputs/*/*"))
    assert len(folders) == RUNS
    assert all(read_verified_record(folder).status == "complete" for folder in folders)  # every file has its hash
    assert len({(folder / "metrics.csv").read_bytes() for folder in folders}) == 1
    records = [json.loads((folder / "run.json").read_text()) for folder in folders]
    assert all(record["data"]["sha256"] == [digest] for record in records)
    assert CountingServer.n_requests == 1  # the others waited for the one that fetched
    assert (tmp_path / "data" / "toy.csv").read_bytes() == CountingServer.body
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["cache", "toy.csv"]
    sections = Disk(str(tmp_path / "data" / "cache")).list_sections()
    assert (
        len(sections) == len({label for label, *_ in sections}) == 3 + 2 + 1
    )  # explainers, levels of the search, the model
