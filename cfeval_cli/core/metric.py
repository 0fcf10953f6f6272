"""Metrics and their input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.counterfactual import Counterfactuals
from cfeval_cli.core.data import Bools, Dataset, Floats, Ints, Rows
from cfeval_cli.core.evaluation_cache import EvaluationCache
from cfeval_cli.core.explanation import Explanation
from cfeval_cli.core.model import Access, CircularRelation, ModelSpec
from cfeval_cli.core.removal import Removal, Replacement

# judged: compared with truths; truth: measures the agreement with a truth; fact: descriptive, never compared.
Role = Literal["judged", "truth", "fact"]
# The part of an explanation that a metric uses. set: the k selected features, in no order; counterfactual: the edit of
# these features; order: all ranked features; scores: all ranked features with their scores.
Needs = Literal["set", "counterfactual", "order", "scores"]


class Quantity(StrEnum):
    """What a metric measures. Other parts of cfeval select metrics by their quantity, not by their name."""

    COMPLETE = "complete explanations"  # share of instances with k features
    CONVERGED = "converged searches"  # share of searches
    FLIPPED = "flipped labels"  # share of counterfactuals
    DISTANCE = "distance to the counterfactual"  # mean


@dataclass(frozen=True)
class Score:
    """A metric's value for each instance; its average is Σ numerator / Σ denominator.

    Both arrays have one entry for each instance that counts, and other instances are in neither sum. By default the n
    instances of the `MetricInput` count, which have a usable explanation. With `positions` only these of the n count.
    With `over_all_instances` all N instances of the slab count, whether they have an explanation or not.
    """

    variant: str
    numerator: Floats
    denominator: Floats
    over_all_instances: bool = False
    positions: Ints | None = None  # indices into the n instances of the input; None: all of these
    method: str = ""  # of computation, if there are several; {name} is replaced by a count
    remark: str = ""  # a note below the tables; {name} is replaced by a count
    counts: Mapping[str, int] = field(default_factory=dict)  # of method and remark, per slab; they are added up


def fill_in_counts(text: str, counts: Mapping[str, int]) -> str:
    """Return a method or a remark with its counts filled in."""
    for name, count in counts.items():
        text = text.replace(f"{{{name}}}", f"{count:,}")
    return text


@dataclass(frozen=True)
class AbsentScore:
    """A variant without a score, and the reason."""

    variant: str
    reason: str


@dataclass(frozen=True)
class FittedRemoval:
    """A removal with its fitted replacement, or the reason why it does not apply."""

    removal: Removal
    replacement: Replacement | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class MetricInput(Rows):
    """The input of a metric for one explainer: the n instances of a slab with a usable explanation.

    A run passes its instances in slabs of N consecutive instances. All arrays have n rows, except `complete` (N,).
    """

    dataset: Dataset
    model: ModelClient  # with the access level of the metric
    features: Ints  # (n, k) selected features, NO_FEATURE where there are fewer
    k: int
    complete: Bools  # (N,) whether the explainer selected k features of an instance
    counterfactuals: Mapping[Access, Counterfactuals]
    removals: Mapping[str, FittedRemoval]  # by name
    truth: Mapping[str, Floats]  # (n, M) importance of each feature, by truth
    explanation: Explanation | None = None  # (n, K) all features, in order; None for explainers of sets
    memory: EvaluationCache = field(default_factory=EvaluationCache)  # results that metrics share for these instances
    total: int = 0  # number of instances of the run, in all slabs; 0: the slab is the whole run, N

    def compute_drops(self, probability: Floats | None) -> Floats:
        """Return the drop (n,) in the probability of the predicted class, given the probability after an edit."""
        if self.probability is None or probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        return self.probability - probability


class Metric(ABC):
    """A score of explanations, with its direction, range and presentation."""

    name: ClassVar[str]
    title: ClassVar[str]
    latex: ClassVar[str | None] = None  # the title in LaTeX
    better: ClassVar[Literal["higher", "lower", "none"]]
    range: ClassVar[tuple[float, float]]
    access: ClassVar[Access]
    max_access: ClassVar[Access | None] = None  # of variants that need more, if the model and the user permit it
    needs: ClassVar[Needs] = "set"
    uses_distances: ClassVar[bool] = True  # whether a metric of counterfactuals uses their distances
    role: ClassVar[Role] = "judged"
    quantity: ClassVar[Quantity | None] = None  # if other parts use its values
    block: ClassVar[str] = "counterfactual"  # of rows in the tables
    title_details: ClassVar[tuple[str, ...]] = ("{variant}",)  # in brackets after the title; also {metric}, {search}
    display_order: ClassVar[int]  # in the tables, ascending
    zero_denominator_note: ClassVar[str] = "every distance is zero"  # if all are zero

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return the reason why the metric does not apply to the model or the data; None if it does."""
        return spec.missing_access_reason(self.access) if self.role == "judged" else None

    def circular_with(self, spec: ModelSpec, k: int, variant: str, removals: Mapping[str, Removal]) -> CircularRelation:
        """Return the truths whose top k features are (nearly) optimal for a variant of the metric by construction."""
        return CircularRelation()

    @abstractmethod
    def score(self, inputs: MetricInput) -> Iterable[Score | AbsentScore]:
        """Yield a score for each variant, or the reason why there is none."""
