"""The one table that a screen is shown."""

import csv
import re
from itertools import product

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.report.build_brief import build_brief, make_rank_cells
from cfeval_cli.report.numbers import SHORT_DECIMAL, THREE_DIGITS, write_three_digits
from cfeval_cli.report.render.narrow import render_narrow, split_camel_case
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.results.read import read_results
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset

FIVE = ("explainer=[random,omission,lime,decision_boundary,lr]", "explainer.lime.n_samples=50", "n_explain=30")


def render_lines(table, width=80):
    return [text.plain for text in render_narrow(table, width)]


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.15549, "0.155"), (-0.0001, "0.000"), (0.99949, "0.999"), (0.99951, "1.00"), (2.846, "2.85"), (9.996, "10.0"),
     (31.44, "31.4"), (99.97, "100"), (314.4, "314"), (999.6, "1.0e+03"), (-12.34, "-12.3")],
)  # fmt: skip
def test_three_digits(value, text):
    assert write_three_digits(value) == text


def test_short_tau_has_no_leading_zero_and_no_blank_in_its_interval():
    def tau(*figures):
        return Cell(*figures, form=SHORT_DECIMAL).text

    assert tau(0.8667, 0.7333, 1.0) == ".87 [.73,1]"
    assert tau(-1 / 3, -1.0, 0.0) == "-.33 [-1,0]" and tau(0.5, np.nan, np.nan) == ".50"
    assert tau(-0.001, -0.999, 0.996) == "0 [-1,1]"


def test_camel_case_names_are_split_at_words():
    assert split_camel_case("DecisionBoundary") == "Decision Boundary"
    assert [split_camel_case(name) for name in ("LIME", "DeepSHAP", "SmoothGrad", "LR", "")] == [
        "LIME", "DeepSHAP", "Smooth Grad", "LR", "",
    ]  # fmt: skip


@pytest.mark.parametrize("seed", range(30))
def test_lines_fit_the_width_and_words_are_whole(seed):
    rng = np.random.default_rng(seed)

    def words(max_words):
        return " ".join(
            "".join(rng.choice(list("abcdef"), rng.integers(1, 11))) for _ in range(rng.integers(1, max_words))
        )

    count, lines = int(rng.integers(1, 14)), int(rng.integers(1, 9))
    titles = [Title(words(3), [words(3), words(2)], "higher") for _ in range(lines)]
    header = [Title("Metric"), *(Title(words(3), is_explainer=True) for _ in range(count))]

    def numbers():
        return [Cell(v, rank=rng.integers(1, 9), rank_marks="~", form=THREE_DIGITS) for v in rng.normal(size=count)]

    cells = [numbers() for _ in range(lines)]
    if seed % 2:
        header += [Title("τ one"), Title("τ other", is_stacked=True)]
        cells = [
            [*row, Cell(1 / 3, -1, 2 / 3, marks="§", form=SHORT_DECIMAL), Cell(1, 1, 1, form=SHORT_DECIMAL)]
            for row in cells
        ]
    rows = [Row(*parts) for parts in zip(titles, cells, strict=True)]
    table = Table(words(30), header, [rows], [words(40)])
    texts = [table.title, *table.notes, *(title.text for title in [*titles, *header[1:]])]
    texts += [part for row in rows for c in row.cells for part in (c.value_text, c.text, c.rank_text)]
    joined = {word for text in texts for word in text.split()} | {str(i) for i in range(1, count + 1)}
    for width in (60, 80, 110):
        text = render_lines(table, width)
        assert max(map(len, text)) <= width
        legend = re.compile(r"Columns:|Only|[Rr]anks;?|of|explainers;|--full|shows|all|the|values\.|\d+|─+")
        for word in " ".join(text).split():
            assert word in joined or word.rstrip(",.") in joined or legend.fullmatch(word), word


def test_note_states_how_many_of_too_many_explainers_are_shown():
    header = [Title("Metric"), *(Title(f"E{i}", is_explainer=True) for i in range(40))]
    table = Table("t", header, [[Row(Title("A", ["b"], "higher"), [Cell(0.123, rank=1, form=THREE_DIGITS)] * 40)]])
    text = render_lines(table)
    assert max(map(len, text)) <= 80
    assert re.search(r"Ranks of \d+ of 40 explainers; --full shows all", " ".join(text))


def test_control_characters_are_escaped():
    evil = "\x1b[2J"
    header = [Title("Metric"), *[Title(f"{evil} x", is_explainer=True)] * 3]
    row = Row(Title(evil, ["b"], "higher"), [Cell(0.123, rank=1), Cell(evil), Cell()])
    for width in (80, 20):
        text = "\n".join(render_lines(Table(evil, header, [[row]], [evil]), width))
        assert evil not in text and "\\x1b[2J" in text


def load_statistics(folder):
    results = read_results(folder)
    return results.statistics, results.record


def test_values_ranks_and_marks_equal_those_of_metrics_csv(toy, make_run):
    folder = make_run(toy, *FIVE)
    brief = build_brief(*load_statistics(folder))
    with (folder / "metrics.csv").open() as file:
        rows = [
            row
            for row in csv.DictReader(file)
            if row["metric"] == "dfr" and row["variant"] == "marginal" and row["value"]
        ]
    line = next(row for row in brief.rows if row.title.name == "DFR")
    pairs = zip(brief.header[1:], line.cells, strict=True)
    cells = {split_camel_case(title.text): cell for title, cell in pairs if title.is_explainer}
    titles = {"random": "Random", "omission": "Omission", "lime": "LIME", "lr": "LR"}
    titles["decision_boundary"] = "Decision Boundary"
    order = sorted(rows, key=lambda row: float(row["rank"]))
    for row in order:
        cell = cells[titles[row["explainer"]]]
        value, rank = cell.value_text, cell.rank_text
        assert value == write_three_digits(float(row["value"]))
        better = [other for other in order if float(other["rank"]) < float(row["rank"])][-1:]
        overlaps = any(
            float(other["value_low"]) <= float(row["value_high"])
            and float(row["value_low"]) <= float(other["value_high"])
            for other in better
        )
        assert rank.startswith(f"{float(row['rank']):g}") and ("~" in rank) == overlaps
    text = render_lines(brief)
    assert max(map(len, text)) <= 80 and "τ contribution" in text[1] + text[2] and "τ change" in text[2]


def test_tied_ranks_are_compared_with_the_next_better_rank():
    ends = {"a": (0.9, 1.0, 1), "b": (0.5, 0.95, 2.5), "c": (0.5, 0.95, 2.5), "d": (0.1, 0.2, 4)}
    cells = {
        name: {"value": (low + high) / 2, "low_end": low, "high_end": high, "rank": rank}
        for name, (low, high, rank) in ends.items()
    }
    rank_texts = {name: cell.rank_text for name, cell in make_rank_cells(cells).items()}
    assert rank_texts == {"a": "1st", "b": "2.5=~", "c": "2.5=~", "d": "4th"}


def test_tau_excludes_controls_for_each_question(toy, make_run):
    folder = make_run(toy, *FIVE)
    run_statistics, record = load_statistics(folder)
    brief = build_brief(run_statistics, record)
    assert [title.text for title in brief.header[-2:]] == ["τ\u00a0contribution", "τ\u00a0change"]
    lines = select_subset(pd.read_csv(folder / "correlations.csv"), WITHOUT_CONTROLS)
    for (place, truth), metric in product(enumerate(["shapley", "contrast"]), ["dfr", "validity_soft"]):
        own = lines[(lines["truth"] == truth) & (lines["metric"] == metric) & (lines["agreement"] == "recall")]
        want = own[own["variant"].isin(["marginal", "probability"])]["tau"].iloc[0]
        title = {"dfr": "DFR", "validity_soft": "Validity_soft"}[metric]
        row = next(row for row in brief.rows if row.title.name == title)
        assert row.cells[-2 + place].value == want


def test_rows_that_are_empty_or_the_same_are_named_below(toy, make_run):
    brief = build_brief(*load_statistics(make_run(toy, *FIVE)))
    notes = " ".join(brief.notes)
    assert "No values: Comp. (mask)" in notes and "Coverage 100%" in notes
    names = [row.title.text for row in brief.rows]
    assert not [name for name in names if "mask" in name or "Coverage" in name]
    assert "Validity (label / probability) ↑" in names  # the search of either finds the same flips
    assert "Shown by --full: Comp. (del.)" in notes and not [name for name in names if "del." in name]


def test_one_explainer_has_values_and_no_ranks(toy, make_run):
    brief = build_brief(*load_statistics(make_run(toy, "explainer=lr", "n_explain=20")))
    assert len(brief.header) == 2 and not any(row.cells[0].rank_text for row in brief.rows)
    assert "rank" not in " ".join(brief.notes)
