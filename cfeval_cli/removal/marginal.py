"""Removal by the marginal distribution: values of training rows replace those of the features."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cfeval_cli.core import Codes, Dataset, Floats, Ints, ModelClient, ModelSpec, Removal, Replacement
from cfeval_cli.errors import check_int
from cfeval_cli.seeding import make_stream


@dataclass(frozen=True)
class Marginal(Removal):
    """Replace all removed features together by their values in training rows, and average.

    A word of a text is replaced by words from all positions of the training set.
    """

    draws: int = 100  # largest number of combinations of values; if there are more, this number is drawn
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
        """Return None: every model can be evaluated on values of training rows."""
        return None

    def fit(self, dataset: Dataset, model: ModelClient) -> Replacement:
        """Return the replacements, which are cached, because explanations share sets of features."""
        return _MarginalSample(dataset, self.draws, self.seed)

    def count_replacements(self, dataset: Dataset, size: int) -> float:
        """Return the number of draws, or of the values in the training rows if that is smaller."""
        if size > 1:
            return self.draws if dataset.padded else min(self.draws, len(dataset.train))
        return float(np.mean([min(self.draws, np.count_nonzero(frequency)) for frequency in dataset.frequencies]))

    def with_max_draws(self, draws: int) -> Marginal:
        """Return the removal with fewer draws."""
        return replace(self, draws=min(draws, self.draws))


_MAX_CACHED_SETS = 1 << 16
_FIRST_ROWS = 1000  # training rows that may already have more combinations than are drawn


@dataclass(frozen=True)
class _MarginalSample:
    dataset: Dataset
    draws: int
    seed: int
    value: None = None
    vectors: None = None
    _samples: dict[bytes, tuple[Codes, Floats] | None] = field(default_factory=dict)  # None: too many to list
    _words: dict[int, Codes] = field(default_factory=dict)

    def sample(self, features: Ints) -> tuple[Codes, Floats]:
        key = features.astype(np.int64).tobytes()
        if key not in self._samples:
            if len(self._samples) >= _MAX_CACHED_SETS:
                self._samples.clear()
            self._samples[key] = self._list_combinations(features)
        combinations = self._samples[key]
        if combinations is not None:
            return combinations
        drawn = self._draw_words(len(features)) if self.dataset.padded else self._rows[:, features]
        return drawn, np.full(self.draws, 1.0 / self.draws)

    def _list_combinations(self, features: Ints) -> tuple[Codes, Floats] | None:
        """Return all combinations of the training rows with their shares; None if there are too many."""
        if len(features) == 1:
            frequency = self.dataset.frequencies[int(features[0])]
            values = np.flatnonzero(frequency)
            if 0 < len(values) <= self.draws:  # none if the feature is absent in all training rows
                return values.astype(np.int32)[:, None], frequency[values]
        if self.dataset.padded:
            return None
        if self._value_counts[features].max(initial=0) > self.draws:
            return None
        train = self.dataset.train.codes
        # Equal combinations have equal numbers: too many numbers among the first rows are too many combinations.
        if len(np.unique(self._number_combinations(train[:_FIRST_ROWS], features)[0])) > self.draws:
            return None
        numbers, is_unique = self._number_combinations(train, features)
        if is_unique:
            _, first, counts = np.unique(numbers, return_index=True, return_counts=True)
            rows = train[first][:, features]
        else:
            rows, counts = np.unique(train[:, features], axis=0, return_counts=True)
        return (np.asarray(rows, dtype=np.int32), counts / len(train)) if len(rows) <= self.draws else None

    def _number_combinations(self, codes: Codes, features: Ints) -> tuple[Ints, bool]:
        """Return a number (n,) for the combination of each row, and whether numbers of different ones differ."""
        numbers, size = np.zeros(len(codes), dtype=np.int64), 1
        for j in features.tolist():
            count = len(self.dataset.features[j].values) + 1  # with absent
            numbers, size = numbers * count + (codes[:, j] + 1), size * count
        return numbers, size < 2**62

    @cached_property
    def _value_counts(self) -> Ints:
        """The number of different values (M,) of each feature in the training rows."""
        return np.array([np.count_nonzero(frequency) for frequency in self.dataset.frequencies])

    @cached_property
    def _rows(self) -> Codes:
        """Training rows (draws, M), the same for all sets of features."""
        train = self.dataset.train.codes
        return train[make_stream(self.seed, "removal.marginal").integers(0, len(train), self.draws)]

    def _draw_words(self, count: int) -> Codes:
        """Return words (draws, count) for a number of positions."""
        if count not in self._words:
            rng, frequency = make_stream(self.seed, "removal.marginal"), self.dataset.frequencies[0]
            drawn = rng.choice(len(frequency), (self.draws, count), p=frequency)
            self._words[count] = np.asarray(drawn, dtype=np.int32)
        return self._words[count]
