"""What the paper claims, judged by runs: over all seeds, under each definition of gold.

Runs that differ in the seed only are independent draws of what a seed decides (split, training, explainers, search) on
the same data, so that the share of seeds in which a claim is true is a proportion that has an exact interval. It speaks
of seeds on these data and of nothing else.
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

from cfeval_cli.statistics.difference import holm
from cfeval_cli.statistics.proportion import compute_proportion_interval
from cfeval_cli.study.paper.published import TRUTH, Key, Pair, Published
from cfeval_cli.study.paper.views import Computed, Printed, View

ADULTS: Key = ("1", "adults")
MOVIES: Key = ("1", "movie_reviews")
TWO: Key = ("3", "adults")
LEVEL = 0.05
_MOST = 100_000  # seeds, beyond which nobody goes

_C_LABEL: Pair = ("c", "label")
_C_MOVED: Pair = ("c", "gradient")
_C_SOFT: dict[Key, Pair] = {
    ADULTS: ("c_soft", "probability"), MOVIES: ("c_soft", "gradient"), TWO: ("c_soft", "probability"),
}  # fmt: skip
_COMP: Pair = ("comprehensiveness", "del")
_SUFF: Pair = ("sufficiency", "del")
_DFR: Pair = ("dfr", "del")
_ERASURE: dict[Key, tuple[Pair, ...]] = {
    ADULTS: (_COMP, _SUFF, _DFR),
    MOVIES: (_COMP, _SUFF, ("comprehensiveness", "mask"), ("sufficiency", "mask"), _DFR),
    TWO: (_COMP, _SUFF, _DFR),
}

# what a claim says of seeds: that it is true in all of them, in most, or in some
Scope = Literal["always", "mostly", "sometimes"]
Word = Literal["holds", "refuted", "does not hold", "open", "not computed"]

Answer = tuple[bool, dict[str, float]] | None  # does it hold, and by which figures; None: they are not there


@dataclass(frozen=True)
class Claim:
    """A statement of the paper that figures can decide."""

    id: str
    text: str
    ask: Callable[[View], Answer]
    scope: Scope = "mostly"


def _tau(view: View, key: Key, pair: Pair) -> float:
    return view.coefficient(key, pair, "tau")


def _exact(key: Key, pair: Pair) -> Callable[[View], Answer]:
    """The metric ranks the explainers as the truth does."""

    def ask(view: View) -> Answer:
        tau = _tau(view, key, pair)
        return None if isnan(tau) else (tau > 1 - 1e-9, {"τ": tau})

    return ask


def _beats(key: Key, pair: Pair, others: Sequence[Pair]) -> Callable[[View], Answer]:
    """The metric's τ and ρ are larger than those of every other."""

    def ask(view: View) -> Answer:
        told = {}
        for name, sign in (("tau", "τ"), ("rho", "ρ")):
            rest = [view.coefficient(key, other, name) for other in others]
            told[sign] = view.coefficient(key, pair, name)
            told[f"{sign} of the best other"] = max([one for one in rest if not isnan(one)], default=float("nan"))
        if any(isnan(value) for value in told.values()):
            return None
        wins = all(told[sign] > told[f"{sign} of the best other"] + 1e-9 for sign in ("τ", "ρ"))
        return wins, told

    return ask


def _both(*asks: Callable[[View], Answer]) -> Callable[[View], Answer]:
    """All of several statements."""

    def ask(view: View) -> Answer:
        answers = [one(view) for one in asks]
        if None in answers:
            return None
        known = [answer for answer in answers if answer is not None]
        told = {f"{name} ({i})": value for i, (_, figures) in enumerate(known, 1) for name, value in figures.items()}
        return all(holds for holds, _ in known), told

    return ask


def _no_rank_right(view: View) -> Answer:
    ours, truth = view.ranked(ADULTS, _DFR), view.ranked(ADULTS, TRUTH)
    if not ours or set(ours) != set(truth):  # some explainer has no value
        return None
    right = sum(ours[name] == truth[name] for name in ours)
    return right == 0, {"ranks right": float(right), "τ": _tau(view, ADULTS, _DFR)}


def _strongest(key: Key) -> Callable[[View], Answer]:
    def ask(view: View) -> Answer:
        taus = {pair: _tau(view, key, pair) for pair in _ERASURE[key]}
        if isnan(taus[_COMP]):
            return None
        best = max(tau for tau in taus.values() if not isnan(tau))
        return taus[_COMP] >= best - 1e-9, {"τ of Comp. (del.)": taus[_COMP], "largest τ": best}

    return ask


def _alike(key: Key, one: Pair, two: Pair) -> Callable[[View], Answer]:
    def ask(view: View) -> Answer:
        ranks = [view.ranked(key, pair) for pair in (one, two)]
        if not all(ranks) or set(ranks[0]) != set(ranks[1]):
            return None
        return ranks[0] == ranks[1], {"ranks that differ": float(sum(ranks[0][e] != ranks[1][e] for e in ranks[0]))}

    return ask


def _refined(view: View) -> Answer:
    before, after = _tau(view, ADULTS, ("validity_soft", "probability")), _tau(view, ADULTS, _C_SOFT[ADULTS])
    if isnan(before) or isnan(after):
        return None
    return after > before + 1e-9, {"τ of validity_soft": before, "τ of C_soft": after}


def _sparse(key: Key, explainers: Sequence[str]) -> Callable[[View], Answer]:
    def ask(view: View) -> Answer:
        shares = {name: view.several(key, name) for name in explainers}
        if any(isnan(share) for share in shares.values()):
            return None
        return all(share < 0.5 for share in shares.values()), {f"share of {name}": s for name, s in shares.items()}

    return ask


def _not(ask: Callable[[View], Answer]) -> Callable[[View], Answer]:
    def asked(view: View) -> Answer:
        answer = ask(view)
        return None if answer is None else (not answer[0], answer[1])

    return asked


CLAIMS = (
    Claim("c_exact", "C (disc.) ranks the explainers of Adults exactly as the truth does.",
          _exact(ADULTS, _C_LABEL), "always"),
    Claim("c_soft_exact", "C_soft (disc.) ranks the explainers of Adults exactly as the truth does.",
          _exact(ADULTS, _C_SOFT[ADULTS]), "always"),
    Claim("c_over_dfr", "With labels alone, C (disc.) agrees with the truth better than DFR does (Adults).",
          _beats(ADULTS, _C_LABEL, [_DFR])),
    Claim("dfr_all_wrong", "DFR gives no explainer of Adults its true rank.", _no_rank_right, "always"),
    Claim("comp_strongest", "Comp. (del.) is the strongest erasure metric on both datasets.",
          _both(_strongest(ADULTS), _strongest(MOVIES))),
    Claim("c_soft_best_adults", "C_soft beats every erasure metric on Adults.",
          _beats(ADULTS, _C_SOFT[ADULTS], _ERASURE[ADULTS])),
    Claim("c_soft_best_movies", "C_soft beats every erasure metric on Movie Reviews.",
          _beats(MOVIES, _C_SOFT[MOVIES], _ERASURE[MOVIES])),
    Claim("c_soft_best", "C_soft beats every erasure metric on both datasets.",
          _both(*(_beats(key, _C_SOFT[key], _ERASURE[key]) for key in (ADULTS, MOVIES)))),
    Claim("c_moved_best", "C (cont.) beats every erasure metric on Movie Reviews.",
          _beats(MOVIES, _C_MOVED, _ERASURE[MOVIES])),
    Claim("proximity_refines", "Proximity refines validity_soft on Adults: C_soft agrees better.", _refined),
    Claim("ce_consistent", "C and C_soft rank the explainers of Movie Reviews alike.",
          _alike(MOVIES, _C_MOVED, _C_SOFT[MOVIES]), "always"),
    Claim("erasure_inconsistent", "Comp. and Suff. do not always rank the explainers of Movie Reviews alike.",
          _not(_alike(MOVIES, _COMP, _SUFF)), "sometimes"),
    Claim("two_exact", "With two features (Table 3), C_soft ranks the explainers exactly as the truth does.",
          _exact(TWO, _C_SOFT[TWO]), "always"),
    Claim("two_best", "With two features, C_soft beats every erasure metric.",
          _beats(TWO, _C_SOFT[TWO], _ERASURE[TWO])),
    Claim("sparse_anchor", "Anchor names a second word for under half of the Movie Reviews.",
          _sparse(MOVIES, ["anchor"]), "always"),
    Claim("sparse_others", "Omission and Decision Boundary name a second feature for under half of Adults.",
          _sparse(ADULTS, ["omission", "decision_boundary"]), "always"),
)  # fmt: skip


@dataclass(frozen=True)
class Verdict:
    """A claim under one definition of gold."""

    claim: Claim
    gold: str
    printed: bool | None  # by the paper's own figures
    seeds: int
    holds_in: int
    figures: dict[str, float]  # means over seeds
    tests: int = 1  # so many claims were tested together
    corrected: float = nan  # p, corrected for that

    @property
    def p(self) -> float:
        """Of the sign test: how often a coin gives a count that is at least as far from half of the seeds."""
        return float(binomtest(self.holds_in, self.seeds, 0.5).pvalue) if self.seeds else nan

    @property
    def interval(self) -> tuple[float, float]:
        """For the share of all seeds in which the claim is true, by Clopper and Pearson."""
        return compute_proportion_interval(self.holds_in, self.seeds, 1 - LEVEL)

    @property
    def word(self) -> Word:
        """One seed decides about `always` and `sometimes`; what is said to be mostly so has to show it.

        Holds: true in more than half of the seeds, and the corrected p is small. Refuted: the same the other way round,
        or one seed against `always`. Does not hold: true in fewer than half, which is no support, but could be chance.
        Open: true in half of them or more, which could be chance.
        """
        if not self.seeds:
            return "not computed"
        if self.claim.scope == "always" and self.holds_in < self.seeds:
            return "refuted"
        if self.claim.scope == "sometimes":
            return "holds" if self.holds_in else "does not hold"
        sure = self.corrected <= LEVEL
        if 2 * self.holds_in < self.seeds:
            return "refuted" if sure else "does not hold"
        return "holds" if sure else "open"

    @property
    def needed(self) -> int | None:
        """How many seeds would make an open claim hold if it went on being true as often; None if none would."""
        return needed(self.holds_in, self.seeds, self.tests) if self.word == "open" else None


@cache
def needed(hits: int, of: int, tests: int) -> int | None:
    """The fewest seeds at which this share passes the sign test, were it the first of so many to be corrected."""
    if 2 * hits <= of:
        return None
    sizes = np.arange(1, _MOST + 1)
    p = 2 * binom.sf(sizes * hits // of - 1, sizes, 0.5)
    enough = np.flatnonzero(p * tests <= LEVEL)
    return int(sizes[enough[0]]) if len(enough) else None


def judge(published: Published, views: Sequence[Computed]) -> list[Verdict]:
    """Every claim under every definition of gold that the runs lead with, all of them one family of tests."""
    told = list(_each(published, views))
    tested = [verdict.p for verdict in told if verdict.seeds]
    after = iter(holm(np.array(tested)).tolist())
    return [replace(one, tests=len(tested), corrected=next(after)) if one.seeds else one for one in told]


def _each(published: Published, views: Sequence[Computed]) -> Iterator[Verdict]:
    paper = Printed(published)
    for claim in CLAIMS:
        own = claim.ask(paper)
        for gold in sorted({view.gold for view in views}, key=lambda gold: (gold != "signed", gold)):
            answers = [answer for view in views if view.gold == gold and (answer := claim.ask(view)) is not None]
            names = answers[0][1] if answers else {}
            yield Verdict(
                claim=claim,
                gold=gold,
                printed=None if own is None else own[0],
                seeds=len(answers),
                holds_in=sum(holds for holds, _ in answers),
                figures={name: fmean(figures[name] for _, figures in answers) for name in names},
            )
