"""Counterfactuals, the searches that find them, and the distances that measure them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Protocol

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.cost import Workload
from cfeval_cli.core.data import NO_FEATURE, Bools, Codes, Dataset, Floats, Ints
from cfeval_cli.core.explanation import Batch
from cfeval_cli.core.model import Access, Model, ModelSpec


class FittedDistance(Protocol):
    """A distance, ready for one dataset and model."""

    def between(self, codes: Codes, edited: Codes) -> Floats:
        """Distances (n,) between rows and their edits."""
        ...

    def matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Distances (n, C) from each row to each of C edits (C, k) of the same k features."""
        ...

    def moved(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """Distances (n,) of rows whose features (n, k) have had their embeddings moved to (n, k, d)."""
        ...


@dataclass(frozen=True)
class ConstantMeasure:
    """A measure by which every edit is as far."""

    value: float

    def between(self, codes: Codes, edited: Codes) -> Floats:
        """Return the value for each pair."""
        return np.full(len(codes), self.value)

    def matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the value for each row and edit."""
        return np.full((len(codes), len(values)), self.value)

    def moved(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """Return the value for each row."""
        return np.full(len(codes), self.value)


@dataclass(frozen=True, kw_only=True)
class SearchTask(Batch):
    """Instances for which a counterfactual is wanted, and all that a search may use."""

    features: Ints  # (n, k) that may be edited, NONE where there are fewer
    dataset: Dataset
    model: ModelClient
    measure: FittedDistance

    @property
    def access(self) -> Access:
        """What the search may ask."""
        return self.model.access

    def part(self, some: slice) -> SearchTask:
        """Some of the instances."""
        rows = self.take(some)
        return replace(
            self, ids=rows.ids, codes=rows.codes, labels=rows.labels, probability=rows.probability,
            features=self.features[some],
        )  # fmt: skip


def editable(dataset: Dataset, features: Ints) -> Ints:
    """The features (n, k) without those that may not change, NONE behind the others."""
    if dataset.is_changeable.all():
        return features
    kept = np.where(dataset.is_changeable[features], features, NO_FEATURE)  # where none is named, none is kept
    order = np.argsort(kept == NO_FEATURE, axis=1, kind="stable")
    return np.asarray(np.take_along_axis(kept, order, axis=1))


@dataclass(frozen=True)
class Counterfactuals:
    """What the edits did, one for each instance."""

    features: Ints  # (n, k) that were open to the edit
    labels: Ints  # (n,) predicted after the edit
    flipped: Bools  # (n,) whether that differs from the prediction before
    distance: Floats  # (n,)
    probability: Floats | None = None  # (n,) of the class predicted before; None with label access
    codes: Codes | None = None  # (n, M) the edited input, if values were exchanged
    vectors: Floats | None = None  # (n, k, d) the edited embeddings, if those were moved
    converged: Bools | None = None  # (n,) for searches that iterate
    steps: Ints | None = None  # (n,) that such a search took

    def take(self, some: Ints | slice) -> Counterfactuals:
        """Those of some instances."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        taken: dict[str, Any] = {name: of[some] for name, of in columns.items() if of is not None}
        return Counterfactuals(**taken)

    @staticmethod
    def concatenate(parts: Sequence[Counterfactuals]) -> Counterfactuals:
        """The instances of all parts, one after the other."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, list[Any]]
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(Counterfactuals)}
        joined: Any = {name: np.concatenate(c) for name, c in columns.items() if c[0] is not None}
        return Counterfactuals(**joined)


class Search(ABC):
    """A way to look for counterfactuals; its fields are its settings."""

    title: ClassVar[str]
    moves: ClassVar[bool] = False  # embeddings, instead of exchanging values

    @property
    @abstractmethod
    def label(self) -> str:
        """What captions say of it."""

    @property
    @abstractmethod
    def levels(self) -> tuple[Access, ...]:
        """The levels of access at which it works, each giving its own counterfactuals."""

    @property
    def by_distance(self) -> bool:
        """Whether distances have a say in which edit is taken, and are not only told of it."""
        return True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Why it cannot search such a model, and the way out; None if it can, at one of its levels at least."""
        reasons = [spec.missing_access_reason(level) for level in self.levels]
        return None if None in reasons else f"{reasons[0]}. Use search=discrete"

    def check(self, dataset: Dataset, k: int) -> None:  # noqa: B027  most have nothing to object to
        """Refuse what could not be searched, before anything is computed."""

    def estimate_workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return what it is expected to ask of the model if the features (n, k) of instances may be edited.

        At one level of access; settings by their full keys.
        """
        return Workload()

    @abstractmethod
    def chunk(self, dataset: Dataset, k: int) -> int:
        """How many instances it wants to be given at a time: enough to be fast, few enough for several workers."""

    @abstractmethod
    def find(self, task: SearchTask) -> Counterfactuals:
        """One counterfactual for each instance."""

    def limit(self, task: SearchTask) -> Counterfactuals | None:
        """What it would find with endless effort, where that is known without searching; else None."""
        return None


class Distance(ABC):
    """A distance's settings."""

    @property
    @abstractmethod
    def label(self) -> str:
        """What captions say of it."""

    def not_applicable_reason(self, spec: ModelSpec, search: Search) -> str | None:
        """Why it cannot measure what a search finds on such a model; None if it can."""
        return None

    def embeds(self, model: Model, access: Access) -> bool:
        """Whether it measures between embeddings, which depend on more than the predictions."""
        return False

    def of_judges(self) -> Distance:
        """The same between inputs, whatever embeddings a model of known truth has."""
        return self

    def preparing(self, dataset: Dataset, model: Model, access: Access) -> int:
        """How many multiplications it takes to prepare, where they are many."""
        return 0

    @abstractmethod
    def fit(self, dataset: Dataset, model: Model, access: Access) -> FittedDistance:
        """The distance as it is used at one level of access."""
