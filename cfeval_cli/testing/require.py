"""Requirements that the checks of all kinds share: messages, reasons and comparisons."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import ModelSpec
from cfeval_cli.errors import Failure
from cfeval_cli.testing.problems import TOLERANCE, Problem, make_problems


class HasApplicability(Protocol):
    """A component that may not apply to some data or models."""

    def not_applicable_reason(self, spec: ModelSpec) -> str | None:
        """Return why it does not apply; None if it does."""
        ...


def require(condition: object, message: str) -> None:
    """Raise an AssertionError with a message unless a condition holds."""
    if not condition:
        raise AssertionError(message)


def require_text(value: object, name: str) -> None:
    """Require a text that is not empty."""
    require(isinstance(value, str) and value.strip(), f"{name} must be a text that is not empty, not {value!r}.")


def require_declared(component: object, *names: str) -> None:
    """Require that the class of a component declares some attributes."""
    missing = [name for name in names if not hasattr(component, name)]
    require(not missing, f"{type(component).__name__} must declare {', '.join(missing)}.")


def require_reason(reason: object, name: str) -> bool:
    """Require a reason as text, or None; return whether the component applies."""
    require(reason is None or isinstance(reason, str), f"{name} must be a text or None, not {reason!r}.")
    require(reason is None or str(reason).strip(), f"{name} is an empty text: return None if the component applies.")
    return reason is None


def require_array(value: object, shape: tuple[int, ...], kinds: str, name: str) -> None:
    """Require an array of a shape and of one of some kinds, by NumPy's letters: i integers, f floats, b bools."""
    require(isinstance(value, np.ndarray), f"{name} must be a NumPy array, not {type(value).__name__}.")
    array: NDArray[Any] = np.asarray(value)
    require(array.shape == shape, f"{name} must have the shape {shape}, not {array.shape}.")
    require(array.dtype.kind in kinds, f"{name} must not be of type {array.dtype}.")


def require_equal(first: NDArray[Any], second: NDArray[Any], message: str, tolerance: float = TOLERANCE) -> None:
    """Require equal arrays: numbers to a tolerance, missing equals missing."""
    require(first.shape == second.shape and np.allclose(first, second, tolerance, tolerance, equal_nan=True), message)


def list_applicable(component: HasApplicability, problems: Sequence[Problem] | None) -> list[Problem]:
    """Return the problems that a component applies to; AssertionError if there is none."""
    name = type(component).__name__
    applicable, reasons = [], []
    for problem in make_problems() if problems is None else problems:
        reason = component.not_applicable_reason(problem.spec)
        if require_reason(reason, f"{name}.not_applicable_reason() on {problem.name}"):
            applicable.append(problem)
        else:
            reasons.append(f"{problem.name}: {reason}")
    require(applicable, f"{name} applies to none of the problems, pass others. {'; '.join(reasons)}.")
    return applicable


@contextmanager
def enforce_access(name: str) -> Iterator[None]:
    """Turn the client's refusal of more access than was declared into an AssertionError."""
    try:
        yield
    except Failure as error:
        raise AssertionError(f"{name}: {error}") from error


@contextmanager
def forbid_global_generator(name: str) -> Iterator[None]:
    """Require that NumPy's global generator is left alone: random numbers come from the instance's own stream."""
    before: Any = np.random.get_state()  # noqa: NPY002  it is looked at, not drawn from
    yield
    after: Any = np.random.get_state()  # noqa: NPY002
    is_unchanged = np.array_equal(before[1], after[1]) and before[2:] == after[2:]
    require(
        is_unchanged, f"{name} draws from NumPy's global generator. Use the streams of the batch, or a seed of its own."
    )
