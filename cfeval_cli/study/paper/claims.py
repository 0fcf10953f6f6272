"""The paper's claims on rankings and correlations: their tests on one view, and the verdicts over all seeds.

Runs that differ in the seed only are independent draws of split, training, explainers and search on the same data. The
share of seeds in which a claim is true is thus a proportion with an exact interval. It holds for other seeds on these
data only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import isnan, nan
from statistics import fmean
from typing import Literal

import numpy as np
from scipy.stats import binom, binomtest

from cfeval_cli.report.published import TRUTH, Key, Pair, Published
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL, adjust_holm
from cfeval_cli.statistics.proportion import compute_proportion_interval
from cfeval_cli.study.paper.views import ComputedView, View, view_published

ADULTS: Key = ("1", "adults")
MOVIE_REVIEWS: Key = ("1", "movie_reviews")
TWO_FEATURES: Key = ("3", "adults")

_C_LABEL: Pair = ("c", "label")
_C_GRADIENT: Pair = ("c", "gradient")
_C_SOFT: dict[Key, Pair] = {
    ADULTS: ("c_soft", "probability"), MOVIE_REVIEWS: ("c_soft", "gradient"), TWO_FEATURES: ("c_soft", "probability"),
}  # fmt: skip
_COMPREHENSIVENESS: Pair = ("comprehensiveness", "del")
_SUFFICIENCY: Pair = ("sufficiency", "del")
_DFR: Pair = ("dfr", "del")
_ERASURE: dict[Key, tuple[Pair, ...]] = {
    ADULTS: (_COMPREHENSIVENESS, _SUFFICIENCY, _DFR),
    MOVIE_REVIEWS: (_COMPREHENSIVENESS, _SUFFICIENCY, ("comprehensiveness", "mask"), ("sufficiency", "mask"), _DFR),
    TWO_FEATURES: (_COMPREHENSIVENESS, _SUFFICIENCY, _DFR),
}

Scope = Literal["always", "mostly", "sometimes"]  # in how many seeds the claim must be true
Evaluation = tuple[bool, dict[str, float]] | None  # whether the claim is true, and its figures; None without figures
ClaimTest = Callable[[View], Evaluation]
_TIE = 1e-9
_MAX_SEEDS = 100_000  # the largest number of seeds that is proposed

Outcome = Literal["holds", "refuted", "does not hold", "open", "not computed"]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that figures can decide."""

    id: str
    text: str
    evaluate: ClaimTest
    scope: Scope = "mostly"


def _test_exact_ranking(key: Key, pair: Pair) -> ClaimTest:
    """Test whether a metric ranks the explainers exactly as the ground truth does."""

    def evaluate(view: View) -> Evaluation:
        tau = view.get_coefficient(key, pair, "tau")
        return None if isnan(tau) else (tau > 1 - _TIE, {"τ": tau})

    return evaluate


def _test_higher_agreement(key: Key, pair: Pair, baselines: Sequence[Pair]) -> ClaimTest:
    """Test whether τ and ρ of a metric are higher than those of all baselines."""

    def evaluate(view: View) -> Evaluation:
        figures = {}
        for kind, symbol in (("tau", "τ"), ("rho", "ρ")):
            values = [view.get_coefficient(key, baseline, kind) for baseline in baselines]
            figures[symbol] = view.get_coefficient(key, pair, kind)
            figures[f"{symbol} of the best other"] = max([value for value in values if not isnan(value)], default=nan)
        if any(isnan(value) for value in figures.values()):
            return None
        return all(figures[name] > figures[f"{name} of the best other"] + _TIE for name in ("τ", "ρ")), figures

    return evaluate


def _test_all(*tests: ClaimTest) -> ClaimTest:
    """Test whether several claims are true together."""

    def evaluate(view: View) -> Evaluation:
        evaluations = [evaluation for test in tests if (evaluation := test(view)) is not None]
        if len(evaluations) < len(tests):
            return None
        figures = {
            f"{name} ({number})": value
            for number, (_, part) in enumerate(evaluations, 1)
            for name, value in part.items()
        }
        return all(is_true for is_true, _ in evaluations), figures

    return evaluate


def _test_no_true_rank(view: View) -> Evaluation:
    """Test whether DFR gives no explainer of Adults its true rank."""
    ranking, truth = view.rank_explainers(ADULTS, _DFR), view.rank_explainers(ADULTS, TRUTH)
    if not ranking or set(ranking) != set(truth):  # an explainer has no value
        return None
    n_right = sum(ranking[name] == truth[name] for name in ranking)
    return n_right == 0, {"ranks right": float(n_right), "τ": view.get_coefficient(ADULTS, _DFR, "tau")}


def _test_strongest_erasure_metric(key: Key) -> ClaimTest:
    """Test whether no erasure metric has a higher τ than comprehensiveness."""

    def evaluate(view: View) -> Evaluation:
        taus = {pair: view.get_coefficient(key, pair, "tau") for pair in _ERASURE[key]}
        tau = taus[_COMPREHENSIVENESS]
        if isnan(tau):
            return None
        best = max(value for value in taus.values() if not isnan(value))
        return tau >= best - _TIE, {"τ of Comp. (del.)": tau, "largest τ": best}

    return evaluate


def _test_same_ranking(key: Key, first: Pair, second: Pair, *, is_same: bool = True) -> ClaimTest:
    """Test whether two metrics rank the explainers alike, or whether they do not."""

    def evaluate(view: View) -> Evaluation:
        first_ranks, second_ranks = (view.rank_explainers(key, pair) for pair in (first, second))
        if not first_ranks or set(first_ranks) != set(second_ranks):
            return None
        n_different = sum(first_ranks[name] != second_ranks[name] for name in first_ranks)
        return (n_different == 0) == is_same, {"ranks that differ": float(n_different)}

    return evaluate


def _test_refinement(view: View) -> Evaluation:
    """Test whether C_soft has a higher τ than its numerator."""
    before = view.get_coefficient(ADULTS, ("validity_soft", "probability"), "tau")
    after = view.get_coefficient(ADULTS, _C_SOFT[ADULTS], "tau")
    if isnan(before) or isnan(after):
        return None
    return after > before + _TIE, {"τ of validity_soft": before, "τ of C_soft": after}


def _test_sparsity(key: Key, explainers: Sequence[str]) -> ClaimTest:
    """Test whether explainers select a second feature for under half of the instances."""

    def evaluate(view: View) -> Evaluation:
        shares = {f"share of {name}": view.get_share_of_several(key, name) for name in explainers}
        if any(isnan(share) for share in shares.values()):
            return None
        return all(share < 0.5 for share in shares.values()), shares

    return evaluate


CLAIMS = (
    Claim("c_exact", "C (disc.) ranks the explainers of Adults exactly as the truth does.",
          _test_exact_ranking(ADULTS, _C_LABEL), "always"),
    Claim("c_soft_exact", "C_soft (disc.) ranks the explainers of Adults exactly as the truth does.",
          _test_exact_ranking(ADULTS, _C_SOFT[ADULTS]), "always"),
    Claim("c_over_dfr", "With labels alone, C (disc.) agrees with the truth better than DFR does (Adults).",
          _test_higher_agreement(ADULTS, _C_LABEL, [_DFR])),
    Claim("dfr_all_wrong", "DFR gives no explainer of Adults its true rank.", _test_no_true_rank, "always"),
    Claim("comp_strongest", "Comp. (del.) is the strongest erasure metric on both datasets.",
          _test_all(_test_strongest_erasure_metric(ADULTS), _test_strongest_erasure_metric(MOVIE_REVIEWS))),
    Claim("c_soft_best_adults", "C_soft beats every erasure metric on Adults.",
          _test_higher_agreement(ADULTS, _C_SOFT[ADULTS], _ERASURE[ADULTS])),
    Claim("c_soft_best_movies", "C_soft beats every erasure metric on Movie Reviews.",
          _test_higher_agreement(MOVIE_REVIEWS, _C_SOFT[MOVIE_REVIEWS], _ERASURE[MOVIE_REVIEWS])),
    Claim("c_soft_best", "C_soft beats every erasure metric on both datasets.",
          _test_all(*(_test_higher_agreement(key, _C_SOFT[key], _ERASURE[key]) for key in (ADULTS, MOVIE_REVIEWS)))),
    Claim("c_moved_best", "C (cont.) beats every erasure metric on Movie Reviews.",
          _test_higher_agreement(MOVIE_REVIEWS, _C_GRADIENT, _ERASURE[MOVIE_REVIEWS])),
    Claim("proximity_refines", "Proximity refines validity_soft on Adults: C_soft agrees better.", _test_refinement),
    Claim("ce_consistent", "C and C_soft rank the explainers of Movie Reviews alike.",
          _test_same_ranking(MOVIE_REVIEWS, _C_GRADIENT, _C_SOFT[MOVIE_REVIEWS]), "always"),
    Claim("erasure_inconsistent", "Comp. and Suff. do not always rank the explainers of Movie Reviews alike.",
          _test_same_ranking(MOVIE_REVIEWS, _COMPREHENSIVENESS, _SUFFICIENCY, is_same=False), "sometimes"),
    Claim("two_exact", "With two features (Table 3), C_soft ranks the explainers exactly as the truth does.",
          _test_exact_ranking(TWO_FEATURES, _C_SOFT[TWO_FEATURES]), "always"),
    Claim("two_best", "With two features, C_soft beats every erasure metric.",
          _test_higher_agreement(TWO_FEATURES, _C_SOFT[TWO_FEATURES], _ERASURE[TWO_FEATURES])),
    Claim("sparse_anchor", "Anchor selects a second word for under half of the Movie Reviews.",
          _test_sparsity(MOVIE_REVIEWS, ["anchor"]), "always"),
    Claim("sparse_others", "Omission and Decision Boundary select a second feature for under half of Adults.",
          _test_sparsity(ADULTS, ["omission", "decision_boundary"]), "always"),
)  # fmt: skip


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim under one truth."""

    claim: Claim
    truth: str
    printed: bool | None  # by the paper's own figures
    seeds: int
    holds_in: int
    figures: dict[str, float]  # means over seeds
    tests: int = 1  # the number of claims that were tested together
    p_holm: float = nan  # adjusted for these tests

    @property
    def p(self) -> float:
        """Compute p of the two-sided sign test."""
        return float(binomtest(self.holds_in, self.seeds, 0.5).pvalue) if self.seeds else nan

    @property
    def interval(self) -> tuple[float, float]:
        """Compute the Clopper-Pearson interval for the share of all seeds in which the claim is true."""
        return compute_proportion_interval(self.holds_in, self.seeds, 1 - SIGNIFICANCE_LEVEL)

    @property
    def outcome(self) -> Outcome:
        """Return the verdict: one seed decides on `always` and `sometimes`, the adjusted sign test on `mostly`."""
        if not self.seeds:
            return "not computed"
        if self.claim.scope == "always" and self.holds_in < self.seeds:
            return "refuted"
        if self.claim.scope == "sometimes":
            return "holds" if self.holds_in else "does not hold"
        is_significant = self.p_holm <= SIGNIFICANCE_LEVEL
        if 2 * self.holds_in < self.seeds:
            return "refuted" if is_significant else "does not hold"
        return "holds" if is_significant else "open"

    @property
    def n_required_seeds(self) -> int | None:
        """Return the number of seeds that an open claim needs at the same share; None if no number suffices."""
        return count_required_seeds(self.holds_in, self.seeds, self.tests) if self.outcome == "open" else None


@cache
def count_required_seeds(n_true: int, n_seeds: int, tests: int) -> int | None:
    """Return the fewest seeds at which this share passes the sign test, adjusted for a number of tests."""
    if 2 * n_true <= n_seeds:
        return None
    sizes = np.arange(1, _MAX_SEEDS + 1)
    p = 2 * binom.sf(sizes * n_true // n_seeds - 1, sizes, 0.5)
    enough = np.flatnonzero(p * tests <= SIGNIFICANCE_LEVEL)
    return int(sizes[enough[0]]) if len(enough) else None


def evaluate_claims(published: Published, views: Sequence[ComputedView]) -> list[ClaimVerdict]:
    """Evaluate all claims under all truths, as one family of tests."""
    return adjust_p_values(list(_evaluate_over_seeds(published, views)))


def adjust_p_values(verdicts: Sequence[ClaimVerdict]) -> list[ClaimVerdict]:
    """Adjust p by Holm over all verdicts that have seeds."""
    p = [verdict.p for verdict in verdicts if verdict.seeds]
    adjusted = iter(adjust_holm(np.array(p)).tolist())
    return [replace(verdict, tests=len(p), p_holm=next(adjusted)) if verdict.seeds else verdict for verdict in verdicts]


def _evaluate_over_seeds(published: Published, views: Sequence[ComputedView]) -> Iterator[ClaimVerdict]:
    paper = view_published(published)
    for claim in CLAIMS:
        by_paper = claim.evaluate(paper)
        for truth in list_truths(views):
            in_truth = [view for view in views if view.truth == truth]
            evaluations = [evaluation for view in in_truth if (evaluation := claim.evaluate(view)) is not None]
            names = evaluations[0][1] if evaluations else {}
            yield ClaimVerdict(
                claim=claim,
                truth=truth,
                printed=None if by_paper is None else by_paper[0],
                seeds=len(evaluations),
                holds_in=sum(is_true for is_true, _ in evaluations),
                figures={name: fmean(figures[name] for _, figures in evaluations) for name in names},
            )


def list_truths(views: Sequence[ComputedView]) -> list[str]:
    """List the truths, the paper's first."""
    return sorted({view.truth for view in views}, key=lambda truth: (truth != "signed", truth))
