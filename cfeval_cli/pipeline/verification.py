"""A second computation of a few results from the cache and from worker processes, which must be equal."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cfeval_cli.core import Feature, Floats, Ints
from cfeval_cli.errors import Failure
from cfeval_cli.seeding import make_stream

_N_VERIFIED = 3  # instances of each origin
# Where a result comes from, and the advice if a second computation gives a different result.
FROM_CACHE = "from the cache"
FROM_WORKERS = "from a worker process"
_ADVICE = {
    FROM_CACHE: "The model or the component is not deterministic, or depends on something that its cache key does not "
    "include. Use redo=true or cache=off, or name the files that the model reads in model.depends.",
    FROM_WORKERS: "The model or the component returns another result in worker processes: it must not depend on the "
    "process that it runs in. Use n_jobs=1.",
}


@dataclass(frozen=True)
class VerifiedInstances:
    """A few instances with results of the same origin."""

    component: str
    origin: str
    positions: Ints
    ids: Ints  # of the same instances

    def check_values(
        self, first: Floats, second: Floats, features: Sequence[Feature], noun: str, tolerance: float
    ) -> None:
        """Raise a Failure if values (n, M) differ by more than a share of the largest; NaN equals NaN."""
        scale = np.abs(np.where(np.isfinite(second), second, 0.0)).max(axis=1, initial=1.0, keepdims=True)
        differs = ~np.isclose(first, second, rtol=0.0, atol=tolerance * scale, equal_nan=True)
        if differs.any():
            row, feature = (int(indices[0]) for indices in np.nonzero(differs))
            values = (f"{array[row, feature]:.8g}" for array in (first, second))
            self.report_difference(row, f"the {noun} of {features[feature].name}", *values)

    def report_difference(self, row: int, quantity: str, first: str, second: str) -> None:
        """Raise a Failure about the instance in a row."""
        raise Failure(
            f"{self.component}, instance {self.ids[row]}: {quantity} is {first} {self.origin}, and {second} if it is "
            f"computed again. {_ADVICE[self.origin]}"
        )


def draw_verified_instances(
    seed: int, name: str, component: str, ids: Ints, cached: Ints, from_workers: Ints
) -> list[VerifiedInstances]:
    """Draw a few of the positions whose results come from the cache, and a few of those from worker processes."""
    if not len(cached) and not len(from_workers):
        return []
    stream = make_stream(seed, f"check.{name}")
    orders = {FROM_CACHE: stream.permutation(cached), FROM_WORKERS: stream.permutation(from_workers)}
    samples = {origin: np.sort(order[:_N_VERIFIED]) for origin, order in orders.items() if len(order)}
    return [VerifiedInstances(component, origin, drawn, ids[drawn]) for origin, drawn in samples.items()]
