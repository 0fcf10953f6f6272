"""A model is what it can answer.

Classes or probabilities are enough: a class with `predict` or `predict_proba` is a black box. Every further ability is
a base class, which a model derives from to declare it: a method that merely has the right name grants nothing.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, Protocol, get_type_hints, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core.data import Bools, Codes, Dataset, Floats, Ints

if TYPE_CHECKING:
    import torch

# From (rows, vectors (n, k, d)) to P(1|x) with those rows' features moved there, and its gradient.
GradientFunction = Callable[[Ints, Floats], tuple[Floats, Floats]]


# What can be changed in a model without changing a prediction: the constant that each feature's effects share with the
# bias, the part of the embeddings that no weight looks at, and the scale of the embeddings against that of the weights.
ParameterChange = Literal["constant", "orthogonal", "scale"]


class InspectionDepth(IntEnum):
    """How deep a component looked into a model, which says what a reparametrisation can move in its results."""

    PREDICTIONS = 0  # of whole inputs: nothing
    EFFECTS = 1  # of single values, or inputs with features deleted: what moves the constant
    EMBEDDINGS = 2  # anything


class Access(IntEnum):
    """How much of a model a component is permitted to ask; each level includes those below."""

    NOTHING = 0
    LABEL = 1
    PROBABILITY = 2
    GRADIENT = 3  # embeddings and gradients
    WHITE_BOX = 4


@runtime_checkable
class Classifier(Protocol):
    """Tells the class of an input: all that a black box needs."""

    def predict(self, codes: Codes) -> Ints:
        """Classes (n,) of (n, M) codes, as numbers of the dataset's classes."""
        ...


@runtime_checkable
class Probabilistic(Protocol):
    """Tells how likely each class is; the class that it predicts is the likeliest, the first of equal ones."""

    def predict_proba(self, codes: Codes) -> Floats:
        """Probabilities (n, C) of (n, M) codes, in the order of the dataset's classes."""
        ...


class BinaryModel(ABC):
    """Two classes and one number; the prediction is 1 exactly where that is over 0.5."""

    @abstractmethod
    def predict_positive(self, codes: Codes) -> Floats:
        """P(1|x) of (n, M) codes."""


class SupportsEdits(BinaryModel):
    """Evaluates edits without making every row."""

    @abstractmethod
    def predict_edited(self, codes: Codes, features: Ints, rows: Ints, values: Codes) -> Floats:
        """P(1|x) (m,) of edits: the features (n, k) of some rows (m,) get the values (m, k).

        `rows` may be (1,) if all edits are of one row; where no feature is named, the value is ABSENT.
        """


class HasEmbeddings(ABC):
    """Gives each value a vector; an absent feature is zero."""

    @abstractmethod
    def embed_values(self, feature: int, codes: Codes) -> Floats:
        """Embeddings (n, d) of values of one feature."""


class SupportsBatchedEmbedding(HasEmbeddings):
    """Finds the vectors of many features at once."""

    @abstractmethod
    def embed_features(self, features: Ints, codes: Codes) -> Floats:
        """Embeddings (n, d) of one value (n,) each, of any features (n,)."""


class HasGradient(HasEmbeddings):
    """Can be asked about embeddings that are no value's."""

    @abstractmethod
    def predict_proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Probabilities (n, C) of embeddings (n, M, d), differentiable."""


class HasLogits(HasGradient):
    """Tells what its probabilities are made of, exactly where those round to 0 or 1."""

    @abstractmethod
    def compute_logits_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Logits (n, C) of embeddings (n, M, d), differentiable, whose softmax is the probabilities."""


class HasAnalyticGradient(BinaryModel, HasEmbeddings):
    """Knows its gradient without automatic differentiation."""

    @abstractmethod
    def make_gradient_function(self, codes: Codes, features: Ints) -> GradientFunction:
        """P(1|x) and its gradient where some features' embeddings are moved."""


class HasLinearLogit(HasEmbeddings):
    """Two classes, the logit linear in the embeddings."""

    @abstractmethod
    def compute_logits(self, codes: Codes) -> Floats:
        """log P(1|x) - log P(0|x)."""

    @abstractmethod
    def get_slopes(self) -> Floats:
        """∂ logit / ∂ embedding (M, d)."""


class HasAdditiveEffects(ABC):
    """A judge whose logit of a class, against the others, is a sum of one effect for each feature."""

    @abstractmethod
    def compute_effects(self, codes: Codes, of: Ints) -> Floats:
        """Effects (n, M) of the values on the logit of each row's class `of` (n,)."""

    @abstractmethod
    def compute_value_effects(self, feature: int, of: int) -> Floats:
        """Effects of every value of one feature on the logit of one class."""

    @abstractmethod
    def compute_mean_effects(self) -> Floats:
        """Mean effect (C, M) of each feature on each class over the training set."""


@dataclass(frozen=True)
class Leaves:
    """A decision tree, written as its leaves: an input falls into exactly one of them."""

    boxes: tuple[Bools, ...]  # for each feature, which of its values (L, V) a leaf takes
    probabilities: Floats  # (L, C)

    def accepts(self, feature: int, codes: Codes) -> Bools:
        """Whether each leaf takes each of some values (n,) of a feature: (n, L)."""
        return self.boxes[feature].T[codes]


class HasLeaves(ABC):
    """A judge that is one decision tree."""

    @abstractmethod
    def get_leaves(self) -> Leaves:
        """All that it says, leaf by leaf."""


class HasReadFeatures(ABC):
    """Knows which features it looks at."""

    @abstractmethod
    def get_used_features(self) -> Bools:
        """Whether each feature (M,) is read; no prediction depends on one that is not."""


class HasEncodedEstimator(ABC):
    """An object of some library behind an encoder: a package that knows the library can look into it."""

    @abstractmethod
    def get_estimator(self) -> object:
        """The object itself."""

    @abstractmethod
    def encode(self, codes: Codes) -> Floats:
        """What it is given (n, W) for (n, M) codes."""

    @abstractmethod
    def get_column_features(self) -> Ints:
        """The feature (W,) that each column belongs to."""

    @abstractmethod
    def get_estimator_classes(self) -> Ints:
        """The classes that it tells probabilities of, in its own order."""


class Reparametrisable(HasLinearLogit):
    """Can be written in other parameters that give every input the same prediction."""

    @abstractmethod
    def list_changes(self, *, padded: bool) -> tuple[ParameterChange, ...]:
        """What can be changed; rows are `padded` if they may end early."""

    @abstractmethod
    def reparametrise(self, dataset: Dataset, changes: Collection[ParameterChange], rng: np.random.Generator) -> Model:
        """The same predictions from other parameters; a change is drawn alike whichever others are made with it."""


class HasArrays(ABC):
    """Says all of itself in plain arrays."""

    @abstractmethod
    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """What is written to model.npz."""


class Fingerprinted(ABC):
    """Says what its results depend on besides settings and code: a file, a service, weights."""

    @abstractmethod
    def fingerprint(self) -> str | None:
        """The same exactly if the results are; None if that cannot be known."""


Model = Classifier | Probabilistic | BinaryModel


@runtime_checkable
class Trainable(Protocol):
    """A model's settings, before training; what `fit` is annotated to return says what the model can answer."""

    @abstractmethod
    def fit(self, dataset: Dataset, seed: int) -> Model:
        """Train on the training part."""


class DeclaresOutputType(Trainable):
    """Settings on which it depends what the trained model can answer."""

    @abstractmethod
    def output_type(self, dataset: Dataset) -> type:
        """The class of the trained model, before anything is trained."""


class SupportsFeatureSubset(Trainable):
    """Settings of a model that can be trained without some of the features."""

    @property
    @abstractmethod
    def blind(self) -> Sequence[str] | float:
        """The names of those features, or the share of all that is drawn."""


class DistilledModel(Trainable):
    """Settings of a model that learns the predictions of another, which is trained first."""

    student: Trainable  # who learns
    teacher: Trainable  # whose predictions are learned


class Restorable(Trainable):
    """Makes a trained model from what it said of itself."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> Model:
        """The model that was trained before; ValueError if the arrays are not one's."""


class BlackBox:
    """What a model is taken for that does not say what it is."""

    def predict_proba(self, codes: Codes) -> Floats:
        """Nobody asks this class."""
        raise TypeError("a black box is a kind of model, not a model")


DESCRIPTIONS: dict[Any, str] = {
    Classifier: "classes",
    Probabilistic: "probabilities",
    HasEmbeddings: "embeddings",
    HasGradient: "gradients in the embeddings",
    HasLinearLogit: "a logit that is linear in the embeddings",
    HasEncodedEstimator: "a trained estimator on the columns of a table",
    Reparametrisable: "other parameters for the same predictions",
    HasLeaves: "a decision tree",
    HasReadFeatures: "the list of the features that it reads",
    HasAdditiveEffects: "a logit that is a sum of effects, one for each feature",
}
_ASKED: dict[Access, type] = {
    Access.PROBABILITY: Probabilistic, Access.GRADIENT: HasGradient, Access.WHITE_BOX: HasAdditiveEffects,
}  # fmt: skip


@dataclass(frozen=True)
class CircularRelation:
    """Truths and metrics for which an explainer or a metric is (nearly) optimal by construction."""

    truths: Collection[str] = ()  # by name
    metrics: Collection[tuple[str, str]] = ()  # name and variant, "" for all variants

    def includes_metric(self, name: str, variant: str) -> bool:
        """Return whether the relation includes a variant of a metric."""
        return (name, variant) in self.metrics or (name, "") in self.metrics


@dataclass(frozen=True)
class ModelSpec:
    """What is to be explained, as far as it is known before anything is trained."""

    dataset: Dataset
    kind: type  # of the trained model
    blind: bool = False  # whether it is trained without some of the features

    @staticmethod
    def from_settings(dataset: Dataset, model: Trainable) -> ModelSpec:
        """What the model's settings say of it: by `foresee`, the annotation of `fit`, or because they are the model."""
        blind = isinstance(model, SupportsFeatureSubset) and bool(model.blind)
        if isinstance(model, DeclaresOutputType):
            return ModelSpec(dataset, model.output_type(dataset), blind)
        try:
            kind = get_type_hints(type(model).fit).get("return")
        except (NameError, TypeError, AttributeError):  # an annotation that only a type checker can follow
            kind = None
        if not isinstance(kind, type) or not (issubclass(kind, Classifier) or issubclass(kind, Probabilistic)):
            kind = type(model) if isinstance(model, Classifier | Probabilistic) else BlackBox
        return ModelSpec(dataset, kind, blind)

    @staticmethod
    def from_model(dataset: Dataset, model: Model) -> ModelSpec:
        """The same of a model that is there."""
        return ModelSpec(
            dataset, type(model), isinstance(model, HasReadFeatures) and not model.get_used_features().all()
        )

    def supports(self, ability: type) -> bool:
        """Whether the model will have an ability, which is one of the protocols of this module."""
        return issubclass(self.kind, ability)

    def missing_ability_reason(self, *abilities: type) -> str | None:
        """Why something that needs these abilities cannot be done; None if it can."""
        missing = next((ability for ability in abilities if not self.supports(ability)), None)
        if missing is None:
            return None
        if missing in (Probabilistic, HasAdditiveEffects) and not self.supports(Probabilistic):
            return (
                f"needs {DESCRIPTIONS[missing]}, but this model returns labels only: pass predict_proba to compute more"
            )
        return f"needs {DESCRIPTIONS[missing]}, which this model ({self.name}) does not give"

    def missing_access_reason(self, access: Access) -> str | None:
        """Why a component that asks so much of the model cannot be answered; None if it can."""
        return self.missing_ability_reason(_ASKED[access]) if access in _ASKED else None

    @property
    def name(self) -> str:
        """The model as messages call it."""
        return "a black box" if self.kind is BlackBox else self.kind.__name__
