"""Progress that is true, also when part of the work was known from before."""

import logging
import re
import sys

import pytest

from cfeval_cli.commands import screen
from cfeval_cli.report.tables import Cell, Table
from cfeval_cli.run import progress
from tests.conftest import cfeval


@pytest.fixture
def clock(monkeypatch):
    """A clock that goes on only when it is told to."""
    now = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])

    def tick(seconds):
        now[0] += seconds

    return tick


@pytest.mark.parametrize(("known", "step", "seconds"), [(0, 10, 11.0), (800, 5, 20.0), (0, 1, 12.5)])
def test_speed_and_time_left_are_those_of_what_is_really_done(clock, caplog, known, step, seconds):
    caplog.set_level(logging.INFO, "cfeval")
    with progress.Progress().stage("explain: x", 1000) as advance:
        advance(known)
        for _ in range(3):
            clock(seconds)
            advance(step)
    lines = re.findall(r"explain: x: ([\d,]+) of 1,000, ([\d.e+-]+)/s, about (\d+) s left", caplog.text)
    assert [int(done) for done, _, _ in lines] == [known + step * i for i in (1, 2, 3)]
    for done, speed, left in lines:
        assert float(speed) == pytest.approx(step / seconds, rel=0.01)
        assert int(left) == pytest.approx((1000 - int(done)) / (step / seconds), abs=1)


def test_all_that_is_known_from_before_says_nothing_of_speed(clock, caplog):
    caplog.set_level(logging.INFO, "cfeval")
    made = progress.Progress()
    with made.stage("explain: x", 1000) as advance:
        clock(30)
        advance(1000)
    assert "/s" not in caplog.text and made.seconds == {"explain: x": 30.0}


TABLE = Table("A title", [Cell("a" * 20), *(Cell(f"column {i}") for i in range(30))], [[[Cell("x")] * 31]], ["a note"])


def test_tables_fit_the_width_that_is_told(monkeypatch, capsys):
    for columns, widest in (("60", 60), ("100", 100), ("0", 160), ("wide", 160)):
        monkeypatch.setenv("COLUMNS", columns)
        screen.show([TABLE], "Results: here")
        lines = capsys.readouterr().out.splitlines()
        assert widest - 20 < max(map(len, lines)) <= widest and lines[-1] == "Results: here"


def test_quiet_leaves_results_and_complaints(monkeypatch, capsys, toy, tmp_path):
    monkeypatch.setenv("CFEVAL_QUIET", "1")
    screen.show([TABLE], "Results: here")
    assert capsys.readouterr().out == "Results: here\n"
    with progress.terminal() as made, made.stage("explain: x", 10):
        logging.getLogger("cfeval").warning("look \x1b[2J out")
    assert capsys.readouterr().err == "cfeval: look \\x1b[2J out\n"
    monkeypatch.delenv("CFEVAL_QUIET")
    done = toy.run("--quiet", "explainer=[random,lr]", "n_explain=20", "resamples=0", "hydra.run.dir=run", cwd=tmp_path)
    verdict, results = done.stdout.splitlines()
    assert verdict.startswith("Verdict: ") and results == f"Results: {tmp_path / 'run'}" and done.stderr == ""
    assert "train: done in" in (tmp_path / "run" / "run.log").read_text()  # the log has it all
    done = cfeval("gather", "run", "--into", "g", "--quiet", cwd=tmp_path)
    assert done.stdout == f"Gathered 1 run: {tmp_path / 'g'}\nReport: {tmp_path / 'g' / 'report.html'}\n"
    assert "there is no folder" in cfeval("gather", "nowhere", "--quiet", cwd=tmp_path, code=2).stderr


def test_no_color_means_none(monkeypatch):
    class Terminal:
        encoding = "utf-8"

        def __init__(self):
            self.text = ""

        def write(self, text):
            self.text += text

        def isatty(self):
            return True

        def flush(self):
            pass

    colours = {}
    for value in ("", "1"):
        monkeypatch.setenv("NO_COLOR", value)
        monkeypatch.setenv("TERM", "xterm-256color")
        out = Terminal()
        monkeypatch.setattr(sys, "stdout", out)
        console = screen.console()
        console.print("[red]x[/] 12", soft_wrap=True)
        colours[value] = bool(re.search(r"\x1b\[(?:\d+;)*[34]\d", out.text))
    assert colours == {"": True, "1": False}
