"""Exact search: the nearest counterfactual of a linear model, in closed form."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    NO_FEATURE,
    Access,
    Counterfactuals,
    Dataset,
    HasLinearLogit,
    Ints,
    ModelSpec,
    Search,
    SearchTask,
    Workload,
)
from cfeval_cli.errors import check_float
from cfeval_cli.search.edit import embed_selected_features, evaluate_edited_embeddings


@dataclass(frozen=True)
class Exact(Search):
    """Move the embeddings of the selected features to the nearest point beyond the decision boundary.

    The boundary is at the distance |logit| / ‖w‖ along w, the weights of the selected features. Without any weight the
    label cannot change: the embeddings then stay unchanged, and the search has not converged.
    """

    margin: float = 1e-9  # how far beyond the boundary, in the logit

    title = "exact"
    levels = (Access.GRADIENT,)
    moves_embeddings = True

    def __post_init__(self) -> None:
        check_float("margin", self.margin, 0, open_low=True)

    @property
    def label(self) -> str:
        """The name of the search in captions."""
        return "exact search"

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason for models without a linear logit, which have no closed form."""
        reason = spec.missing_ability_reason(HasLinearLogit)
        accepted = "discrete" if spec.missing_access_reason(Access.GRADIENT) else "continuous or search=discrete"
        return f"{reason}. Use search={accepted}" if reason else None

    def estimate_workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return one evaluation."""
        return Workload(1)

    def choose_chunk_size(self, dataset: Dataset, k: int) -> int:
        """Return the number of instances in one call."""
        return 4096

    def find(self, task: SearchTask) -> Counterfactuals:
        """Return the counterfactuals one step along w."""
        logits, slopes = task.model.compute_linear_logits(task.codes)
        weights = np.where((task.features != NO_FEATURE)[:, :, None], slopes[task.features], 0.0)
        squared = (weights**2).sum(axis=(1, 2))
        target = np.where(task.predicted_classes == 1, -self.margin, self.margin)
        step = np.divide(target - logits, squared, out=np.zeros_like(logits), where=squared > 0)
        vectors = embed_selected_features(task) + step[:, None, None] * weights
        return evaluate_edited_embeddings(task, vectors, squared > 0)

    def find_limit(self, task: SearchTask) -> Counterfactuals | None:
        """Return the same counterfactuals, because the closed form has no search effort."""
        return self.find(task)
