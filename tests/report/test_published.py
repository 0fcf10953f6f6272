"""The figures against the LaTeX source of the paper, which is parsed here."""

import math
import os
import re
from pathlib import Path

import pytest

from cfeval_cli.report import published
from cfeval_cli.report.published import Figure, load_figures, parse_figures

ROOT = Path(__file__).parents[2]
SOURCE = Path(os.environ.get("CFEVAL_PAPER", ROOT.parent / "shared" / "paper" / "paper.tex"))
ORDER = ["random", "omission", "lime", "anchor", "decision_boundary", "lr"]


@pytest.fixture(scope="module")
def frame():
    return load_figures()


@pytest.fixture(scope="module")
def source():
    if not SOURCE.exists():
        pytest.skip(f"no copy of the paper's source at {SOURCE} (CFEVAL_PAPER is its path)")
    return SOURCE.read_text(encoding="utf-8")


def parse_tables(source):
    """Return the rows with figures of each table, as lists of LaTeX cells."""
    tables = []
    for body in re.findall(r"\\begin\{tabular\}(.*?)\\end\{tabular\}", source, re.S):
        rows = [row.split("&") for row in body.split(r"\\")]
        rows = [row for row in rows if len(row) > 2 and not any("multi" in cell for cell in row)]
        tables.append(
            [
                [re.sub(r"\\(mid|bottom)rule|\\cmidrule\(lr\)\{[^}]*\}", "", cell).strip() for cell in row]
                for row in rows
            ]
        )
    return tables


def write_cell(row):
    """Return a figure in LaTeX, without bold type."""
    text = row.printed
    if row.rank_text:
        text += f"({row.rank_text}{'*' if row.metric == 'recall' else ''})"
    return text


def remove_bold(latex):
    return re.sub(r"\\textbf\{([^}]*)\}", r"\1", latex).replace(" ", "")


def test_table_1_equals_the_source(frame, source):
    lines = frame[frame["table"] == "1"]
    rows = parse_tables(source)[0]
    assert len(rows) == lines["line"].nunique() == 22
    for line, row in enumerate(rows, 1):
        cells = list(lines[lines["line"] == line].itertuples())
        assert [cell.explainer for cell in cells] == ORDER
        assert [remove_bold(cell) for cell in row[1:]] == [write_cell(cell) for cell in cells]
        assert ["textbf" in cell for cell in row[1:]] == [cell.bold for cell in cells]
        arrows = {"higher": r"\uparrow", "lower": r"\downarrow"}
        assert {cell.better for cell in cells} == {next((b for b, a in arrows.items() if a in row[0]), "")}


def test_table_2_equals_the_source(frame, source):
    lines = frame[frame["table"] == "2"]
    rows = parse_tables(source)[1]
    assert len(rows) == lines["line"].nunique() == 8
    for line, row in enumerate(rows, 1):
        cells = list(lines[lines["line"] == line].itertuples())
        assert [(c.dataset, c.coefficient) for c in cells] == [
            ("adults", "tau"), ("adults", "rho"), ("movie_reviews", "tau"), ("movie_reviews", "rho")
        ]  # fmt: skip
        assert [remove_bold(cell) for cell in row[1:]] == [cell.printed for cell in cells]
        assert ["textbf" in cell for cell in row[1:]] == [cell.bold for cell in cells]


def test_table_3_equals_the_source(frame, source):
    lines = frame[frame["table"] == "3"]
    rows = parse_tables(source)[2]
    assert len(rows) == lines["line"].nunique() == 6
    for line, row in enumerate(rows, 1):
        cells = list(lines[lines["line"] == line].itertuples())
        printed = [cell for cell in row[1:] if cell]
        assert [remove_bold(cell) for cell in printed] == [write_cell(cell) for cell in cells]
        assert ["textbf" in cell for cell in printed] == [cell.bold for cell in cells]
        assert row[0] == cells[0].row or cells[0].row in ("τ", "ρ")


def test_row_labels_equal_the_source(frame, source):
    tex = {
        "C": r"$\mathcal{C}$",
        "C_soft": r"$\mathcal{C}_{\mathrm{soft}}$",
        "Validity_soft": r"$\text{Validity}_{\mathrm{soft}}$",
    }
    for table in ("1", "2"):
        labels = frame[frame["table"] == table].drop_duplicates("line")["row"]
        for label, row in zip(labels, parse_tables(source)[int(table) - 1], strict=True):
            name, _, variant = label.partition(" ")
            expected = " ".join([tex.get(name, name), *([variant] if variant else [])])
            assert re.sub(r"\s*\$\\(up|down)arrow\$", "", row[0]).strip() == expected


def test_figures_of_the_text_are_in_the_source(frame, source):
    text = re.sub(r"\\begin\{table.*?\\end\{table\*?\}", "", source, flags=re.S)
    for row in frame[frame["table"] == published.TEXT].itertuples():
        assert re.search(rf"(?<![\d.,]){re.escape(row.printed)}(?!\d)", text), row.printed
        assert ("percent" in row.note) == bool(re.search(rf"(?<![\d.]){re.escape(row.printed)}\\%", text))


def test_quotes_are_in_the_source(frame, source):
    text = " ".join(source.split())
    quotes = frame[frame["table"] == published.QUOTE]
    assert len(quotes) == 4
    for row in quotes.itertuples():
        assert row.printed in text, row.printed


def test_corrected_figures_differ_from_printed_ones_only_with_a_note(frame):
    for row in frame.itertuples():
        if row.printed != row.corrected:
            assert row.note or row.printed in ("10,443", "15,682", "twelve", "two"), row
        if row.rank_text:
            assert row.rank_text.startswith(str(int(row.printed_rank)))
    ranks = frame[(frame["table"] != "2") & (frame["explainer"] != "") & (frame["metric"] != "proximity")]
    assert (ranks["rank_text"] != "").all()


def test_figures_are_found_by_key(frame):
    paper = parse_figures(frame)
    assert paper.find_series(("1", "adults"), ("sufficiency", "del")).figures["lime"].value == 0.1536
    assert paper.texts["movie_reviews", "accuracy", "test"].value == 0.712
    assert paper.keys == [("1", "adults"), ("1", "movie_reviews"), ("3", "adults")]
    assert paper.find_truth(("3", "adults")).figures["lr"] == Figure("1.0", "1.0", 1, "1st", False)
    assert paper.find_coefficient("3", "adults", ("dfr", "del"), "rho").value == 0.8
    assert paper.find_coefficient("3", "adults", ("c", "label"), "rho") is None
    assert math.isnan(paper.find_coefficient("2", "movie_reviews", ("c", "label"), "tau").value)


@pytest.mark.parametrize(
    ("printed", "exact", "is_allowed"),
    [
        ("0.8285", 0.828571, True),  # cut off
        ("0.4667", 0.466667, True),  # rounded
        ("0.4667", 0.46664, False),
        ("0.4667", 0.46681, False),
        ("-0.0141", -0.01418, True),
        ("-0.0141", -0.01404, False),
        ("1.0", 1, True),
    ],
)
def test_printed_digits_allow_rounded_and_truncated_numbers(printed, exact, is_allowed):
    assert Figure(printed, printed).allows(exact) == is_allowed
