"""Metrics, and what they see of an explainer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import ClassVar, Literal

from cfeval_cli.core.client import ModelClient
from cfeval_cli.core.counterfactual import Counterfactuals
from cfeval_cli.core.data import Bools, Dataset, Floats, Ints, Rows
from cfeval_cli.core.explanation import Explanation
from cfeval_cli.core.memory import AnswerCache
from cfeval_cli.core.model import Access, CircularRelation, ModelSpec
from cfeval_cli.core.removal import Removal, Replacement

Role = Literal["judged", "truth", "fact"]
# what of an explanation a metric looks at: the k features, what a search made of them, the order of all, their scores
Needs = Literal["set", "counterfactual", "order", "scores"]


class Quantity(StrEnum):
    """What a metric measures, for the parts of cfeval that use its values whatever its name is."""

    COMPLETE = "complete explanations"  # share of instances with k features
    CONVERGED = "converged searches"  # share of searches
    FLIPPED = "flipped labels"  # share of counterfactuals
    DISTANCE = "distance to the counterfactual"  # mean


@dataclass(frozen=True)
class Score:
    """A metric's value for each instance; its average is Σ numerator / Σ denominator."""

    variant: str
    numerator: Floats
    denominator: Floats
    over_all_instances: bool = False  # over all instances rather than those with a usable explanation
    positions: Ints | None = None  # the instances of the case that it is of; None: all
    method: str = ""  # how the values were computed, if there are several ways; {name} stands for a count
    remark: str = ""  # what the tables are to say of the values; likewise
    counts: Mapping[str, int] = field(default_factory=dict)  # in both; over parts of the instances they add up


def with_counts(text: str, counts: Mapping[str, int]) -> str:
    """Return a method or a remark with its counts."""
    for name, count in counts.items():
        text = text.replace(f"{{{name}}}", f"{count:,}")
    return text


@dataclass(frozen=True)
class AbsentScore:
    """A variant that a metric does not have in this run."""

    variant: str
    reason: str


@dataclass(frozen=True)
class FittedRemoval:
    """A way to remove features, ready for use, or the reason why there is none."""

    removal: Removal
    replacement: Replacement | None
    reason: str = ""


@dataclass(frozen=True, kw_only=True)
class MetricInput(Rows):
    """All that a metric may look at for one explainer: n instances with a usable explanation."""

    dataset: Dataset
    model: ModelClient  # lets through the metric's access
    features: Ints  # (n, k) explained, NONE where there are fewer
    k: int
    complete: Bools  # (N,) over all instances, of a slab if it is one: did the explainer name k features?
    counterfactuals: Mapping[Access, Counterfactuals]
    removals: Mapping[str, FittedRemoval]  # by name
    truth: Mapping[str, Floats]  # (n, M) how much each feature truly matters, by definition
    explanation: Explanation | None = None  # (n, K) all that was named, in order; None of an explainer that gives sets
    memory: AnswerCache = field(default_factory=AnswerCache)  # what metrics have asked the model about these instances
    total: int = 0  # instances of the run, of which these may be a slab; 0: as many as are `complete` or not

    def compute_drops(self, probability: Floats | None) -> Floats:
        """Return by how much an edit lowers the probability (n,) of the predicted class."""
        if self.probability is None or probability is None:
            raise ValueError("a drop needs probabilities before and after the edit")
        return self.probability - probability


class Metric(ABC):
    """A score of explanations that says of itself how it is to be read."""

    name: ClassVar[str]
    title: ClassVar[str]
    latex: ClassVar[str | None] = None  # its title as a formula
    better: ClassVar[Literal["higher", "lower", "none"]]
    range: ClassVar[tuple[float, float]]
    access: ClassVar[Access]
    max_access: ClassVar[Access | None] = None  # what some variants ask beyond that, where model and user allow it
    needs: ClassVar[Needs] = "set"
    uses_distances: ClassVar[bool] = True  # of one that looks at counterfactuals: whether their distances count
    role: ClassVar[Role] = "judged"  # by a truth; or it is the truth itself; or a fact about the scores
    quantity: ClassVar[Quantity | None] = None  # what it measures, if other parts use its values
    block: ClassVar[str] = "counterfactual"  # of the tables
    title_detail: ClassVar[str] = "{variant}"  # what stands behind its title: also {metric}, {search}
    display_order: ClassVar[int]  # its order in the tables
    zero_denominator_note: ClassVar[str] = "every distance is zero"  # what it means if there is nothing to divide by

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Why it cannot be computed for such a model or such data; None if it can."""
        return spec.missing_access_reason(self.access) if self.role == "judged" else None

    def circular_with(self, spec: ModelSpec, k: int, variant: str, removals: Mapping[str, Removal]) -> CircularRelation:
        """Return the truths whose top k features are (nearly) optimal for a variant of the metric by construction."""
        return CircularRelation()

    @abstractmethod
    def score(self, inputs: MetricInput) -> Iterable[Score | AbsentScore]:
        """One score for each variant of the metric, or the reason why there is none."""
