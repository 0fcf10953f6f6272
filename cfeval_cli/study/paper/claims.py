"""The paper's claims on rankings and correlations, as questions to a view of its experiments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import Literal

from cfeval_cli.study.paper.published import TRUTH, Key, Pair
from cfeval_cli.study.paper.views import View

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

Scope = Literal["always", "mostly", "sometimes"]  # in how many seeds the claim has to be true
Answer = tuple[bool, dict[str, float]] | None  # whether it is true, and its figures; None without figures
ClaimTest = Callable[[View], Answer]


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that figures can decide."""

    id: str
    text: str
    ask: ClaimTest
    scope: Scope = "mostly"


def _ranks_exactly(key: Key, pair: Pair) -> ClaimTest:
    """Ask whether a metric ranks the explainers as the ground truth does."""

    def ask(view: View) -> Answer:
        tau = view.coefficient(key, pair, "tau")
        return None if isnan(tau) else (tau > 1 - 1e-9, {"τ": tau})

    return ask


def _exceeds(key: Key, pair: Pair, others: Sequence[Pair]) -> ClaimTest:
    """Ask whether τ and ρ of a metric are larger than those of all others."""

    def ask(view: View) -> Answer:
        figures = {}
        for kind, sign in (("tau", "τ"), ("rho", "ρ")):
            values = [view.coefficient(key, other, kind) for other in others]
            figures[sign] = view.coefficient(key, pair, kind)
            figures[f"{sign} of the best other"] = max([value for value in values if not isnan(value)], default=nan)
        if any(isnan(value) for value in figures.values()):
            return None
        return all(figures[sign] > figures[f"{sign} of the best other"] + 1e-9 for sign in ("τ", "ρ")), figures

    return ask


def _all_of(*questions: ClaimTest) -> ClaimTest:
    """Ask whether several answers are all yes."""

    def ask(view: View) -> Answer:
        answers = [answer for question in questions if (answer := question(view)) is not None]
        if len(answers) < len(questions):
            return None
        figures = {f"{name} ({i})": value for i, (_, some) in enumerate(answers, 1) for name, value in some.items()}
        return all(is_true for is_true, _ in answers), figures

    return ask


def _has_no_true_rank(view: View) -> Answer:
    ranking, truth = view.ranked(ADULTS, _DFR), view.ranked(ADULTS, TRUTH)
    if not ranking or set(ranking) != set(truth):  # an explainer has no value
        return None
    right = sum(ranking[name] == truth[name] for name in ranking)
    return right == 0, {"ranks right": float(right), "τ": view.coefficient(ADULTS, _DFR, "tau")}


def _is_strongest(key: Key) -> ClaimTest:
    def ask(view: View) -> Answer:
        taus = {pair: view.coefficient(key, pair, "tau") for pair in _ERASURE[key]}
        tau = taus[_COMPREHENSIVENESS]
        if isnan(tau):
            return None
        best = max(value for value in taus.values() if not isnan(value))
        return tau >= best - 1e-9, {"τ of Comp. (del.)": tau, "largest τ": best}

    return ask


def _ranks_alike(key: Key, first: Pair, second: Pair, wanted: bool = True) -> ClaimTest:
    def ask(view: View) -> Answer:
        one, other = (view.ranked(key, pair) for pair in (first, second))
        if not one or set(one) != set(other):
            return None
        return (one == other) == wanted, {"ranks that differ": float(sum(one[name] != other[name] for name in one))}

    return ask


def _is_refined(view: View) -> Answer:
    before = view.coefficient(ADULTS, ("validity_soft", "probability"), "tau")
    after = view.coefficient(ADULTS, _C_SOFT[ADULTS], "tau")
    if isnan(before) or isnan(after):
        return None
    return after > before + 1e-9, {"τ of validity_soft": before, "τ of C_soft": after}


def _is_sparse(key: Key, explainers: Sequence[str]) -> ClaimTest:
    """Ask whether explainers select a second feature for under half of the instances."""

    def ask(view: View) -> Answer:
        shares = {name: view.several(key, name) for name in explainers}
        if any(isnan(share) for share in shares.values()):
            return None
        return all(share < 0.5 for share in shares.values()), {f"share of {name}": s for name, s in shares.items()}

    return ask


CLAIMS = (
    Claim("c_exact", "C (disc.) ranks the explainers of Adults exactly as the truth does.",
          _ranks_exactly(ADULTS, _C_LABEL), "always"),
    Claim("c_soft_exact", "C_soft (disc.) ranks the explainers of Adults exactly as the truth does.",
          _ranks_exactly(ADULTS, _C_SOFT[ADULTS]), "always"),
    Claim("c_over_dfr", "With labels alone, C (disc.) agrees with the truth better than DFR does (Adults).",
          _exceeds(ADULTS, _C_LABEL, [_DFR])),
    Claim("dfr_all_wrong", "DFR gives no explainer of Adults its true rank.", _has_no_true_rank, "always"),
    Claim("comp_strongest", "Comp. (del.) is the strongest erasure metric on both datasets.",
          _all_of(_is_strongest(ADULTS), _is_strongest(MOVIE_REVIEWS))),
    Claim("c_soft_best_adults", "C_soft beats every erasure metric on Adults.",
          _exceeds(ADULTS, _C_SOFT[ADULTS], _ERASURE[ADULTS])),
    Claim("c_soft_best_movies", "C_soft beats every erasure metric on Movie Reviews.",
          _exceeds(MOVIE_REVIEWS, _C_SOFT[MOVIE_REVIEWS], _ERASURE[MOVIE_REVIEWS])),
    Claim("c_soft_best", "C_soft beats every erasure metric on both datasets.",
          _all_of(*(_exceeds(key, _C_SOFT[key], _ERASURE[key]) for key in (ADULTS, MOVIE_REVIEWS)))),
    Claim("c_moved_best", "C (cont.) beats every erasure metric on Movie Reviews.",
          _exceeds(MOVIE_REVIEWS, _C_GRADIENT, _ERASURE[MOVIE_REVIEWS])),
    Claim("proximity_refines", "Proximity refines validity_soft on Adults: C_soft agrees better.", _is_refined),
    Claim("ce_consistent", "C and C_soft rank the explainers of Movie Reviews alike.",
          _ranks_alike(MOVIE_REVIEWS, _C_GRADIENT, _C_SOFT[MOVIE_REVIEWS]), "always"),
    Claim("erasure_inconsistent", "Comp. and Suff. do not always rank the explainers of Movie Reviews alike.",
          _ranks_alike(MOVIE_REVIEWS, _COMPREHENSIVENESS, _SUFFICIENCY, wanted=False), "sometimes"),
    Claim("two_exact", "With two features (Table 3), C_soft ranks the explainers exactly as the truth does.",
          _ranks_exactly(TWO_FEATURES, _C_SOFT[TWO_FEATURES]), "always"),
    Claim("two_best", "With two features, C_soft beats every erasure metric.",
          _exceeds(TWO_FEATURES, _C_SOFT[TWO_FEATURES], _ERASURE[TWO_FEATURES])),
    Claim("sparse_anchor", "Anchor selects a second word for under half of the Movie Reviews.",
          _is_sparse(MOVIE_REVIEWS, ["anchor"]), "always"),
    Claim("sparse_others", "Omission and Decision Boundary select a second feature for under half of Adults.",
          _is_sparse(ADULTS, ["omission", "decision_boundary"]), "always"),
)  # fmt: skip
