"""Algorithm 2 of the paper: move the embeddings of the explained features by gradient descent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import (
    NO_FEATURE,
    Access,
    Bools,
    Counterfactuals,
    Dataset,
    Floats,
    Ints,
    Search,
    SearchTask,
    Workload,
)
from cfeval_cli.errors import check_float, check_int, check_option
from cfeval_cli.search.edit import embedded, moved
from cfeval_cli.seeding import use_one_thread


@dataclass(frozen=True)
class Continuous(Search):
    """Minimise Σ ‖e - e_cf‖² + α·p(ŷ|x_cf) from random starts, all instances in one batch; the best start counts."""

    alpha: float = 100.0
    optimizer: str = "descent"  # with a step of its own for each instance; or adam
    steps: int = 1000
    tolerance: float = 1e-3  # converged when the gradient is below tolerance·√α
    restarts: int = 32  # random starts for each instance
    start: float = 1.0  # spread of the starts around e, in units of √α: no optimum is further away
    max_batch_rows: int = 20_000

    title = "cont."
    levels = (Access.GRADIENT,)
    moves = True

    def __post_init__(self) -> None:
        check_float("alpha", self.alpha, 0, open_low=True)
        check_option("optimizer", self.optimizer, ("descent", "adam"))
        check_int("steps", self.steps, 1)
        check_float("tolerance", self.tolerance, 0, open_low=True)
        check_int("restarts", self.restarts, 1)
        check_float("start", self.start, 0)
        check_int("max_batch_rows", self.max_batch_rows, 1)

    @property
    def label(self) -> str:
        """What captions say of it."""
        return f"continuous search (α: {self.alpha:g}, {self.optimizer}, {self.restarts} starts)"

    def workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return the most that all starts can take; those that converge take fewer steps."""
        return Workload(self.restarts * self.steps, ("search.restarts", "search.steps"))

    def chunk(self, dataset: Dataset, k: int) -> int:
        """Instances to be given at a time."""
        return 512

    def find(self, task: SearchTask) -> Counterfactuals:
        """Optimise so many instances at a time that what is worked on stays near the processor."""
        own = embedded(task)
        rows = min(self.max_batch_rows, _NUMBERS // max(1, own[:1].size))
        many = max(1, rows // self.restarts)
        vectors, converged, steps = [own[:0]], [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=np.int64)]
        with use_one_thread():
            for part in (slice(start, start + many) for start in range(0, len(task.ids), many)):
                found, done, took = self._best(task.part(part), own[part])
                vectors.append(found)
                converged.append(done)
                steps.append(took)
            return moved(task, *(np.concatenate(parts) for parts in (vectors, converged, steps)))

    def limit(self, task: SearchTask) -> Counterfactuals | None:
        """On a linear model the optimum lies along w, and how far is a problem in one dimension."""
        if not task.model.has_linear_logit:
            return None
        logits, slopes = task.model.compute_linear_logits(task.codes)
        weights = np.where((task.features != NO_FEATURE)[:, :, None], slopes[task.features], 0.0)
        length = np.sqrt((weights**2).sum(axis=(1, 2)))
        towards = np.where(task.labels == 1, -1.0, 1.0)  # away from the predicted class
        step = _optimum(-towards * logits, length, self.alpha) * towards
        step = np.divide(step, length, out=np.zeros_like(length), where=length > 0)
        return moved(task, embedded(task) + step[:, None, None] * weights, np.ones(len(length), dtype=bool))

    def _best(self, task: SearchTask, own: Floats) -> tuple[Floats, Bools, Ints]:
        """For each instance the embeddings (k, d) of the start that came lowest, if it converged, and its steps."""
        spread = self.start * self.alpha**0.5
        noise = np.stack([task.rng(i).normal(size=(self.restarts, *own.shape[1:])) for i in range(len(own))])
        noise *= (task.features != NO_FEATURE)[:, None, :, None]
        rows = np.repeat(np.arange(len(own)), self.restarts)
        slope = task.model.make_gradient_function(task.codes, task.features, task.labels, self.alpha)

        def objective(vectors: Floats, starts: Ints) -> tuple[Floats, Floats]:
            """Value and gradient of some starts; only the explained features' embeddings are free."""
            which = rows[starts]
            kept, gradient = slope(which, vectors)
            gap = own.take(which, axis=0)
            np.subtract(vectors, gap, out=gap)
            value = np.einsum("nkd,nkd->n", gap, gap) + self.alpha * kept
            gap *= 2.0
            gradient += gap
            return value, gradient

        begin = (own[:, None] + spread * noise).reshape(len(rows), *own.shape[1:])
        end, values, norms, took = {"descent": self._descend, "adam": self._adam}[self.optimizer](objective, begin)
        best = values.reshape(len(own), self.restarts).argmin(axis=1) + np.arange(len(own)) * self.restarts
        return end[best], norms[best] <= self._small, took[best]

    @property
    def _small(self) -> float:
        return float(self.tolerance * self.alpha**0.5)

    def _descend(self, objective: _Objective, vectors: Floats) -> tuple[Floats, Floats, Floats, Ints]:
        """Gradient descent; a step that lowers the objective enough lets the next be longer, else it is halved."""
        active = np.arange(len(vectors))
        here = vectors
        value, gradient = objective(here, active)
        values, norms = value.copy(), np.sqrt(np.einsum("nkd,nkd->n", gradient, gradient))
        step, took = np.full(len(vectors), 0.25), np.zeros(len(vectors), dtype=np.int64)
        for _ in range(self.steps):
            squared = np.einsum("nkd,nkd->n", gradient, gradient)
            values[active], norms[active] = value, np.sqrt(squared)
            going = norms[active] > self._small
            if not going.all():  # what has arrived is put down
                vectors[active[~going]] = here[~going]
                active, here, value, gradient, step, squared = (
                    array[going] for array in (active, here, value, gradient, step, squared)
                )
            if not len(active):
                break
            took[active] += 1
            trial = gradient * -step[:, None, None]
            trial += here
            lower_value, lower_gradient = objective(trial, active)
            higher = np.flatnonzero(~(lower_value <= value - 0.1 * step * squared))
            for new, old in ((trial, here), (lower_value, value), (lower_gradient, gradient)):
                new[higher] = old[higher]
            here, value, gradient = trial, lower_value, lower_gradient
            step *= 1.5
            step[higher] /= 3.0
        vectors[active], values[active] = here, value
        norms[active] = np.sqrt(np.einsum("nkd,nkd->n", gradient, gradient))
        return vectors, values, norms, took

    def _adam(self, objective: _Objective, vectors: Floats) -> tuple[Floats, Floats, Floats, Ints]:
        """Adam on all instances at once, its rate falling to a thousandth over the steps."""
        import torch

        variable = torch.tensor(vectors, requires_grad=True)
        everyone, took = np.arange(len(vectors)), np.zeros(len(vectors), dtype=np.int64)
        adam = torch.optim.Adam([variable], lr=0.1 * self.alpha**0.5)
        decay = torch.optim.lr_scheduler.ExponentialLR(adam, gamma=1e-3 ** (1.0 / self.steps))
        for _ in range(self.steps):
            _, gradient = objective(variable.detach().numpy(), everyone)
            norms = np.sqrt((gradient**2).sum(axis=(1, 2)))
            if (norms <= self._small).all():
                break
            took += norms > self._small
            variable.grad = torch.as_tensor(gradient)
            adam.step()
            decay.step()
        end = variable.detach().numpy()
        return end, objective(end, everyone)[0], norms, took


# From vectors (n, k, d) and which starts they belong to, to values and gradients.
_Objective = Callable[[Floats, Ints], tuple[Floats, Floats]]
_NUMBERS = 300_000  # in the vectors that are moved at a time


_HALVINGS = 60


def _optimum(size: Floats, length: Floats, alpha: float) -> Floats:
    """The t (n,) ≥ 0 with the lowest t² + α·σ(size - length·t).

    With u = size - length·t for the logit that is left and h = α·length²/2, all minima have h·σ'(u) + u = size. The
    left side grows up to a bend in 0 < u < ln(2 + √3) and again from one beyond, so each part has one minimum at most.
    """
    from scipy.special import expit

    half = alpha * length**2 / 2

    def gap(u: Floats) -> Floats:
        p = expit(u)
        return np.asarray(half * p * (1.0 - p) + u - size)

    def growth(u: Floats) -> Floats:
        p = expit(u)
        return np.asarray(1.0 + half * p * (1.0 - p) * (1.0 - 2.0 * p))

    def root(rising: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            below = rising(middle) < 0
            low, high = np.where(below, middle, low), np.where(below, high, middle)
        return (low + high) / 2

    steepest, top = np.full(len(size), np.log(2 + 3**0.5)), np.maximum(size, 0.0) + 40.0 + np.log1p(half)
    bend = root(lambda u: -growth(u), np.zeros(len(size)), steepest)  # at the steepest point itself if there is none
    again = root(growth, steepest, top)
    far = root(gap, np.minimum(size, 0.0) - half - 1.0, bend)
    near = root(gap, again, top)
    values = [((size - u) / np.where(length > 0, length, 1.0)) ** 2 + alpha * expit(u) for u in (far, near)]
    best = np.where(values[0] < values[1], far, near)
    return np.where(length > 0, np.maximum(size - best, 0.0) / np.where(length > 0, length, 1.0), 0.0)
