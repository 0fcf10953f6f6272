"""The contracts of judges, executors and caches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from cfeval_cli.core import (
    Arrays,
    Cache,
    Executor,
    HasAdditiveEffects,
    HasLeaves,
    JudgeSettings,
    ModelSpec,
    Section,
    Trainable,
)
from cfeval_cli.core.model import ABILITY_DESCRIPTIONS
from cfeval_cli.testing.problems import EXPLAINED_MODEL, Problem, make_problems
from cfeval_cli.testing.require import require


def check_judge(judge: JudgeSettings, problems: Sequence[Problem] | None = None) -> None:
    """Check that a judge is a model with known reference attributions on at least one of the problems."""
    name = type(judge).__name__
    model = judge.make_trainable(EXPLAINED_MODEL)
    require(isinstance(model, Trainable), f"{name}.make_trainable() must return a Trainable.")
    subjects = [
        ModelSpec.from_settings(problem.dataset, model)
        for problem in (make_problems() if problems is None else problems)
    ]
    abilities = (HasAdditiveEffects, HasLeaves)
    has_truth = any(spec.blind or any(spec.supports(ability) for ability in abilities) for spec in subjects)
    needed = ", or ".join(ABILITY_DESCRIPTIONS[ability] for ability in abilities)
    require(has_truth, f"{name}: its model has no known ground truth. It must give {needed}, or be blind to features.")


def check_executor(executor: Executor) -> None:
    """Check that an executor returns the results in order, leaves shared values alone, and passes errors on."""
    name = type(executor).__name__
    executor.prepare(None)
    shared = {"table": np.arange(40_000.0), "factor": 3}
    items = list(range(17))
    expected = [compute(shared, item) for item in items]
    results = list(executor.map(compute, shared, items))
    require(results == expected, f"{name} returns other results, or in another order.")
    require(list(executor.map(compute, shared, [])) == [], f"{name} returns results of no items.")
    require((shared["table"] == np.arange(40_000.0)).all(), f"{name} changes what items share.")
    try:
        list(executor.map(fail_at_two, None, [0, 1, 2, 3]))
    except ValueError as error:
        require("no 2" in str(error), f"{name} changes the message of an error: {error}.")
    else:
        raise AssertionError(f"{name} hides an error of the work.")


def compute(shared: Any, item: int) -> float:
    """Return a number that depends on what items share and on the item."""
    return float(shared["table"][item] * shared["factor"])


def fail_at_two(shared: Any, item: int) -> int:
    """Return the item, and fail for one."""
    if item == 2:
        raise ValueError("no 2")
    return item


def check_cache(cache: Cache) -> None:
    """Check that a cache, which must be empty, returns what was stored, to the byte and by section, or nothing."""
    name = type(cache).__name__
    section, other_section = Section("one", "a section"), Section("two", "another section")
    values = {bytes([i]) * 8: {"a": np.arange(i, 200.0), "b": np.arange(i)} for i in range(1, 60)}
    keys = list(values)
    require(not cache.get(section, keys), f"{name} has entries before any was stored.")
    cache.put(section, dict(list(values.items())[:40]))
    entries = cache.get(section, keys)
    equal = all(_are_equal(values[key], arrays) for key, arrays in entries.items())
    require(equal, f"{name} returns other values than were stored.")
    require(set(entries) <= set(keys[:40]), f"{name} has entries that were not stored.")
    require(set(cache.get(section, keys[:3])) <= set(keys[:3]), f"{name} returns entries of other keys.")
    require(not cache.get(other_section, keys), f"{name} mixes up sections.")
    replacement = {"a": np.zeros(3)}
    cache.put(section, {keys[0]: replacement})
    latest = cache.get(section, keys[:1]).get(keys[0], replacement)
    require(_are_equal(latest, replacement), f"{name} returns a value that was replaced.")
    unknown = Section(None, "a section whose inputs are not known")
    cache.put(unknown, values)
    require(not cache.get(unknown, keys), f"{name} stores entries of a section without a key.")


def _are_equal(first: Arrays, second: Arrays) -> bool:
    """Return whether arrays have the same names, types and bytes."""
    return first.keys() == second.keys() and all(
        first[name].dtype == second[name].dtype and np.array_equal(first[name], second[name]) for name in first
    )
