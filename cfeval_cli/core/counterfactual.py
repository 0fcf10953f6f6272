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
    """A distance fitted to a dataset and a model."""

    def compute_distances(self, codes: Codes, edited: Codes) -> Floats:
        """Return the distances (n,) between rows and their edits."""
        ...

    def compute_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the distances (n, C) from each row to each of C edits (C, k) of the same k features."""
        ...

    def compute_embedding_distances(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """Return the distances (n,) of rows in which vectors (n, k, d) replace the embeddings of features (n, k)."""
        ...


@dataclass(frozen=True)
class FittedConstant:
    """A distance that is the same for every edit."""

    value: float

    def compute_distances(self, codes: Codes, edited: Codes) -> Floats:
        """Return the value for each pair."""
        return np.full(len(codes), self.value)

    def compute_distance_matrix(self, codes: Codes, features: Ints, values: Codes) -> Floats:
        """Return the value for each row and edit."""
        return np.full((len(codes), len(values)), self.value)

    def compute_embedding_distances(self, codes: Codes, features: Ints, vectors: Floats) -> Floats:
        """Return the value for each row."""
        return np.full(len(codes), self.value)


@dataclass(frozen=True, kw_only=True)
class SearchTask(Batch):
    """The input of a search: instances, the features to edit, the model and the distance."""

    features: Ints  # (n, k) to edit, NO_FEATURE where there are fewer
    dataset: Dataset
    model: ModelClient
    distance: FittedDistance

    @property
    def access(self) -> Access:
        """The access level of the search."""
        return self.model.access

    def select_instances(self, instances: Ints | slice) -> SearchTask:
        """Return the task for some of the instances; `take` returns their `Rows` only."""
        rows = self.take(instances)
        return replace(
            self, ids=rows.ids, codes=rows.codes, predicted_classes=rows.predicted_classes,
            probability=rows.probability, features=self.features[instances],
        )  # fmt: skip


def select_changeable(dataset: Dataset, features: Ints) -> Ints:
    """Return the features (n, k) that may change, followed by NO_FEATURE."""
    if dataset.is_changeable.all():
        return features
    # NO_FEATURE indexes the last feature; whether that may change does not matter, the result is NO_FEATURE.
    changeable = np.where(dataset.is_changeable[features], features, NO_FEATURE)
    order = np.argsort(changeable == NO_FEATURE, axis=1, kind="stable")
    return np.asarray(np.take_along_axis(changeable, order, axis=1))


@dataclass(frozen=True)
class Counterfactuals:
    """The counterfactual of each instance."""

    features: Ints  # (n, k) that the search could edit
    labels: Ints  # (n,) predicted after the edit
    flipped: Bools  # (n,) whether the edit changed the prediction
    distance: Floats  # (n,)
    probability: Floats | None = None  # (n,) of the original class; None with label access
    codes: Codes | None = None  # (n, M) the edited input, if the search edits values
    vectors: Floats | None = None  # (n, k, d) the edited embeddings, if the search edits these
    converged: Bools | None = None  # (n,) for iterative searches
    steps: Ints | None = None  # (n,) of an iterative search
    is_exhaustive: Bools | None = None  # (n,) whether all combinations of values were evaluated; None: no combinations

    def take(self, positions: Ints | slice) -> Counterfactuals:
        """Return the counterfactuals of some instances."""
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        selected: dict[str, Any] = {name: column[positions] for name, column in columns.items() if column is not None}
        return Counterfactuals(**selected)

    def count_beam_searches(self) -> int:
        """Return for how many instances not all combinations of values were evaluated."""
        return 0 if self.is_exhaustive is None else int((~self.is_exhaustive).sum())

    @staticmethod
    def concatenate(parts: Sequence[Counterfactuals]) -> Counterfactuals:
        """Concatenate the instances of all parts."""
        if len(parts) == 1:
            return parts[0]
        columns: dict[str, list[Any]]
        columns = {field.name: [getattr(part, field.name) for part in parts] for field in fields(Counterfactuals)}
        joined: Any = {name: np.concatenate(c) for name, c in columns.items() if c[0] is not None}
        return Counterfactuals(**joined)


class Search(ABC):
    """A method to search counterfactuals; its fields are its settings."""

    title: ClassVar[str]
    moves_embeddings: ClassVar[bool] = False  # whether it edits embeddings instead of values

    @property
    @abstractmethod
    def label(self) -> str:
        """The name in captions."""

    @property
    @abstractmethod
    def levels(self) -> tuple[Access, ...]:
        """The access levels at which it runs, each with its own counterfactuals."""

    @property
    def uses_distance(self) -> bool:
        """Whether the distance influences which edit is selected."""
        return True

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason why no level applies to the model; None if one does."""
        reasons = [spec.missing_access_reason(level) for level in self.levels]
        return None if None in reasons else f"{reasons[0]}. Use search=discrete"

    def check(self, dataset: Dataset, k: int) -> None:  # noqa: B027  optional
        """Raise an error for data or k that cannot be searched."""

    def estimate_workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return the expected model evaluations at one access level if the features (n, k) are edited.

        Settings are named by their full keys.
        """
        return Workload()

    @abstractmethod
    def choose_chunk_size(self, dataset: Dataset, k: int) -> int:
        """Return the number of instances per task: enough to be fast, few enough for several workers."""

    @abstractmethod
    def find(self, task: SearchTask) -> Counterfactuals:
        """Return one counterfactual for each instance."""

    def find_limit(self, task: SearchTask) -> Counterfactuals | None:
        """Return the counterfactuals of an unlimited search from a formula; None if there is no formula."""
        return None


class Distance(ABC):
    """The settings of a distance."""

    @property
    @abstractmethod
    def label(self) -> str:
        """The name in captions."""

    def not_applicable_reason(self, spec: ModelSpec, search: Search) -> str | None:
        """Return the reason why it does not apply to the model and the search; None if it does."""
        return None

    def uses_embeddings(self, model: Model, access: Access) -> bool:
        """Return whether it uses embeddings of the model, which predictions do not determine."""
        return False

    def make_judge_distance(self) -> Distance:
        """Return a distance without embeddings for judges, because embeddings of judges have no meaning."""
        return self

    def estimate_fit_cost(self, dataset: Dataset, model: Model, access: Access) -> int:
        """Return the number of multiplications of `fit`, if they are many."""
        return 0

    @abstractmethod
    def fit(self, dataset: Dataset, model: Model, access: Access) -> FittedDistance:
        """Return the distance at one access level."""
