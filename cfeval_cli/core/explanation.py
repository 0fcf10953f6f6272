"""Explanations and explainers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import ClassVar, Literal

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.cost import Cost, Workload
from cfeval_cli.core.data import NO_FEATURE, Bools, Codes, Dataset, Floats, Ints, Rows
from cfeval_cli.core.model import Access, CircularRelation, ModelSpec
from cfeval_cli.seeding import make_stream

_MAX_SHOWN_REASONS = 3


@dataclass(frozen=True, kw_only=True)
class Batch(Rows):
    """Instances to explain."""

    seed: int
    component: str

    def make_rng(self, row: int) -> np.random.Generator:
        """Return the random generator of one instance."""
        return make_stream(self.seed, self.component, int(self.ids[row]))


@dataclass(frozen=True)
class Explanation:
    """The ranked features of each instance with their scores, most important first.

    They are all features that the explainer returned; metrics of sets use the first k of them (`top_k`).
    """

    features: Ints  # (n, K), NO_FEATURE at the end of rows with fewer features
    scores: Floats  # (n, K), NaN for NO_FEATURE

    def __len__(self) -> int:
        return len(self.features)

    def take(self, positions: Ints | slice) -> Explanation:
        """Return the explanations of some instances."""
        return Explanation(self.features[positions], self.scores[positions])

    @staticmethod
    def concatenate(parts: Sequence[Explanation]) -> Explanation:
        """Concatenate the instances of all parts."""
        width = max((part.features.shape[1] for part in parts), default=0)
        scores = [np.pad(p.scores, ((0, 0), (0, width - p.scores.shape[1])), constant_values=np.nan) for p in parts]
        return Explanation(np.concatenate([part.top_k(width) for part in parts]), np.concatenate(scores))

    def to_ranks(self, n_features: int) -> Ints:
        """Return the rank (n, M) of each of the M features, from 0; M for features that are not ranked."""
        ranks = np.full((len(self), n_features + 1), n_features)
        order = np.broadcast_to(np.arange(self.features.shape[1]), self.features.shape)
        np.put_along_axis(ranks, self.features, order, axis=1)  # NO_FEATURE = -1 is written to the spare last column
        return ranks[:, :-1]

    def to_dense(self, n_features: int) -> Floats:
        """Return the score (n, M) of each of the M features, zero for features that are not ranked."""
        scores = np.zeros((len(self), n_features + 1))
        np.put_along_axis(scores, self.features, self.scores, axis=1)
        return scores[:, :-1]

    def top_k(self, k: int) -> Ints:
        """Return the first k features (n, k), NO_FEATURE where there are fewer."""
        missing = max(0, k - self.features.shape[1])
        return np.pad(self.features[:, :k], ((0, 0), (0, missing)), constant_values=NO_FEATURE)

    def sort_by(self, compute_key: Callable[[Floats], Floats]) -> Explanation:
        """Return the same features by decreasing key of their scores, ties in the order of the features."""
        # NaN, which stands for no score, comes last.
        order = np.lexsort((self.features, -compute_key(self.scores)), axis=1)
        return Explanation(
            np.take_along_axis(self.features, order, axis=1), np.take_along_axis(self.scores, order, axis=1)
        )

    @staticmethod
    def from_scores(scores: Floats, present: Bools, sort_keys: Floats | None = None) -> Explanation:
        """Return all present features by decreasing score, or sort key, ties in the order of the features."""
        order = np.argsort(
            -np.where(present, scores if sort_keys is None else sort_keys, -np.inf), axis=1, kind="stable"
        )
        ordered = np.take_along_axis(scores, order, axis=1)
        is_present = np.take_along_axis(present, order, axis=1)
        return Explanation(np.where(is_present, order, NO_FEATURE), np.where(is_present, ordered, np.nan))

    @staticmethod
    def from_lists(rows: Sequence[Sequence[tuple[int, float]]]) -> Explanation:
        """Return the explanation with one list of (feature, score) per instance."""
        width = max((len(row) for row in rows), default=0)
        features = np.full((len(rows), width), NO_FEATURE, dtype=np.int64)
        scores = np.full((len(rows), width), np.nan)
        for i, row in enumerate(rows):
            for rank, (feature, score) in enumerate(row):
                features[i, rank], scores[i, rank] = feature, score
        return Explanation(features, scores)


@dataclass(frozen=True)
class ExplainerResult:
    """Explanations with the cost of computing them, in this run or an earlier one."""

    explanation: Explanation
    cost: Cost
    n_cached: int  # instances whose explanation came from the cache
    # The reason for each instance without an explanation, by its position in the explanation.
    failures: Mapping[int, str] = field(default_factory=dict)
    cached_positions: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # of results from the cache
    worker_positions: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # of results from workers

    @property
    def failure_summary(self) -> str:
        """The most frequent reasons for failures, with their counts."""
        counts = Counter(self.failures.values()).most_common()
        reasons = [f"{reason} ({count:,})" for reason, count in counts[:_MAX_SHOWN_REASONS]]
        return "; ".join([*reasons, *(["…"] if len(counts) > _MAX_SHOWN_REASONS else [])])


class NotExplained(Exception):
    """Raised by an explainer that returns no explanation of an instance, with the reason."""


class Explainer(ABC):
    """An explanation method; its fields are its settings."""

    access: ClassVar[Access]  # the highest access level that it uses
    min_access: ClassVar[Access | None] = None  # the lowest sufficient access level; None: `access`
    display_order: ClassVar[int] = 55  # in the tables, ascending
    is_control: ClassVar[bool] = False  # whether it is a reference point, such as chance or the truth
    portable: ClassVar[bool] = True  # whether it can explain any model, not one only
    supports_concurrency: ClassVar[bool] = True  # whether instances may be explained concurrently
    output: ClassVar[Literal["set", "scores"]] = "scores"  # an unordered set, or features with scores
    has_known_cost: ClassVar[bool] = True  # whether its recorded evaluations and seconds are the cost of explaining
    scores_are_effects: ClassVar[bool] = True  # whether scores are signed effects on the prediction
    # Of graded controls: the probability that an instance gets the ranking by the truth instead of a random one.
    quality_level: float = nan
    truth_name: str = ""  # the truth that it is derived from, if any
    # The explainer whose random stream, and so whose samples, it shares; None: its own stream.
    samples_of: str | None = None

    @property
    def title(self) -> str | None:
        """The title in the tables; None: the config key."""
        return None

    def expand(self, key: str) -> dict[str, Explainer]:
        """Return explainers by name: several for an entry such as `graded`."""
        return {key: self}

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return why it cannot explain the model or the data; then a run skips it. None if it can."""
        return spec.missing_access_reason(self._min_access)

    def circular_with(self, spec: ModelSpec, k: int) -> CircularRelation:
        """Return the truths and metrics for which its top k features are (nearly) optimal by construction."""
        return CircularRelation(truths={self.truth_name} - {""})

    def check(self, spec: ModelSpec) -> None:  # noqa: B027  optional
        """Raise a ValueError for settings that the user must change; `not_applicable_reason` only skips it."""

    def choose_access(self, spec: ModelSpec) -> Access:
        """Return the access level to use: the highest that the explainer uses and the model supports."""
        levels = [level for level in Access if self._min_access <= level <= self.access]
        return max(level for level in levels if spec.missing_access_reason(level) is None)

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return the expected model evaluations; settings are named relative to the explainer's key."""
        return Workload()

    def derive_from(self, other: Explainer) -> Callable[[Explanation], Explanation] | None:
        """Return a function from the explanations of `other` to its own; None if they cannot be derived."""
        return None

    @property
    def _min_access(self) -> Access:
        return self.access if self.min_access is None else self.min_access

    @abstractmethod
    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Fit to a dataset and a model; return the fitted explainer, a function from a batch to its explanations."""


def mark_selected(codes: Codes, features: Ints) -> Bools:
    """Return whether each feature (n, M) is among the selected ones (n, k)."""
    is_selected = np.zeros((len(codes), codes.shape[1] + 1), dtype=bool)
    np.put_along_axis(is_selected, features, True, axis=1)  # NO_FEATURE = -1 is written to the spare last column
    return is_selected[:, :-1]
