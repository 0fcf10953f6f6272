"""The one door to a model: it lets through a level of access and counts the rows asked."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from cfeval_cli.errors import Failure, UserError
from cfeval_cli.types import NONE, Access, Codes, Floats, Ints, Line, WhiteBox

if TYPE_CHECKING:
    import torch


_T = TypeVar("_T")
_Edited = Callable[[Codes, Ints, Ints, Codes], _T]  # what a model has if it can evaluate edits without making every row


Slope = Callable[[Ints, Floats], tuple[Floats, Floats]]


class Ledger:
    """How many rows each component asked of the model, and how long it took."""

    def __init__(self) -> None:
        self.rows: Counter[str] = Counter()
        self.seconds: Counter[str] = Counter()  # of one core

    def book(self, asker: str, rows: int, seconds: float) -> None:
        """Write work that was done elsewhere to an asker's account."""
        self.rows[asker] += rows
        self.seconds[asker] += seconds  # type: ignore[assignment]

    @contextmanager
    def clock(self, asker: str) -> Iterator[None]:
        """Write the time that passes to an asker's account."""
        begun = time.perf_counter()
        yield
        self.book(asker, 0, time.perf_counter() - begun)

    def gate(self, model: WhiteBox, access: Access, asker: str) -> Gate:
        """A gate whose rows are written to the asker's account."""
        if model.access < access:
            raise UserError(
                f"{asker} needs {access.name.lower()} access, and the model offers {model.access.name.lower()} only."
            )
        self.rows[asker] += 0
        return Gate(model, access, self, asker)


class Gate:
    """A model as one component sees it."""

    def __init__(self, model: WhiteBox, access: Access, ledger: Ledger, asker: str) -> None:
        self._model, self.access, self._ledger, self._asker = model, access, ledger, asker

    def labels(self, codes: Codes) -> Ints:
        """Predicted classes of (n, M) codes."""
        self._ask(Access.LABEL, len(codes))
        return self._model.labels(codes)

    def proba(self, codes: Codes) -> Floats:
        """P(1|x) of (n, M) codes."""
        self._ask(Access.PROBABILITY, len(codes))
        return self._model.proba(codes)

    def edited_labels(self, codes: Codes, features: Ints, rows: Ints, values: Codes) -> Ints:
        """Predicted classes (m,) of edits: the features (n, k) of some rows (m,) get the values (m, k).

        `rows` may be (1,) if all edits are of one row; where no feature is named, the value is ABSENT.
        """
        self._ask(Access.LABEL, len(values))
        cheaper: _Edited[Ints] | None = getattr(self._model, "edited_labels", None)
        if cheaper is not None:
            return cheaper(codes, features, rows, values)
        return self._model.labels(apply_edits(codes, features, rows, values))

    def edited_proba(self, codes: Codes, features: Ints, rows: Ints, values: Codes) -> Floats:
        """P(1|x) (m,) of edits, given in the same way."""
        self._ask(Access.PROBABILITY, len(values))
        cheaper: _Edited[Floats] | None = getattr(self._model, "edited_proba", None)
        if cheaper is not None:
            return cheaper(codes, features, rows, values)
        return self._model.proba(apply_edits(codes, features, rows, values))

    def vectors(self, feature: int, codes: Codes) -> Floats:
        """Embeddings (n, d) of values of one feature."""
        self._ask(Access.GRADIENT, 0)
        return self._model.vectors(feature, codes)

    def pick(self, features: Ints, codes: Codes) -> Floats:
        """Embeddings (n, d) of one value (n,) each, of any features (n,)."""
        self._ask(Access.GRADIENT, 0)
        return pick(self._model, features, codes)

    def embed(self, codes: Codes) -> Floats:
        """Embeddings (n, M, d) of whole rows."""
        self._ask(Access.GRADIENT, 0)
        return self._model.embed(codes)

    def proba_embedded(self, vectors: torch.Tensor) -> torch.Tensor:
        """P(1|x) of embeddings (n, M, d), differentiable."""
        self._ask(Access.GRADIENT, len(vectors))
        return self._model.proba_embedded(vectors)

    def slope(self, codes: Codes, features: Ints) -> Slope:
        """A function of (rows, vectors (n, k, d)): P(1|x) with those rows' features moved there, and its gradient."""
        self._ask(Access.GRADIENT, 0)
        cheaper: Callable[[Codes, Ints], Slope] | None = getattr(self._model, "slope", None)
        known = self._derived(codes, features) if cheaper is None else cheaper(codes, features)

        def counted(rows: Ints, vectors: Floats) -> tuple[Floats, Floats]:
            self._ask(Access.GRADIENT, len(rows))
            return known(rows, vectors)

        return counted

    def _derived(self, codes: Codes, features: Ints) -> Slope:
        """By autograd on whole rows, for models that do not know their gradient."""
        import torch

        whole = torch.as_tensor(self._model.embed(codes))

        def slope(rows: Ints, vectors: Floats) -> tuple[Floats, Floats]:
            variable = torch.tensor(vectors, requires_grad=True)
            here, places = np.nonzero(features[rows] != NONE)
            at = (torch.as_tensor(here), torch.as_tensor(features[rows][here, places]))
            positive = self._model.proba_embedded(whole[rows].index_put(at, variable[here, places]))
            (gradient,) = torch.autograd.grad(positive.sum(), variable)
            return positive.detach().numpy(), gradient.numpy()

        return slope

    def line(self, codes: Codes) -> tuple[Floats, Floats]:
        """Logits (n,) and their slopes ∂ logit / ∂ embedding (M, d), of a linear model."""
        self._ask(Access.GRADIENT, len(codes))
        if not hasattr(self._model, "slopes"):
            raise UserError("search=exact has a closed form for linear models only. Use search=continuous.")
        linear = cast("Line", self._model)
        return linear.logits(codes), linear.slopes()

    def effects(self, codes: Codes) -> Floats:
        """Effects (n, M) of the values on the logit."""
        self._ask(Access.WHITE_BOX, 0)
        return self._model.effects(codes)

    def value_effects(self, feature: int) -> Floats:
        """Effects of every value of one feature."""
        self._ask(Access.WHITE_BOX, 0)
        return self._model.value_effects(feature)

    def mean_effects(self) -> Floats:
        """Mean effect (M,) of each feature over the training set."""
        self._ask(Access.WHITE_BOX, 0)
        return self._model.mean_effects()

    def _ask(self, needed: Access, rows: int) -> None:
        if self.access < needed:
            raise Failure(
                f"{self._asker} declares {self.access.name.lower()} access but asked for {needed.name.lower()} access."
            )
        self._ledger.rows[self._asker] += rows


def apply_edits(codes: Codes, features: Ints, rows: Ints, values: Codes) -> Codes:
    """The edited rows (m, M), for models that cannot evaluate edits more cheaply."""
    rows = np.broadcast_to(rows, len(values))
    edited = codes[rows]
    edits, places = np.nonzero(features[rows] != NONE)
    edited[edits, features[rows[edits], places]] = values[edits, places]
    return edited


def pick(model: Any, features: Ints, codes: Codes) -> Floats:
    """Embeddings (n, d) of one value (n,) each, of any features (n,)."""
    if hasattr(model, "pick"):
        return np.asarray(model.pick(features, codes))
    dim = model.vectors(0, np.zeros(1, dtype=np.int32)).shape[1]
    picked = np.zeros((len(codes), dim))
    for j in np.unique(features):
        rows = features == j
        picked[rows] = model.vectors(int(j), codes[rows])
    return picked


def probability_of(labels: Ints, positive: Floats) -> Floats:
    """The probability of each row's given class, from P(1|x)."""
    return np.where(labels.reshape(labels.shape + (1,) * (positive.ndim - 1)) == 1, positive, 1.0 - positive)
