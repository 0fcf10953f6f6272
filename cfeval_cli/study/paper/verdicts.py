"""Verdicts on the paper's claims: over all seeds, under each truth.

Runs that differ in the seed only are independent draws of split, training, explainers and search on the same data. The
share of seeds in which a claim is true is thus a proportion with an exact interval. It holds for other seeds on these
data only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from math import nan
from statistics import fmean
from typing import Literal

import numpy as np
from scipy.stats import binom, binomtest

from cfeval_cli.statistics.hypothesis_tests import adjust_holm
from cfeval_cli.statistics.proportion import compute_proportion_interval
from cfeval_cli.study.paper.claims import CLAIMS, Claim
from cfeval_cli.study.paper.published import Published
from cfeval_cli.study.paper.views import ComputedView, PrintedView

LEVEL = 0.05
_MAX_SEEDS = 100_000  # the largest number of seeds that is proposed

Outcome = Literal["holds", "refuted", "does not hold", "open", "not computed"]


@dataclass(frozen=True)
class Verdict:
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
        return compute_proportion_interval(self.holds_in, self.seeds, 1 - LEVEL)

    @property
    def outcome(self) -> Outcome:
        """Return the verdict: one seed decides on `always` and `sometimes`, the adjusted sign test on `mostly`."""
        if not self.seeds:
            return "not computed"
        if self.claim.scope == "always" and self.holds_in < self.seeds:
            return "refuted"
        if self.claim.scope == "sometimes":
            return "holds" if self.holds_in else "does not hold"
        is_significant = self.p_holm <= LEVEL
        if 2 * self.holds_in < self.seeds:
            return "refuted" if is_significant else "does not hold"
        return "holds" if is_significant else "open"

    @property
    def needed(self) -> int | None:
        """Return the number of seeds that an open claim needs at the same share; None if no number suffices."""
        return count_needed_seeds(self.holds_in, self.seeds, self.tests) if self.outcome == "open" else None


@cache
def count_needed_seeds(n_true: int, n_seeds: int, tests: int) -> int | None:
    """Return the fewest seeds at which this share passes the sign test, adjusted for a number of tests."""
    if 2 * n_true <= n_seeds:
        return None
    sizes = np.arange(1, _MAX_SEEDS + 1)
    p = 2 * binom.sf(sizes * n_true // n_seeds - 1, sizes, 0.5)
    enough = np.flatnonzero(p * tests <= LEVEL)
    return int(sizes[enough[0]]) if len(enough) else None


def judge_claims(published: Published, views: Sequence[ComputedView]) -> list[Verdict]:
    """Judge all claims under all truths, as one family of tests."""
    return adjust_p_values(list(_evaluate_claims(published, views)))


def adjust_p_values(verdicts: Sequence[Verdict]) -> list[Verdict]:
    """Adjust p by Holm over all verdicts that have seeds."""
    p = [verdict.p for verdict in verdicts if verdict.seeds]
    adjusted = iter(adjust_holm(np.array(p)).tolist())
    return [replace(verdict, tests=len(p), p_holm=next(adjusted)) if verdict.seeds else verdict for verdict in verdicts]


def _evaluate_claims(published: Published, views: Sequence[ComputedView]) -> Iterator[Verdict]:
    paper = PrintedView(published)
    for claim in CLAIMS:
        by_paper = claim.evaluate(paper)
        for truth in list_truths(views):
            in_truth = [view for view in views if view.truth == truth]
            evaluations = [evaluation for view in in_truth if (evaluation := claim.evaluate(view)) is not None]
            names = evaluations[0][1] if evaluations else {}
            yield Verdict(
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
