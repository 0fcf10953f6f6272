"""The parts of a page that explain: three instances, the glossary, the methods paragraph, and their order."""

import re
from dataclasses import replace

import pandas as pd
import pytest

from cfeval_cli.report.page import glossary, methods
from cfeval_cli.report.page.build import Report
from cfeval_cli.report.page.examples import select_examples
from cfeval_cli.report.page.instance_browser import build_browser
from cfeval_cli.report.render.html import Term, render_html
from cfeval_cli.report.table import Table, Title
from cfeval_cli.report.titles import name_truths
from cfeval_cli.results.read import read_results
from cfeval_cli.results.record import DefinitionsEntry
from tests.records import change_record
from tests.report.conftest import text_of


@pytest.fixture(scope="module")
def folder(toy, make_run):
    return read_results(
        make_run(toy, "explainer=[random,omission,decision_boundary,lr]", "metric=[dfr,validity,c,recall,hit]", "k=2")
    )


@pytest.fixture(scope="module")
def page(folder):
    return Report(folder).render_page({}, [])


def test_sections_are_answer_details_why_scores_trust_cost_appendix(page):
    order = [
        page.index(f'id="{name}"')
        for name in ("answer", "cost-summary", "details", "why", "scores", "trust", "cost", "appendix")
    ]
    assert order == sorted(order)
    parts = re.split(r'<section id="(scores|trust|cost|appendix)">', page)
    texts = {name: text_of(html) for name, html in zip(parts[1::2], parts[2::2], strict=True)}
    assert "Scores and ranks of the explainers" in texts["scores"] and "ground truth" in texts["trust"]
    assert "Costs" in texts["cost"] and "Glossary" in texts["appendix"] and "How to cite" in texts["appendix"]


def _of(frame, number, name):
    return frame[(frame["instance"] == number) & (frame["explainer"] == name)]


def test_examples_are_the_instances_of_most_disagreement_and_equal_the_files(folder):
    questions = name_truths(folder.record.settings.truth, folder.record)
    browser = build_browser(folder)
    examples = select_examples(browser, questions).examples
    texts = {name: pd.read_parquet(folder.folder / f"{name}.parquet") for name in ("explanations", "counterfactuals")}
    selections = (
        texts["explanations"]
        .groupby("instance")["features"]
        .agg(lambda of: len({tuple(sorted(features[:2])) for features in of if len(features)}))
    )
    largest = selections.loc[[instance.id for instance in browser.instances]].sort_values(ascending=False)
    ids = [int(re.match(r"Instance (\d+):", example.title)[1]) for example in examples]
    assert len(ids) == 3 and sorted(selections.loc[ids]) == sorted(largest.iloc[:3])
    features = folder.data.feature_names
    for number, example in zip(ids, examples, strict=True):
        instance_row = folder.instances.set_index("instance").loc[number]
        for row in example.rows:
            name = next(n for n, title in folder.record.explainers.items() if title == row.explainer)
            own = _of(texts["explanations"], number, name).iloc[0]
            assert [part.partition(" = ")[0] for part in row.selected.split(", ")] == [
                features[j] for j in own["features"][:2]
            ]
            edits = _of(texts["counterfactuals"], number, name).set_index("access")
            after = edits["label"].get("probability", instance_row["predicted"])  # an incomplete explanation has none
            assert row.flips == bool(after != instance_row["predicted"])
            if row.flips:
                assert row.outcome.startswith("flips") and "→" in row.edit
        truth = folder.read_rows("truth", [number]).query("truth == 'contrast'")
        importance = truth["importance"].iloc[0]
        top = sorted(range(len(importance)), key=lambda j: -importance[j])[:2]
        assert {part.partition(" = ")[0] for part in dict(example.reference)["change"].split(", ")} == {
            features[j] for j in top
        }


def test_row_headings_link_to_definitions_from_docstrings(folder, page):
    terms = {term.name: term for term in glossary.list_terms(folder.record)}
    assert (
        terms["Validity"].definition
        == "Share of instances whose label changes when a search edits the selected features."
    )
    assert terms["Omission"].definition == "The drop in p(ŷ) when a feature is removed."
    assert (
        terms["GroundTruth"].definition.startswith("recall: Mean share")
        and "hit: Share" in terms["GroundTruth"].definition
    )
    for anchor in re.findall(r'class="definition" href="#([^"]+)"', page):
        assert f'<dt id="{anchor}"' in page
    heads = re.findall(r'<th scope="row"[^>]*>(.*?)</th>', page)
    metric_heads = [head for head in heads if "↑" in head or "↓" in head]
    assert metric_heads and all('class="definition"' in head and 'title="' in head for head in metric_heads)


@pytest.mark.parametrize(
    ("title", "name"),
    [(Title("C_soft", ["disc.", "label"], "higher", suffix="§"), "C_soft"), (Title("τ change", term="τ"), "τ"),
     (Title("Validity", ["label / probability"], number=3), "Validity"), (Title("Random", marks="†"), "Random"),
     (Title("p(τ, no controls)", term="p"), "p"), (Title("xyz"), None)],
)  # fmt: skip
def test_heading_links_to_its_term_or_name(title, name):
    terms = {term: Term(term, "definition") for term in ("C", "C_soft", "Validity", "τ", "p", "Random")}
    html = render_html(Table("t", [title], []), terms)
    assert (f'href="#{terms[name].anchor}"' in html) if name else ("href" not in html)


def test_glossary_without_definitions_has_common_terms_only(folder):
    record = folder.record.model_copy(update={"definitions": DefinitionsEntry()})
    names = {term.name for term in glossary.list_terms(record)}
    assert "τ" in names and "Validity" not in names
    assert len({term.anchor for term in glossary.list_terms(folder.record)}) == len(glossary.list_terms(folder.record))


def test_methods_paragraph_states_the_settings(folder):
    text, settings = methods.write_methods(folder.record), folder.record.settings
    assert f"on {folder.record.instances:,} test instances of toy by Random, Omission, DecisionBoundary and LR" in text
    assert "selected k = 2 features" in text and folder.record.setup in text and f"seed {settings.seed}." in text
    assert "shapley (contribution; exact) and contrast (change; exact)" in text
    assert "95 % bootstrap intervals over 100 resamples" in text and "Kendall's τ" in text
    bare = change_record(folder.record, truths={}, resampled=0)
    assert "There is no ground truth" in methods.write_methods(bare) and "bootstrap" not in methods.write_methods(bare)
    citation = methods.write_citation("9.9")
    assert "version = {9.9}" in citation and "2109.01962" in citation and citation.count("{") == citation.count("}")


def test_methods_paragraph_is_escaped_in_the_page(folder):
    record = change_record(folder.record, explainers=dict.fromkeys(folder.record.explainers, "<b>x"))
    assert "<b>x" in methods.write_methods(record)
    html = Report(replace(folder, record=record)).render_page({}, [])
    assert "<b>x" not in re.sub(r"<script.*?</script>", "", html, flags=re.S) and "&lt;b&gt;x" in html
