"""The audit: its findings, errors that tests insert, and consistent tables."""

import math
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from cfeval_cli.cli import paper, screen
from cfeval_cli.report.published import load_figures
from cfeval_cli.report.render.narrow import render_narrow
from cfeval_cli.study.paper.audit import audit, audit_paper
from cfeval_cli.study.paper.finding import KINDS

# id, printed and recomputed figure of all findings, in the order of the report
FINDINGS = [
    ("misprint.1.adults.sufficiency_del.lime", "01536", "0.1536"),
    ("misprint.2.adults.c_label.tau", "10", "1.0"),
    ("misprint.endings", "2ed (23 times)", "2nd"),
    ("zero.2.adults", "0", "not computed"),
    ("zero.2.movie_reviews", "0", "not computed"),
    ("variant.2.adults.c_soft", "C_soft (cont.)", "C_soft (disc.)"),
    ("variant.3.adults.c_soft", "C_soft (cont.)", "C_soft (disc.)"),
    ("rank.1.movie_reviews.sufficiency_del", "Omission 5, DecisionBoundary 6", "Omission 6, DecisionBoundary 5"),
    ("rank.1.movie_reviews.sufficiency_mask", "Omission 5, DecisionBoundary 6", "Omission 6, DecisionBoundary 5"),
    ("rank.1.movie_reviews.validity_gradient", "6 5 3 2 4 1", "5 4 2 1 3 6"),
    ("quotient.1.movie_reviews.c_gradient", "12.2585", "1.4181"),
    (
        "quotient.1.movie_reviews.c_soft_gradient",
        "6.3586 7.1169 8.3763 9.1873 7.2681 12.9077",
        "4.9390 5.6605 6.8233 7.5515 5.7914 10.9897",
    ),
    ("limit.1.movie_reviews.validity_soft_gradient.lr", "0.8517", "at most 0.5550"),
    ("repeat.1.movie_reviews.sufficiency_mask", "6 values", "the values of Suff. (del.)"),
    ("coefficient.2.movie_reviews.sufficiency_mask.tau", "0.6", "0.7333 by ranks, 0.8667 by values"),
    ("coefficient.2.movie_reviews.sufficiency_mask.rho", "0.7714", "0.8286 by ranks, 0.9429 by values"),
    ("coefficient.2.movie_reviews.sufficiency_del.tau", "0.6", "0.7333 by ranks, 0.8667 by values"),
    ("coefficient.2.movie_reviews.sufficiency_del.rho", "0.7714", "0.8286 by ranks, 0.9429 by values"),
    ("random.3.adults.recall_signed", "0.2991", "0.1667 ± 0.0063"),
    ("sum.movie_reviews", "10,443", "5221 + 5212 = 10,433"),
    ("counts.movie_reviews", "0.0838 0.2898 0.8743 0.1099 0.0790", "no counts out of 1043 to 1045 instances"),
    ("improvement", "17.83 %", "22.26 %"),
    ("missing.c_gradient", "better than Comp. (del.) on both datasets", "no result for Adults"),
    ("missing.c_label", "better than DFR with labels only", "no result for Movie Reviews"),
    ("claim.comp_strongest", "Comp. (del.) is the strongest erasure metric on both datasets", "does not hold"),
    ("claim.c_soft_best_movies", "C_soft beats every erasure metric on Movie Reviews", "does not hold"),
    ("claim.c_soft_best", "C_soft beats every erasure metric on both datasets", "does not hold"),
    ("claim.c_moved_best", "C (cont.) beats every erasure metric on Movie Reviews", "does not hold"),
    ("dfr", "completely inconsistent", "τ 0.4667, 11 of 15 pairs in the true order"),
    ("small.refined", "significantly refined (Validity_soft)", "1 of 15 pairs: Anchor/DecisionBoundary"),
    (
        "small.much_higher.movie_reviews",
        "much higher τ and ρ (Comp. (del.))",
        "1 of 15 pairs: Omission/DecisionBoundary",
    ),
    ("small.far_beyond", "far beyond (Comp. (del.), Suff. (del.), DFR.)", "1 of 6 pairs: Anchor/LR"),
    ("agreement.1.adults", "counterfactual metrics do not disagree", "3 of 6 pairs differ"),
    ("baselines", "two", "3: Comp. (del.), Suff. (del.), DFR."),
    ("explainers", "Random, LIME, Anchor", "LR as well"),
    ("omission.1.adults.comprehensiveness_del", "0.0314 (5th)", "at least 0.1661 (LR)"),
    ("omission.1.adults.dfr_del", "0.0436 (6th)", "at least 0.3807 (LR)"),
    ("omission.1.movie_reviews.comprehensiveness_del", "0.0483 (4th)", "at least 0.2272 (LR)"),
    ("omission.1.movie_reviews.comprehensiveness_mask", "0.0499 (4th)", "at least 0.2225 (LR)"),
    ("omission.1.movie_reviews.dfr_del", "0.0972 (4th)", "at least 0.2898 (LR)"),
    ("boundary.1.adults.validity_label", "0.2736", "more than 0.50"),
    ("fallback", "no effect of the random edit where nothing flips", "64 to 93 % of the distance"),
]


@pytest.fixture(scope="module")
def result():
    return audit_paper()


def test_audit_has_exactly_these_findings(result):
    assert [(finding.id, finding.printed, finding.recomputed) for finding in result.findings] == FINDINGS
    for finding in result.findings:
        assert finding.kind in KINDS and finding.meaning.endswith(".") and "nan" not in finding.recomputed, finding.id
    assert result.n_passed > 400


def test_coefficients_equal_those_of_scipy(result):
    """τ and ρ of sufficiency on Movie Reviews."""
    frame = load_figures()
    table = frame[(frame["table"] == "1") & (frame["dataset"] == "movie_reviews")]
    truth = table[table["metric"] == "recall"]["value"].to_numpy()
    rows = table[(table["metric"] == "sufficiency") & (table["variant"] == "del")]
    findings = {finding.id: finding.recomputed for finding in result.findings}
    for kind, correlate in (("tau", stats.kendalltau), ("rho", stats.spearmanr)):
        by_rank, by_value = (correlate(-rows[column], truth)[0] for column in ("printed_rank", "value"))
        expected = f"{by_rank:.4f} by ranks, {by_value:.4f} by values"
        assert findings[f"coefficient.2.movie_reviews.sufficiency_del.{kind}"] == expected


def test_command_prints_and_writes_all_findings(tmp_path, result, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    words = ["audit", "--csv", str(tmp_path / "a=b.csv"), "--md", str(tmp_path / "a.md")]
    paper.main(words, screen.Options(full=True))
    output = capsys.readouterr().out
    assert output.startswith(f"Verdict: {result.summary}.")
    lines = output.splitlines()
    assert max(map(len, lines)) <= 80 and set(KINDS.values()) <= set(lines)
    printed = " ".join(output.split())
    for i, finding in enumerate(result.findings, 1):
        text = f"{i}. {finding.place}. Printed: {finding.printed}. Recomputed: {finding.recomputed}. {finding.meaning}"
        assert text in printed
    written = pd.read_csv(tmp_path / "a=b.csv", dtype=str, keep_default_na=False)
    assert list(zip(written["id"], written["printed"], written["recomputed"], strict=True)) == FINDINGS
    assert (tmp_path / "a.md").read_text() == result.write_markdown()


def test_brief_counts_all_findings_and_fits_a_screen(result):
    lines = [line.plain for line in render_narrow(result.build_brief(), 80)]
    assert max(map(len, lines)) <= 80 and len(lines) <= 12
    assert sum(cell.value for row in result.build_brief().rows for cell in row.cells) == len(FINDINGS)


def find_inserted_error(change, **where):
    """Change one cell of the published figures, and return the new findings by id."""
    frame = load_figures()
    is_changed = np.logical_and.reduce([frame[name] == value for name, value in where.items()])
    assert is_changed.sum() == 1
    for name, value in change.items():
        frame.loc[is_changed, name] = value
    before = {(finding.id, finding.printed) for finding in audit_paper().findings}
    return {finding.id: finding for finding in audit(frame).findings if (finding.id, finding.printed) not in before}


def test_swapped_rank_is_reported():
    where = {"table": "1", "dataset": "adults", "metric": "comprehensiveness", "explainer": "anchor"}
    finding = find_inserted_error({"printed_rank": 2.0, "rank_text": "2nd"}, **where)[
        "rank.1.adults.comprehensiveness_del"
    ]
    assert (finding.printed, finding.recomputed) == ("Anchor 2", "Anchor 3")


def test_wrong_quotient_is_reported():
    where = {"table": "1", "dataset": "adults", "metric": "c", "explainer": "lime"}
    findings = find_inserted_error({"printed": "0.2022", "corrected": "0.2022", "value": 0.2022}, **where)
    finding = findings["quotient.1.adults.c_label"]
    assert (finding.kind, finding.printed, finding.recomputed) == ("table", "0.2022", "0.2011")
    assert "C (disc.) × Proximity is 0.2859, but the printed Validity is 0.2844" in finding.meaning


def test_wrong_tau_is_reported():
    where = {"table": "2", "dataset": "adults", "metric": "dfr", "coefficient": "tau"}
    findings = find_inserted_error({"printed": "0.6", "corrected": "0.6", "value": 0.6}, **where)
    assert findings["coefficient.2.adults.dfr_del.tau"].recomputed == "0.4667 by ranks, 0.4667 by values"


def test_wrong_sum_is_reported():
    where = {"table": "text", "dataset": "adults", "metric": "rows", "variant": "positive"}
    finding = find_inserted_error({"printed": "7840", "corrected": "7840"}, **where)["sum.adults"]
    assert finding.recomputed == "7840 + 7841 = 15,681"


SIX = ("random", "omission", "lime", "anchor", "decision_boundary", "lr")
FOUR = ("random", "lime", "anchor", "lr")
TITLES = {
    ("comprehensiveness", "del"): "Comp. (del.)", ("comprehensiveness", "mask"): "Comp. (mask)",
    ("sufficiency", "del"): "Suff. (del.)", ("sufficiency", "mask"): "Suff. (mask)", ("dfr", "del"): "DFR",
    ("c", "label"): "C (disc.)", ("c", "gradient"): "C (cont.)", ("c_soft", "probability"): "C_soft (disc.)",
    ("c_soft", "gradient"): "C_soft (cont.)", ("recall", "signed"): "GroundTruth*",
}  # fmt: skip
ENDINGS = {1: "1st", 2: "2nd", 3: "3rd", 4: "4th", 5: "5th", 6: "6th"}


class Sheet:
    """Consistent rows of the same form as the published ones."""

    def __init__(self):
        self.rows = []
        self.truths = {}
        self.line = 0

    def add(self, **row):
        columns = (
            "table", "dataset", "row", "column", "metric", "variant", "better", "coefficient", "explainer", "rank_text",
        )  # fmt: skip
        full = dict.fromkeys(columns, "") | {"bold": False, "note": "", "k": math.nan, "printed_rank": math.nan} | row
        full |= {"printed_variant": full["variant"], "corrected": full["printed"], "line": self.line}
        self.rows.append(full)

    def series(self, table, dataset, pair, values, better="higher", digits=4, names=SIX):
        """Add a row of values, ranked by the printed digits, and return the ranks."""
        self.line += 1
        printed = [f"{value:.{digits}f}" for value in values]
        numbers = [float(text) for text in printed]
        title = TITLES.get(pair, pair[0])
        ranks = None
        if better:
            assume(len(set(numbers)) == len(numbers))
            ranks = [1 + sum((b > a) if better == "higher" else (b < a) for b in numbers) for a in numbers]
        truth = self.truths.get((table, dataset))
        if pair[0] == "recall":
            self.truths[table, dataset] = truth = ranks
        for i, name in enumerate(names):
            row = {"table": table, "dataset": dataset, "metric": pair[0], "variant": pair[1], "better": better}
            row |= {"k": 2 if table == "3" else 1, "explainer": name, "printed": printed[i], "value": numbers[i]}
            row |= {"column" if table == "3" else "row": title, "row" if table == "3" else "column": name}
            if ranks:
                row |= {"printed_rank": float(ranks[i]), "rank_text": ENDINGS[ranks[i]]}
                row["bold"] = pair[0] != "recall" and ranks[i] == truth[i]
            self.add(**row)
        return ranks

    def text(self, dataset, metric, variant, printed, value=None, **other_columns):
        self.add(
            table="text", dataset=dataset, metric=metric, variant=variant, printed=printed, value=value, **other_columns
        )
        if value is not None:
            self.rows[-1]["corrected"] = value

    def correlations(self, table, dataset, ranks):
        truth = self.truths["3" if table == "3" else "1", dataset]
        for kind, correlate in (("tau", stats.kendalltau), ("rho", stats.spearmanr)):
            values = {pair: round(float(correlate(ranking, truth)[0]), 4) + 0.0 for pair, ranking in ranks.items()}
            for pair, value in values.items():
                sign = {"tau": "τ", "rho": "ρ"}[kind]
                labels = (
                    {"column": TITLES[pair], "row": sign} if table == "3" else {"row": TITLES[pair], "column": sign}
                )
                self.add(
                    table=table, dataset=dataset, metric=pair[0], variant=pair[1], better="higher", coefficient=kind,
                    printed=f"{value:.4f}", value=value, bold=value == max(values.values()), **labels,
                )  # fmt: skip

    def frame(self):
        frame = pd.DataFrame(self.rows)
        frame["value"] = pd.to_numeric(frame["corrected"])
        return frame


@st.composite
def sheets(draw):
    """Draw a consistent text and three tables of two datasets."""
    sheet = Sheet()
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def draw_integers(low, high, size=6):
        return rng.choice(np.arange(low, high), size=size, replace=False)

    for dataset in ("adults", "movie_reviews"):
        half = int(rng.integers(3000, 9000))
        size = 2 * half // 10
        right = int(rng.integers(size // 2, size))
        sheet.text(dataset, "rows", "all", f"{2 * half:,}", str(2 * half))
        for name in ("positive", "negative"):
            sheet.text(dataset, "rows", name, str(half))
        sheet.text(dataset, "accuracy", "test", f"{100 * right / size:.2f}", f"{right / size:.4f}")
        if dataset == "adults":
            sheet.text("", "share", "test", "10", "0.1")
            sheet.text(dataset, "features", "all", "twelve", "12")
        truth = draw_integers(size // 6, size) / size
        truth[0], truth[5] = round(size / 12) / size, 1
        # the truth comes first here, so that the marks of the others can be set
        sheet.series("1", dataset, ("recall", "signed"), truth)
        ranks = {}
        for variant in ("del",) if dataset == "adults" else ("del", "mask"):
            for metric, better in (("comprehensiveness", "higher"), ("sufficiency", "lower")):
                ranks[metric, variant] = sheet.series(
                    "1", dataset, (metric, variant), draw_integers(1, 5000) / 1e4, better
                )
        ranks["dfr", "del"] = sheet.series("1", dataset, ("dfr", "del"), draw_integers(1, size) / size)
        shared = draw_integers(500, 5000) / 1e4
        for metric in ("validity", "validity_soft"):
            access = "gradient" if dataset == "movie_reviews" else {"validity": "label"}.get(metric, "probability")
            above = draw_integers(1, size) / size if metric == "validity" else draw_integers(1, 5000) / 1e4
            below = {"label": np.full(6, 1.414), "gradient": shared}.get(access, draw_integers(10000, 50000) / 1e4)
            sheet.series("1", dataset, (metric, access), above)
            sheet.series("1", dataset, ("proximity", access), below, "", 3 if access == "label" else 4)
            pair = (metric.replace("validity", "c"), access)
            ranks[pair] = sheet.series("1", dataset, pair, above / below)
        sheet.correlations("2", dataset, ranks)
        if dataset == "adults":
            second = np.array([round(size / 3) / (2 * size), *(truth[[2, 3]] / 2 + draw_integers(1, 4000, 2) / 1e4), 1])
            sheet.series("3", dataset, ("recall", "signed"), second, names=FOUR)
            judged = {("sufficiency", "del"): "lower", ("dfr", "del"): "higher", ("c_soft", "probability"): "higher"}
            ranks = {
                pair: sheet.series("3", dataset, pair, draw_integers(1, size, 4) / size, better, names=FOUR)
                for pair, better in judged.items()
            }
            sheet.correlations("3", dataset, ranks)
    return sheet


HEALTH = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@settings(suppress_health_check=HEALTH)
@given(sheets())
def test_consistent_paper_has_no_contradictions(sheet):
    result = audit(sheet.frame())
    assert [finding for finding in result.findings if finding.kind in ("misprint", "table")] == []
    assert [finding for finding in result.findings if finding.id.startswith(("sum.", "counts."))] == []
    assert result.n_passed > 100


@settings(suppress_health_check=HEALTH)
@given(sheets(), st.data())
def test_any_exchange_of_two_ranks_is_reported(sheet, data):
    frame = sheet.frame()
    ranked = frame[frame["rank_text"] != ""]
    line = data.draw(st.sampled_from(sorted(set(ranked["line"]))))
    first, second = data.draw(st.sampled_from(list(permutations(ranked[ranked["line"] == line].index, 2))))
    for name in ("printed_rank", "rank_text"):
        frame.loc[[first, second], name] = frame.loc[[second, first], name].to_numpy()
    where = frame.loc[first]
    name = f"rank.{where['table']}.{where['dataset']}.{where['metric']}_{where['variant']}"
    assert name in [finding.id for finding in audit(frame).findings]
