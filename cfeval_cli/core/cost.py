"""What some work asked of the model and how long it took, and what other work is expected to ask."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Workload:
    """What an explainer or a search is expected to ask of the model."""

    evaluations: float | None = None  # rows for one instance, on average; None: unknown
    settings: tuple[str, ...] = ()  # lower values take fewer


@dataclass(frozen=True)
class Cost:
    """The cost of some work, whenever it was done."""

    rows: int = 0  # asked of the model
    calls: float = 0.0  # in which the model answered; of one that several share, a part
    seconds: float = 0.0  # of one core
    model_seconds: float = 0.0  # of these, within the model

    def __add__(self, other: Cost) -> Cost:
        """Of both together."""
        return Cost(
            self.rows + other.rows,
            self.calls + other.calls,
            self.seconds + other.seconds,
            self.model_seconds + other.model_seconds,
        )

    def __sub__(self, other: Cost) -> Cost:
        """What came after the other."""
        return self + Cost(-other.rows, -other.calls, -other.seconds, -other.model_seconds)

    def split(self, size: int) -> list[Cost]:
        """Shared out alike; of rows, which are whole, the first have one more."""
        rows, more = divmod(self.rows, size)
        parts = (self.calls / size, self.seconds / size, self.model_seconds / size)
        return [Cost(rows + (place < more), *parts) for place in range(size)]
