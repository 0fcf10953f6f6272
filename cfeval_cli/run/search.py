"""The counterfactuals of many instances, chunk by chunk."""

from __future__ import annotations

import io
import time
from collections.abc import Callable
from dataclasses import astuple, dataclass, fields
from hashlib import blake2b
from typing import Any

import numpy as np

from cfeval_cli.cache.off import Off
from cfeval_cli.errors import Failure
from cfeval_cli.run.memo import Memo
from cfeval_cli.storage import npy
from cfeval_cli.types import (
    Access,
    Cache,
    Codes,
    Cost,
    Counterfactuals,
    Dataset,
    Executor,
    Ints,
    Ledger,
    Measure,
    Model,
    Rows,
    Search,
    Task,
)
from cfeval_cli.types.search import editable


@dataclass(frozen=True)
class Job:
    """One search's work at one level of access: what is the same for all instances."""

    search: Search
    dataset: Dataset
    model: Model
    measure: Measure
    access: Access
    seed: int

    @property
    def component(self) -> str:
        """Under which name it draws: without the explainer's, so that the same explanation gets the same edit."""
        return f"search.{self.access.name.lower()}"


@dataclass(frozen=True)
class Chunk:
    """Instances, and the features (n, k) of each that may be edited."""

    rows: Rows
    features: Ints

    @property
    def key(self) -> bytes:
        """A hash of all of them together, by which what was found for them is found again."""
        digest = blake2b(digest_size=16)
        for array in (self.rows.codes, self.rows.labels, self.features, self.rows.ids):
            digest.update(f"{array.dtype} {array.shape} ".encode() + np.ascontiguousarray(array).tobytes())
        return digest.digest()


@dataclass(frozen=True)
class Found:
    """Counterfactuals, and what finding them cost."""

    counterfactuals: Counterfactuals
    cost: Cost


def find(
    job: Job,
    rows: Rows,
    features: Ints,
    executor: Executor,
    advance: Callable[[int], None],
    cache: Cache | None = None,
    section: str | None = None,
) -> Found:
    """Counterfactuals of all instances; each chunk is kept in a section of the cache as soon as it is there."""
    size = job.search.chunk(job.dataset, features.shape[1])
    starts = range(0, max(1, len(rows)), size)  # at least one chunk, so that even nothing found has the right shape
    parts = [slice(start, start + size) for start in starts]
    chunks = [Chunk(rows.take(part), features[part]) for part in parts]
    memo = Memo(cache or Off(), section, f"{job.dataset.name}, {job.component}, seed {job.seed}", packed, unpacked)
    keys = [b"" if section is None else chunk.key for chunk in chunks]
    known = memo.known(keys)
    done = {i: known[key] for i, key in enumerate(keys) if key in known and _fits(known[key], chunks[i])}
    advance(sum(len(chunks[i].rows) for i in done))
    missing = [i for i in range(len(chunks)) if i not in done]
    with memo.keeping() as keep:
        for i, found in zip(missing, executor.map(_find, job, [chunks[i] for i in missing]), strict=True):
            keep({keys[i]: found})
            done[i] = found
            advance(len(chunks[i].rows))
    ordered = [done[i] for i in range(len(chunks))]
    whole = Counterfactuals.concatenate([part.counterfactuals for part in ordered])
    return Found(whole, sum((part.cost for part in ordered), Cost()))


def _find(job: Job, chunk: Chunk) -> Found:
    """A chunk of instances, here or in another process."""
    begun, ledger, rows = time.perf_counter(), Ledger(), chunk.rows
    task = Task(
        rows.ids,
        rows.codes,
        rows.labels,
        seed=job.seed,
        component=job.component,
        features=editable(job.dataset, chunk.features),
        dataset=job.dataset,
        model=ledger.gate(job.model, job.access, job.component, padded=job.dataset.padded),
        measure=job.measure,
    )
    found = job.search.find(task)
    _check(job, rows.codes, found)
    return Found(found, ledger.cost(job.component) + Cost(seconds=time.perf_counter() - begun))


def _check(job: Job, codes: Codes, found: Counterfactuals) -> None:
    """Believe no search, a user's own may be among them, that it keeps what may not change."""
    if found.codes is None or not job.dataset.constrained:
        return
    for j, feature in enumerate(job.dataset.features):
        if not feature.may(codes[:, j], found.codes[:, j]).all():
            raise Failure(f"{type(job.search).__name__} changed {feature.name} as the dataset does not allow.")


def packed(found: Found) -> bytes:
    """For the cache."""
    edits = found.counterfactuals
    arrays: dict[str, Any] = {field.name: getattr(edits, field.name) for field in fields(edits)}
    arrays = {name: array for name, array in arrays.items() if array is not None}
    return npy.dump({"cost": np.array(astuple(found.cost)), **arrays})


def unpacked(value: bytes) -> Found | None:
    """From the cache; None if it is nothing of ours."""
    try:
        arrays = npy.load(io.BytesIO(value))
        rows, *rest = arrays.pop("cost").tolist()
        return Found(Counterfactuals(**arrays), Cost(int(rows), *rest))
    except (KeyError, TypeError, ValueError):
        return None


def _fits(found: Found, chunk: Chunk) -> bool:
    """Whether it is of as many instances."""
    edits = found.counterfactuals
    arrays = (getattr(edits, field.name) for field in fields(edits))
    return all(len(array) == len(chunk.rows) for array in arrays if array is not None)
