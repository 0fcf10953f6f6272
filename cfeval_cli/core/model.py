"""Models and their abilities.

A model derives from the base class of each of its abilities; a method of the same name alone declares nothing. A black
box derives from `Classifier` or `Probabilistic`, and its settings derive from `Trainable`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal, get_type_hints

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core.data import Bools, Codes, Dataset, Floats, Ints

if TYPE_CHECKING:
    import torch

# From positions of rows (n,) and vectors (n, k, d) to P(1|x) and its gradient; the vectors replace embeddings of k
# features per row.
GradientFunction = Callable[[Ints, Floats], tuple[Floats, Floats]]


# Changes of parameters that keep all predictions: a constant moved between the effects of a feature and the bias, the
# part of the embeddings that is orthogonal to the weights, and the scale of embeddings relative to the weights.
ParameterChange = Literal["constant", "orthogonal", "scale"]


class InspectionDepth(IntEnum):
    """How deep below its predictions a component looked into a model.

    A reparametrisation changes the parameters of a model and none of its predictions. The depth determines which
    reparametrisations can change the results of the component.
    """

    PREDICTIONS = 0  # of complete inputs: no reparametrisation changes these
    EFFECTS = 1  # effects of single values, or predictions of inputs with deleted features: 'constant' changes these
    EMBEDDINGS = 2  # every reparametrisation can change these


class Access(IntEnum):
    """What a component may use of a model; each level includes those below."""

    NOTHING = 0
    LABEL = 1
    PROBABILITY = 2
    GRADIENT = 3  # embeddings and gradients
    WHITE_BOX = 4


class Classifier(ABC):
    """Predicts classes, which every model does."""

    @abstractmethod
    def predict(self, codes: Codes) -> Ints:
        """Return the classes (n,) of codes (n, M), as indices of the dataset's classes."""


class Probabilistic(Classifier):
    """Predicts class probabilities; the predicted class is the most probable one, the first of equal ones."""

    @abstractmethod
    def predict_proba(self, codes: Codes) -> Floats:
        """Return the probabilities (n, C) of codes (n, M), in the order of the dataset's classes."""

    def predict(self, codes: Codes) -> Ints:
        """Return the most probable classes (n,)."""
        return np.asarray(np.argmax(self.predict_proba(codes), axis=1), dtype=np.int64)


class BinaryModel(Probabilistic):
    """A model of two classes that computes P(1|x) alone; it predicts class 1 if that exceeds 0.5."""

    @abstractmethod
    def predict_positive(self, codes: Codes) -> Floats:
        """Return P(1|x) (n,) of codes (n, M); an absent feature has no effect on the logit."""

    def predict_proba(self, codes: Codes) -> Floats:
        """Return the probabilities (n, 2) of codes (n, M)."""
        positive = self.predict_positive(codes)
        return np.stack([1.0 - positive, positive], axis=1)


class SupportsEdits(BinaryModel):
    """Evaluates edits without constructing every edited row."""

    @abstractmethod
    def predict_edited(self, codes: Codes, features: Ints, positions: Ints, values: Codes) -> Floats:
        """Return P(1|x) (m,) of edits; edit i sets the features (n, k) of the row at positions[i] to values[i].

        `positions` may have the shape (1,) if all edits belong to one row. Where a feature is NO_FEATURE, the value is
        ABSENT.
        """


class HasEmbeddings(ABC):
    """Represents each value by a vector, and absent features by zero."""

    @abstractmethod
    def embed_values(self, feature: int, codes: Codes) -> Floats:
        """Return the embeddings (n, d) of values of one feature."""


class SupportsBatchedEmbedding(HasEmbeddings):
    """Embeds values of several features in one call."""

    @abstractmethod
    def embed_features(self, features: Ints, codes: Codes) -> Floats:
        """Return the embeddings (n, d) of values (n,), each of its own feature (n,)."""


class HasGradient(HasEmbeddings):
    """Evaluates any embeddings, differentiably."""

    @abstractmethod
    def predict_proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the probabilities (n, C) of embeddings (n, M, d), differentiable."""


class HasLogits(HasGradient):
    """Computes logits, which are exact where probabilities round to 0 or 1."""

    @abstractmethod
    def compute_logits_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """Return the logits (n, C) of embeddings (n, M, d), differentiable; their softmax is the probabilities."""


class HasAnalyticGradient(BinaryModel, HasEmbeddings):
    """Computes its gradient without automatic differentiation."""

    @abstractmethod
    def make_gradient_function(self, codes: Codes, features: Ints) -> GradientFunction:
        """Return a function of P(1|x) and its gradient in the embeddings of some features."""


class HasLinearLogit(HasEmbeddings):
    """A model of two classes whose logit is linear in the embeddings."""

    @abstractmethod
    def compute_logits(self, codes: Codes) -> Floats:
        """Return log P(1|x) - log P(0|x)."""

    @abstractmethod
    def get_slopes(self) -> Floats:
        """Return ∂ logit / ∂ embedding (M, d)."""


class HasAdditiveEffects(ABC):
    """A model whose logit of each class against the others is a constant plus one effect per feature.

    The logit of class c against the others is f_c minus the mean of f_c′ over all other classes c′, with f = log P(·|x)
    up to a constant. For two classes it is log P(c|x) - log P(c′|x).
    """

    @abstractmethod
    def compute_effects(self, codes: Codes, classes: Ints) -> Floats:
        """Return the effects (n, M) of the values on the logit of one class (n,) for each row."""

    @abstractmethod
    def compute_value_effects(self, feature: int, target: int) -> Floats:
        """Return the effects (V,) of all values of a feature on the logit of a class."""

    @abstractmethod
    def compute_mean_effects(self) -> Floats:
        """Return the mean effects (C, M) of the features on each class over the training set."""


@dataclass(frozen=True)
class Leaves:
    """A decision tree as its leaves; every input belongs to exactly one of them."""

    boxes: tuple[Bools, ...]  # for each feature, whether a leaf accepts each value (L, V)
    probabilities: Floats  # (L, C)

    def accepts(self, feature: int, codes: Codes) -> Bools:
        """Return whether each leaf accepts the values (n,) of a feature: (n, L)."""
        return self.boxes[feature].T[codes]


class HasLeaves(ABC):
    """A model that is one decision tree."""

    @abstractmethod
    def get_leaves(self) -> Leaves:
        """Return the leaves of the tree."""


class HasUsedFeatures(ABC):
    """Has a list of the features that its predictions may depend on."""

    @abstractmethod
    def get_used_features(self) -> Bools:
        """Return whether the model uses each feature (M,)."""


class HasEncodedEstimator(ABC):
    """An estimator of another library with an encoder, for packages that read such estimators."""

    @abstractmethod
    def get_estimator(self) -> object:
        """Return the estimator."""

    @abstractmethod
    def encode(self, codes: Codes) -> Floats:
        """Return the estimator's input (n, W) for codes (n, M)."""

    @abstractmethod
    def get_column_features(self) -> Ints:
        """Return the feature (W,) of each column of the estimator's input."""

    @abstractmethod
    def get_estimator_classes(self) -> Ints:
        """Return the classes of the estimator, in the order of its probabilities."""


class Reparametrisable(HasLinearLogit):
    """Has other parameters with the same predictions for every input."""

    @abstractmethod
    def list_changes(self, *, padded: bool) -> tuple[ParameterChange, ...]:
        """Return the possible changes; with `padded`, rows may have absent features at the end."""

    @abstractmethod
    def reparametrise(self, dataset: Dataset, changes: Collection[ParameterChange], rng: np.random.Generator) -> Model:
        """Return a model with other parameters and the same predictions.

        A change is drawn independently of the other changes that are applied with it.
        """


class HasArrays(ABC):
    """Is described completely by arrays."""

    @abstractmethod
    def to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for model.npz."""


class Fingerprinted(ABC):
    """Declares what its results depend on besides settings and code, such as files, services or weights."""

    @abstractmethod
    def fingerprint(self) -> str | None:
        """Return a text that is equal exactly if the results are; None if that is unknown."""


# A model of any kind: every model predicts classes, and only its base classes declare more.
Model = Classifier


class Trainable(ABC):
    """The settings of a model; the return annotation of `fit` declares the abilities of the trained model."""

    @abstractmethod
    def fit(self, dataset: Dataset, seed: int) -> Model:
        """Return a model trained on the training split."""


class DeclaresOutputType(Trainable):
    """Settings that determine the abilities of the trained model."""

    @abstractmethod
    def output_type(self, dataset: Dataset) -> type:
        """Return the class of the trained model, before training."""


class SupportsFeatureSubset(Trainable):
    """Settings of a model that can be trained on a subset of the features."""

    @property
    @abstractmethod
    def blind(self) -> Sequence[str] | float:
        """The names of the hidden features, or the share of features to hide at random."""


class DistilledModel(Trainable):
    """Settings of a model that is trained on the predictions of another model."""

    student: Trainable  # trained on the predictions of the teacher
    teacher: Trainable  # trained first, on the labels


class Restorable(Trainable):
    """Restores a trained model from its arrays."""

    @abstractmethod
    def restore(self, arrays: Mapping[str, NDArray[Any]]) -> Model:
        """Return the trained model; raise a ValueError if the arrays are invalid."""


class BlackBox(Probabilistic):
    """The class of a trained model whose settings do not declare one: it is assumed to predict probabilities only.

    It is never instantiated. Compare `ModelSpec.from_settings`.
    """

    def predict_proba(self, codes: Codes) -> Floats:
        """Raise an error: the class stands for a model before training, and has no instances."""
        raise TypeError("a black box is a kind of model, not a model")


ABILITY_DESCRIPTIONS: dict[Any, str] = {
    Classifier: "classes",
    Probabilistic: "probabilities",
    HasEmbeddings: "embeddings",
    HasGradient: "gradients in the embeddings",
    HasLinearLogit: "a logit that is linear in the embeddings",
    HasEncodedEstimator: "a trained estimator on the columns of a table",
    Reparametrisable: "other parameters for the same predictions",
    HasLeaves: "a decision tree",
    HasUsedFeatures: "the list of the features that it uses",
    HasAdditiveEffects: "a logit that is a sum of effects, one for each feature",
}
_REQUIRED_ABILITIES: dict[Access, type] = {
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
    """The dataset and the abilities of the model, as known before training."""

    dataset: Dataset
    kind: type  # of the trained model
    blind: bool = False  # trained on a subset of the features; a trained model: uses a subset, as a tree may

    @staticmethod
    def from_settings(dataset: Dataset, model: Trainable) -> ModelSpec:
        """Return the specification of the model that results from training with these settings.

        Its class is the result of `output_type`, else the return annotation of `fit`. Some settings are trained models
        themselves; then it is their own class. Otherwise it is `BlackBox`.
        """
        blind = isinstance(model, SupportsFeatureSubset) and bool(model.blind)
        if isinstance(model, DeclaresOutputType):
            return ModelSpec(dataset, model.output_type(dataset), blind)
        try:
            kind = get_type_hints(type(model).fit).get("return")
        except (NameError, TypeError, AttributeError):  # annotations that only a type checker resolves
            kind = None
        if not isinstance(kind, type) or not issubclass(kind, Classifier):
            kind = type(model) if isinstance(model, Classifier) else BlackBox
        return ModelSpec(dataset, kind, blind)

    @staticmethod
    def from_model(dataset: Dataset, model: Model) -> ModelSpec:
        """Return the specification of a trained model."""
        return ModelSpec(
            dataset, type(model), isinstance(model, HasUsedFeatures) and not model.get_used_features().all()
        )

    def supports(self, ability: type) -> bool:
        """Return whether the model will have an ability, which is a class of this module."""
        return issubclass(self.kind, ability)

    def missing_ability_reason(self, *abilities: type) -> str | None:
        """Return the reason why something that needs these abilities is not applicable; None if it is applicable."""
        missing = next((ability for ability in abilities if not self.supports(ability)), None)
        if missing is None:
            return None
        if missing in (Probabilistic, HasAdditiveEffects) and not self.supports(Probabilistic):
            description = ABILITY_DESCRIPTIONS[missing]
            return f"needs {description}, but this model returns labels only: pass predict_proba to compute more"
        return f"needs {ABILITY_DESCRIPTIONS[missing]}, which this model ({self.name}) does not give"

    def missing_access_reason(self, access: Access) -> str | None:
        """Return the reason why a component with this access level is not applicable; None if it is applicable."""
        return self.missing_ability_reason(_REQUIRED_ABILITIES[access]) if access in _REQUIRED_ABILITIES else None

    @property
    def name(self) -> str:
        """The model as messages call it."""
        return "a black box" if self.kind is BlackBox else self.kind.__name__
