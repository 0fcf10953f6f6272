"""Ground truths: reference attributions, computed from the model itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.data import ABSENT, Dataset, Floats, Rows
from cfeval_cli.core.model import Access, ModelSpec

# contribution: which features contributed to the prediction; change: which would change it; either: which
# the model uses at all, a condition for both; paper: the definition of the paper.
TruthQuestion = Literal["contribution", "change", "either", "paper"]


@dataclass(frozen=True)
class TruthEstimate:
    """Reference attributions and their standard errors."""

    importance: Floats  # (n, M), -inf where a feature is absent; NaN in rows without a reference
    # (n,) the largest standard error among the features of each row, NaN if it is unknown; None: the values are exact
    standard_error: Floats | None = None
    method: str = "exact"  # of computation, for the report


class Truth(ABC):
    """A definition of feature importance; its fields are its settings."""

    name: ClassVar[str]
    question: ClassVar[TruthQuestion]
    arbitrary: ClassVar[bool] = False  # whether it depends on the parametrisation of the model
    access: ClassVar[Access] = Access.WHITE_BOX

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason why this truth is not defined for a model; None if it is defined."""
        return spec.missing_access_reason(self.access)

    def evaluates_model(self, spec: ModelSpec) -> bool:
        """Return whether computing it takes many model evaluations, so that workers share the instances."""
        return False

    def count_evaluations(self, spec: ModelSpec) -> int:
        """Return the largest number of model evaluations per instance."""
        return 1

    @abstractmethod
    def compute_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Return the importance (n, M) of each feature for the prediction of each row."""

    def estimate(self, dataset: Dataset, model: ModelClient, rows: Rows) -> TruthEstimate:
        """Return the importance with its standard errors; subclasses with sampled values override this."""
        return TruthEstimate(self.compute_masked_importance(dataset, model, rows))

    def compute_masked_importance(self, dataset: Dataset, model: ModelClient, rows: Rows) -> Floats:
        """Return the importance (n, M), -inf where a feature is absent."""
        return np.where(rows.codes == ABSENT, -np.inf, self.compute_importance(dataset, model, rows))
