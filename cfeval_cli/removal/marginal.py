"""Removal by what others have: the values of training rows take the features' place."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cfeval_cli.core import Codes, Dataset, Floats, Ints, ModelClient, ModelSpec, Removal, Replacement
from cfeval_cli.errors import check_int
from cfeval_cli.seeding import make_stream


@dataclass(frozen=True)
class Marginal(Removal):
    """The mean over training rows, from each of which all removed features take their values together.

    Sentences have no columns: there a word comes from anywhere in the training set.
    """

    draws: int = 100  # combinations of values at most; of more, so many are drawn
    seed: int = 0

    name = "marginal"
    display_order = 30
    variant = "marginal"
    title = "marginal"
    circular_truth = "shapley"
    cost_settings = ("draws",)

    def __post_init__(self) -> None:
        check_int("draws", self.draws, 1)
        check_int("seed", self.seed, 0)

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Any model can be asked about values that others have."""
        return None

    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """Remember what stands in for which features: many explanations name the same."""
        return _Drawn(dataset, self.draws, self.seed)

    def count_replacements(self, dataset: Dataset, size: int) -> float:
        """Return the number of draws, or of the values in the training rows if that is smaller."""
        if size > 1:
            return self.draws if dataset.padded else min(self.draws, len(dataset.train))
        return float(np.mean([min(self.draws, np.count_nonzero(frequency)) for frequency in dataset.frequencies]))

    def with_max_draws(self, draws: int) -> Marginal:
        """With fewer draws."""
        return replace(self, draws=min(draws, self.draws))


_KNOWN = 1 << 16  # sets of features that are remembered
_PART = 1000  # training rows by which one sees that there are many combinations


@dataclass(frozen=True)
class _Drawn:
    dataset: Dataset
    draws: int
    seed: int
    value: None = None
    vectors: None = None
    _known: dict[bytes, tuple[Codes, Floats] | None] = field(default_factory=dict)  # None: too many to list them
    _words: dict[int, Codes] = field(default_factory=dict)

    def sample(self, features: Ints) -> tuple[Codes, Floats]:
        key = features.astype(np.int64).tobytes()
        if key not in self._known:
            if len(self._known) >= _KNOWN:
                self._known.clear()
            self._known[key] = self._listed(features)
        listed = self._known[key]
        if listed is not None:
            return listed
        drawn = self._sentences(len(features)) if self.dataset.padded else self._rows[:, features]
        return drawn, np.full(self.draws, 1.0 / self.draws)

    def _listed(self, features: Ints) -> tuple[Codes, Floats] | None:
        """All combinations that the training rows have, with their shares; None if there are too many."""
        if len(features) == 1:
            frequency = self.dataset.frequencies[int(features[0])]
            seen = np.flatnonzero(frequency)
            if len(seen) <= self.draws:
                return seen.astype(np.int32)[:, None], frequency[seen]
        if self.dataset.padded:
            return None
        if self._seen[features].max(initial=0) > self.draws:
            return None
        train = self.dataset.train.codes
        # equal rows have equal numbers: where a part of the rows has too many of these, all have too many combinations
        if len(np.unique(self._numbered(train[:_PART], features)[0])) > self.draws:
            return None
        numbers, exact = self._numbered(train, features)
        if exact:
            _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
            rows = train[first][:, features]
        else:
            rows, counts = np.unique(train[:, features], axis=0, return_counts=True)
        return (np.asarray(rows, dtype=np.int32), counts / len(train)) if len(rows) <= self.draws else None

    def _numbered(self, codes: Codes, features: Ints) -> tuple[Ints, bool]:
        """A number (n,) for each row's combination, in the order of the values; and whether others' all differ."""
        numbers, size = np.zeros(len(codes), dtype=np.int64), 1
        for j in features.tolist():
            count = len(self.dataset.features[j].values) + 1  # absent is one too
            numbers, size = numbers * count + (codes[:, j] + 1), size * count
        return numbers, size < 2**62

    @cached_property
    def _seen(self) -> Ints:
        """How many values (M,) of each feature the training rows have."""
        return np.array([np.count_nonzero(frequency) for frequency in self.dataset.frequencies])

    @cached_property
    def _rows(self) -> Codes:
        """The training rows (draws, M) that are drawn, the same for all sets of features."""
        train = self.dataset.train.codes
        return train[make_stream(self.seed, "removal.marginal").integers(0, len(train), self.draws)]

    def _sentences(self, count: int) -> Codes:
        """The words (draws, count) that are drawn for so many places."""
        if count not in self._words:
            rng, frequency = make_stream(self.seed, "removal.marginal"), self.dataset.frequencies[0]
            drawn = rng.choice(len(frequency), (self.draws, count), p=frequency)
            self._words[count] = np.asarray(drawn, dtype=np.int32)
        return self._words[count]
