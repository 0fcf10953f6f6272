"""The search for an anchor: Algorithms 1 and 2 of Ribeiro, Singh and Guestrin (2018), with a beam of one rule.

A rule is a set of parts, such as "feature 3 is as in the instance". Its precision is the share of samples, drawn with
the rule held fixed, on which the model's prediction stays. The search follows the package of the authors, anchor-exp,
step by step, ties included: on the same samples it returns the same rule.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import log, sqrt

import numpy as np

from cfeval_cli.core import Bools

Sample = Callable[[list[int], int], tuple[Bools, Bools]]  # of a rule: the parts that hold (n, parts), and hits (n,)

BISECTIONS = 16
SMALLEST_SHARE, LARGEST_SHARE = 0.0000001, 0.9999999999999999  # so that no logarithm is infinite
PRECISION_MARGIN = 0.05  # how far below the threshold the lower bound of an accepted rule may be


@dataclass(frozen=True)
class AnchorSearch:
    """The settings of a search."""

    threshold: float  # the precision that a rule needs
    delta: float  # the probability of a wrong decision
    tau: float  # the difference in precision between rules that does not matter
    batch_size: int
    stop_on_first: bool = False  # accept the first precise rule, and do not look for one of higher coverage

    def find(self, sample: Sample, coverage: Bools) -> list[tuple[int, float]]:
        """Return the parts of the best rule in the order of their selection, with the precision of the rule up to each.

        `coverage` (n, parts) is True where a part holds on a sample without a rule. If the prediction stays without any
        rule, the result is empty.
        """
        rule = _Rule((), None, np.ones(len(coverage), dtype=bool), sample)
        if self._holds_without_parts(rule):
            return []
        best, best_coverage = None, -1.0
        selected: list[_Rule] = []  # the most precise rule of each size
        for _ in range(coverage.shape[1]):
            candidates = [longer for longer in _extend(rule, coverage) if longer.coverage > best_coverage]
            if not candidates:
                break
            rule = self._select_most_precise(candidates)
            selected.append(rule)
            if self._is_precise(rule) and rule.coverage > best_coverage:
                best, best_coverage = rule, rule.coverage
                if best_coverage == 1 or self.stop_on_first:
                    break
        if best is None:
            best = self._select_most_precise(selected)
        return best.describe()

    def _holds_without_parts(self, rule: _Rule) -> bool:
        """Return whether the prediction stays whatever the features are."""
        rate = float(np.log(1.0 / self.delta))
        rule.draw(1)
        low = compute_lower_bound(rule.precision, rate / rule.size)
        while rule.precision > self.threshold and low < self.threshold - self.tau:
            rule.draw(self.batch_size)
            low = compute_lower_bound(rule.precision, rate / rule.size)
        return low > self.threshold

    def _is_precise(self, rule: _Rule) -> bool:
        """Return whether a rule has the required precision, after drawing as many samples as the decision needs."""
        rate = float(np.log(1.0 / self.delta))
        while True:
            precision, level = rule.precision, rate / rule.size
            if precision >= self.threshold:
                low = compute_lower_bound(precision, level)
                if low >= self.threshold - PRECISION_MARGIN:
                    return low > self.threshold - PRECISION_MARGIN
            elif compute_upper_bound(precision, level) < self.threshold + PRECISION_MARGIN:
                return False
            rule.draw(self.batch_size)

    def _select_most_precise(self, rules: Sequence[_Rule]) -> _Rule:
        """Return the rule of highest precision, up to tau, by KL-LUCB: sample the leader and its strongest rival."""
        for rule in rules:
            if not rule.size:
                rule.draw(1)
        if len(rules) == 1:
            return rules[0]
        means = [rule.precision for rule in rules]
        rounds = 1
        while True:
            rate = _compute_exploration_rate(len(rules), rounds, self.delta)
            order: list[int] = np.argsort(means).tolist()  # as in the package, for the order of equal rules
            leader, other_parts = order[-1], order[:-1]
            highs = [compute_upper_bound(means[i], rate / rules[i].size) for i in other_parts]
            rival = other_parts[highs.index(max(highs))]
            low = compute_lower_bound(means[leader], rate / rules[leader].size)
            if max(highs) - low <= self.tau:
                return rules[leader]
            for i in (rival, leader):
                rules[i].draw(self.batch_size)
                means[i] = rules[i].precision
            rounds += 1


@dataclass
class _Rule:
    """A rule, and the samples that were drawn for it or taken over from the rule that it extends."""

    parts: tuple[int, ...]  # in the order in which they were added
    parent: _Rule | None
    covers: Bools  # on which of the coverage samples it holds
    sample: Sample
    size: int = 0
    hits: int = 0
    batches: list[tuple[Bools, Bools]] = field(default_factory=list)  # the parts that hold, and hits
    inherited: Bools | None = None  # whether each sample of the first batch is one of this rule; None: all are

    @property
    def precision(self) -> float:
        """The share of samples on which the prediction stays."""
        return self.hits / self.size

    @property
    def coverage(self) -> float:
        """The share of samples without a rule on which the rule holds."""
        return np.count_nonzero(self.covers) / len(self.covers)

    def draw(self, size: int) -> None:
        """Draw more samples."""
        holds, hits = self.sample(sorted(self.parts), size)
        self.batches.append((holds, hits))
        self.size += size
        self.hits += int(np.count_nonzero(hits))

    def join_batches(self) -> tuple[Bools, Bools]:
        """Return all samples: the parts that hold, and hits."""
        if self.inherited is not None:
            holds, hits = self.batches[0]
            self.batches[0], self.inherited = (holds[self.inherited], hits[self.inherited]), None
        if len(self.batches) > 1:
            holds, hits = (np.concatenate(arrays) for arrays in zip(*self.batches, strict=True))
            self.batches = [(holds, hits)]
        return self.batches[0]

    def describe(self) -> list[tuple[int, float]]:
        """Return the parts, each with the precision of the rule up to it."""
        before = [] if self.parent is None else self.parent.describe()
        return [*before, (self.parts[-1], self.precision)] if self.parts else []


def _extend(rule: _Rule, coverage: Bools) -> list[_Rule]:
    """Return the rules with one part more; samples on which the new part holds are samples of the longer rule."""
    holds, hits = rule.join_batches()
    longer: dict[tuple[int, ...], _Rule] = {}
    order: set[tuple[int, ...]] = set()
    for part in range(coverage.shape[1]):
        if part not in rule.parts:
            is_sample = holds[:, part]
            key = tuple(sorted((*rule.parts, part)))
            longer[key] = _Rule(
                (*rule.parts, part), rule, rule.covers & coverage[:, part], rule.sample,
                int(np.count_nonzero(is_sample)), int(np.count_nonzero(hits & is_sample)), [(holds, hits)], is_sample,
            )  # fmt: skip
            order.add(key)
    # The package keeps rules of several parts in a set; its order is the order of equal rules.
    return [longer[key] for key in (order if rule.parts else longer)]


def _compute_exploration_rate(n_rules: int, rounds: int, delta: float) -> float:
    """Return the numerator of the confidence levels in a round of KL-LUCB."""
    value = np.log(405.5 * n_rules * rounds**1.1 / delta)
    return float(value + np.log(value))


def compute_upper_bound(share: float, level: float) -> float:
    """Return the upper confidence bound of a share: where the Kullback-Leibler divergence from it reaches the level."""
    return _bisect(share, min(1.0, share + sqrt(level / 2.0)), level)


def compute_lower_bound(share: float, level: float) -> float:
    """Return the lower confidence bound of a share."""
    return _bisect(share, max(0.0, share - sqrt(level / 2.0)), level)


def _bisect(share: float, far: float, level: float) -> float:
    """Return the end of the last interval, between the share and a point far from it, that is beyond the level."""
    p = min(LARGEST_SHARE, max(SMALLEST_SHARE, share))
    remaining, near = 1.0 - p, share
    for _ in range(BISECTIONS):
        middle = (near + far) / 2.0
        q = middle if SMALLEST_SHARE < middle < LARGEST_SHARE else min(LARGEST_SHARE, max(SMALLEST_SHARE, middle))
        # Inlined, because searches spend a third of their time here.
        if p * log(p / q) + remaining * log(remaining / (1.0 - q)) > level:
            far = middle
        else:
            near = middle
    return far
