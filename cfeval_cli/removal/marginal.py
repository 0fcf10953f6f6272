"""Removal by what others have: the values of training rows take the features' place."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from cfeval_cli.errors import whole
from cfeval_cli.seeding import stream
from cfeval_cli.types import Codes, Dataset, Floats, Gate, Ints, Removal, StandIns, Subject


@dataclass(frozen=True)
class Marginal(Removal):
    """The mean over training rows, from each of which all removed features take their values together.

    Sentences have no columns: there a word comes from anywhere in the training set.
    """

    draws: int = 100  # combinations of values at most; of more, so many are drawn
    seed: int = 0

    name = "marginal"
    place = 30
    variant = "marginal"
    title = "marginal"

    def __post_init__(self) -> None:
        whole("draws", self.draws, 1)
        whole("seed", self.seed, 0)

    def sits_out(self, subject: Subject) -> str | None:
        """Any model can be asked about values that others have."""
        return None

    def fit(self, dataset: Dataset, model: Gate) -> StandIns:
        """Remember what stands in for which features: many explanations name the same."""
        return _Drawn(dataset, self.draws, self.seed)


_KNOWN = 1000  # sets of features that are remembered


@dataclass(frozen=True)
class _Drawn:
    dataset: Dataset
    draws: int
    seed: int
    value: None = None
    vectors: None = None
    _known: dict[bytes, tuple[Codes, Floats]] = field(default_factory=dict)

    def instead(self, features: Ints) -> tuple[Codes, Floats]:
        key = features.astype(np.int64).tobytes()
        if key not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = self._combinations(features)
        return self._known[key]

    def _combinations(self, features: Ints) -> tuple[Codes, Floats]:
        """All that the training rows have, with their shares, or as many as are allowed."""
        rng, train = stream(self.seed, "removal.marginal"), self.dataset.train.codes
        even = np.full(self.draws, 1.0 / self.draws)
        if len(features) == 1:
            frequency = self.dataset.frequencies[int(features[0])]
            seen = np.flatnonzero(frequency)
            if len(seen) <= self.draws:
                return seen.astype(np.int32)[:, None], frequency[seen]
        if self.dataset.padded:
            frequency = self.dataset.frequencies[0]
            words = np.asarray(rng.choice(len(frequency), (self.draws, len(features)), p=frequency), dtype=np.int32)
            return words, even
        rows, counts = np.unique(train[:, features], axis=0, return_counts=True)
        if len(rows) <= self.draws:
            return np.asarray(rows, dtype=np.int32), counts / len(train)
        drawn: Codes = train[rng.integers(0, len(train), self.draws)][:, features]
        return drawn, even
