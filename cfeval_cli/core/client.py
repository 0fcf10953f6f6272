"""The one door to a model: it lets through a level of access, counts the rows asked, and knows what a class is."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core.cost import Cost
from cfeval_cli.core.data import ABSENT, NO_FEATURE, Bools, Codes, Floats, Ints
from cfeval_cli.core.memory import evaluate_unique_rows
from cfeval_cli.core.model import (
    DESCRIPTIONS,
    Access,
    BinaryModel,
    Classifier,
    GradientFunction,
    HasAdditiveEffects,
    HasAnalyticGradient,
    HasEmbeddings,
    HasEncodedEstimator,
    HasGradient,
    HasLeaves,
    HasLinearLogit,
    HasLogits,
    HasReadFeatures,
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
_Answer = TypeVar("_Answer")

Query = Callable[[Codes], NDArray[Any]]  # that a model answers: classes (n,) or probabilities (n, C) of rows


def evaluate_directly(question: Query, codes: Codes) -> NDArray[Any]:
    """A question put to the model now, by itself."""
    return question(codes)


class Ledger:
    """What each component asked of the model, and how long it took; if `records_depth`, how deep it looked.

    `ask` puts the questions of its gates to a model that is not asked in a cheaper way.
    """

    def __init__(
        self, *, records_depth: bool = False, evaluate: Callable[[Query, Codes], NDArray[Any]] = evaluate_directly
    ) -> None:
        self.evaluate = evaluate
        self.rows: Counter[str] = Counter()
        self.calls: defaultdict[str, float] = defaultdict(float)
        self.records_depth = records_depth
        self.depths: dict[str, InspectionDepth] = {}
        self.seconds: defaultdict[str, float] = defaultdict(float)
        self.model_seconds: defaultdict[str, float] = defaultdict(float)

    def record(self, component: str, cost: Cost) -> None:
        """Write work that was done elsewhere to a component's account."""
        self.rows[component] += cost.rows
        self.calls[component] += cost.calls
        self.seconds[component] += cost.seconds
        self.model_seconds[component] += cost.model_seconds

    def add(self, component: str, other: Ledger) -> None:
        """Write all that another ledger has to one account."""
        for one in list(other.rows):
            self.record(component, other.get_cost(one))

    def get_cost(self, component: str) -> Cost:
        """What stands on a component's account."""
        return Cost(self.rows[component], self.calls[component], self.seconds[component], self.model_seconds[component])

    def record_depth(self, component: str, depth: InspectionDepth) -> None:
        """Write down how deep a component looked."""
        self.depths[component] = max(depth, self.get_depth(component))

    def get_depth(self, component: str) -> InspectionDepth:
        """How deep an asker has looked."""
        return self.depths.get(component, InspectionDepth.PREDICTIONS)

    @contextmanager
    def measure_time(self, component: str) -> Iterator[None]:
        """Write the time that passes to a component's account."""
        begun = time.perf_counter()
        yield
        self.record(component, Cost(seconds=time.perf_counter() - begun))

    def open_client(self, model: Model, access: Access, component: str, *, padded: bool = False) -> ModelClient:
        """A gate whose rows are written to the component's account; rows are `padded` if they may end early."""
        self.rows[component] += 0
        return ModelClient(model, access, self, component, padded=padded)


class ModelClient:
    """A model as one component sees it. A class is a number; `of` names one for each row, mostly the predicted one."""

    def __init__(self, model: Model, access: Access, ledger: Ledger, component: str, *, padded: bool = False) -> None:
        self._model, self.access, self._ledger, self._component = model, access, ledger, component
        self._binary = model if isinstance(model, BinaryModel) else None
        self._editable = model if isinstance(model, SupportsEdits) else None
        self._likely = isinstance(model, BinaryModel | Probabilistic)
        self._padded = padded
        self.has_embeddings = isinstance(model, HasEmbeddings) and access >= Access.GRADIENT
        # made once: questions that are the same are put together
        self._answer: Query | None = None
        if isinstance(model, Probabilistic):
            self._answer = partial(self._timed, evaluate_unique_rows, model.predict_proba)
        elif isinstance(model, Classifier):
            self._answer = partial(self._timed, evaluate_unique_rows, model.predict)

    @property
    def has_linear_logit(self) -> bool:
        """Whether `line` may be asked."""
        return isinstance(self._model, HasLinearLogit) and self.access >= Access.GRADIENT

    def predict_labels(self, codes: Codes) -> Ints:
        """Predicted classes of (n, M) codes."""
        self._ask(Access.LABEL, len(codes))
        self._watch(codes)
        if self._binary is not None:
            return (self._timed(self._binary.predict_positive, codes) > 0.5).astype(np.int64)
        self._check(codes)
        answer = self._ledger.evaluate(self._answer or self._of(Classifier).predict, codes)
        return _likeliest(answer) if isinstance(self._model, Probabilistic) else np.asarray(answer, dtype=np.int64)

    def predict_with_proba(self, codes: Codes, of: Ints) -> tuple[Ints, Floats | None]:
        """Predicted classes (n,) and the probability of each row's class `of`, if it may be asked and there is one."""
        if self.access < Access.PROBABILITY or not self._likely:
            return self.predict_labels(codes), None
        if self._binary is not None:
            self._ask(Access.PROBABILITY, len(codes))
            self._watch(codes)
            positive = self._timed(self._binary.predict_positive, codes)
            return (positive > 0.5).astype(np.int64), _probability_of(of, positive)
        probabilities = self.predict_proba(codes)
        return _likeliest(probabilities), probabilities[np.arange(len(codes)), of]

    def predict_proba(self, codes: Codes) -> Floats:
        """The probabilities (n, C) of all classes."""
        self._ask(Access.PROBABILITY, len(codes))
        self._watch(codes)
        self._check(codes)
        answer = self._answer if isinstance(self._model, Probabilistic) else None
        return np.asarray(
            self._ledger.evaluate(answer or self._of(Probabilistic).predict_proba, codes), dtype=np.float64
        )

    def predict_class_proba(self, codes: Codes, of: Ints) -> Floats:
        """The probability (n,) of each row's class `of`."""
        self._permit(Access.PROBABILITY)
        _, probability = self.predict_with_proba(codes, of)
        if probability is None:
            raise Failure(f"{self._component} asked for probabilities that there are not.")
        return probability

    def evaluate_edits(
        self, codes: Codes, features: Ints, rows: Ints, values: Codes, of: Ints
    ) -> tuple[Bools, Floats | None]:
        """Of edits: whether each (m,) is predicted otherwise than `of` (n,), and the probability of that class.

        The features (n, k) of some rows (m,) get the values (m, k). `rows` may be (1,) if all edits are of one row;
        where no feature is named, the value is ABSENT. No probability with label access.
        """
        if self._editable is None:
            everyone = np.broadcast_to(rows, len(values))
            labels, probability = self.predict_with_proba(
                apply_edits(codes, features, everyone, values), of.take(everyone)
            )
            return labels != of.take(everyone), probability
        self._ask(Access.LABEL, len(values))
        if self._ledger.records_depth:
            self._watch(apply_edits(codes, features, np.broadcast_to(rows, len(values)), values))
        positive = self._timed(self._editable.predict_edited, codes, features, rows, values)
        was = (of == 1).take(rows)
        flips = (positive > 0.5) != was
        return flips, None if self.access < Access.PROBABILITY else np.where(was, positive, 1.0 - positive)

    def embed_values(self, feature: int, codes: Codes) -> Floats:
        """Embeddings (n, d) of values of one feature."""
        self._permit(Access.GRADIENT)
        return self._of(HasEmbeddings).embed_values(feature, codes)

    def embed_features(self, features: Ints, codes: Codes) -> Floats:
        """Embeddings (n, d) of one value (n,) each, of any features (n,)."""
        self._permit(Access.GRADIENT)
        return embed_features(self._of(HasEmbeddings), features, codes)

    def embed_rows(self, codes: Codes) -> Floats:
        """Embeddings (n, M, d) of whole rows."""
        self._permit(Access.GRADIENT)
        return embed_rows(self._of(HasEmbeddings), codes)

    def make_gradient_function(self, codes: Codes, features: Ints, of: Ints, times: float) -> GradientFunction:
        """A function of (rows, vectors (n, k, d)): the probability of `of` with those rows' features moved there.

        And `times` its gradient.
        """
        self._permit(Access.GRADIENT)
        if not isinstance(self._model, HasAnalyticGradient):
            return self._derived(codes, features, of, times)
        known = self._model.make_gradient_function(codes, features)
        signs = np.where(of == 1, times, -times)

        def counted(rows: Ints, vectors: Floats) -> tuple[Floats, Floats]:
            self._ask(Access.GRADIENT, len(rows))
            positive, gradient = self._timed(known, rows, vectors)
            gradient *= signs[rows, None, None]
            return _probability_of(of[rows], positive), gradient

        return counted

    def evaluate_moved(self, codes: Codes, features: Ints, vectors: Floats, of: Ints) -> tuple[Ints, Floats]:
        """Predicted classes (n,) with the features (n, k) moved to vectors (n, k, d), and the probability of `of`."""
        self._ask(Access.GRADIENT, len(vectors))
        if isinstance(self._model, HasAnalyticGradient):
            positive, _ = self._timed(
                self._model.make_gradient_function(codes, features), np.arange(len(vectors)), vectors
            )
            return (positive > 0.5).astype(np.int64), _probability_of(of, positive)
        import torch

        whole = self._moved(
            torch.as_tensor(embed_rows(self._of(HasEmbeddings), codes)), features, torch.as_tensor(vectors)
        )
        probabilities = self._timed(self._of(HasGradient).predict_proba_embedded, whole).detach().numpy()
        return _likeliest(probabilities), probabilities[np.arange(len(vectors)), of]

    def _derived(self, codes: Codes, features: Ints, of: Ints, times: float) -> GradientFunction:
        """By autograd on whole rows, for models that do not know their gradient."""
        import torch

        whole, model = torch.as_tensor(embed_rows(self._of(HasEmbeddings), codes)), self._of(HasGradient)

        def slope(rows: Ints, vectors: Floats) -> tuple[Floats, Floats]:
            self._ask(Access.GRADIENT, len(rows))
            variable = torch.tensor(vectors, requires_grad=True)
            probabilities = model.predict_proba_embedded(self._moved(whole[rows], features[rows], variable))
            chosen = probabilities[torch.arange(len(rows)), torch.as_tensor(of[rows])]
            (gradient,) = torch.autograd.grad(chosen.sum(), variable)
            return chosen.detach().numpy(), times * gradient.numpy()

        return partial(self._timed, slope)

    @staticmethod
    def _moved(whole: torch.Tensor, features: Ints, vectors: torch.Tensor) -> torch.Tensor:
        """Embeddings (n, M, d) in which those of some features are exchanged."""
        import torch

        here, places = np.nonzero(features != NO_FEATURE)
        at = (torch.as_tensor(here), torch.as_tensor(features[here, places]))
        return whole.index_put(at, vectors[here, places])

    def compute_logit_gradient(self, vectors: Floats, of: int) -> Floats:
        """The gradient (n, M, d), at embeddings (n, M, d), of the logit of a class less the mean of the others'."""
        self._ask(Access.GRADIENT, len(vectors))
        import torch

        variable = torch.tensor(vectors, requires_grad=True)
        if isinstance(self._model, HasLogits):
            logits = self._timed(self._model.compute_logits_embedded, variable)
        else:
            logits = torch.log(self._timed(self._of(HasGradient).predict_proba_embedded, variable))
        others = torch.arange(logits.shape[1]) != of
        (found,) = torch.autograd.grad((logits[:, of] - logits[:, others].mean(dim=1)).sum(), variable)
        return np.asarray(found.numpy())

    def get_encoded_estimator(self) -> HasEncodedEstimator:
        """What stands behind the encoder of an estimator; what is done with it is not counted."""
        self._permit(Access.WHITE_BOX)
        return self._of(HasEncodedEstimator)

    def compute_linear_logits(self, codes: Codes) -> tuple[Floats, Floats]:
        """Logits (n,) and their slopes ∂ logit / ∂ embedding (M, d), of a linear model."""
        self._ask(Access.GRADIENT, len(codes))
        return self._timed(self._of(HasLinearLogit).compute_logits, codes), self._of(HasLinearLogit).get_slopes()

    def compute_effects(self, codes: Codes, of: Ints) -> Floats:
        """Effects (n, M) of the values on the logit of each row's class `of`."""
        self._permit(Access.WHITE_BOX)
        return self._of(HasAdditiveEffects).compute_effects(codes, of)

    def compute_value_effects(self, feature: int, of: int) -> Floats:
        """Effects of every value of one feature on the logit of one class."""
        self._permit(Access.WHITE_BOX)
        return self._of(HasAdditiveEffects).compute_value_effects(feature, of)

    def compute_mean_effects(self) -> Floats:
        """Mean effect (C, M) of each feature on each class over the training set."""
        self._permit(Access.WHITE_BOX)
        return self._of(HasAdditiveEffects).compute_mean_effects()

    def get_leaves(self) -> Leaves:
        """All that a decision tree says."""
        self._permit(Access.WHITE_BOX)
        return self._of(HasLeaves).get_leaves()

    def get_used_features(self) -> Bools | None:
        """Whether each feature (M,) is read; None if the model does not know."""
        self._permit(Access.WHITE_BOX)
        return self._model.get_used_features() if isinstance(self._model, HasReadFeatures) else None

    @property
    def has_effects(self) -> bool:
        """Whether effects may be asked."""
        return isinstance(self._model, HasAdditiveEffects) and self.access >= Access.WHITE_BOX

    @property
    def has_leaves(self) -> bool:
        """Whether leaves may be asked."""
        return isinstance(self._model, HasLeaves) and self.access >= Access.WHITE_BOX

    def _of(self, ability: type[_Ability]) -> _Ability:
        """The model, as one that has an ability."""
        if not isinstance(self._model, ability):
            what = DESCRIPTIONS[ability]
            raise Failure(f"{self._component} asked for {what}, which this model does not give.")
        return self._model

    def _permit(self, needed: Access) -> None:
        if self.access < needed:
            raise Failure(
                f"{self._component} declares {self.access.name.lower()} access but uses {needed.name.lower()} access."
            )
        if self._ledger.records_depth and needed in _DEPTHS:
            self._ledger.record_depth(self._component, _DEPTHS[needed])

    def _ask(self, needed: Access, rows: int) -> None:
        self._permit(needed)
        self._ledger.rows[self._component] += rows

    def _timed(self, function: Callable[..., _Answer], *arguments: Any) -> _Answer:
        """What the model answers in one call, which goes with its time on the component's account."""
        begun = time.perf_counter()
        answer = function(*arguments)
        self._ledger.calls[self._component] += 1
        self._ledger.model_seconds[self._component] += time.perf_counter() - begun
        return answer

    def _check(self, codes: Codes) -> None:
        """Keep the code for "absent" from a model that has no embedding for it; a text may end early."""
        if not isinstance(self._model, HasEmbeddings) and self._deleted(codes):
            raise Failure(f"{self._component} deletes features of an input, and this model has no embedding for that.")

    def _watch(self, codes: Codes) -> None:
        """Write down if features of an input are deleted, of which no prediction of a whole input tells."""
        if self._ledger.records_depth and self._deleted(codes):
            self._ledger.record_depth(self._component, InspectionDepth.EFFECTS)

    def _deleted(self, codes: Codes) -> bool:
        """Whether features are absent that no whole input lacks; one that may end early lacks the last ones."""
        gone = codes == ABSENT
        return bool((gone[:, :-1] & ~gone[:, 1:]).any() if self._padded else gone.any())


# what a permission lets a component see; below that, predictions
_DEPTHS = {Access.GRADIENT: InspectionDepth.EMBEDDINGS, Access.WHITE_BOX: InspectionDepth.EFFECTS}


def apply_edits(codes: Codes, features: Ints, rows: Ints, values: Codes) -> Codes:
    """The edited rows (m, M), for models that cannot evaluate edits more cheaply."""
    edited = codes[rows]
    edits, places = np.nonzero(features[rows] != NO_FEATURE)
    edited[edits, features[rows[edits], places]] = values[edits, places]
    return edited


def embed_rows(model: HasEmbeddings, codes: Codes) -> Floats:
    """Embeddings (n, M, d) of whole rows."""
    return np.stack([model.embed_values(j, codes[:, j]) for j in range(codes.shape[1])], axis=1)


def embed_features(model: HasEmbeddings, features: Ints, codes: Codes) -> Floats:
    """Embeddings (n, d) of one value (n,) each, of any features (n,)."""
    if isinstance(model, SupportsBatchedEmbedding):
        return model.embed_features(features, codes)
    dim = model.embed_values(0, np.zeros(1, dtype=np.int32)).shape[1]
    picked = np.zeros((len(codes), dim))
    for j in np.unique(features):
        rows = features == j
        picked[rows] = model.embed_values(int(j), codes[rows])
    return picked


def _likeliest(probabilities: Floats) -> Ints:
    """The class (n,) with the largest probability (n, C); of two it is the second exactly if that is over 0.5."""
    return np.asarray(np.argmax(probabilities, axis=1), dtype=np.int64)


def _probability_of(of: Ints, positive: Floats) -> Floats:
    """The probability of each row's class, from P(1|x)."""
    return np.where(of == 1, positive, 1.0 - positive)
