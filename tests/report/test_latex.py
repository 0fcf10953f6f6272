"""Tables in LaTeX are complete, separate values from intervals, and fit the page."""

import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.report.build_tables import build_tables, select_metrics
from cfeval_cli.report.numbers import TENTH_PERCENT
from cfeval_cli.report.page.build import Report
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.results.read import read_results
from tests.inside import make_plan
from tests.records import change_record


def table(columns, rows, title="T", notes=()):
    header = [Title("Metric"), *(Title(f"Explainer {i}") for i in range(columns))]
    cells = [Cell(0.1234, 0.1, 0.15, rank=2)] * columns
    return Table(title, header, [[Row(Title(f"metric {i}", direction="higher"), cells) for i in range(rows)]], notes)


def tabulars(text):
    """For each table whether it has the page, its caption and its rows of cells."""
    tables = re.findall(r"\\begin\{(table\*?)\}.*?\\caption\{(.*?)\}\n.*?\\toprule\n(.*?)\\bottomrule", text, re.S)
    for kind, caption, body in tables:
        lines = [line for line in body.splitlines() if line.endswith(r"\\")]
        yield kind == "table*", caption, [line.removesuffix(r" \\").split(" & ") for line in lines]


def test_values_and_ranks_are_in_one_table_and_intervals_in_another():
    first = Cell(0.3652, 0.342, 0.389, rank=3, marks="‡§", rank_marks="*", bold=True)
    second = Cell(-0.1, -0.2, 0.1, rank=2.5, is_tied=True)
    rows = [
        Row(Title("C", direction="higher"), [first, second]),
        Row(Title("D"), [Cell(reason="why"), Cell(0.12, form=TENTH_PERCENT)]),
    ]
    text = render_latex(Table("Scores", [*map(Title, ("Metric", "A", "B"))], [rows], ["A note & more."]))
    (first, second) = tabulars(text)
    assert first[1:] == ("Scores.", [
        ["Metric", "A", "B"],
        [r"C $\uparrow$", r"\textbf{0.3652$\ddagger$\S{} (3*)}", "$-$0.1000 (2.5=)"],
        ["D", "--", r"12.0\%"],
    ])  # fmt: skip
    assert second[1:] == ("Scores: intervals.", [
        ["Metric", "A", "B"], [r"C $\uparrow$", "[0.342, 0.389]", "[-0.200, 0.100]"],
    ])  # fmt: skip
    assert "resizebox" not in text and r"A note \& more." in text


@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (2, 5), (6, 20), (16, 60), (40, 3), (3, 0)])
def test_latex_has_every_cell_once_and_narrow_tables_fit_one_column(columns, rows):
    parts = list(tabulars(render_latex(table(columns, rows))))
    values = [part for part in parts if "intervals" not in part[1]]
    assert sum((len(body[0]) - 1) * (len(body) - 1) for _, _, body in values) == columns * rows
    assert all(len(body) - 1 <= 48 for _, _, body in parts)
    heads = [head for _, _, body in values for head in body[0][1:]]
    assert len(set(heads)) == columns and all(f"Explainer\\\\{i}" in " ".join(heads) for i in range(columns))
    assert values[0][0] == (columns > 2 and rows > 0)


def test_only_selected_metrics_have_rows_in_latex(toy, make_run):
    three = ("explainer=[random,omission,lr]", "metric=[comprehensiveness,sufficiency,proximity,validity_soft,recall]")
    folder = make_run(toy, *three, "tables.metrics=[comprehensiveness,validity_soft]", "model.max_epochs=10")
    run = read_results(folder)
    full_run = replace(run, record=change_record(run.record, settings={"tables": {"metrics": None}}))  # all
    text, full_text = (
        (folder / "tables.tex").read_text(),
        dict(Report(full_run).render_table_files())["tables.tex"].decode(),
    )
    assert "Comp. (del.)" in text and "soft" in text and "GroundTruth" in text
    assert "Suff." in full_text and "Suff." not in text and "Proximity" not in text
    assert "Suff." in (folder / "tables.md").read_text()  # which has all

    selected = [(select_metrics(element.statistics, element.record), element.record) for element in (run, full_run)]
    rows, all_rows = (dict(_rows(build_tables(*element)[0])) for element in selected)
    assert set(rows) < set(all_rows) and all(all_rows[name] == cells for name, cells in rows.items())  # ranks among all


def _rows(make_run):
    return ((row.title.text, row.texts) for row in make_run.rows)


@pytest.mark.parametrize("selection", ["comprehensiveness", "[]", "[validty]", "[recall]"])
def test_invalid_selection_of_metrics_is_refused(selection):
    with pytest.raises(UserError, match=r"tables\.metrics must be"):
        make_plan(f"tables.metrics={selection}")


@pytest.mark.skipif(not shutil.which("pdflatex"), reason="no pdflatex")
def test_latex_tables_compile_and_none_is_too_wide(toy, make_run, tmp_path):
    text = dict(Report(read_results(make_run(toy))).render_table_files())["tables.tex"].decode()
    text += "".join(render_latex(table(n, 50, f"{n} columns", ["A note."])) for n in (2, 6, 16))
    page = r"\documentclass[twocolumn]{article}\usepackage[margin=2cm]{geometry}\usepackage{booktabs}\begin{document}"
    text = re.sub(r"(\\end\{table\*?\})", r"\1\\clearpage", text)
    (tmp_path / "paper.tex").write_text(f"{page}\n{text}\n\\end{{document}}\n", encoding="utf-8")
    process = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "paper.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False, timeout=120,
    )  # fmt: skip
    assert process.returncode == 0, process.stdout[-2000:]
    assert not re.findall(r"Overfull|Float too large", process.stdout)
    assert Path(tmp_path / "paper.pdf").stat().st_size > 10_000
