"""Folders with files: no file is lost by mistake, and no old result stays among the new ones."""

import json
import shutil

import pytest

from cfeval_cli.cli import data, gather, report
from cfeval_cli.core.files import lock_folder
from cfeval_cli.errors import UserError
from cfeval_cli.report.page import build
from cfeval_cli.report.plots import Plot, make_figure
from cfeval_cli.results.folder import RunFolder
from cfeval_cli.results.validation import read_verified_record
from tests.conftest import run_cfeval

SMALL = (
    "explainer=[random,lr]", "n_explain=20", "resamples=0", "metric=[c,recall]", "truth=[signed]",
)  # fmt: skip


@pytest.fixture(scope="module")
def finished_run(toy, tmp_path_factory):
    return toy.compute(tmp_path_factory.mktemp("whole") / "run", *SMALL, "figures=[png]", "report=true")


@pytest.fixture
def run(finished_run, tmp_path):
    shutil.copytree(finished_run, tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def command(tmp_path, monkeypatch):
    """A command other than run, in this process."""

    def start(main, *words):
        monkeypatch.chdir(tmp_path)
        main(words)

    return start


def read_files(folder):
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_mistake_leaves_a_finished_run_as_it_was(toy, run, tmp_path):
    before, second_run = read_files(run), RunFolder(run, [])
    with pytest.raises(UserError, match="k=99 exceeds the 4 features"):
        toy.compute(run, *SMALL, "k=99", "redo=true")
    with lock_folder(run, wait=False), pytest.raises(UserError, match="another run is writing to"), second_run.open():
        raise AssertionError
    assert read_files(run) == before
    assert read_verified_record(run).status == "complete"


def test_another_run_in_the_same_folder_leaves_nothing_of_the_first(toy, run, tmp_path):
    (run / "notes.txt").write_text("mine")
    record = json.loads((run / "run.json").read_text())
    # as if it had been killed while it wrote the last files, which the record does not list yet
    record |= {"status": "running", "files": {"model.npz": record["files"]["model.npz"]}}
    (run / "run.json").write_text(json.dumps(record))
    toy.compute(run, *SMALL, "k=2", "figures=[svg]")
    record = read_verified_record(run)
    assert {str(path) for path in read_files(run)} - {"run.json", "notes.txt"} == set(record.files)
    assert "bounds.csv" not in record.files and not list(run.rglob("*.png")) and list(run.rglob("*.svg"))
    assert record.settings.k == 2 and not record.resumed_at and "report.html" not in record.files
    before = read_files(run)
    with pytest.raises(UserError, match="has the complete results of another run"):
        toy.compute(run, *SMALL)
    assert read_files(run) == before
    toy.compute(run, *SMALL, "redo=true")
    assert read_verified_record(run).settings.k == 1 and read_files(run) != before


def test_files_of_no_run_are_not_overwritten(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "metrics.csv").write_text("mine")
    refused = pytest.raises(UserError, match=r"metrics\.csv was not written by a run, and would be overwritten")
    with refused, RunFolder(tmp_path / "run", []).open():
        raise AssertionError
    assert (tmp_path / "run" / "metrics.csv").read_text() == "mine"


def test_an_unlisted_file_is_ignored(run, tmp_path, command):
    record = json.loads((run / "run.json").read_text())
    (run / "metrics.csv").write_text((run / "metrics.csv").read_text().replace("1.0", "0.9"))
    del record["files"]["metrics.csv"]
    (run / "run.json").write_text(json.dumps(record))
    for main, words in ((gather.main, ["run", "--into", "g"]), (report.main, ["run"])):
        with pytest.raises(UserError, match=r"run\.json does not list metrics\.csv"):
            command(main, *words)


def test_a_report_is_made_anew_and_its_hashes_with_it(run, command):
    page = (run / "report.html").read_bytes()
    (run / "report.html").write_text("changed")
    (run / "figures" / "costs.png").unlink()
    with pytest.raises(UserError, match="is missing, or a link"):
        command(gather.main, "run", "--into", "g")
    command(report.main, "run")
    assert (run / "report.html").read_bytes() == page and read_verified_record(run).status == "complete"


def test_no_command_writes_through_a_link(toy, run, tmp_path, command):
    """Neither the report of a run, nor that of several, nor a run, nor data init."""
    outside = tmp_path / "outside"
    outside.mkdir()
    for name in ("costs.png", "config.yaml", "mine.yaml"):
        (outside / name).write_text("before")
    shutil.rmtree(run / "figures")
    (run / "figures").symlink_to(outside)
    (tmp_path / "gathered").mkdir()
    (tmp_path / "gathered" / "figures").symlink_to(outside)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "dataset").symlink_to(outside)
    (tmp_path / "mine.csv").write_text("a,b,label\n" + "1,x,no\n2,y,yes\n1,y,no\n2,x,no\n" * 30)
    for main, *words in (
        (report.main, "run"),
        (data.main, "init", "mine.csv", "--label", "label", "--force"),
    ):
        with pytest.raises(UserError, match="is a symbolic link"):
            command(main, *words)
    with pytest.raises(UserError, match="is a symbolic link"):  # as for a sweep and the atlas
        build.save_figures({"costs": Plot(make_figure(1, 1), "", "")}, tmp_path / "gathered", ["png"])
    with pytest.raises(UserError, match="figures is a symbolic link"), RunFolder(run, []).open():
        raise AssertionError
    assert {path.name: path.read_text() for path in outside.iterdir()} == dict.fromkeys(
        ("costs.png", "config.yaml", "mine.yaml"), "before"
    )


def test_the_jobs_of_a_sweep_stay_in_its_folder(toy, run, tmp_path):
    before = (run / "metrics.csv").read_bytes()
    words = [
        "--multirun",
        "seed=1",
        "redo=true",
        "hydra.sweep.dir=sweep",
        "hydra.sweep.subdir=${hydra:runtime.cwd}/run",
    ]
    process = toy.run(*SMALL, *words, cwd=tmp_path, code=2)
    assert f"is outside {tmp_path / 'sweep'}, the folder of the sweep." in process.stderr
    assert (run / "metrics.csv").read_bytes() == before


def test_the_command_to_continue_is_complete(toy, tmp_path):
    (tmp_path / "conf" / "explainer").mkdir(parents=True)
    (tmp_path / "bad.py").write_text(
        "from cfeval_cli.core import Explainer\nclass Bad(Explainer):\n    access = 0\n"
        "    def fit(self, dataset, model):\n        return lambda batch: 1 / 0\n"
    )
    (tmp_path / "conf" / "explainer" / "bad.yaml").write_text("bad: {_target_: bad.Bad}\n")
    own = f"hydra.searchpath=[file://{tmp_path / 'conf'}]"
    process = toy.run(*SMALL[1:], "explainer=[bad,lr]", own, "hydra.run.dir=run", "strict=true", cwd=tmp_path, code=1)
    assert "ZeroDivisionError: division by zero (bad.py:5)" in process.stderr
    import shlex

    words = shlex.split(process.stderr.splitlines()[-1].partition("To continue: ")[2])
    assert words[:3] == ["cfeval", "run", "--resume"] and words[-1] == "strict=false" and own in words
    message = run_cfeval(*words[1:], cwd=tmp_path, code=1).stderr
    assert "explainer.bad failed on every instance" in message and "All other results are complete." in message
    assert read_verified_record(tmp_path / "run").explained["bad"].faults == 20
