"""Agreement with what is known of the white box: how much of the gold did the explainer find?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import NONE, Access, Case, Floats, Ints, Metric, Score
from cfeval_cli.core.explanation import named
from cfeval_cli.truth.ranking import top


def _drawn(case: Case, definition: str) -> tuple[Ints, Ints, Ints, Ints]:
    """Of each instance: named features that are surely gold, those tied for the rest, all and named, and the rest."""
    there, truth = named(case.codes, case.features), case.truth[definition]
    best = top(truth, case.k)
    size = (best != NONE).sum(axis=1)  # fewer than k are there of a short text
    last = np.take_along_axis(truth, np.take_along_axis(best, np.maximum(size - 1, 0)[:, None], axis=1), axis=1)
    sure, tied = truth > last, (truth == last) & np.isfinite(truth)
    counts = [(there & sure).sum(axis=1), tied.sum(axis=1), (there & tied).sum(axis=1), size - sure.sum(axis=1)]
    first, second, third, fourth = (np.asarray(count) for count in counts)
    return first, second, third, fourth


def shared(case: Case, definition: str) -> Floats:
    """How many of the k gold features the explanation names, on average over the orders of features that are tied."""
    sure, tied, found, places = _drawn(case, definition)
    return np.asarray(sure + found * (places / np.maximum(tied, 1)))


def met(case: Case, definition: str) -> Floats:
    """How likely at least one of the k gold features is named, over the orders of features that are tied."""
    from scipy.special import comb

    sure, tied, found, places = _drawn(case, definition)
    missed = comb(tied - found, places) / np.maximum(comb(tied, places), 1.0)  # all places go to others
    return np.where(sure > 0, 1.0, 1.0 - missed)


def _known(case: Case, definition: str, values: Floats) -> Score:
    """A score of the instances of which this truth is known."""
    some = np.flatnonzero(~np.isnan(case.truth[definition]).any(axis=1))
    if len(some) == len(values):
        return Score(definition, values, np.ones(len(values)))
    return Score(definition, values[some], np.ones(len(some)), some=some)


@dataclass(frozen=True)
class Recall(Metric):
    """Mean share of the gold features that were named."""

    name = "recall"
    title = "GroundTruth"
    better = "higher"
    role = "truth"
    block = "truth"
    detail = "{metric}, {variant}"
    range = (0.0, 1.0)
    access = Access.WHITE_BOX
    place = 90

    def score(self, case: Case) -> Iterator[Score]:
        """One for each definition of gold."""
        for definition in case.truth:
            yield _known(case, definition, shared(case, definition) / case.k)


@dataclass(frozen=True)
class Hit(Metric):
    """Share of instances with at least one gold feature named."""

    name = "hit"
    title = "GroundTruth"
    better = "higher"
    role = "truth"
    block = "truth"
    detail = "{metric}, {variant}"
    range = (0.0, 1.0)
    access = Access.WHITE_BOX
    place = 91

    def score(self, case: Case) -> Iterator[Score]:
        """One for each definition of gold."""
        for definition in case.truth:
            yield _known(case, definition, met(case, definition))
