"""The counterfactuals of many instances, chunk by chunk."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cfeval_cli.model.gate import Ledger
from cfeval_cli.types import Access, Codes, Counterfactuals, Dataset, Executor, Ints, Measure, Quest, Search


@dataclass(frozen=True)
class Hunt:
    """One search's work at one level of access: what is the same for all instances."""

    search: Search
    dataset: Dataset
    model: Any
    measure: Measure
    access: Access
    seed: int


@dataclass(frozen=True)
class Prey:
    """Instances for which a counterfactual is wanted."""

    codes: Codes  # (n, M)
    labels: Ints  # (n,) predicted
    features: Ints  # (n, k) that may be edited
    ids: Ints  # (n,)

    def take(self, rows: slice) -> Prey:
        """Some of them."""
        return Prey(self.codes[rows], self.labels[rows], self.features[rows], self.ids[rows])


@dataclass(frozen=True)
class Found:
    """Counterfactuals, and what finding them cost."""

    counterfactuals: Counterfactuals
    rows: int  # asked of the model
    seconds: float  # of one core


def find(hunt: Hunt, prey: Prey, executor: Executor, advance: Callable[[int], None]) -> Found:
    """Counterfactuals of all instances."""
    size = hunt.search.chunk(hunt.dataset, prey.features.shape[1])
    # at least one, so that even nothing found has the right shape
    chunks = [prey.take(slice(start, start + size)) for start in range(0, max(1, len(prey.ids)), size)]
    parts = []
    for chunk, found in zip(chunks, executor.map(_find, hunt, chunks), strict=True):
        parts.append(found)
        advance(len(chunk.ids))
    whole = Counterfactuals.concatenate([part.counterfactuals for part in parts])
    return Found(whole, sum(part.rows for part in parts), sum(part.seconds for part in parts))


def _find(hunt: Hunt, prey: Prey) -> Found:
    """A chunk of instances, here or in another process."""
    begun = time.perf_counter()
    # without the explainer's name: the same explanation must get the same counterfactual
    component, ledger = f"search.{hunt.access.name.lower()}", Ledger()
    quest = Quest(
        dataset=hunt.dataset,
        model=ledger.gate(hunt.model, hunt.access, component),
        measure=hunt.measure,
        access=hunt.access,
        codes=prey.codes,
        labels=prey.labels,
        features=prey.features,
        ids=prey.ids,
        seed=hunt.seed,
        component=component,
    )
    found = hunt.search.find(quest)
    return Found(found, ledger.rows[component], time.perf_counter() - begun)
