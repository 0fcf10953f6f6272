"""Algorithm 2 of the paper: move the embeddings of the explained features by gradient descent."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from cfeval_cli.errors import number, one_of, whole
from cfeval_cli.model.gate import Mover
from cfeval_cli.search.edit import embedded, moved
from cfeval_cli.seeding import one_thread
from cfeval_cli.types import NONE, Access, Bools, Counterfactuals, Dataset, Floats, Ints, Quest

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Continuous:
    """Minimise Σ ‖e - e_cf‖² + α·p(ŷ|x_cf) from random starts, all instances in one batch; the best start counts."""

    alpha: float = 100.0
    optimizer: str = "descent"  # with a step of its own for each instance; or adam
    steps: int = 1000
    tolerance: float = 1e-3  # converged when the gradient is below tolerance·√α
    restarts: int = 32  # random starts for each instance
    start: float = 1.0  # spread of the starts around e, in units of √α: no optimum is further away
    max_batch_rows: int = 20_000

    title = "cont."
    chunk = 512
    levels = (Access.GRADIENT,)
    moves = True

    def __post_init__(self) -> None:
        number("alpha", self.alpha, 0, open_low=True)
        one_of("optimizer", self.optimizer, ("descent", "adam"))
        whole("steps", self.steps, 1)
        number("tolerance", self.tolerance, 0, open_low=True)
        whole("restarts", self.restarts, 1)
        number("start", self.start, 0)
        whole("max_batch_rows", self.max_batch_rows, 1)

    @property
    def label(self) -> str:
        """What captions say of it."""
        return f"continuous search (α: {self.alpha:g}, {self.optimizer}, {self.restarts} starts)"

    def check(self, dataset: Dataset, k: int) -> None:
        """Any number of features can be moved."""

    def find(self, quest: Quest) -> Counterfactuals:
        """Optimise so many instances at a time that memory is bounded."""
        many = max(1, self.max_batch_rows // self.restarts)
        vectors, converged = [embedded(quest)[:0]], [np.zeros(0, dtype=bool)]
        with one_thread():
            for rows in (slice(start, start + many) for start in range(0, len(quest.ids), many)):
                part = replace(
                    quest, codes=quest.codes[rows], labels=quest.labels[rows], features=quest.features[rows],
                    ids=quest.ids[rows],
                )  # fmt: skip
                found, done = self._best(part)
                vectors.append(found)
                converged.append(done)
            return moved(quest, np.concatenate(vectors), np.concatenate(converged))

    def _best(self, quest: Quest) -> tuple[Floats, Bools]:
        """For each instance the embeddings (k, d) of the start that came lowest, and whether that one converged."""
        own = embedded(quest)
        spread = self.start * self.alpha**0.5
        noise = np.stack([quest.rng(i).normal(size=(self.restarts, *own.shape[1:])) for i in range(len(own))])
        noise *= (quest.features != NONE)[:, None, :, None]
        rows = np.repeat(np.arange(len(own)), self.restarts)
        problem = _Problem(quest.model.mover(quest.codes, quest.features), quest.labels, own, rows, self.alpha)
        begin = (own[:, None] + spread * noise).reshape(len(rows), *own.shape[1:])
        end, gradients = {"descent": self._descend, "adam": self._adam}[self.optimizer](problem, begin)
        objective = problem.value(end, np.arange(len(rows))).reshape(len(own), self.restarts)
        best = objective.argmin(axis=1) + np.arange(len(own)) * self.restarts
        return end[best], gradients[best] <= self._small

    @property
    def _small(self) -> float:
        return float(self.tolerance * self.alpha**0.5)

    def _descend(self, problem: _Problem, vectors: Floats) -> tuple[Floats, Floats]:
        """Gradient descent; a step that lowers the objective enough lets the next be longer, else it is halved."""
        step = np.full(len(vectors), 0.25)
        norms = np.full(len(vectors), np.inf)
        active = np.arange(len(vectors))
        for _ in range(self.steps):
            value, gradient = problem.gradient(vectors[active], active)
            squared = (gradient**2).sum(axis=(1, 2))
            norms[active] = np.sqrt(squared)
            keep = norms[active] > self._small
            active, value, gradient, squared = active[keep], value[keep], gradient[keep], squared[keep]
            if not len(active):
                break
            trial = vectors[active] - step[active, None, None] * gradient
            lower = problem.value(trial, active) <= value - 0.1 * step[active] * squared
            vectors[active[lower]] = trial[lower]
            step[active] *= np.where(lower, 1.5, 0.5)
        return vectors, norms

    def _adam(self, problem: _Problem, vectors: Floats) -> tuple[Floats, Floats]:
        """Adam on all instances at once, its rate falling to a thousandth over the steps."""
        import torch

        variable = torch.tensor(vectors, requires_grad=True)
        everyone = np.arange(len(vectors))
        adam = torch.optim.Adam([variable], lr=0.1 * self.alpha**0.5)
        decay = torch.optim.lr_scheduler.ExponentialLR(adam, gamma=1e-3 ** (1.0 / self.steps))
        norms = np.full(len(vectors), np.inf)
        for _ in range(self.steps):
            _, gradient = problem.gradient(variable.detach().numpy(), everyone)
            norms = np.sqrt((gradient**2).sum(axis=(1, 2)))
            if (norms <= self._small).all():
                break
            variable.grad = torch.as_tensor(gradient)
            adam.step()
            decay.step()
        return variable.detach().numpy(), norms


@dataclass(frozen=True)
class _Problem:
    """The objective of each start; only the explained features' embeddings are free."""

    mover: Mover
    labels: Ints  # (n,) predicted
    own: Floats  # (n, k, d)
    rows: Ints  # the instance of each start
    alpha: float

    def value(self, vectors: Floats, starts: Ints) -> Floats:
        """Of some starts."""
        import torch

        with torch.no_grad():
            return self._objective(torch.as_tensor(vectors), starts).numpy()

    def gradient(self, vectors: Floats, starts: Ints) -> tuple[Floats, Floats]:
        """Value and gradient of some starts."""
        import torch

        variable = torch.tensor(vectors, requires_grad=True)
        value = self._objective(variable, starts)
        (gradient,) = torch.autograd.grad(value.sum(), variable)
        return value.detach().numpy(), gradient.numpy()

    def _objective(self, vectors: torch.Tensor, starts: Ints) -> torch.Tensor:
        import torch

        rows = self.rows[starts]
        positive = self.mover(rows, vectors)
        kept = torch.where(torch.as_tensor(self.labels[rows] == 1), positive, 1.0 - positive)
        return ((vectors - torch.as_tensor(self.own[rows])) ** 2).sum(dim=(1, 2)) + self.alpha * kept
