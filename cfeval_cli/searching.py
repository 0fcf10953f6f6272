"""The counterfactuals of many instances, chunk by chunk."""

from __future__ import annotations

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


def find(hunt: Hunt, prey: Prey, executor: Executor, advance: Callable[[int], None]) -> tuple[Counterfactuals, int]:
    """Counterfactuals of all instances, and how many rows were asked of the model for them."""
    size = hunt.search.chunk(hunt.dataset, prey.features.shape[1])
    # at least one, so that even nothing found has the right shape
    chunks = [prey.take(slice(start, start + size)) for start in range(0, max(1, len(prey.ids)), size)]
    parts, rows = [], 0
    for chunk, (found, asked) in zip(chunks, executor.map(_find, hunt, chunks), strict=True):
        parts.append(found)
        rows += asked
        advance(len(chunk.ids))
    return Counterfactuals.concatenate(parts), rows


def _find(hunt: Hunt, prey: Prey) -> tuple[Counterfactuals, int]:
    """A chunk of instances, here or in another process."""
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
    return hunt.search.find(quest), ledger.rows[component]
