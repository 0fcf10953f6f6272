"""The cost of work that was done, and the expected number of model evaluations of work to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """The expected number of model evaluations of an explainer or a search."""

    evaluations: float | None = None  # per instance, on average; None: unknown
    settings: tuple[str, ...] = ()  # settings that reduce the number of evaluations if they are lower


@dataclass(frozen=True)
class Cost:
    """Model evaluations and computing time."""

    n_evaluations: int = 0
    calls: float = 0.0  # calls of the model; a call that several instances share counts in parts
    seconds: float = 0.0  # wall-clock, summed over workers
    model_seconds: float = 0.0  # of these, in the model

    def __add__(self, other: Cost) -> Cost:
        """Return the sum of both costs."""
        return Cost(
            self.n_evaluations + other.n_evaluations,
            self.calls + other.calls,
            self.seconds + other.seconds,
            self.model_seconds + other.model_seconds,
        )

    def __sub__(self, other: Cost) -> Cost:
        """Return the difference of both costs."""
        return self + Cost(-other.n_evaluations, -other.calls, -other.seconds, -other.model_seconds)

    def split(self, n_parts: int) -> list[Cost]:
        """Divide the cost into equal parts; remaining evaluations are counted in the first parts, one in each."""
        n_evaluations, remainder = divmod(self.n_evaluations, n_parts)
        shares = (self.calls / n_parts, self.seconds / n_parts, self.model_seconds / n_parts)
        return [Cost(n_evaluations + (i < remainder), *shares) for i in range(n_parts)]
