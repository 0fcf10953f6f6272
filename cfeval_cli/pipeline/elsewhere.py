"""Results that this process did not compute, from the cache or from worker processes: which, and a sample of them."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from cfeval_cli.core import Executor, Ints
from cfeval_cli.core.files import restore_working_directory
from cfeval_cli.seeding import stream

_Shared = TypeVar("_Shared")
_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_SAMPLE = 3  # instances of each kind of result and each origin
# how messages name where a result is from, and what they advise if a second computation gives another one
FROM_CACHE = "from the cache"
FROM_WORKERS = "from a worker process"
ADVICE = {
    FROM_CACHE: "The model or the component is not deterministic, or depends on something that its cache key does not "
    "include. Use redo=true or cache=off, or name the files that the model reads in model.depends.",
    FROM_WORKERS: "The model or the component gives another answer in worker processes: it must not depend on the "
    "process that it runs in. Use n_jobs=1.",
}


def shared_out(
    executor: Executor, work: Callable[[_Shared, _Item], _Result], shared: _Shared, items: Sequence[_Item]
) -> Iterator[tuple[_Result, bool]]:
    """Yield work(shared, item) for each item, in order, and whether another process computed it."""
    here = _process()
    for result, process in executor.map(_located, (work, shared), items):
        yield result, process != here


@restore_working_directory()
def _located(task: tuple[Callable[[Any, Any], Any], Any], item: Any) -> tuple[Any, tuple[str, int]]:
    """Return work(shared, item), and the process that computed it."""
    work, shared = task
    return work(shared, item), _process()


def _process() -> tuple[str, int]:
    return platform.node(), os.getpid()


def sample(seed: int, name: str, cached: Ints, elsewhere: Ints) -> dict[str, Ints]:
    """Draw a few of the places whose results are from the cache, and a few of those from worker processes."""
    draw = stream(seed, f"check.{name}")
    drawn = {FROM_CACHE: draw.permutation(cached), FROM_WORKERS: draw.permutation(elsewhere)}
    return {origin: np.sort(places[:_SAMPLE]) for origin, places in drawn.items() if len(places)}
