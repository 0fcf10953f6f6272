"""docs/atlas.md, its figures and preferred_metrics.json follow from the committed rows.

`python -m tests.study.atlas.test_docs` rewrites them from docs/atlas/atlas.parquet.
"""

import importlib.util
import json
import re
from importlib import resources
from pathlib import Path

import pytest
import yaml

from cfeval_cli.report.page import build
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL
from cfeval_cli.study.atlas.claims import check_claims, load_claims
from cfeval_cli.study.atlas.plots import draw_figures
from cfeval_cli.study.atlas.rule import write_rule
from cfeval_cli.study.atlas.store import ATLAS_FILE, read_atlas
from cfeval_cli.study.atlas.summary import MIN_CELL_SHARE, AtlasSummary
from cfeval_cli.study.atlas.tables import format_number, write_headline, write_markdown

ROOT = Path(__file__).parents[3]
DOCS, CONF = ROOT / "docs", ROOT / "conf"
FOLDER, PAGE = DOCS / "atlas", DOCS / "atlas.md"
BEGIN, END = "<!-- from here on by python -m tests.study.atlas.test_docs -->\n", "<!-- to here -->\n"
MAX_BYTES = 1_000_000  # of the page, the rows and the figures


@pytest.fixture(scope="module")
def summary():
    return AtlasSummary(read_atlas(FOLDER / ATLAS_FILE))


@pytest.fixture(scope="module")
def figures(summary):
    return draw_figures(summary)


def write_section(summary, figures):
    """The generated section of the page: headlines, figures, and the main tables."""
    text = write_markdown(summary, check_claims(summary), with_supplement=False)
    headlines, title, tables = re.sub(r"^# .*\n\n", "", text).partition("**Contribution: ")
    images = [f"![{plot.title}](atlas/figures/{name}.svg)\n\n{plot.caption}\n" for name, plot in figures.items()]
    return "\n".join([headlines, *images, title + tables])


def extract_section(text, begin=BEGIN, end=END):
    return text.partition(begin)[2].partition(end)[0]


def load_script(path):
    """Import a script of the repository."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


STATEMENTS = load_script(ROOT / "benchmarks" / "claims.py")


def test_statements_are_those_of_the_script():
    text = PAGE.read_text(encoding="utf-8")
    assert extract_section(text, STATEMENTS.BEGIN, STATEMENTS.END) == STATEMENTS.write_pages()[PAGE]


def test_pages_do_not_make_claims_without_evidence():
    pages = [ROOT / "README.md", PAGE, DOCS / "judges.md", DOCS / "statistics.md"]
    text = " ".join(" ".join(path.read_text(encoding="utf-8").split()) for path in pages)
    for claim in ("told from every other", "alone says best", "does not pay", "nobody checks", "lose surely more"):
        assert claim not in text


def test_page_follows_from_rows(summary, figures):
    assert extract_section(PAGE.read_text(encoding="utf-8")) == write_section(summary, figures)


def test_numbers_outside_generated_sections_are_those_of_definitions():
    text = PAGE.read_text(encoding="utf-8")
    text = text.replace(extract_section(text, STATEMENTS.BEGIN, STATEMENTS.END), "")
    judge = yaml.safe_load((CONF / "experiment" / "atlas_mlp.yaml").read_text(encoding="utf-8"))
    constants = {SIGNIFICANCE_LEVEL, MIN_CELL_SHARE, 0.5, judge["truth"]["shapley"]["error"]}
    constants |= {claim.limit for claim in load_claims()}
    assert {float(number) for number in re.findall(r"\b0\.\d+", text.replace(extract_section(text), ""))} <= constants


def test_metric_based_ranking_follows_from_rows(summary):
    shipped = resources.files("cfeval_cli.statistics").joinpath("preferred_metrics.json").read_text(encoding="utf-8")
    assert shipped == write_rule(summary)
    assert json.loads(shipped)["source"].startswith("the atlas: ")


def test_readme_states_best_metrics_with_their_evidence(summary):
    contribution, change = (summary.get_question(name) for name in ("contribution", "change"))
    assert contribution.is_conclusive and change.is_conclusive and contribution.tied and change.tied
    first, second = contribution.best, change.best
    assert not first.n_circular and not second.tau_without_circular.has_interval

    def write_evidence(best, confidence=""):
        low, high = format_number(best.tau.low), format_number(best.tau.high)
        scope = f"{best.tau.n_data_sets} data sets, {best.tau.n_judges} judges"
        return f"({format_number(best.tau.mean)}{confidence} [{low}, {high}]; {scope})"

    statement = (
        f"`{first.pair[0]}` has the highest mean τ for contribution {write_evidence(first, ', 95 % CI')} and "
        f"`{second.pair[0]}` for change {write_evidence(second)}. In {second.n_circular} of its {second.n_rows} rows "
        f"`{second.pair[0]}` is optimal by construction; without these rows its mean τ is "
        f"{format_number(second.tau_without_circular.mean)}, from {second.tau_without_circular.n_judges} judges. "
        "Neither metric is significantly better than the next ones"
    )
    assert statement in " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())


def test_best_metric_without_circular_rows_is_named_with_its_evidence(summary):
    question = summary.get_question("change")
    last = write_headline(question).points[-1]
    assert "among metrics with at least 3 data sets and 3 judges: Validity (label), 0.51" in last
    tau = format_number(question.best.tau_without_circular.mean)
    assert last.endswith(f"{question.best.title} has {tau} there (7 data sets, 2 judges, no interval).")


def test_script_prints_by_default_and_writes_on_request(capsys, monkeypatch):
    before = {path: path.read_bytes() for path in STATEMENTS.write_pages()}
    monkeypatch.setattr("sys.argv", ["claims.py"])
    STATEMENTS.main()
    printed = capsys.readouterr().out
    assert all(text in printed for text in STATEMENTS.write_pages().values())
    assert {path: path.read_bytes() for path in before} == before


def test_page_with_rows_and_figures_is_small():
    files = [PAGE, *(path for path in FOLDER.rglob("*") if path.is_file())]
    assert sum(path.stat().st_size for path in files) < MAX_BYTES


def test_figures_follow_from_rows(figures):
    for name, plot in figures.items():
        assert (FOLDER / "figures" / f"{name}.svg").read_bytes() == plot.render("svg")


def main():
    summary = AtlasSummary(read_atlas(FOLDER / ATLAS_FILE))
    figures, text = draw_figures(summary), PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(before + BEGIN + write_section(summary, figures) + END + after, encoding="utf-8")
    build.save_figures(figures, FOLDER, ("svg",))


if __name__ == "__main__":
    main()
