"""The audit: each finding by itself, errors that are planted, and tables in which there is nothing to find."""

import math
import re
from itertools import permutations

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from scipy import stats

from cfeval_cli.study.paper.audit import audit, of_the_paper
from cfeval_cli.study.paper.chance import exchanged
from cfeval_cli.study.paper.finding import KINDS
from cfeval_cli.study.paper.published import load
from tests.conftest import cfeval

# id, printed, recomputed: all that there is, in the order of the report
FINDINGS = [
    ("typo.1.adults.sufficiency_del.lime", "01536", "0.1536"),
    ("typo.2.adults.c_label.tau", "10", "1.0"),
    ("typo.endings", "2ed (23 times)", "2nd"),
    ("rank.1.movie_reviews.sufficiency_del", "Omission 5, DecisionBoundary 6", "Omission 6, DecisionBoundary 5"),
    ("rank.1.movie_reviews.sufficiency_mask", "Omission 5, DecisionBoundary 6", "Omission 6, DecisionBoundary 5"),
    ("rank.1.movie_reviews.validity_gradient", "6 5 3 2 4 1", "5 4 2 1 3 6"),
    ("implied.1.movie_reviews.validity_gradient.lr", "0.1099", "0.9500 = C × Proximity; 0.9497 = C / C_soft"),
    ("limit.1.movie_reviews.validity_soft_gradient.lr", "0.8517", "at most 0.5550 with Validity 0.1099"),
    ("repeat.1.movie_reviews.sufficiency_mask", "6 values", "those of Suff. (del.)"),
    ("values.2.movie_reviews.sufficiency_mask.tau", "0.6", "0.8667"),
    ("values.2.movie_reviews.sufficiency_mask.rho", "0.7714", "0.9429"),
    ("values.2.movie_reviews.sufficiency_del.tau", "0.6", "0.8667"),
    ("values.2.movie_reviews.sufficiency_del.rho", "0.7714", "0.9429"),
    ("best.2.movie_reviews.tau", "C (cont.), C_soft (cont.)", "0.8667: Suff. (mask), Suff. (del.) as well"),
    ("best.2.movie_reviews.rho", "C (cont.), C_soft (cont.)", "0.9429: Suff. (mask), Suff. (del.) as well"),
    ("random.3.adults.recall_signed", "0.2991", "0.1667 (+20.9 s.e.); hit rate 0.3182 (-1.6 s.e.)"),
    ("nested.3.adults.recall_signed.lime", "0.5433", "at least 0.6466 (Table 1, k = 1)"),
    ("boundary.1.adults.validity_label", "0.2736", "over 0.50: fewer than 50 % name a second feature"),
    ("quotient.1.movie_reviews.c_gradient.lr", "12.2585", "1.4181 (1.4156 to 1.4203)"),
    ("quotient.1.movie_reviews.c_soft_gradient.random", "6.3586", "4.9390 (4.9355 to 4.9412)"),
    ("quotient.1.movie_reviews.c_soft_gradient.omission", "7.1169", "5.6605 (5.6561 to 5.6632)"),
    ("quotient.1.movie_reviews.c_soft_gradient.lime", "8.3763", "6.8233 (6.8172 to 6.8270)"),
    ("quotient.1.movie_reviews.c_soft_gradient.anchor", "9.1873", "7.5515 (7.5441 to 7.5559)"),
    ("quotient.1.movie_reviews.c_soft_gradient.decision_boundary", "7.2681", "5.7914 (5.7869 to 5.7943)"),
    ("quotient.1.movie_reviews.c_soft_gradient.lr", "12.9077", "10.9897 (10.9749 to 10.9981)"),
    ("reciprocal.1.movie_reviews.c_soft_gradient", "Validity_soft / Proximity", "1 / Proximity in 6 of 6 cells"),
    ("ranks.2.movie_reviews.sufficiency_mask.tau", "0.6", "0.7333"),
    ("ranks.2.movie_reviews.sufficiency_mask.rho", "0.7714", "0.8286"),
    ("ranks.2.movie_reviews.sufficiency_del.tau", "0.6", "0.7333"),
    ("ranks.2.movie_reviews.sufficiency_del.rho", "0.7714", "0.8286"),
    ("sum.movie_reviews", "10,443", "10,433 = 5221 + 5212"),
    ("accuracy.movie_reviews.by_class", "71.20 %", "no count out of 1043 or 1044; fits 744/1045"),
    ("fractions.adults", "7 shares and accuracy", "fit N = 1568: 7; 1569: 2 and accuracy"),
    ("fractions.movie_reviews", "5 shares and accuracy", "fit N = 1043: 0; 1044: 0; 1045: 0 and accuracy"),
    ("improvement", "17.83 %", "mean of (ours - theirs) / ours; usual: 22.26%"),
    ("method.return", "returns x_i", "x_i^cf; else Proximity 0.0964 to 0.5041"),
    ("method.assigned", "returns x_i^cf", "x_cf is what the loop makes"),
    ("method.soft", "line 15 returns a probability", "2 lines return: the loop's as well"),
    ("method.replaced", "replace values of w_i in x_i", "w_i^cf is what was solved for"),
    ("method.parameters", "Nd", "d Σ_i L_i, 2Nd with the 2 features of Table 3"),
    ("method.fallback", "no effect on the score", "64% to 93% of all distance; else C 0.7072"),
    ("method.letters", "models, and features of Random", "6 explainers in Table 1; 1, 2 features"),
    ("method.reference.cs_vs_erasure", "referred to", "not in the paper"),
    ("method.reference.reproducibility", "referred to", "not in the paper"),
    ("own.1.adults.comprehensiveness_del", "0.0314 (5th)", "at least 0.1661 (LR)"),
    ("own.1.adults.dfr_del", "0.0436 (6th)", "at least 0.3807 (LR)"),
    ("own.1.movie_reviews.comprehensiveness_del", "0.0483 (4th)", "at least 0.2272 (LR)"),
    ("own.1.movie_reviews.comprehensiveness_mask", "0.0499 (4th)", "at least 0.2225 (LR)"),
    ("own.1.movie_reviews.dfr_del", "0.0972 (4th)", "at least 0.2898 (LR)"),
    ("claim.dfr", "completely inconsistent", "τ 0.4667; 11 of 15 pairs, 0 of 6 ranks right"),
    ("claim.c_cont", "better than Comp. (del.) on 2 datasets", "a figure on 1; none on Adults"),
    ("claim.labels", "higher τ, ρ than DFR with labels alone", "no figure on Movie Reviews"),
    ("claim.strongest.movie_reviews", "strongest baseline (0.7333)", "Suff. (del.), Suff. (mask) 0.8667"),
    ("claim.superior.movie_reviews", "higher than every erasure metric", "0.8667; Suff. (del.), Suff. (mask) 0.8667"),
    ("claim.refined", "significantly refined by Proximity", "τ 0.8667 to 1.0000: 1 pair, 0.1118, 0.1105"),
    ("claim.far_beyond", "far beyond the baselines", "1 of 6 pairs: Anchor/LR"),
    ("claim.gap", "0.0702, 0.0699", "0.0003 apart, 0.4% of the largest"),
    ("claim.baselines", "two baselines", "3: Comp. (del.), Suff. (del.), DFR."),
    ("claim.left_out", "name several for under 50 %", "4 of 6 left; Omission scores all features"),
    ("claim.predicament.1.adults", "CE scores do not disagree", "3 of 6 pairs: Anchor/DecisionBoundary"),
    ("claim.much_higher.movie_reviews", "much higher τ and ρ", "1 of 15 pairs: Omission/DecisionBoundary"),
    ("claim.chosen", "only Random, LIME, Anchor", "4: LR as well"),
    ("random.1.movie_reviews.recall_signed", "0.0790", "0.064 ± 0.008: +2.0 s.e., p 0.045"),
    ("p.2.movie_reviews.comprehensiveness_mask", "τ 0.7333, ρ 0.8285", "p 0.0278, 0.0292; n = 6; of 8 tests 0.1750"),
    ("p.2.movie_reviews.sufficiency_mask", "τ 0.6, ρ 0.7714", "p 0.0681, 0.0514; n = 6; of 8 tests 0.2042"),
    ("p.2.adults.comprehensiveness_del", "τ 0.7333, ρ 0.8285", "p 0.0278, 0.0292; n = 6; of 8 tests 0.1750"),
    ("p.2.adults.dfr_del", "τ 0.4667, ρ 0.6571", "p 0.1361, 0.0875; n = 6; of 8 tests 0.2722"),
    ("p.2.adults.c_label", "τ 10, ρ 1.0", "p 0.0014, 0.0014; n = 6; of 8 tests 0.0111"),
    ("p.2.movie_reviews.c_gradient", "τ 0.8666, ρ 0.9428", "p 0.0083, 0.0083; n = 6; of 8 tests 0.0583"),
    ("p.3.adults.comprehensiveness_del", "τ 0.6667, ρ 0.8000", "p 0.1667, 0.1667; n = 4; of 8 tests 0.2722"),
    ("p.3.adults.c_soft_probability", "τ 1.0, ρ 1.0", "p 0.0417, 0.0417; n = 4; of 8 tests 0.1750"),
    ("difference.1.adults.c_label.comprehensiveness_del", "+0.2667", "p 0.5000, of 6 tests 1.0000; least 0.5000"),
    ("difference.1.adults.c_label.dfr_del", "+0.5333", "p 0.2500, of 6 tests 1.0000; least 0.2500"),
    (
        "difference.1.movie_reviews.c_gradient.comprehensiveness_del",
        "+0.1333",
        "p 0.5000, of 6 tests 1.0000; least 0.5000",
    ),
    ("difference.1.movie_reviews.c_gradient.sufficiency_del", "+0.1333", "p 0.5000, of 6 tests 1.0000; least 0.5000"),
    ("difference.1.movie_reviews.c_gradient.dfr_del", "+0.2667", "p 0.5000, of 6 tests 1.0000; least 0.5000"),
    (
        "difference.3.adults.c_soft_probability.comprehensiveness_del",
        "+0.3333",
        "p 0.5000, of 6 tests 1.0000; least 0.5000",
    ),
    (
        "without_lr.1.adults",
        "erasure 0.4667 to 0.7333; CE 1.0000",
        "erasure 0.4000 to 0.6000; CE 1.0000; least p 0.0083",
    ),
    (
        "without_lr.1.movie_reviews",
        "erasure 0.6000 to 0.7333; CE 0.8667",
        "erasure 0.4000 to 0.6000; CE 0.8000; least p 0.0417",
    ),
    ("without_lr.3.adults", "erasure 0.6667; CE 1.0000", "erasure 1.0000; CE 1.0000; least p 0.1667"),
    ("margin.1.adults.dfr_del", "0.3812 and 0.3807", "0.0 s.e. apart, N = 1568; 2 such of 5"),
    ("margin.1.adults.validity_label", "0.0689 and 0.0682", "0.1 s.e. apart, N = 1568; 2 such of 5"),
    ("margin.1.movie_reviews.dfr_del", "0.0838 and 0.0765", "0.6 s.e. apart, N = 1043; 3 such of 5"),
    ("margin.1.movie_reviews.validity_gradient", "0.8944 and 0.8920", "0.2 s.e. apart, N = 1043; 4 such of 5"),
    ("margin.1.movie_reviews.recall_signed", "0.0946 and 0.0790", "1.3 s.e. apart, N = 1043; 1 such of 5"),
    ("margin.3.adults.dfr_del", "0.5332 and 0.5198", "0.8 s.e. apart, N = 1568; 1 such of 3"),
    ("digits.1.movie_reviews.validity_gradient.lr", "0.1099", "10.99 = Validity_soft / Proximity"),
    ("repeat.1.movie_reviews.proximity_gradient", "6 values", "those of Proximity above"),
    ("digits.coefficients", "0.8285, 0.8666, 0.9428 cut off", "0.4667, 0.6667 rounded"),
    ("zero.2.adults.comprehensiveness_mask", "0", "not computed"),
    ("zero.2.adults.sufficiency_mask", "0", "not computed"),
    ("zero.2.movie_reviews.c_label", "0", "not computed"),
    ("zero.2.adults.c_gradient", "0", "not computed"),
    ("variant.2.adults.c_soft", "C_soft (cont.)", "c_soft by the search with probability access"),
    ("variant.3.adults.c_soft", "C_soft (cont.)", "c_soft by the search with probability access"),
    ("alike.1.adults.c_label", "C (disc.) as a score of its own", "ranks as Validity alone"),
    ("alike.1.movie_reviews.c_gradient", "C (cont.) as a score of its own", "ranks as Proximity alone"),
    (
        "alike.1.movie_reviews.c_soft_gradient",
        "C_soft (cont.) as a score of its own",
        "ranks as Validity_soft and as Proximity alone",
    ),
    ("optimum.1.adults.dfr_del.decision_boundary", "0.3812", "LR 0.3807 is the optimum"),
    ("optimum.3.adults.comprehensiveness_del.anchor", "0.2876", "LR 0.2648 is the optimum"),
    ("optimum.3.adults.sufficiency_del.anchor", "-0.0141", "LR 0.0066 is the optimum"),
    ("optimum.3.adults.dfr_del.anchor", "0.5332", "LR 0.5198 is the optimum"),
    ("instances.adults.1568", "0.0436, 0.3812, 0.3173", "no count out of 1568, as 18 others are"),
    ("omission.1.adults.recall_signed", "0.1033", "1 if deleting sets to zero; Random 0.0746"),
    ("omission.1.movie_reviews.recall_signed", "0.0492", "1 if deleting sets to zero; Random 0.0790"),
    ("confidence.movie_reviews", "71.20 %", "mean confidence at least 85.2%: Validity_soft of LR"),
    ("method.citation", "Jacovi and Goldberg (2020)", "Hase and Bansal (2020)"),
]

# SPEC: where the paper was known to contradict itself before the audit was written
KNOWN = [
    "sum.movie_reviews",
    "rank.1.movie_reviews.sufficiency_del",
    "rank.1.movie_reviews.sufficiency_mask",
    "values.2.movie_reviews.sufficiency_del.tau",
    "values.2.movie_reviews.sufficiency_del.rho",
    "best.2.movie_reviews.tau",
    "best.2.movie_reviews.rho",
    "implied.1.movie_reviews.validity_gradient.lr",
    "reciprocal.1.movie_reviews.c_soft_gradient",
    "quotient.1.movie_reviews.c_soft_gradient.random",
    "repeat.1.movie_reviews.sufficiency_mask",
    "typo.2.adults.c_label.tau",
    "variant.2.adults.c_soft",
    "random.3.adults.recall_signed",
]


@pytest.fixture(scope="module")
def done():
    return of_the_paper()


def test_findings_are_these_and_no_others_and_the_known_ones_are_among_them(done):
    assert [(one.id, one.printed, one.recomputed) for one in done.findings] == FINDINGS
    for found in done.findings:
        assert found.kind in KINDS and found.meaning.endswith(".") and "nan" not in found.recomputed, found.id
    assert set(KNOWN) <= {one.id for one in done.findings}
    assert done.passed > 600


def test_coefficients_with_scipy(done):
    """Another way to the same figures: ρ and τ of the values of sufficiency on Movie Reviews."""
    frame = load()
    mine = frame[(frame["table"] == "1") & (frame["dataset"] == "movie_reviews")]
    truth = mine[mine["metric"] == "recall"]["value"].to_numpy()
    rows = mine[(mine["metric"] == "sufficiency") & (mine["variant"] == "del")]
    told = {one.id: one.recomputed for one in done.findings}
    for sign, values, name in ((-1, rows["value"], "values"), (-1, rows["printed_rank"], "ranks")):
        tau, rho = stats.kendalltau(sign * values, truth)[0], stats.spearmanr(sign * values, truth)[0]
        assert told[f"{name}.2.movie_reviews.sufficiency_del.tau"] == f"{tau:.4f}"
        assert told[f"{name}.2.movie_reviews.sufficiency_del.rho"] == f"{rho:.4f}"


def test_exchanges_by_hand():
    """Three explainers, of which two are exchanged: with each other or not at all, and one of the two is as good."""
    truth = {"a": 1.0, "b": 2.0, "c": 3.0}
    gap, p, floor = exchanged(truth, {"a": 2.0, "b": 1.0, "c": 3.0}, truth)
    assert gap == pytest.approx(2 / 3) and p == 1 / 2 and floor == 1 / 2
    assert exchanged(truth, truth, truth)[0] == 0


def test_the_command_prints_fits_and_writes(tmp_path, done):
    told = cfeval(
        "paper", "audit", "--full", "--csv", str(tmp_path / "a=b.csv"), "--md", str(tmp_path / "a.md"), cwd=tmp_path
    )
    lines = told.stdout.splitlines()
    assert lines[0] == f"Verdict: {done.summary}." and f" {len(FINDINGS)} findings (3 typo, " in lines[0]
    assert max(map(len, lines[1:])) <= 160
    assert sum(line.startswith("┏") for line in lines) == len(KINDS)  # no table is broken into two
    written = pd.read_csv(tmp_path / "a=b.csv", dtype=str, keep_default_na=False)
    assert list(zip(written["id"], written["printed"], written["recomputed"], strict=True)) == FINDINGS
    text = (tmp_path / "a.md").read_text()
    assert text.count("| No. |") == len(KINDS) and done.summary in text
    narrow = cfeval("paper", "audit", cwd=tmp_path, env={"COLUMNS": "80"}).stdout.splitlines()
    assert max(map(len, narrow)) <= 80 and len(narrow) <= 24  # a screen
    counts = [int(line.split()[-1]) for line in narrow if re.search(r" \d+$", line) and not line.startswith("Verdict")]
    assert sum(counts) == len(FINDINGS) and len(counts) == len(KINDS)
    assert "cfeval: " not in told.stderr
    assert "ACTION" in cfeval("paper", cwd=tmp_path, code=2).stderr


# --- errors that are planted


def planted(change, **where):
    """The published figures with one cell changed, and the findings that are new."""
    frame = load()
    chosen = np.logical_and.reduce([frame[name] == value for name, value in where.items()])
    assert chosen.sum() == 1
    for name, value in change.items():
        frame.loc[chosen, name] = value
    before = {(one.id, one.printed) for one in of_the_paper().findings}
    return {one.id: one for one in audit(frame).findings if (one.id, one.printed) not in before}


def test_a_swapped_rank_is_found():
    where = {"table": "1", "dataset": "adults", "metric": "comprehensiveness", "explainer": "anchor"}
    found = planted({"printed_rank": 2.0, "rank_text": "2nd"}, **where)
    assert (one := found["rank.1.adults.comprehensiveness_del"]).printed == "Anchor 2" and one.recomputed == "Anchor 3"


def test_a_wrong_quotient_is_found():
    where = {"table": "1", "dataset": "adults", "metric": "c", "explainer": "lime"}
    found = planted({"printed": "0.2022", "meant": "0.2022", "value": 0.2022}, **where)
    one = found["quotient.1.adults.c_label.lime"]
    assert (one.kind, one.printed) == ("arithmetic", "0.2022") and one.recomputed.startswith("0.2011 (")
    assert found["implied.1.adults.validity_label.lime"].printed == "0.2844"


def test_a_wrong_tau_is_found():
    where = {"table": "2", "dataset": "adults", "metric": "dfr", "coefficient": "tau"}
    found = planted({"printed": "0.6", "meant": "0.6", "value": 0.6}, **where)
    assert found["ranks.2.adults.dfr_del.tau"].recomputed == "0.4667"
    assert found["values.2.adults.dfr_del.tau"].recomputed == "0.4667"


def test_a_wrong_mark_is_found():
    where = {"table": "3", "metric": "dfr", "explainer": "lr"}
    assert planted({"bold": True}, **where)["bold.3.adults.dfr_del.lr"].recomputed == "not bold"
    where = {"table": "2", "dataset": "adults", "metric": "c", "coefficient": "rho", "variant": "label"}
    assert planted({"bold": False}, **where)["bold.2.adults.rho"].recomputed == "C (disc.), C_soft (cont.)"


def test_a_wrong_sum_is_found():
    where = {"table": "text", "dataset": "adults", "metric": "rows", "variant": "positive"}
    assert planted({"printed": "7840", "meant": "7840"}, **where)["sum.adults"].recomputed == "15,681 = 7840 + 7841"


# --- tables in which all is as it should be

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
    """Rows of the same form as the published ones, with all that follows computed here."""

    def __init__(self):
        self.rows = []
        self.truths = {}
        self.line = 0

    def add(self, **row):
        columns = (
            "table",
            "dataset",
            "row",
            "column",
            "metric",
            "variant",
            "better",
            "coefficient",
            "explainer",
            "rank_text",
        )
        full = dict.fromkeys(columns, "") | {"bold": False, "note": "", "k": math.nan, "printed_rank": math.nan} | row
        full |= {"printed_variant": full["variant"], "meant": full["printed"], "line": self.line}
        self.rows.append(full)

    def series(self, table, dataset, pair, values, better="higher", digits=4, names=SIX):
        """A row of values; its ranks are those of the printed digits. Returns the ranks."""
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

    def text(self, dataset, metric, variant, printed, value=None, **more):
        self.add(table="text", dataset=dataset, metric=metric, variant=variant, printed=printed, value=value, **more)
        if value is not None:
            self.rows[-1]["meant"] = value

    def correlations(self, table, dataset, ranks):
        truth = self.truths["3" if table == "3" else "1", dataset]
        for kind, of in (("tau", stats.kendalltau), ("rho", stats.spearmanr)):
            values = {pair: round(float(of(mine, truth)[0]), 4) + 0.0 for pair, mine in ranks.items()}
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
        frame["value"] = pd.to_numeric(frame["meant"])
        return frame


@st.composite
def sheets(draw):
    """Two datasets, all three tables and the text, with nothing wrong in them."""
    sheet = Sheet()
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def some(low, high, size=6):
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
        truth = some(size // 6, size) / size
        truth[0], truth[5] = round(size / 12) / size, 1
        # the truth comes first here, so that the marks of the others can be set
        sheet.series("1", dataset, ("recall", "signed"), truth)
        ranks = {}
        for variant in ("del",) if dataset == "adults" else ("del", "mask"):
            for metric, better in (("comprehensiveness", "higher"), ("sufficiency", "lower")):
                ranks[metric, variant] = sheet.series("1", dataset, (metric, variant), some(1, 5000) / 1e4, better)
        ranks["dfr", "del"] = sheet.series("1", dataset, ("dfr", "del"), some(1, size) / size)
        shared = some(500, 5000) / 1e4
        for metric in ("validity", "validity_soft"):
            access = "gradient" if dataset == "movie_reviews" else {"validity": "label"}.get(metric, "probability")
            above = some(1, size) / size if metric == "validity" else some(1, 5000) / 1e4
            below = {"label": np.full(6, 1.414), "gradient": shared}.get(access, some(10000, 50000) / 1e4)
            sheet.series("1", dataset, (metric, access), above)
            sheet.series("1", dataset, ("proximity", access), below, "", 3 if access == "label" else 4)
            pair = (metric.replace("validity", "c"), access)
            ranks[pair] = sheet.series("1", dataset, pair, above / below)
        sheet.correlations("2", dataset, ranks)
        if dataset == "adults":
            second = np.array([round(size / 3) / (2 * size), *(truth[[2, 3]] / 2 + some(1, 4000, 2) / 1e4), 1])
            sheet.series("3", dataset, ("recall", "signed"), second, names=FOUR)
            judged = {("sufficiency", "del"): "lower", ("dfr", "del"): "higher", ("c_soft", "probability"): "higher"}
            ranks = {
                pair: sheet.series("3", dataset, pair, some(1, size, 4) / size, better, names=FOUR)
                for pair, better in judged.items()
            }
            sheet.correlations("3", dataset, ranks)
    return sheet


HEALTH = [HealthCheck.filter_too_much, HealthCheck.too_slow]


@settings(suppress_health_check=HEALTH)
@given(sheets())
def test_a_consistent_paper_has_no_contradictions_and_no_wrong_sums(sheet):
    done = audit(sheet.frame())
    assert [one for one in done.findings if one.kind in ("typo", "contradiction", "arithmetic")] == []
    assert done.passed > 200


@settings(suppress_health_check=HEALTH)
@given(sheets(), st.data())
def test_any_two_ranks_of_any_row_that_are_exchanged_are_found(sheet, data):
    frame = sheet.frame()
    ranked = frame[frame["rank_text"] != ""]
    line = data.draw(st.sampled_from(sorted(set(ranked["line"]))))
    first, second = data.draw(st.sampled_from(list(permutations(ranked[ranked["line"] == line].index, 2))))
    for name in ("printed_rank", "rank_text"):
        frame.loc[[first, second], name] = frame.loc[[second, first], name].to_numpy()
    where = frame.loc[first]
    name = f"rank.{where['table']}.{where['dataset']}.{where['metric']}_{where['variant']}"
    assert name in [one.id for one in audit(frame).findings]
