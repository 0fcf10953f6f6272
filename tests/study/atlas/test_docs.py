"""docs/atlas.md, its figures and the rule of the recommendation say what the committed rows say.

`python -m tests.study.atlas.test_docs` writes them anew from docs/atlas/atlas.parquet.
"""

import importlib.util
import json
import re
from importlib import resources
from pathlib import Path

import pytest
import yaml

from cfeval_cli.report.page import build
from cfeval_cli.study.atlas import claims, plots, rule, store, tables
from cfeval_cli.study.atlas.summary import SURE, WHOLE, Summary

ROOT = Path(__file__).parents[3]
DOCS, CONF = ROOT / "docs", ROOT / "conf"
PLACE, PAGE = DOCS / "atlas", DOCS / "atlas.md"
BEGIN, END = "<!-- from here on by python -m tests.study.atlas.test_docs -->\n", "<!-- to here -->\n"
LARGEST = 1_000_000  # bytes of all that is kept


@pytest.fixture(scope="module")
def summary():
    return Summary(store.read(PLACE / store.NAME))


@pytest.fixture(scope="module")
def drawn(summary):
    return plots.draw(summary)


def found(summary, drawn):
    """What stands in the page: the answers, the figures, and the tables that a first look needs."""
    text = tables.markdown(summary, claims.answered(summary), detail=False)
    answers, first, rest = re.sub(r"^# .*\n\n", "", text).partition("**Contribution: ")
    shown = [f"![{one.title}](atlas/figures/{name}.svg)\n\n{one.caption}\n" for name, one in drawn.items()]
    return "\n".join([answers, *shown, first + rest])


def between(text, begin=BEGIN, end=END):
    return text.partition(begin)[2].partition(end)[0]


def loaded(path):
    """A script of the repository that belongs to no package."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


CLAIMS = loaded(ROOT / "benchmarks" / "claims.py")


@pytest.mark.parametrize("name", ["atlas.md", "judges.md"])
def test_the_figures_of_the_statements_are_those_of_the_script(name):
    text = (DOCS / name).read_text(encoding="utf-8")
    assert between(text, CLAIMS.BEGIN, CLAIMS.END) == CLAIMS.pages()[DOCS / name]


def test_no_page_repeats_what_the_rows_do_not_show():
    pages = [ROOT / "README.md", PAGE, DOCS / "judges.md", DOCS / "statistics.md"]
    text = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in pages)
    for claim in ("told from every other", "alone says best", "does not pay", "nobody checks", "lose surely more"):
        assert claim not in text


def test_the_page_is_what_the_rows_say(summary, drawn):
    assert between(PAGE.read_text(encoding="utf-8")) == found(summary, drawn)


def test_outside_of_that_the_page_has_no_figures_but_those_of_definitions():
    text = PAGE.read_text(encoding="utf-8")
    text = text.replace(between(text, CLAIMS.BEGIN, CLAIMS.END), "")
    judge = yaml.safe_load((CONF / "experiment" / "atlas_mlp.yaml").read_text(encoding="utf-8"))
    known = {one["limit"] for one in claims.fixed()} | {SURE, WHOLE, 0.5, judge["truth"]["shapley"]["error"]}
    assert {float(one) for one in re.findall(r"\b0\.\d+", text.replace(between(text), ""))} <= known


def test_the_rule_of_the_recommendation_follows_from_it(summary):
    kept = resources.files("cfeval_cli.statistics").joinpath("rule.json").read_text(encoding="utf-8")
    assert kept == rule.text(summary)
    assert json.loads(kept)["source"].startswith("the atlas: ")


def test_the_readme_names_the_best_with_what_they_rest_on(summary):
    contribution, change = summary.answers[:2]
    assert contribution.sure and change.sure and contribution.tied and change.tied
    assert not contribution.best.circular and not change.best.clean.known

    def figures(best, more=""):
        low, high = tables.number(best.lead.low), tables.number(best.lead.high)
        over = f"{best.lead.data} data sets, {best.lead.judges} judges"
        return f"({tables.number(best.lead.mean)}{more} [{low}, {high}]; {over})"

    one, other = contribution.best, change.best
    told = (
        f"`{one.pair[0]}` has the highest mean τ for contribution {figures(one, ', 95 % CI')} and "
        f"`{other.pair[0]}` for change {figures(other)}. In {other.circular} of its {other.rows} rows "
        f"`{other.pair[0]}` is optimal by construction; without these rows its mean τ is "
        f"{tables.number(other.clean.mean)}, from {other.clean.judges} judges. "
        "Neither metric is significantly better than the next ones"
    )
    assert told in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_the_best_without_what_is_circular_is_named_with_the_judges_that_it_has(summary):
    (answer,) = (one for one in summary.answers if one.question == "change")
    _, points = tables._say(answer)
    assert "among metrics with at least 3 data sets and 3 judges: Validity (label), 0.51" in points[-1]
    assert points[-1].endswith(
        f"{answer.best.title} has {tables.number(answer.best.clean.mean)} there (7 data sets, 2 judges, no interval)."
    )


def test_the_script_prints_by_default_and_writes_only_when_told(capsys, monkeypatch):
    before = {path: path.read_bytes() for path in CLAIMS.pages()}
    monkeypatch.setattr("sys.argv", ["claims.py"])
    CLAIMS.main()
    printed = capsys.readouterr().out
    assert all(text in printed for text in CLAIMS.pages().values())
    assert {path: path.read_bytes() for path in before} == before


def test_it_is_small():
    files = [PAGE, *(path for path in PLACE.rglob("*") if path.is_file())]
    assert sum(path.stat().st_size for path in files) < LARGEST


def test_its_figures_are_drawn_from_the_rows(drawn):
    for name, plot in drawn.items():
        assert (PLACE / "figures" / f"{name}.svg").read_bytes() == plot.render("svg")


def main():
    summary = Summary(store.read(PLACE / store.NAME))
    drawn, text = plots.draw(summary), PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(before + BEGIN + found(summary, drawn) + END + after, encoding="utf-8")
    build.save_figures(drawn, PLACE, ("svg",))


if __name__ == "__main__":
    main()
