"""The page, the tables and the figures of an atlas."""

import json
import re

import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.study.atlas.page import build_heat_map, list_cells, write_results
from cfeval_cli.study.atlas.plots import draw_figures
from cfeval_cli.study.atlas.rule import write_rule
from cfeval_cli.study.atlas.store import Atlas
from cfeval_cli.study.atlas.summary import AtlasSummary
from cfeval_cli.study.atlas.tables import build_factor_table, build_tables, write_headlines
from tests.study.atlas.synthetic import METRICS, make_atlas


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    into = tmp_path_factory.mktemp("atlas")
    return into, *write_results(Atlas(make_atlas().rows, ["pima/atlas_tree/3-1: <b>it failed</b>"]), into)


def test_first_screen_has_conclusions_for_both_questions(written):
    into, summary, _ = written
    text = (into / "atlas.html").read_text()
    main = text[text.index("<main") :]
    first = main[: main.index('id="figures"')]
    assert "comprehensiveness (marginal) ranks first" in first and "validity_soft (probability) ranks first" in first
    assert "4 data sets, 4 judges" in first and "1 excluded runs" in first
    assert "&lt;b&gt;it failed&lt;/b&gt;" in text and "<b>it failed" not in text
    for headline in write_headlines(summary):
        assert headline.question in ("contribution", "change")
        assert "ranks first (mean τ " in headline.text and len(headline.points) >= 2


def test_page_loads_nothing_from_elsewhere(written):
    text = (written[0] / "atlas.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#|data:|figures/)[^"]*"', text.replace("http://www.w3.org/1999/xlink", ""))
    assert "default-src 'none'" in text and text.count("<script>") == 1


def test_every_table_has_n_and_is_in_the_text(written):
    into, summary, claims = written
    tables = build_tables(summary, claims)
    for table in tables:
        header = [cell.text for cell in table.header]
        words = " ".join([*header, *(row.title.text for row in table.rows), *table.notes])
        assert re.search(r"\bn\b", words), table.title
    text = (into / "atlas.md").read_text()
    assert all(table.title in text for table in tables) and summary.atlas.description.sha256 in text
    assert "Excluded runs: 1" in text and "validity_soft (probability) ranks first" in text


def test_cells_are_means_over_seeds(written):
    summary = written[1]
    cells = list_cells(summary)
    column = {key: place for place, key in enumerate(cells["keys"])}
    key = {
        "question": "change",
        "data": "pima",
        "judge": "Tree",
        "truth": "contrast",
        "k": "3",
        "metric": "c (label)",
    }
    selected = [
        row for row in cells["rows"]
        if all(cells["names"][column[name]][row[column[name]]] == value for name, value in key.items())
    ]  # fmt: skip
    rows = summary.rows
    rows_of_cell = rows[
        (rows["data"] == "pima") & (rows["judge"] == "Tree") & (rows["truth"] == "contrast") & (rows["k"] == 3)
    ]
    expected = rows_of_cell[rows_of_cell["title"] == "c (label)"]["tau_without_controls"]
    assert len(selected) == 1 and selected[0][6] == pytest.approx(expected.mean(), abs=1e-3)
    assert selected[0][-1] == 3
    json.dumps(cells, allow_nan=False)


def test_colours_depend_on_sign_and_size(written):
    heat_map = build_heat_map(build_factor_table(written[1], "contribution", "judge"))
    cells = {cell["text"]: (cell["value"], cell["kind"]) for _, row in heat_map["rows"] for cell in row}
    for text, (value, kind) in cells.items():
        assert text.startswith(f"{value + 0.0:.2f} (")
        assert kind == ("" if value == 0 else f"{'p' if value > 0 else 'n'}{min(5, int(-(-abs(value) * 5 // 1)))}")
    assert "24)" in next(iter(cells))  # two k and three seeds of four data sets


def test_forest_has_a_line_for_each_compared_metric(written):
    figures = draw_figures(written[1])
    assert set(figures) == {"forest", "shares", "cost"}
    names = [label.get_text() for label in figures["forest"].figure.axes[0].get_yticklabels()]
    assert sorted(names) == sorted(f"{metric} ({variant})" for metric, variant in METRICS if variant != "del")
    assert all(plot.caption and plot.title for plot in figures.values())


def test_insufficient_evidence_is_inconclusive():
    summary = AtlasSummary(make_atlas(sets=("pima", "heloc"), seeds=(0,)))
    assert [line.text.startswith("Inconclusive: at least 3") for line in write_headlines(summary)] == [True, True]
    no_signal = {pair: (block, 0.0, 0.0) for pair, (block, *_) in METRICS.items()}
    noise = AtlasSummary(make_atlas(0.6, metrics=no_signal))
    assert all(line.text.startswith("Inconclusive: no metric") for line in write_headlines(noise))
    with pytest.raises(UserError, match="is inconclusive for contribution"):
        write_rule(summary)


def test_rule_lists_best_metric_first_and_its_source():
    atlas = make_atlas(0.02)
    rule = json.loads(write_rule(AtlasSummary(atlas)))
    assert rule["metrics"] == {  # in the order of the means in METRICS
        "contribution": ["comprehensiveness", "aopc", "sufficiency", "dfr", "naopc"],
        "change": ["validity_soft", "c_soft", "validity", "c", "aopc", "comprehensiveness", "sufficiency"],
    }
    assert "96 runs on 4 data sets with 4 judges" in rule["source"] and atlas.description.sha256[:12] in rule["source"]


def test_rule_omits_metrics_not_significantly_better_than_chance():
    summary = AtlasSummary(make_atlas(0.7, seeds=(0,)))
    (validity,) = (metric for metric in summary.get_question("change").tied if metric.pair[0] == "validity")
    assert validity.tau.mean > 0 > validity.tau.low
    assert json.loads(write_rule(summary))["metrics"] == {
        "contribution": ["comprehensiveness", "aopc", "sufficiency", "dfr"],
        "change": ["validity_soft", "c_soft"],
    }
