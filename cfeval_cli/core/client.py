"""The client through which components evaluate a model: it enforces the access level and counts evaluations."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core.cost import Cost
from cfeval_cli.core.data import ABSENT, NO_FEATURE, Bools, Codes, Floats, Ints
from cfeval_cli.core.evaluation_cache import evaluate_unique_rows
from cfeval_cli.core.model import (
    ABILITY_DESCRIPTIONS,
    Access,
    BinaryModel,
    GradientFunction,
    HasAdditiveEffects,
    HasAnalyticGradient,
    HasEmbeddings,
    HasEncodedEstimator,
    HasGradient,
    HasLeaves,
    HasLinearLogit,
    HasLogits,
    HasUsedFeatures,
    InspectionDepth,
    Leaves,
    Model,
    Probabilistic,
    SupportsBatchedEmbedding,
    SupportsEdits,
)
from cfeval_cli.errors import Failure

if TYPE_CHECKING:
    import torch

_Ability = TypeVar("_Ability")
_Result = TypeVar("_Result")

# The prediction function of a model: from rows (n, M) to classes (n,) or probabilities (n, C).
PredictFunction = Callable[[Codes], NDArray[Any]]


def evaluate_directly(predict: PredictFunction, codes: Codes) -> NDArray[Any]:
    """Evaluate the model on rows in one call of its own."""
    return predict(codes)


class LedgerKey(NamedTuple):
    """The part of a run that a cost belongs to, such as one explainer, or its search at one level of access."""

    part: str
    name: str = ""
    access: Access | None = None

    def __str__(self) -> str:
        access = "" if self.access is None else self.access.name.lower()
        return ".".join(filter(None, (self.part, self.name, access)))


class Ledger:
    """The evaluations and computing time of each component; with `records_depth` also its inspection depth.

    All clients of a ledger call the model through its `evaluate`. A run replaces that to evaluate the rows of several
    instances in one call, whose cost it then divides among their components.
    """

    def __init__(
        self,
        *,
        records_depth: bool = False,
        evaluate: Callable[[PredictFunction, Codes], NDArray[Any]] = evaluate_directly,
    ) -> None:
        self.evaluate = evaluate
        self.n_evaluations: Counter[LedgerKey] = Counter()
        self.calls: defaultdict[LedgerKey, float] = defaultdict(float)
        self.records_depth = records_depth
        self.depths: dict[LedgerKey, InspectionDepth] = {}
        self.seconds: defaultdict[LedgerKey, float] = defaultdict(float)
        self.model_seconds: defaultdict[LedgerKey, float] = defaultdict(float)

    def record(self, component: LedgerKey, cost: Cost) -> None:
        """Add a cost to that of a component."""
        self.n_evaluations[component] += cost.n_evaluations
        self.calls[component] += cost.calls
        self.seconds[component] += cost.seconds
        self.model_seconds[component] += cost.model_seconds

    def add(self, component: LedgerKey, other: Ledger) -> None:
        """Add all costs of another ledger to that of one component."""
        for name in list(other.n_evaluations):
            self.record(component, other.get_cost(name))

    def get_cost(self, component: LedgerKey) -> Cost:
        """Return the cost of a component."""
        return Cost(
            self.n_evaluations[component], self.calls[component], self.seconds[component], self.model_seconds[component]
        )

    def record_depth(self, component: LedgerKey, depth: InspectionDepth) -> None:
        """Record the inspection depth of a component; the largest one is kept."""
        self.depths[component] = max(depth, self.get_depth(component))

    def get_depth(self, component: LedgerKey) -> InspectionDepth:
        """Return the largest recorded inspection depth of a component."""
        return self.depths.get(component, InspectionDepth.PREDICTIONS)

    @contextmanager
    def measure_time(self, component: LedgerKey) -> Iterator[None]:
        """Add the time spent in the context to the cost of a component."""
        started = time.perf_counter()
        yield
        self.record(component, Cost(seconds=time.perf_counter() - started))

    def open_client(self, model: Model, access: Access, component: LedgerKey, *, padded: bool = False) -> ModelClient:
        """Return a client that counts for a component; with `padded`, rows may have absent features at the end."""
        self.n_evaluations[component] += 0  # components that evaluate nothing are listed too, with a cost of zero
        return ModelClient(model, access, self, component, padded=padded)


class ModelClient:
    """A model with the access level of one component.

    Classes are integers. The argument `classes` (n,) is one class for each row, mostly the predicted one.
    """

    def __init__(
        self, model: Model, access: Access, ledger: Ledger, component: LedgerKey, *, padded: bool = False
    ) -> None:
        self._model, self.access, self._ledger, self._component = model, access, ledger, component
        self._binary = model if isinstance(model, BinaryModel) else None
        self._editable = model if isinstance(model, SupportsEdits) else None
        self._has_probabilities = isinstance(model, Probabilistic)
        # Embeddings represent absent features by zero; P(1|x) of a binary model leaves them out of the logit.
        self._supports_deletion = isinstance(model, HasEmbeddings | BinaryModel)
        self._padded = padded
        self.has_embeddings = isinstance(model, HasEmbeddings) and access >= Access.GRADIENT
        # One object for all calls, because rows for the same function are evaluated in one batch.
        predict: PredictFunction = model.predict_proba if isinstance(model, Probabilistic) else model.predict
        self._predict_unique_rows = partial(self._call, evaluate_unique_rows, predict)

    @property
    def has_linear_logit(self) -> bool:
        """Whether `compute_linear_logits` is available."""
        return isinstance(self._model, HasLinearLogit) and self.access >= Access.GRADIENT

    def predict_labels(self, codes: Codes) -> Ints:
        """Return the predicted classes (n,) of codes (n, M)."""
        self._count_predictions(Access.LABEL, codes)
        if self._binary is not None:
            return (self._call(self._binary.predict_positive, codes) > 0.5).astype(np.int64)
        result = self._ledger.evaluate(self._predict_unique_rows, codes)
        if self._has_probabilities:
            return _select_most_probable(result)
        return np.asarray(result, dtype=np.int64)

    def predict_with_proba(self, codes: Codes, classes: Ints) -> tuple[Ints, Floats | None]:
        """Return the predicted classes (n,), and p(class) (n,) if the access level and the model provide it."""
        if self.access < Access.PROBABILITY or not self._has_probabilities:
            return self.predict_labels(codes), None
        if self._binary is not None:
            self._count_predictions(Access.PROBABILITY, codes)
            positive = self._call(self._binary.predict_positive, codes)
            return (positive > 0.5).astype(np.int64), _select_probability(classes, positive)
        probabilities = self.predict_proba(codes)
        return _select_most_probable(probabilities), probabilities[np.arange(len(codes)), classes]

    def predict_proba(self, codes: Codes) -> Floats:
        """Return the probabilities (n, C) of all classes."""
        self._count_predictions(Access.PROBABILITY, codes)
        self._require(Probabilistic)
        return np.asarray(self._ledger.evaluate(self._predict_unique_rows, codes), dtype=np.float64)

    def predict_class_proba(self, codes: Codes, classes: Ints) -> Floats:
        """Return the probability (n,) that each row has its class in `classes` (n,)."""
        self._permit(Access.PROBABILITY)
        _, probability = self.predict_with_proba(codes, classes)
        if probability is None:
            raise Failure(f"{self._component} needs probabilities, which this model does not return.")
        return probability

    def evaluate_edits(
        self, codes: Codes, features: Ints, positions: Ints, values: Codes, classes: Ints
    ) -> tuple[Bools, Floats | None]:
        """Return whether each edit (m,) changes the class (n,) of its row, and the probability (m,) of that class.

        Edit i sets the features (n, k) of the row at positions[i] to values[i]. `positions` may have the shape (1,) if
        all edits belong to one row. Where a feature is NO_FEATURE, the value is ABSENT. Label access has no
        probability.
        """
        if self._editable is None:
            edited_positions = np.broadcast_to(positions, len(values))
            labels, probability = self.predict_with_proba(
                apply_edits(codes, features, edited_positions, values), classes.take(edited_positions)
            )
            return labels != classes.take(edited_positions), probability
        self._count(Access.LABEL, len(values))
        if self._ledger.records_depth:  # the edited rows are constructed for this only
            self._check_deletion(apply_edits(codes, features, np.broadcast_to(positions, len(values)), values))
        positive = self._call(self._editable.predict_edited, codes, features, positions, values)
        is_positive = (classes == 1).take(positions)
        flips = (positive > 0.5) != is_positive
        return flips, None if self.access < Access.PROBABILITY else np.where(is_positive, positive, 1.0 - positive)

    def embed_values(self, feature: int, codes: Codes) -> Floats:
        """Return the embeddings (n, d) of values of one feature."""
        self._permit(Access.GRADIENT)
        return self._require(HasEmbeddings).embed_values(feature, codes)

    def embed_features(self, features: Ints, codes: Codes) -> Floats:
        """Return the embeddings (n, d) of values (n,), each of its own feature (n,)."""
        self._permit(Access.GRADIENT)
        return embed_features(self._require(HasEmbeddings), features, codes)

    def embed_rows(self, codes: Codes) -> Floats:
        """Return the embeddings (n, M, d) of whole rows."""
        self._permit(Access.GRADIENT)
        return embed_rows(self._require(HasEmbeddings), codes)

    def make_gradient_function(self, codes: Codes, features: Ints, classes: Ints, scale: float) -> GradientFunction:
        """Return a function of the probability of each row's class, and of its gradient in the embeddings.

        Its arguments are positions of rows (n,) and the embeddings (n, k, d) that replace those of their features. The
        gradient is multiplied by `scale`.
        """
        self._permit(Access.GRADIENT)
        if not isinstance(self._model, HasAnalyticGradient):
            return self._make_autograd_function(codes, features, classes, scale)
        function = self._model.make_gradient_function(codes, features)
        signs = np.where(classes == 1, scale, -scale)

        def compute(positions: Ints, vectors: Floats) -> tuple[Floats, Floats]:
            self._count(Access.GRADIENT, len(positions))
            positive, gradient = self._call(function, positions, vectors)
            gradient *= signs[positions, None, None]
            return _select_probability(classes[positions], positive), gradient

        return compute

    def evaluate_embeddings(self, codes: Codes, features: Ints, vectors: Floats, classes: Ints) -> tuple[Ints, Floats]:
        """Return predictions (n,) and p(class) after the embeddings of features (n, k) became vectors (n, k, d)."""
        self._count(Access.GRADIENT, len(vectors))
        if isinstance(self._model, HasAnalyticGradient):
            function = self._model.make_gradient_function(codes, features)
            positive, _ = self._call(function, np.arange(len(vectors)), vectors)
            return (positive > 0.5).astype(np.int64), _select_probability(classes, positive)
        import torch

        embedded = torch.as_tensor(embed_rows(self._require(HasEmbeddings), codes))
        edited = self._replace_embeddings(embedded, features, torch.as_tensor(vectors))
        probabilities = self._call(self._require(HasGradient).predict_proba_embedded, edited).detach().numpy()
        return _select_most_probable(probabilities), probabilities[np.arange(len(vectors)), classes]

    def _make_autograd_function(self, codes: Codes, features: Ints, classes: Ints, scale: float) -> GradientFunction:
        """Return the function of `make_gradient_function` for models without an analytic gradient."""
        import torch

        embedded = torch.as_tensor(embed_rows(self._require(HasEmbeddings), codes))
        model = self._require(HasGradient)

        def compute(positions: Ints, vectors: Floats) -> tuple[Floats, Floats]:
            self._count(Access.GRADIENT, len(positions))
            variable = torch.tensor(vectors, requires_grad=True)
            edited = self._replace_embeddings(embedded[positions], features[positions], variable)
            probabilities = model.predict_proba_embedded(edited)
            selected = probabilities[torch.arange(len(positions)), torch.as_tensor(classes[positions])]
            (gradient,) = torch.autograd.grad(selected.sum(), variable)
            return selected.detach().numpy(), scale * gradient.numpy()

        return partial(self._call, compute)

    @staticmethod
    def _replace_embeddings(embedded: torch.Tensor, features: Ints, vectors: torch.Tensor) -> torch.Tensor:
        """Return embeddings (n, M, d) in which those of some features are replaced."""
        import torch

        rows, columns = np.nonzero(features != NO_FEATURE)
        indices = (torch.as_tensor(rows), torch.as_tensor(features[rows, columns]))
        return embedded.index_put(indices, vectors[rows, columns])

    def compute_logit_gradient(self, vectors: Floats, target: int) -> Floats:
        """Return the gradient (n, M, d), at embeddings (n, M, d), of a class's logit minus the mean of the others."""
        self._count(Access.GRADIENT, len(vectors))
        import torch

        variable = torch.tensor(vectors, requires_grad=True)
        if isinstance(self._model, HasLogits):
            logits = self._call(self._model.compute_logits_embedded, variable)
        else:
            logits = torch.log(self._call(self._require(HasGradient).predict_proba_embedded, variable))
        is_other_class = torch.arange(logits.shape[1]) != target
        (gradient,) = torch.autograd.grad((logits[:, target] - logits[:, is_other_class].mean(dim=1)).sum(), variable)
        return np.asarray(gradient.numpy())

    def get_encoded_estimator(self) -> HasEncodedEstimator:
        """Return the model with its estimator and encoder; evaluations of the estimator are not counted."""
        self._permit(Access.WHITE_BOX)
        return self._require(HasEncodedEstimator)

    def compute_linear_logits(self, codes: Codes) -> tuple[Floats, Floats]:
        """Return the logits (n,) of a linear model, and their slopes ∂ logit / ∂ embedding (M, d)."""
        self._count(Access.GRADIENT, len(codes))
        model = self._require(HasLinearLogit)
        return self._call(model.compute_logits, codes), model.get_slopes()

    def compute_effects(self, codes: Codes, classes: Ints) -> Floats:
        """Return the effects (n, M) of the values on the logit of one class for each row."""
        self._permit(Access.WHITE_BOX)
        return self._require(HasAdditiveEffects).compute_effects(codes, classes)

    def compute_value_effects(self, feature: int, target: int) -> Floats:
        """Return the effects (V,) of all values of a feature on the logit of a class."""
        self._permit(Access.WHITE_BOX)
        return self._require(HasAdditiveEffects).compute_value_effects(feature, target)

    def compute_mean_effects(self) -> Floats:
        """Return the mean effects (C, M) of the features on each class over the training set."""
        self._permit(Access.WHITE_BOX)
        return self._require(HasAdditiveEffects).compute_mean_effects()

    def get_leaves(self) -> Leaves:
        """Return the leaves of a decision tree."""
        self._permit(Access.WHITE_BOX)
        return self._require(HasLeaves).get_leaves()

    def get_used_features(self) -> Bools | None:
        """Return whether the model uses each feature (M,); None if that is unknown."""
        self._permit(Access.WHITE_BOX)
        return self._model.get_used_features() if isinstance(self._model, HasUsedFeatures) else None

    @property
    def has_effects(self) -> bool:
        """Whether the effects are available."""
        return isinstance(self._model, HasAdditiveEffects) and self.access >= Access.WHITE_BOX

    @property
    def has_leaves(self) -> bool:
        """Whether the leaves of a tree are available."""
        return isinstance(self._model, HasLeaves) and self.access >= Access.WHITE_BOX

    def _require(self, ability: type[_Ability]) -> _Ability:
        """Return the model, or raise a Failure if it lacks an ability."""
        if not isinstance(self._model, ability):
            raise Failure(f"{self._component} needs {ABILITY_DESCRIPTIONS[ability]}, which this model does not give.")
        return self._model

    def _permit(self, needed: Access) -> None:
        """Raise a Failure if the component did not declare the access that it uses."""
        if self.access < needed:
            raise Failure(
                f"{self._component} declares {self.access.name.lower()} access but uses {needed.name.lower()} access."
            )
        if self._ledger.records_depth and needed in _DEPTHS:
            self._ledger.record_depth(self._component, _DEPTHS[needed])

    def _count(self, needed: Access, rows: int) -> None:
        """Count evaluations, after checking the access level."""
        self._permit(needed)
        self._ledger.n_evaluations[self._component] += rows

    def _call(self, function: Callable[..., _Result], *arguments: Any) -> _Result:
        """Return the result of one call of the model, and count the call and its time."""
        started = time.perf_counter()
        result = function(*arguments)
        self._ledger.calls[self._component] += 1
        self._ledger.model_seconds[self._component] += time.perf_counter() - started
        return result

    def _count_predictions(self, needed: Access, codes: Codes) -> None:
        """Count predictions of rows, after checking the access level and whether the model can predict the rows."""
        self._count(needed, len(codes))
        if self._ledger.records_depth or not self._supports_deletion:
            self._check_deletion(codes)

    def _check_deletion(self, codes: Codes) -> None:
        """Record deleted features as inspection depth; raise a Failure if the model cannot predict without them.

        Predictions of rows with deleted features depend on more than those of whole inputs.
        """
        if not self._has_deleted(codes):
            return
        if self._ledger.records_depth:
            self._ledger.record_depth(self._component, InspectionDepth.EFFECTS)
        if not self._supports_deletion:
            raise Failure(f"{self._component} deletes features of an input, and this model has no embedding for that.")

    def _has_deleted(self, codes: Codes) -> bool:
        """Return whether features are absent other than the padding at the end of a text."""
        is_absent = codes == ABSENT
        return bool((is_absent[:, :-1] & ~is_absent[:, 1:]).any() if self._padded else is_absent.any())


# The inspection depth that an access level allows; lower levels allow predictions only.
_DEPTHS = {Access.GRADIENT: InspectionDepth.EMBEDDINGS, Access.WHITE_BOX: InspectionDepth.EFFECTS}


def apply_edits(codes: Codes, features: Ints, positions: Ints, values: Codes) -> Codes:
    """Return the edited rows (m, M): edit i sets the features (n, k) of the row at positions[i] to values[i]."""
    edited = codes[positions]
    edits, columns = np.nonzero(features[positions] != NO_FEATURE)
    edited[edits, features[positions[edits], columns]] = values[edits, columns]
    return edited


def embed_rows(model: HasEmbeddings, codes: Codes) -> Floats:
    """Return the embeddings (n, M, d) of whole rows."""
    return np.stack([model.embed_values(j, codes[:, j]) for j in range(codes.shape[1])], axis=1)


def embed_features(model: HasEmbeddings, features: Ints, codes: Codes) -> Floats:
    """Return the embeddings (n, d) of values (n,), each of its own feature (n,)."""
    if isinstance(model, SupportsBatchedEmbedding):
        return model.embed_features(features, codes)
    dim = model.embed_values(0, np.zeros(1, dtype=np.int32)).shape[1]
    embedded = np.zeros((len(codes), dim))
    for j in np.unique(features):
        rows = features == j
        embedded[rows] = model.embed_values(int(j), codes[rows])
    return embedded


def _select_most_probable(probabilities: Floats) -> Ints:
    """Return the class (n,) with the largest probability (n, C), the first of equal ones."""
    return np.asarray(np.argmax(probabilities, axis=1), dtype=np.int64)


def _select_probability(classes: Ints, positive: Floats) -> Floats:
    """Return the probability of one class for each row, given P(1|x)."""
    return np.where(classes == 1, positive, 1.0 - positive)
