"""Figures of docs/reproduction.md against the files that they are taken from."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.study.paper.audit import audit_paper
from tests import inside

ROOT = Path(__file__).parents[3]
FILES = ROOT / "docs" / "reproduction"
TEXT = (ROOT / "docs" / "reproduction.md").read_text()
PAGE = " ".join(TEXT.split())


@pytest.fixture(scope="module")
def cells():
    """Ours and theirs, by table, dataset, metric, variant, explainer and coefficient; truth: signed."""
    table = pd.read_csv(FILES / "paper.csv", dtype={"table": str}, keep_default_na=False, na_values={"cfeval": [""]})
    keys = ["table", "dataset", "metric", "variant", "explainer", "coefficient"]
    return table[table["truth"] == "signed"].drop_duplicates(keys).set_index(keys).sort_index()


def cell(cells, table, dataset, metric, variant, explainer="", coefficient=""):
    line = cells.loc[table, dataset, metric, variant, explainer, coefficient]
    return float(line["cfeval"]), float(line["deviation"] or "nan"), float(line["paper"] or "nan")


def of_row(cells, table, dataset, metric, variant, column):
    """Smallest and largest over the explainers."""
    mine = cells.loc[table, dataset, metric, variant]
    values = pd.to_numeric(mine.loc[mine.index.get_level_values("coefficient") == "", column])
    return values.min(), values.max()


def percent(value):
    return f"{100 * value:.0f} %"


def test_figures_in_words_are_those_of_the_tables(cells):
    one = ("1", "adults")
    comp, suff, dfr = (cell(cells, *one, name, "del", "random") for name in ("comprehensiveness", "sufficiency", "dfr"))
    told = [f"{ours:.3f} ± {deviation:.3f} ({theirs:.3f})" for ours, deviation, theirs in (suff, dfr)]
    assert f"comprehensiveness is {comp[0]:.3f} ± {comp[1]:.3f} (paper {comp[2]:.3f})" in PAGE
    assert f"sufficiency {told[0]}, DFR {told[1]}" in PAGE
    two = [cell(cells, "3", "adults", n, "del", "random") for n in ("comprehensiveness", "sufficiency", "dfr")]
    assert "with two features " + ", ".join(f"{ours:.3f} ({theirs:.3f})" for ours, _, theirs in two) in PAGE
    ours, deviation, theirs = cell(cells, *one, "recall", "signed", "random")
    assert f"random features is {ours:.3f} ± {deviation:.3f} (paper {theirs:.3f}; expected 1/12)" in PAGE
    valid = [cell(cells, *one, "validity", "label", name) for name in ("random", "decision_boundary")]
    assert f"search flips {percent(valid[0][0])} (Random) to {percent(valid[1][0])} (Decision Boundary)" in PAGE
    assert (valid[0][0], valid[1][0]) == of_row(cells, *one, "validity", "label", "cfeval")
    low, high = of_row(cells, *one, "validity", "label", "paper")
    assert f"the paper has {percent(low)} to {percent(high)}" in PAGE
    soft, comp = (
        cell(cells, *one, "validity_soft", "probability", "lr"),
        cell(cells, *one, "comprehensiveness", "del", "lr"),
    )
    assert f"LR ({soft[2]:.2f}) equals its comprehensiveness ({comp[2]:.2f})" in PAGE
    assert f"cfeval has {soft[0]:.2f} and {comp[0]:.2f}" in PAGE
    reviews = ("1", "movie_reviews")
    theirs, ours = (of_row(cells, *reviews, "proximity", "gradient", side) for side in ("paper", "cfeval"))
    told = f"paper are {theirs[0]:.2f} to {theirs[1]:.2f}, those of cfeval {ours[0]:.1f} to {ours[1]:.1f}"
    assert told in PAGE
    found = [cell(cells, "1", name, "recall", "signed", "omission") for name in ("movie_reviews", "adults")]
    assert (
        f"selects {percent(found[0][0])} of the true features on Movie Reviews and {percent(found[1][0])} on Adults"
        in PAGE
    )
    assert f"The paper has {percent(found[0][2])} and {percent(found[1][2])}" in PAGE
    ours, theirs = (of_row(cells, *reviews, "c", "gradient", side) for side in ("cfeval", "paper"))
    assert f"C (cont.) of cfeval spans {ours[0]:.3f} to {ours[1]:.3f} over all explainers" in PAGE
    assert f"C of the paper spans {theirs[0]:.1f} to {theirs[1]:.1f}" in PAGE
    tau = cell(cells, "2", "movie_reviews", "c", "gradient", coefficient="tau")
    assert f"(τ = {tau[0]:.2f} ± {tau[1]:.2f})".replace("-", "−") in PAGE
    tau = cell(cells, "2", "adults", "c_soft", "probability", coefficient="tau")
    assert f"τ of C_soft on Adults is {tau[0]:.2f} ± {tau[1]:.2f} under `signed`" in PAGE


def test_what_one_random_value_would_find():
    """Shares of other values of the named feature that flip, computed from the models and explanations of the runs."""
    one = pd.read_csv(FILES / "one_value.csv").set_index("explainer")["one_value"]
    told = f"{percent(one['random'])} for Random, {percent(one['lime'])} for LIME and {percent(one['lr'])} for LR"
    assert told in PAGE


def test_single_seeds_are_as_far_apart_as_the_text_says():
    table = pd.read_csv(FILES / "by_seed.csv").set_index(["truth", "metric", "variant"])["tau"]
    soft, comp = table["signed", "c_soft", "probability"], table["shapley", "comprehensiveness", "del"]
    assert len(soft) == len(comp) == 5 and f"single seeds give {soft.min():.2f} to {soft.max():.2f}" in PAGE
    assert f"comprehensiveness is nearly perfect (τ = {comp.mean():.2f})" in PAGE


def test_accuracies_are_those_of_the_runs():
    runs = pd.read_csv(FILES / "runs.csv")
    assert len(runs) == 60 and (runs["status"] == "complete").all() and f"The same {len(runs)} runs" in PAGE
    for name, title in (("table1_adults", "Adults"), ("table1_movie_reviews", "Movie Reviews")):
        mine = 100 * runs.loc[runs["setting.experiment"] == name, "test_accuracy"]
        assert re.search(rf"test accuracy, {title} \| [\d.]+ % \| {mine.min():.1f} to {mine.max():.1f} %", PAGE)


def test_claims_are_counted_and_told_as_they_were_judged():
    claims = pd.read_csv(FILES / "claims.csv", keep_default_na=False)
    counts = claims["verdict"].value_counts()
    told = f"Of the {len(claims)}, {counts['refuted']} are refuted, {counts['does not hold']} do not hold"
    assert f"{told} and {counts['open']} are open" in PAGE and counts.sum() == len(claims) == 64
    columns = ["signed", "absolute", "shapley", "contrast"]
    for claim, lines in claims.groupby("claim", sort=False):
        lines = lines.set_index("truth")
        row = next(row for row in PAGE.split(" | | ") if escaped(lines["text"].iloc[0]) in row)
        for truth in columns:
            line = lines.loc[truth]
            share = f"{line['verdict']} ({line['holds_in']} of {line['seeds']}, {100 * float(line['low']):.0f} to"
            assert share in row, (claim, truth)
    anchor = claims[claims["claim"] == "sparse_anchor"]["figures"].iloc[0]
    assert f"a second word for {percent(float(anchor.split()[-1]))} of the sentences" in PAGE


def escaped(text):
    return text.replace("_", r"\_")


def test_table_2_is_that_of_the_runs(cells):
    for dataset in ("adults", "movie_reviews"):
        for metric, variant, _, coefficient in cells.loc["2", dataset].index:
            ours, deviation, _ = cell(cells, "2", dataset, metric, variant, coefficient=coefficient)
            if not np.isnan(ours):
                assert f"| {ours:.4f} ± {deviation:.4f} |" in PAGE, (dataset, metric, variant, coefficient)


def test_tau_without_controls_over_seeds():
    seeds = pd.read_csv(FILES / "seeds.csv").set_index(["setting.experiment", "metric", "variant", "subset"])
    chosen = {
        "Comp. (del.) ↑": ("comprehensiveness", "del", "del"), "Suff. (del.) ↓": ("sufficiency", "del", "del"),
        "DFR ↑": ("dfr", "del", "del"), "Validity ↑": ("validity", "label", "gradient"),
        r"Validity\_soft ↑": ("validity_soft", "probability", "gradient"), "C ↑": ("c", "label", "gradient"),
        r"C\_soft ↑": ("c_soft", "probability", "gradient"),
    }  # fmt: skip
    marks = {5: "§", 4: "¶", 3: "¶", 0: ""}
    for title, (metric, *variants) in chosen.items():
        row = f"| {title} |"
        for name, variant in zip(("table1_adults", "table1_movie_reviews"), variants, strict=True):
            both, less = (seeds.loc[name, metric, variant, one] for one in ("all", "without_controls"))
            row += f" {both['mean']:.2f}{marks[both['moves']]} |"
            row += f" {less['mean']:.2f}{marks[less['moves']]} [{less['low']:.2f}, {less['high']:.2f}] |"
        assert row in PAGE, row
    assert (seeds["p_holm"] > 0.05).all() and "No metric differs significantly from chance" in PAGE


def test_the_table_of_one_trained_model_is_that_of_its_file():
    rows_of(pd.read_csv(FILES / "adults.csv"))


def rows_of(table):
    """Every line of the table of one trained model, from lines of correlations.csv."""
    shown = re.findall(r"^\| (.*?) [↑↓] \| (.*) \|$", TEXT.partition("## Adults, one trained model")[2], re.M)
    told = [[cell.strip() for cell in cells.split("|")] for _, cells in shown]
    expected = []
    for _, lines in table.groupby(["metric", "variant"], sort=False):
        by = lines.set_index(["truth", "subset"])
        row = []
        for truth in ("shapley", "contrast"):
            for subset in ("all", "without_controls"):
                row.append(f"{by.at[(truth, subset), 'tau']:.2f}" + "§" * bool(by.at[(truth, subset), "moves"]))
        if any(float(one.rstrip("§")) for one in row):  # one that ties all is left out
            expected.append(row)
    assert told == expected


@pytest.mark.slow
def test_the_file_of_one_trained_model_is_that_of_a_run(adults, tmp_path):
    folder = inside.run(tmp_path, "cache=off", "figures=[]", "report=false", f"data_dir={adults}")
    table = pd.read_csv(folder / "correlations.csv")
    mine = table[(table["family"] == "explainers") & (table["agreement"] == "recall") & table["tau"].notna()]
    mine = mine[mine["truth"].isin(["shapley", "contrast"])]
    rows_of(mine)
    kept = pd.read_csv(FILES / "adults.csv")
    assert mine["tau"].to_numpy() == pytest.approx(kept["tau"].to_numpy(), abs=1e-6)
    assert json.loads((folder / "run.json").read_text())["instances"] == 1569


@pytest.fixture(scope="module")
def audit():
    return audit_paper()


def test_the_page_of_findings_is_the_output_of_the_audit(audit):
    assert (FILES / "findings.md").read_text() == audit.write_markdown()
    assert f"All {len(audit.findings)} findings" in PAGE


SAID = [
    ("p.2.adults.c_label", "p = 0.001, Holm-adjusted 0.011", "(τ = 1, p = 0.001, Holm-adjusted 0.011)"),
    ("p.2.movie_reviews.c_gradient", "p = 0.008, Holm-adjusted 0.058", "(C: p = 0.008, Holm-adjusted 0.058)"),
    ("p.3.adults.c_soft_probability", "p = 0.042, Holm-adjusted 0.175", "τ = 1 has p = 0.042, Holm-adjusted 0.175"),
    ("dfr", "11 of 15 pairs in the true order", "11 of 15 pairs are in the true order"),
    ("boundary.1.adults.validity_label", "more than 0.50", "must then flip more than 50 %, and the table has 27 %"),
    ("fallback", "64 to 93 % of the distance", "64 to 93 % of the distance that C divides by"),
    ("coefficient.2.movie_reviews.sufficiency_del.tau", "0.7333 by ranks, 0.8667 by values", "ranks (0.7333, 0.8286)"),
    ("coefficient.2.movie_reviews.sufficiency_del.rho", "0.8286 by ranks, 0.9429 by values", "values (0.8667, 0.9429)"),
    ("improvement", "22.26 %", "22.26 %; the text states 17.83 %"),
    ("random.3.adults.recall_signed", "0.1667", "should be 0.167; 0.299 is printed"),
    ("agreement.1.adults", "3 of 6 pairs", "Validity_soft disagrees with C and C_soft"),
    ("method.return", "returns x_i^cf", "returns the input where it should return the counterfactual"),
]


@pytest.mark.parametrize(("name", "figure", "words"), SAID)
def test_what_the_page_says_of_the_paper_rests_on_a_finding(audit, name, figure, words):
    (finding,) = (one for one in audit.findings if one.id == name)
    assert words in PAGE and figure in finding.recomputed
