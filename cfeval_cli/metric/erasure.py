"""Erasure metrics: an erasure is an edit like any other, scored as counterfactuals are.

Comprehensiveness is validity_soft, and the decision flip ratio is validity, of the edit that removes the explained
features; sufficiency is validity_soft of the edit that removes all others.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import ABSENT, AbsentScore, Access, Bools, FittedRemoval, Floats, Ints, Metric, MetricInput, Score
from cfeval_cli.core.explanation import named
from cfeval_cli.core.memory import keys_of
from cfeval_cli.core.without import RemovalEffect, outcome


@dataclass(frozen=True)
class Erasure(Metric):
    """What they share: a score for each way of removing."""

    only: Sequence[str] | None = None  # ways of removing, by name; None: all that the run has

    block = "erasure"
    most = Access.GRADIENT  # removal by mean moves embeddings

    def score(self, inputs: MetricInput) -> Iterator[Score | AbsentScore]:
        """One for each way of removing, or why there is none."""
        for name, way in inputs.removals.items():
            if self.only is not None and name not in self.only:
                continue
            if way.stand_ins is None:
                yield AbsentScore(way.removal.variant, way.reason)
            elif way.stand_ins.vectors is not None and inputs.model.access < Access.GRADIENT:
                yield AbsentScore(way.removal.variant, "access does not allow to move embeddings")
            elif self.needs in ("order", "scores") and inputs.explanation is None:
                yield AbsentScore(way.removal.variant, SETS)
            else:
                yield self.of(inputs, way)

    @abstractmethod
    def of(self, inputs: MetricInput, way: FittedRemoval) -> Score:
        """The score of each instance by one way of removing."""


SETS = "an explainer that names a set of features puts the others in no order"


def mean(way: FittedRemoval, values: Floats) -> Score:
    """A score whose value is the mean over all instances."""
    return Score(way.removal.variant, values, np.ones(len(values)))


def erased(inputs: MetricInput, way: FittedRemoval, rows: Ints, gone: Bools) -> RemovalEffect:
    """What becomes of the predictions of some rows (m,) without some features (m, M); asked once for all metrics."""
    stand_ins = way.stand_ins
    if stand_ins is None:
        raise ValueError(way.reason)
    gone = gone & (inputs.codes[rows] != ABSENT)

    def answer(new: Ints) -> Floats:
        done = outcome(inputs.model, inputs.take(rows[new]), gone[new], stand_ins)
        nothing = np.full(len(new), np.nan)
        parts = (done.flips, done.left, done.apart)
        return np.stack([nothing if part is None else part for part in parts], axis=1)

    told = inputs.probability is not None and inputs.model.access >= Access.PROBABILITY
    about = f"{way.removal!r}, {'probabilities' if told else 'labels'}"
    flips, left, apart = inputs.memory.ask(about, keys_of(gone, inputs.ids[rows]), answer).T
    return RemovalEffect(flips, left, apart) if told else RemovalEffect(flips, None, None)


def removed(inputs: MetricInput, way: FittedRemoval, *, keep: bool = False) -> tuple[Floats, Floats | None]:
    """What became of the prediction when the explained features, or all but those, were removed."""
    gone: Bools = named(inputs.codes, inputs.features)
    done = erased(inputs, way, np.arange(len(inputs)), ~gone if keep else gone)
    return done.flips, done.left
