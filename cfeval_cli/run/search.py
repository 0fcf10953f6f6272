"""The counterfactuals of many instances, chunk by chunk."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from hashlib import blake2b
from typing import Any

import numpy as np

from cfeval_cli.cache.off import Off
from cfeval_cli.folder.journal import keeping
from cfeval_cli.model.gate import Ledger
from cfeval_cli.storage import npy
from cfeval_cli.types import Access, Cache, Codes, Counterfactuals, Dataset, Executor, Ints, Measure, Quest, Search


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

    @property
    def key(self) -> bytes:
        """A hash of all of them together, by which what was found for them is found again."""
        digest = blake2b(digest_size=16)
        for field in fields(self):
            array = getattr(self, field.name)
            digest.update(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
        return digest.digest()


@dataclass(frozen=True)
class Found:
    """Counterfactuals, and what finding them cost."""

    counterfactuals: Counterfactuals
    rows: int  # asked of the model
    seconds: float  # of one core


@dataclass(frozen=True)
class Shelf:
    """Where counterfactuals are kept: in a section for all that they depend on but the instances."""

    cache: Cache
    section: str
    label: str


def find(
    hunt: Hunt, prey: Prey, executor: Executor, advance: Callable[[int], None], shelf: Shelf | None = None
) -> Found:
    """Counterfactuals of all instances; each chunk is kept as soon as it is there."""
    size = hunt.search.chunk(hunt.dataset, prey.features.shape[1])
    # at least one, so that even nothing found has the right shape
    chunks = [prey.take(slice(start, start + size)) for start in range(0, max(1, len(prey.ids)), size)]
    keys = [chunk.key for chunk in chunks] if shelf else []
    known = shelf.cache.known(shelf.section, shelf.label, keys) if shelf else {}
    here = {i: found for i, key in enumerate(keys) if key in known and (found := unpacked(known[key], chunks[i]))}
    advance(sum(len(chunks[i].ids) for i in here))
    missing = [i for i in range(len(chunks)) if i not in here]
    with keeping(*((shelf.cache, shelf.section, shelf.label) if shelf else (Off(), None, ""))) as keep:
        for i, found in zip(missing, executor.map(_find, hunt, [chunks[i] for i in missing]), strict=True):
            if shelf:
                keep({keys[i]: packed(found)})
            here[i] = found
            advance(len(chunks[i].ids))
    parts = [here[i] for i in range(len(chunks))]
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


def packed(found: Found) -> bytes:
    """For the cache."""
    told = found.counterfactuals
    arrays: dict[str, Any] = {field.name: getattr(told, field.name) for field in fields(told)}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return npy.dump({"rows": np.int64(found.rows), "seconds": np.float64(found.seconds), **arrays})


def unpacked(value: bytes, prey: Prey) -> Found | None:
    """From the cache; None if it is nothing of ours, or not of these instances."""
    try:
        arrays = npy.load(io.BytesIO(value))
        rows, seconds = int(arrays.pop("rows")), float(arrays.pop("seconds"))
        found = Counterfactuals(**arrays)
        same = all(len(array) == len(prey.ids) for array in arrays.values())
    except (KeyError, TypeError, ValueError):
        return None
    return Found(found, rows, seconds) if same else None
