"""What commands print on the terminal, with --quiet and --full."""

import re
import sys
from dataclasses import replace

from cfeval_cli.cli import gather, report, screen
from cfeval_cli.report.table import Cell, Row, Table, Title

HEADER = [Title("a" * 20), *(Title(f"column {i}") for i in range(30))]
TABLE = Table("A title", HEADER, [[Row(Title("x"), [Cell("x")] * 30)]], ["a note"])


def test_tables_fit_the_width_of_the_screen(monkeypatch, capsys):
    for columns, widest in (("60", 60), ("100", 100), ("0", 160), ("wide", 160)):
        monkeypatch.setenv("COLUMNS", columns)
        screen.print_tables([TABLE], "Results: here")
        lines = capsys.readouterr().out.splitlines()
        assert widest - 20 < max(map(len, lines)) <= widest and lines[-1] == "Results: here"


def test_answer_is_followed_by_one_table_or_with_full_by_all_tables(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    header = [Title("Metric"), Title("Random", is_explainer=True)]
    rows = Table("A brief title", header, [[Row(Title("C", ["disc."], "higher"), [Cell(0.123, rank=1)])]])
    screen.print_answer(["Verdict: " + "word " * 40 + "end."], rows, [TABLE], ["Report: there", "Results: here"])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Verdict: word") and max(map(len, lines)) <= 80
    assert {word for line in lines[:3] for word in line.split()} == {"Verdict:", "word", "end."}
    assert "A brief title" in lines and "A title" not in lines and lines[-2:] == ["Report: there", "Results: here"]
    supplementary_table, full = replace(TABLE, title="Another", is_supplementary=True), screen.Options(full=True)
    screen.print_answer(["Verdict: x."], rows, [TABLE, supplementary_table], ["Results: here"], full)
    text = capsys.readouterr().out
    assert text.startswith("Verdict: x.\n") and "A title" in text and "Another" in text and "brief" not in text
    screen.print_tables([supplementary_table], "here", full)
    assert "Another" in capsys.readouterr().out
    screen.print_tables([supplementary_table], "here")
    assert "Another" not in capsys.readouterr().out
    monkeypatch.delenv("COLUMNS")  # for a file or another program: a line for each sentence
    screen.print_answer(["Verdict: " + "word " * 40 + "end."], rows, [], ["Results: here"])
    assert capsys.readouterr().out.splitlines()[0].endswith("end.")


def test_quiet_prints_results_and_errors_only(monkeypatch, capsys, toy, tmp_path):
    screen.print_tables([TABLE], "Results: here", screen.Options(quiet=True))
    assert capsys.readouterr().out == "Results: here\n"
    settings = ["explainer=[random,lr]", "n_explain=20", "resamples=0", "metric=[c,recall]", "truth=[signed]"]
    process = toy.run("--quiet", *settings, "hydra.run.dir=run", cwd=tmp_path)
    result, results, training = process.stdout.splitlines()
    assert training == "Contains training data (training.parquet). training=0 leaves it out."
    assert result.startswith("Metrics: ") and results == f"Results: {tmp_path / 'run'}" and process.stderr == ""
    assert "train: done in" in (tmp_path / "run" / "run.log").read_text()  # the log has it all
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COLUMNS", raising=False)
    gather.main(["run", "--into", "g"], screen.Options(quiet=True))
    verdict, *lines_below = capsys.readouterr().out.splitlines()
    assert verdict.startswith("Verdict: ")
    assert lines_below == [f"Gathered 1 run: {tmp_path / 'g'}", f"Report: {tmp_path / 'g' / 'report.html'}"]
    report.main(["run"], screen.Options(full=True))
    output = capsys.readouterr().out
    assert output.startswith(f"{result}\n") and "Scores and ranks of the explainers" in output


def test_no_color_removes_colours(monkeypatch):
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
        console = screen.make_console()
        console.print("[red]x[/] 12", soft_wrap=True)
        colours[value] = bool(re.search(r"\x1b\[(?:\d+;)*[34]\d", out.text))
    assert colours == {"": True, "1": False}
