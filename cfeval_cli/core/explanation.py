"""Explanations, and the explainers that give them."""

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

_REASONS = 3  # that are told of an explainer with faults


@dataclass(frozen=True, kw_only=True)
class Batch(Rows):
    """Instances to be explained."""

    seed: int
    component: str

    def rng(self, row: int) -> np.random.Generator:
        """The random stream of one instance."""
        return make_stream(self.seed, self.component, int(self.ids[row]))


@dataclass(frozen=True)
class Explanation:
    """For each instance the named features, most important first."""

    features: Ints  # (n, K), NONE where there are fewer
    scores: Floats  # (n, K), NaN where there are fewer

    def __len__(self) -> int:
        return len(self.features)

    def take(self, some: Ints | slice) -> Explanation:
        """Those of some instances."""
        return Explanation(self.features[some], self.scores[some])

    @staticmethod
    def concatenate(parts: Sequence[Explanation]) -> Explanation:
        """The instances of all parts, one after the other."""
        width = max((part.features.shape[1] for part in parts), default=0)
        scores = [np.pad(p.scores, ((0, 0), (0, width - p.scores.shape[1])), constant_values=np.nan) for p in parts]
        return Explanation(np.concatenate([part.top_k(width) for part in parts]), np.concatenate(scores))

    def to_ranks(self, width: int) -> Ints:
        """At which place (n, M) each of M features is named, from 0; behind all places if it is not."""
        places = np.full((len(self), width + 1), width)
        order = np.broadcast_to(np.arange(self.features.shape[1]), self.features.shape)
        np.put_along_axis(places, self.features, order, axis=1)  # NONE = -1 falls into the spare last column
        return places[:, :-1]

    def to_dense(self, width: int) -> Floats:
        """The score (n, M) of each of M features, zero for one that is not named."""
        scores = np.zeros((len(self), width + 1))
        np.put_along_axis(scores, self.features, self.scores, axis=1)
        return scores[:, :-1]

    def top_k(self, k: int) -> Ints:
        """The first k features (n, k), NONE where there are fewer."""
        missing = max(0, k - self.features.shape[1])
        return np.pad(self.features[:, :k], ((0, 0), (0, missing)), constant_values=NO_FEATURE)

    def sort_by(self, by: Callable[[Floats], Floats]) -> Explanation:
        """The same features by a falling figure of their scores; equal ones in the order of the features."""
        order = np.lexsort((self.features, -by(self.scores)), axis=1)  # NaN, where there is none, comes last
        return Explanation(
            np.take_along_axis(self.features, order, axis=1), np.take_along_axis(self.scores, order, axis=1)
        )

    @staticmethod
    def from_scores(scores: Floats, present: Bools, by: Floats | None = None) -> Explanation:
        """All present features by falling score, or by something else; equal ones in the order of the features."""
        order = np.argsort(-np.where(present, scores if by is None else by, -np.inf), axis=1, kind="stable")
        ordered = np.take_along_axis(scores, order, axis=1)
        there = np.take_along_axis(present, order, axis=1)
        return Explanation(np.where(there, order, NO_FEATURE), np.where(there, ordered, np.nan))

    @staticmethod
    def from_lists(rows: Sequence[Sequence[tuple[int, float]]]) -> Explanation:
        """From a list of (feature, score) for each instance."""
        width = max((len(row) for row in rows), default=0)
        features = np.full((len(rows), width), NO_FEATURE, dtype=np.int64)
        scores = np.full((len(rows), width), np.nan)
        for i, row in enumerate(rows):
            for place, (feature, score) in enumerate(row):
                features[i, place], scores[i, place] = feature, score
        return Explanation(features, scores)


@dataclass(frozen=True)
class ExplainerResult:
    """Explanations, and what computing them cost, whenever that was."""

    explanation: Explanation
    cost: Cost
    n_cached: int  # instances whose explanation came from the cache
    failures: Mapping[int, str] = field(default_factory=dict)  # the reason for each row without an explanation
    cached_rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # rows from the cache
    worker_rows: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))  # rows from workers

    @property
    def failure_summary(self) -> str:
        """What went wrong, with how often."""
        counts = Counter(self.failures.values()).most_common()
        told = [f"{reason} ({times:,})" for reason, times in counts[:_REASONS]]
        return "; ".join([*told, *(["…"] if len(counts) > _REASONS else [])])


class NotExplained(Exception):
    """Raised by an explainer that has nothing to say of an instance, with the reason."""


class Explainer(ABC):
    """An explanation method; its fields are its settings."""

    access: ClassVar[Access]  # the most that it asks of the model
    min_access: ClassVar[Access | None] = None  # the least that it can do with; None: no less than `access`
    display_order: ClassVar[int] = 55  # where it stands in the tables
    is_control: ClassVar[bool] = False  # names the truth itself, or chance: there to be compared with, and no contender
    portable: ClassVar[bool] = True  # whether it can explain any model, not only the one that it was made for
    supports_concurrency: ClassVar[bool] = True  # whether instances may be explained at once, each as if it were alone
    output: ClassVar[Literal["set", "scores"]] = "scores"  # a set of features, or all in order, each with a score
    scores_are_effects: ClassVar[bool] = True  # whether scores are effects, with their sign
    quality_level: float = nan  # of one whose worth is known beforehand: how often it names the truth
    truth_name: str = ""  # the truth that it is made from, if it is
    samples_of: str | None = None  # the explainer whose random numbers it takes; None: it draws its own

    @property
    def title(self) -> str | None:
        """Its name in the tables; None: its key in the config."""
        return None

    def expand(self, key: str) -> dict[str, Explainer]:
        """The explainers that it stands for, by name: itself, or the rungs of a ladder."""
        return {key: self}

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Why it says nothing of such a model or such data; None if it does."""
        return spec.missing_access_reason(self._min_access)

    def circular_with(self, spec: ModelSpec, k: int) -> CircularRelation:
        """Return the truths and metrics for which its top k features are (nearly) optimal by construction."""
        return CircularRelation(truths={self.truth_name} - {""})

    def check(self, spec: ModelSpec) -> None:  # noqa: B027  most have nothing to object to
        """Refuse settings that do not go with the data or the model, with a ValueError."""

    def choose_access(self, spec: ModelSpec) -> Access:
        """What it asks of such a model: as much as it wants and the model can answer."""
        levels = [level for level in Access if self._min_access <= level <= self.access]
        return max(level for level in levels if spec.missing_access_reason(level) is None)

    def estimate_workload(self, spec: ModelSpec) -> Workload:
        """Return what it is expected to ask of such a model; settings by their names below the explainer's own key."""
        return Workload()

    def derive_from(self, other: Explainer) -> Callable[[Explanation], Explanation] | None:
        """How its explanations are made from those of the explainer whose samples it takes; None: not from them."""
        return None

    @property
    def _min_access(self) -> Access:
        return self.access if self.min_access is None else self.min_access

    @abstractmethod
    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Prepare for a model, and return the function that explains a batch."""


def mark_selected(codes: Codes, features: Ints) -> Bools:
    """Which features (n, M) of some rows are named (n, k)."""
    there = np.zeros((len(codes), codes.shape[1] + 1), dtype=bool)
    np.put_along_axis(there, features, True, axis=1)  # NONE = -1 falls into the spare last column
    return there[:, :-1]
