"""The page, the tables and the figures of an atlas."""

import json
import re

import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.study.atlas import page, plots, rule, store, tables
from cfeval_cli.study.atlas.summary import Summary
from tests.study.atlas.worlds import METRICS, world


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    into = tmp_path_factory.mktemp("atlas")
    atlas = world()
    return into, *page.write(store.Atlas(atlas.rows, ["pima/atlas_tree/3-1: <b>it failed</b>"]), into)


def test_the_first_screen_answers_both_questions(written):
    into, summary, _ = written
    text = (into / "atlas.html").read_text()
    main = text[text.index("<main") :]
    first = main[: main.index('id="figures"')]
    assert "comprehensiveness (marginal) ranks first" in first and "validity_soft (probability) ranks first" in first
    assert "4 data sets, 4 judges" in first and "1 left out" in first
    assert "&lt;b&gt;it failed&lt;/b&gt;" in text and "<b>it failed" not in text
    for question, headline, points in tables.headlines(summary):
        assert question in ("contribution", "change") and "ranks first" in headline and len(points) >= 3


def test_nothing_is_loaded_from_elsewhere(written):
    text = (written[0] / "atlas.html").read_text()
    assert not re.findall(r'(?:src|href)="(?!#|data:|figures/)[^"]*"', text.replace("http://www.w3.org/1999/xlink", ""))
    assert "default-src 'none'" in text and text.count("<script>") == 1


def test_every_table_has_n_and_the_text_has_the_same_as_the_page(written):
    into, summary, claims = written
    made = tables.make(summary, claims)
    for table in made:
        header = [cell.text for cell in table.header]
        words = " ".join([*header, *(row.title.text for row in table.rows), *table.notes])
        assert re.search(r"\bn\b", words), table.title
    text = (into / "atlas.md").read_text()
    assert all(table.title in text for table in made) and summary.atlas.about["sha256"] in text
    assert "Left out: 1" in text and "validity_soft (probability) ranks first" in text


def test_the_table_of_cells_has_the_mean_of_each_over_seeds(written):
    summary = written[1]
    told = page.cells(summary)
    at = {key: place for place, key in enumerate(told["keys"])}
    wanted = {
        "question": "change",
        "data": "pima",
        "judge": "Tree",
        "truth": "contrast",
        "k": "3",
        "metric": "c (label)",
    }
    mine = [
        row
        for row in told["rows"]
        if all(told["names"][at[key]][row[at[key]]] == value for key, value in wanted.items())
    ]
    rows = summary.rows
    same = rows[(rows["data"] == "pima") & (rows["judge"] == "Tree") & (rows["truth"] == "contrast") & (rows["k"] == 3)]
    expected = same[same["title"] == "c (label)"]["tau_without_controls"]
    assert len(mine) == 1 and mine[0][6] == pytest.approx(expected.mean(), abs=1e-3) and mine[0][-1] == 3
    json.dumps(told, allow_nan=False)


def test_colours_go_by_sign_and_size(written):
    told = page.heat(tables.by(written[1], "contribution", "judge"))
    cells = {cell["text"]: (cell["value"], cell["kind"]) for _, row in told["rows"] for cell in row}
    for text, (value, kind) in cells.items():
        assert text.startswith(f"{value + 0.0:.2f} (")
        assert kind == ("" if value == 0 else f"{'p' if value > 0 else 'n'}{min(5, int(-(-abs(value) * 5 // 1)))}")
    assert "24)" in next(iter(cells))  # two k and three seeds of four data sets


def test_the_forest_has_a_line_for_each_metric_that_is_compared(written):
    drawn = plots.draw(written[1])
    assert set(drawn) == {"forest", "shares", "cost"}
    names = [label.get_text() for label in drawn["forest"].figure.axes[0].get_yticklabels()]
    assert sorted(names) == sorted(f"{metric} ({variant})" for metric, variant in METRICS if variant != "del")
    assert all(plot.caption and plot.title for plot in drawn.values())


def test_what_cannot_be_told_is_open():
    few = Summary(world(sets=("pima", "heloc"), seeds=(0,)))
    assert [headline.startswith("Open: fewer than 3") for _, headline, _ in tables.headlines(few)] == [True, True]
    noise = Summary(world(0.6, metrics={pair: (block, 0.0, 0.0) for pair, (block, *_) in METRICS.items()}))
    assert all(headline.startswith("Open: no metric") for _, headline, _ in tables.headlines(noise))
    with pytest.raises(UserError, match="leaves open"):
        rule.text(few)


def test_the_rule_names_the_best_metric_first_and_the_atlas_it_is_of():
    atlas = world(0.02)
    told = json.loads(rule.text(Summary(atlas)))
    assert told["believed"] == {  # as METRICS says they are
        "contribution": ["comprehensiveness", "aopc", "sufficiency", "dfr", "naopc"],
        "change": ["validity_soft", "c_soft", "validity", "c", "aopc", "comprehensiveness", "sufficiency"],
    }
    assert "96 runs on 4 data sets with 4 judges" in told["source"] and atlas.about["sha256"][:12] in told["source"]


def test_the_rule_does_not_believe_what_may_be_worth_nothing():
    summary = Summary(world(0.7, seeds=(0,)))
    change = next(one for one in summary.answers if one.question == "change")
    (validity,) = (one for one in change.tied if one.pair[0] == "validity")
    assert validity.lead.mean > 0 > validity.lead.low
    assert json.loads(rule.text(summary))["believed"] == {
        "contribution": ["comprehensiveness", "aopc", "sufficiency", "dfr"],
        "change": ["validity_soft", "c_soft"],
    }
