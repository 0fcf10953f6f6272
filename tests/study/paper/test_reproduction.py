"""Figures of docs/reproduction.md against the files in docs/reproduction."""

import json
import re
from itertools import permutations
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from cfeval_cli.report.published import load_figures, parse_figures
from cfeval_cli.statistics.small_rankings import MIN_RANKED_EXPLAINERS
from cfeval_cli.study.paper.audit import audit_paper
from tests import inside

ROOT = Path(__file__).parents[3]
FILES = ROOT / "docs" / "reproduction"
TEXT = (ROOT / "docs" / "reproduction.md").read_text()
PAGE = " ".join(TEXT.split())


@pytest.fixture(scope="module")
def cells():
    """Figures of cfeval and of the paper, with the truth `signed`."""
    table = pd.read_csv(FILES / "paper.csv", dtype={"table": str}, keep_default_na=False, na_values={"cfeval": [""]})
    keys = ["table", "dataset", "metric", "variant", "explainer", "coefficient"]
    return table[table["truth"] == "signed"].drop_duplicates(keys).set_index(keys).sort_index()


def get_cell(cells, table, dataset, metric, variant, explainer="", coefficient=""):
    line = cells.loc[table, dataset, metric, variant, explainer, coefficient]
    return float(line["cfeval"]), float(line["deviation"] or "nan"), float(line["paper"] or "nan")


def get_range(cells, table, dataset, metric, variant, column):
    """Return the smallest and the largest value over the explainers."""
    lines = cells.loc[table, dataset, metric, variant]
    values = pd.to_numeric(lines.loc[lines.index.get_level_values("coefficient") == "", column])
    return values.min(), values.max()


def write_percent(value):
    return f"{100 * value:.0f} %"


def test_figures_in_the_text_equal_those_of_the_tables(cells):
    adults = ("1", "adults")
    comp, suff, dfr = (
        get_cell(cells, *adults, name, "del", "random") for name in ("comprehensiveness", "sufficiency", "dfr")
    )
    text = [f"{cfeval:.3f} ± {deviation:.3f} ({paper:.3f})" for cfeval, deviation, paper in (suff, dfr)]
    assert f"comprehensiveness is {comp[0]:.3f} ± {comp[1]:.3f} (paper {comp[2]:.3f})" in PAGE
    assert f"sufficiency {text[0]}, DFR {text[1]}" in PAGE
    two = [get_cell(cells, "3", "adults", n, "del", "random") for n in ("comprehensiveness", "sufficiency", "dfr")]
    assert "with two features " + ", ".join(f"{cfeval:.3f} ({paper:.3f})" for cfeval, _, paper in two) in PAGE
    cfeval, deviation, paper = get_cell(cells, *adults, "recall", "signed", "random")
    assert f"random features is {cfeval:.3f} ± {deviation:.3f} (paper {paper:.3f}; expected 1/12)" in PAGE
    valid = [get_cell(cells, *adults, "validity", "label", name) for name in ("random", "decision_boundary")]
    assert (
        f"search flips {write_percent(valid[0][0])} (Random) to {write_percent(valid[1][0])} (Decision Boundary)"
        in PAGE
    )
    assert (valid[0][0], valid[1][0]) == get_range(cells, *adults, "validity", "label", "cfeval")
    low, high = get_range(cells, *adults, "validity", "label", "paper")
    assert f"the paper has {write_percent(low)} to {write_percent(high)}" in PAGE
    soft, comp = (
        get_cell(cells, *adults, "validity_soft", "probability", "lr"),
        get_cell(cells, *adults, "comprehensiveness", "del", "lr"),
    )
    assert f"LR ({soft[2]:.2f}) equals its comprehensiveness ({comp[2]:.2f})" in PAGE
    assert f"cfeval has {soft[0]:.2f} and {comp[0]:.2f}" in PAGE
    reviews = ("1", "movie_reviews")
    paper, cfeval = (get_range(cells, *reviews, "proximity", "gradient", side) for side in ("paper", "cfeval"))
    assert f"paper are {paper[0]:.2f} to {paper[1]:.2f}, those of cfeval {cfeval[0]:.1f} to {cfeval[1]:.1f}" in PAGE
    recall = [get_cell(cells, "1", name, "recall", "signed", "omission") for name in ("movie_reviews", "adults")]
    reviews_share, adults_share = (write_percent(value) for value, *_ in recall)
    assert f"selects {reviews_share} of the true features on Movie Reviews and {adults_share} on Adults" in PAGE
    assert f"The paper has {write_percent(recall[0][2])} and {write_percent(recall[1][2])}" in PAGE
    cfeval, paper = (get_range(cells, *reviews, "c", "gradient", side) for side in ("cfeval", "paper"))
    assert f"C (cont.) of cfeval spans {cfeval[0]:.3f} to {cfeval[1]:.3f} over all explainers" in PAGE
    assert f"C of the paper spans {paper[0]:.1f} to {paper[1]:.1f}" in PAGE
    tau = get_cell(cells, "2", "movie_reviews", "c", "gradient", coefficient="tau")
    assert f"(τ = {tau[0]:.2f} ± {tau[1]:.2f})".replace("-", "−") in PAGE
    tau = get_cell(cells, "2", "adults", "c_soft", "probability", coefficient="tau")
    assert f"τ of C_soft on Adults is {tau[0]:.2f} ± {tau[1]:.2f} under `signed`" in PAGE


def test_shares_of_random_values_that_flip():
    shares = pd.read_csv(FILES / "one_value.csv").set_index("explainer")["one_value"]
    random, lime, lr = (write_percent(shares[name]) for name in ("random", "lime", "lr"))
    assert f"{random} for Random, {lime} for LIME and {lr} for LR" in PAGE


def test_range_of_tau_over_seeds():
    table = pd.read_csv(FILES / "by_seed.csv").set_index(["truth", "metric", "variant"])["tau"]
    soft, comp = table["signed", "c_soft", "probability"], table["shapley", "comprehensiveness", "del"]
    assert len(soft) == len(comp) == 5 and f"single seeds give {soft.min():.2f} to {soft.max():.2f}" in PAGE
    assert f"comprehensiveness is nearly perfect (τ = {comp.mean():.2f})" in PAGE


def test_accuracies_equal_those_of_the_runs():
    runs = pd.read_csv(FILES / "runs.csv")
    assert len(runs) == 60 and (runs["status"] == "complete").all() and f"The same {len(runs)} runs" in PAGE
    for name, title in (("table1_adults", "Adults"), ("table1_movie_reviews", "Movie Reviews")):
        accuracy = 100 * runs.loc[runs["setting.experiment"] == name, "test_accuracy"]
        assert re.search(rf"test accuracy, {title} \| [\d.]+ % \| {accuracy.min():.1f} to {accuracy.max():.1f} %", PAGE)


def test_counts_and_shares_of_claims():
    claims = pd.read_csv(FILES / "claims.csv", keep_default_na=False)
    counts = claims["verdict"].value_counts()
    text = f"Of the {len(claims)}, {counts['refuted']} are refuted, {counts['does not hold']} do not hold"
    assert f"{text} and {counts['open']} are open" in PAGE and counts.sum() == len(claims) == 64
    columns = ["signed", "absolute", "shapley", "contrast"]
    for claim, lines in claims.groupby("claim", sort=False):
        lines = lines.set_index("truth")
        row = next(row for row in PAGE.split(" | | ") if escape(lines["text"].iloc[0]) in row)
        for truth in columns:
            line = lines.loc[truth]
            share = f"{line['verdict']} ({line['holds_in']} of {line['seeds']}, {100 * float(line['low']):.0f} to"
            assert share in row, (claim, truth)
    anchor = claims[claims["claim"] == "sparse_anchor"]["figures"].iloc[0]
    assert f"a second word for {write_percent(float(anchor.split()[-1]))} of the sentences" in PAGE


def escape(text):
    return text.replace("_", r"\_")


def test_table_2_equals_the_file(cells):
    for dataset in ("adults", "movie_reviews"):
        for metric, variant, _, coefficient in cells.loc["2", dataset].index:
            cfeval, deviation, _ = get_cell(cells, "2", dataset, metric, variant, coefficient=coefficient)
            if not np.isnan(cfeval):
                assert f"| {cfeval:.4f} ± {deviation:.4f} |" in PAGE, (dataset, metric, variant, coefficient)


def test_tau_without_controls_over_seeds():
    seeds = pd.read_csv(FILES / "seeds.csv").set_index(["setting.experiment", "metric", "variant", "subset"])
    metrics = {
        "Comp. (del.) ↑": ("comprehensiveness", "del", "del"), "Suff. (del.) ↓": ("sufficiency", "del", "del"),
        "DFR ↑": ("dfr", "del", "del"), "Validity ↑": ("validity", "label", "gradient"),
        r"Validity\_soft ↑": ("validity_soft", "probability", "gradient"), "C ↑": ("c", "label", "gradient"),
        r"C\_soft ↑": ("c_soft", "probability", "gradient"),
    }  # fmt: skip
    marks = {5: "§", 4: "¶", 3: "¶", 0: ""}
    for title, (metric, *variants) in metrics.items():
        row = f"| {title} |"
        for name, variant in zip(("table1_adults", "table1_movie_reviews"), variants, strict=True):
            with_controls, without_controls = (
                seeds.loc[name, metric, variant, subset] for subset in ("all", "without_controls")
            )
            row += f" {with_controls['mean']:.2f}{marks[with_controls['not_identifiable']]} |"
            row += f" {without_controls['mean']:.2f}{marks[without_controls['not_identifiable']]}"
            row += f" [{without_controls['low']:.2f}, {without_controls['high']:.2f}] |"
        assert row in PAGE, row
    assert (seeds["p_holm"] > 0.05).all() and "No metric differs significantly from chance" in PAGE


def test_table_of_one_trained_model_equals_its_file():
    check_rows(pd.read_csv(FILES / "adults.csv"))


def check_rows(table):
    """Compare the table of one trained model with rows of correlations.csv."""
    table_rows = re.findall(r"^\| (.*?) [↑↓] \| (.*) \|$", TEXT.partition("## Adults, one trained model")[2], re.M)
    written = [[cell.strip() for cell in cells.split("|")] for _, cells in table_rows]
    expected = []
    for _, lines in table.groupby(["metric", "variant"], sort=False):
        lines_by_truth = lines.set_index(["truth", "subset"])
        row = []
        for truth in ("shapley", "contrast"):
            for subset in ("all", "without_controls"):
                line = lines_by_truth.loc[(truth, subset)]
                is_computed = subset == "all" or line["explainers"] >= MIN_RANKED_EXPLAINERS
                row.append(f"{line['tau']:.2f}" + "§" * bool(line["not_identifiable"]) if is_computed else "–")
        if any(float(tau.rstrip("§")) for tau in row if tau != "–"):  # metrics that tie all explainers are left out
            expected.append(row)
    assert written == expected


@pytest.mark.slow
def test_file_of_one_trained_model_equals_a_run(adults, tmp_path):
    folder = inside.run(tmp_path, "cache=off", "figures=[]", "report=false", f"data_dir={adults}")
    table = pd.read_csv(folder / "correlations.csv")
    lines = table[(table["family"] == "explainers") & (table["agreement"] == "recall") & table["tau"].notna()]
    lines = lines[lines["truth"].isin(["shapley", "contrast"])]
    check_rows(lines)
    stored = pd.read_csv(FILES / "adults.csv")
    assert lines["tau"].to_numpy() == pytest.approx(stored["tau"].to_numpy(), abs=1e-6)
    assert json.loads((folder / "run.json").read_text())["instances"] == 1569


@pytest.fixture(scope="module")
def audit():
    return audit_paper()


def test_page_of_findings_is_the_output_of_the_audit(audit):
    assert (FILES / "findings.md").read_text() == audit.write_markdown()
    assert f"All {len(audit.findings)} findings" in PAGE


STATEMENTS = [
    ("dfr", "11 of 15 pairs in the true order", "11 of 15 pairs are in the true order"),
    ("boundary.1.adults.validity_label", "more than 0.50", "must then flip more than 50 %, and the table has 27 %"),
    ("fallback", "64 to 93 % of the distance", "64 to 93 % of the distance that C divides by"),
    ("coefficient.2.movie_reviews.sufficiency_del.tau", "0.7333 by ranks, 0.8667 by values", "ranks (0.7333, 0.8286)"),
    ("coefficient.2.movie_reviews.sufficiency_del.rho", "0.8286 by ranks, 0.9429 by values", "values (0.8667, 0.9429)"),
    ("improvement", "22.26 %", "22.26 %; the text states 17.83 %"),
    ("random.3.adults.recall_signed", "0.1667", "should be 0.167; 0.299 is printed"),
    ("agreement.1.adults", "3 of 6 pairs", "Validity_soft disagrees with C and C_soft"),
]


@pytest.mark.parametrize(("name", "figure", "words"), STATEMENTS)
def test_statements_about_the_paper_have_a_finding(audit, name, figure, words):
    (finding,) = (finding for finding in audit.findings if finding.id == name)
    assert words in PAGE and figure in finding.recomputed


# the printed coefficients, each pair once: the number of explainers, τ and ρ
COEFFICIENTS = {
    "Comp. (mask), Movie Reviews": (6, 0.7333, 0.8285), "Suff. (mask), Movie Reviews": (6, 0.6, 0.7714),
    "Comp. (del.), Adults": (6, 0.7333, 0.8285), "DFR, Adults": (6, 0.4667, 0.6571), "C, Adults": (6, 1, 1),
    "C, Movie Reviews": (6, 0.8666, 0.9428), "Comp. (del.), Table 3": (4, 0.6667, 0.8),
    "C_soft, Table 3": (4, 1, 1),
}  # fmt: skip


def adjust_by_holm(p):
    """Multiply the i-th smallest p by the number of tests not yet made, and keep the order."""
    adjusted, lowest = [0.0] * len(p), 0.0
    for step, place in enumerate(sorted(range(len(p)), key=lambda i: p[i])):
        lowest = max(lowest, min(1.0, p[place] * (len(p) - step)))
        adjusted[place] = lowest
    return adjusted


def test_p_values_of_printed_coefficients_are_shares_of_orders():
    orders = {n: list(permutations(range(n))) for n in (4, 6)}
    taus = {n: np.array([stats.kendalltau(order, range(n))[0] for order in orders[n]]) for n in orders}
    rhos = {n: np.array([stats.spearmanr(order, range(n))[0] for order in orders[n]]) for n in orders}
    p = [max((taus[n] > tau - 2e-4).mean(), (rhos[n] > rho - 2e-4).mean()) for n, tau, rho in COEFFICIENTS.values()]
    pairs = zip(p, adjust_by_holm(p), strict=True)
    texts = dict(zip(COEFFICIENTS, (f"p = {raw:.3f}, Holm-adjusted {holm:.3f}" for raw, holm in pairs), strict=True))
    assert f"(τ = 1, {texts['C, Adults']})" in PAGE
    assert f"(C: {texts['C, Movie Reviews']})" in PAGE and "correction for eight tests" in PAGE
    assert f"τ = 1 has {texts['C_soft, Table 3']}" in PAGE


def test_coefficients_for_p_values_are_all_printed_ones():
    """Metrics of one table and dataset with the same coefficients are one test."""
    figures = load_figures()
    figures = figures[(figures["coefficient"] != "") & (figures["corrected"] != "")]
    printed = {
        (4 if table == "3" else 6, dataset, *lines.sort_values("coefficient", ascending=False)["value"])
        for (table, dataset, _, _), lines in figures.groupby(["table", "dataset", "metric", "variant"])
    }
    assert sorted((n, *values) for n, _, *values in printed) == sorted(COEFFICIENTS.values())


def test_without_lr_all_metrics_of_table_3_have_the_same_tau():
    truth, *other_series = (
        s for s in parse_figures(load_figures()).series if s.table == "3" and s.metric != "validity"
    )
    names = [name for name in truth.figures if name != "lr"]
    taus = {
        stats.kendalltau([s.figures[n].rank for n in names], [truth.figures[n].rank for n in names])[0]
        for s in other_series
    }
    assert taus == {1.0} and len(other_series) == 4 and "without it all four metrics have τ = 1" in PAGE
