"""Continuous search (Algorithm 2 of the paper): move the embeddings of the selected features by gradient descent."""

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
from cfeval_cli.search.edit import embed_selected_features, evaluate_edited_embeddings
from cfeval_cli.seeding import use_one_thread

# Maps vectors (m, k, d) and the numbers (m,) of their starts to values (m,) and gradients (m, k, d).
_Objective = Callable[[Floats, Ints], tuple[Floats, Floats]]

_MAX_ARRAY_ELEMENTS = 300_000  # numbers in the vectors of one batch, so that they fit the processor cache
_BISECTION_STEPS = 60


@dataclass(frozen=True)
class Continuous(Search):
    """Minimise Σ ‖e - e_cf‖² + α·p(ŷ|x_cf) over the embeddings e_cf of the selected features, from random starts.

    The counterfactual is the end of the start with the lowest objective.
    """

    alpha: float = 100.0
    optimizer: str = "descent"  # descent (with a step size for each start) or adam
    steps: int = 1000
    tolerance: float = 1e-3  # converged when the gradient is below tolerance·√α
    restarts: int = 32  # random starts for each instance
    start: float = 1.0  # spread of the starts around e, in units of √α, because no optimum is further away
    max_batch_rows: int = 20_000

    title = "cont."
    levels = (Access.GRADIENT,)
    moves_embeddings = True

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
        """The name of the search in captions."""
        return f"continuous search (α: {self.alpha:g}, {self.optimizer}, {self.restarts} starts)"

    def estimate_workload(self, dataset: Dataset, features: Ints) -> Workload:
        """Return the largest number of steps of all starts; starts that converge take fewer."""
        return Workload(self.restarts * self.steps, ("search.restarts", "search.steps"))

    def choose_chunk_size(self, dataset: Dataset, k: int) -> int:
        """Return the number of instances in one call."""
        return 512

    def find(self, task: SearchTask) -> Counterfactuals:
        """Return the counterfactuals, optimised in batches of instances."""
        origins = embed_selected_features(task)
        max_starts = min(self.max_batch_rows, _MAX_ARRAY_ELEMENTS // max(1, origins[:1].size))
        batch_size = max(1, max_starts // self.restarts)
        vectors, converged, steps = [origins[:0]], [np.zeros(0, dtype=bool)], [np.zeros(0, dtype=np.int64)]
        with use_one_thread():
            for batch in (slice(start, start + batch_size) for start in range(0, len(task.ids), batch_size)):
                batch_vectors, batch_converged, batch_steps = self._optimize(
                    task.select_instances(batch), origins[batch]
                )
                vectors.append(batch_vectors)
                converged.append(batch_converged)
                steps.append(batch_steps)
            return evaluate_edited_embeddings(task, *(np.concatenate(parts) for parts in (vectors, converged, steps)))

    def find_limit(self, task: SearchTask) -> Counterfactuals | None:
        """Return the global optimum of a linear model: it lies along w, at a distance that solves a scalar problem."""
        if not task.model.has_linear_logit:
            return None
        logits, slopes = task.model.compute_linear_logits(task.codes)
        weights = np.where((task.features != NO_FEATURE)[:, :, None], slopes[task.features], 0.0)
        length = np.sqrt((weights**2).sum(axis=(1, 2)))
        direction = np.where(task.predicted_classes == 1, -1.0, 1.0)  # away from the predicted class
        step = _solve_scalar_problem(-direction * logits, length, self.alpha) * direction
        step = np.divide(step, length, out=np.zeros_like(length), where=length > 0)
        vectors = embed_selected_features(task) + step[:, None, None] * weights
        return evaluate_edited_embeddings(task, vectors, np.ones(len(length), dtype=bool))

    def _optimize(self, task: SearchTask, origins: Floats) -> tuple[Floats, Bools, Ints]:
        """Return the embeddings (n, k, d) of the best start of each instance, whether it converged, and its steps."""
        spread = self.start * self.alpha**0.5
        noise = np.stack(
            [task.make_rng(i).normal(size=(self.restarts, *origins.shape[1:])) for i in range(len(origins))]
        )
        noise *= (task.features != NO_FEATURE)[:, None, :, None]
        owners = np.repeat(np.arange(len(origins)), self.restarts)
        compute_probability = task.model.make_gradient_function(
            task.codes, task.features, task.predicted_classes, self.alpha
        )

        def compute_objective(vectors: Floats, starts: Ints) -> tuple[Floats, Floats]:
            """Return the objective and its gradient in the embeddings of the selected features."""
            instances = owners[starts]
            probability, gradient = compute_probability(instances, vectors)
            shift = origins.take(instances, axis=0)
            np.subtract(vectors, shift, out=shift)
            value = np.einsum("nkd,nkd->n", shift, shift) + self.alpha * probability
            shift *= 2.0
            gradient += shift
            return value, gradient

        initial = (origins[:, None] + spread * noise).reshape(len(owners), *origins.shape[1:])
        optimizers = {"descent": self._run_descent, "adam": self._run_adam}
        final, values, norms, steps = optimizers[self.optimizer](compute_objective, initial)
        best = values.reshape(len(origins), self.restarts).argmin(axis=1) + np.arange(len(origins)) * self.restarts
        return final[best], norms[best] <= self._gradient_tolerance, steps[best]

    @property
    def _gradient_tolerance(self) -> float:
        return float(self.tolerance * self.alpha**0.5)

    def _run_descent(self, compute_objective: _Objective, vectors: Floats) -> tuple[Floats, Floats, Floats, Ints]:
        """Run gradient descent; return the final vectors, their objectives and gradient norms, and the steps.

        A step that lowers the objective enough makes the next one longer. Other steps are rejected and halved.
        """
        active = np.arange(len(vectors))
        current = vectors
        value, gradient = compute_objective(current, active)
        values, norms = value.copy(), np.sqrt(np.einsum("nkd,nkd->n", gradient, gradient))
        step, n_steps = np.full(len(vectors), 0.25), np.zeros(len(vectors), dtype=np.int64)
        for _ in range(self.steps):
            squared = np.einsum("nkd,nkd->n", gradient, gradient)
            values[active], norms[active] = value, np.sqrt(squared)
            is_running = norms[active] > self._gradient_tolerance
            if not is_running.all():
                vectors[active[~is_running]] = current[~is_running]
                active, current, value, gradient, step, squared = (
                    array[is_running] for array in (active, current, value, gradient, step, squared)
                )
            if not len(active):
                break
            n_steps[active] += 1
            trial = gradient * -step[:, None, None]
            trial += current
            trial_value, trial_gradient = compute_objective(trial, active)
            rejected = np.flatnonzero(~(trial_value <= value - 0.1 * step * squared))
            for new, old in ((trial, current), (trial_value, value), (trial_gradient, gradient)):
                new[rejected] = old[rejected]
            current, value, gradient = trial, trial_value, trial_gradient
            step *= 1.5
            step[rejected] /= 3.0
        vectors[active], values[active] = current, value
        norms[active] = np.sqrt(np.einsum("nkd,nkd->n", gradient, gradient))
        return vectors, values, norms, n_steps

    def _run_adam(self, compute_objective: _Objective, vectors: Floats) -> tuple[Floats, Floats, Floats, Ints]:
        """Run Adam on all starts, with a learning rate that decays to a thousandth; return the same as descent."""
        import torch

        variable = torch.tensor(vectors, requires_grad=True)
        starts, n_steps = np.arange(len(vectors)), np.zeros(len(vectors), dtype=np.int64)
        adam = torch.optim.Adam([variable], lr=0.1 * self.alpha**0.5)
        decay = torch.optim.lr_scheduler.ExponentialLR(adam, gamma=1e-3 ** (1.0 / self.steps))
        for _ in range(self.steps):
            _, gradient = compute_objective(variable.detach().numpy(), starts)
            norms = np.sqrt((gradient**2).sum(axis=(1, 2)))
            if (norms <= self._gradient_tolerance).all():
                break
            n_steps += norms > self._gradient_tolerance
            variable.grad = torch.as_tensor(gradient)
            adam.step()
            decay.step()
        final = variable.detach().numpy()
        return final, compute_objective(final, starts)[0], norms, n_steps


def _solve_scalar_problem(size: Floats, length: Floats, alpha: float) -> Floats:
    """Return the t (n,) ≥ 0 with the lowest t² + α·σ(size - length·t).

    With the remaining logit u = size - length·t and h = α·length²/2, all minima satisfy h·σ'(u) + u = size. The left
    side increases up to a turning point in 0 < u < ln(2 + √3), decreases, and increases again beyond a second turning
    point. Each increasing part has at most one minimum.
    """
    from scipy.special import expit

    half = alpha * length**2 / 2

    def compute_residual(u: Floats) -> Floats:
        p = expit(u)
        return np.asarray(half * p * (1.0 - p) + u - size)

    def compute_derivative(u: Floats) -> Floats:
        p = expit(u)
        return np.asarray(1.0 + half * p * (1.0 - p) * (1.0 - 2.0 * p))

    def find_root(increasing: Callable[[Floats], Floats], low: Floats, high: Floats) -> Floats:
        for _ in range(_BISECTION_STEPS):
            middle = (low + high) / 2
            is_below = increasing(middle) < 0
            low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
        return (low + high) / 2

    steepest, top = np.full(len(size), np.log(2 + 3**0.5)), np.maximum(size, 0.0) + 40.0 + np.log1p(half)
    # Without a turning point, both searches end at the steepest point.
    first_turn = find_root(lambda u: -compute_derivative(u), np.zeros(len(size)), steepest)
    second_turn = find_root(compute_derivative, steepest, top)
    far = find_root(compute_residual, np.minimum(size, 0.0) - half - 1.0, first_turn)
    near = find_root(compute_residual, second_turn, top)
    values = [((size - u) / np.where(length > 0, length, 1.0)) ** 2 + alpha * expit(u) for u in (far, near)]
    best = np.where(values[0] < values[1], far, near)
    return np.where(length > 0, np.maximum(size - best, 0.0) / np.where(length > 0, length, 1.0), 0.0)
