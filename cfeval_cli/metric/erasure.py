"""Erasure metrics: an erasure is an edit like any other, scored as counterfactuals are.

Comprehensiveness is validity_soft, and the decision flip ratio is validity, of the edit that removes the explained
features; sufficiency is validity_soft of the edit that removes all others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.metric.counterfactual import drops, flips
from cfeval_cli.search.edit import erased, outcome
from cfeval_cli.types import ABSENT, Absent, Access, Case, Counterfactuals, Dataset, Score


def removed(case: Case, value: int, *, keep: bool = False) -> Counterfactuals:
    """What became of the prediction when features were removed."""
    edited = erased(case, value, keep=keep)
    labels, probability = outcome(case.model, case.labels, edited)
    nowhere = np.full(len(labels), np.nan)  # an erasure is not measured by its distance
    return Counterfactuals(case.features, labels, labels != case.labels, nowhere, probability, edited)


@dataclass(frozen=True)
class Comprehensiveness:
    """Mean drop in probability without the explained features."""

    name = "comprehensiveness"
    title = "Comp."
    better = "higher"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    place = 10

    def score(self, case: Case) -> Iterator[Score | Absent]:
        """One for each way of removing."""
        for how, value in _REMOVALS.items():
            yield _score(case, how, value(case.dataset))


@dataclass(frozen=True)
class Sufficiency:
    """Mean drop in probability with nothing but the explained features."""

    name = "sufficiency"
    title = "Suff."
    better = "lower"
    range = (-1.0, 1.0)
    access = Access.PROBABILITY
    place = 20

    def score(self, case: Case) -> Iterator[Score | Absent]:
        """One for each way of removing."""
        for how, value in _REMOVALS.items():
            yield _score(case, how, value(case.dataset), keep=True)


@dataclass(frozen=True)
class Dfr:
    """Share of instances whose label changes without the explained features."""

    name = "dfr"
    title = "DFR"
    better = "higher"
    range = (0.0, 1.0)
    access = Access.LABEL
    place = 30

    def score(self, case: Case) -> Iterator[Score | Absent]:
        """By deletion, as in the paper."""
        yield Score("del", flips(removed(case, ABSENT)), np.ones(len(case.codes)))


# How a feature is removed: deletion embeds to zero, the mask token is there for text only.
_REMOVALS: dict[str, Callable[[Dataset], int | None]] = {"del": lambda _: ABSENT, "mask": lambda data: data.unknown}


def _score(case: Case, how: str, value: int | None, *, keep: bool = False) -> Score | Absent:
    if value is None:
        return Absent(how, f"{case.dataset.name} has no mask token")
    return Score(how, drops(case, removed(case, value, keep=keep).probability), np.ones(len(case.codes)))
