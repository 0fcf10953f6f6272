"""The contract of ways to remove features."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfeval_cli.core import ABSENT, Access, Ints, Removal, Replacement
from cfeval_cli.testing.problems import Problem
from cfeval_cli.testing.require import (
    generator_untouched,
    list_applicable,
    require,
    require_array,
    require_declared,
    require_equal,
    require_text,
)


def check_removal(removal: Removal, problems: Sequence[Problem] | None = None) -> None:
    """Check what a removal declares, and what it puts in the place of features: valid, weighted, reproducible."""
    name = type(removal).__name__
    require(isinstance(removal, Removal), f"{name} must derive from cfeval_cli.core.Removal.")
    require_declared(removal, "name", "variant", "title")
    for field in ("name", "variant", "title"):
        require_text(getattr(removal, field, None), f"{name}.{field}")
    require(isinstance(removal.with_max_draws(5), Removal), f"{name}.with_max_draws() must return a Removal.")
    for problem in list_applicable(removal, problems):
        _check_on(removal, problem)


def _check_on(removal: Removal, problem: Problem) -> None:
    name, dataset = f"{type(removal).__name__} on {problem.name}", problem.dataset
    sets = [np.array(some, dtype=np.int64) for some in ([0], [1], [0, 1], [1, 0])]
    with generator_untouched(name):
        ready, other = (removal.fit(dataset, problem.make_client(Access.WHITE_BOX)) for _ in range(2))
        for features in sets:
            _check_replacements(ready, problem, features, name)
        for features in reversed(sets):
            (values, weights), (other_values, other_weights) = ready.sample(features), other.sample(features)
            message = f"{name} replaces features otherwise after other questions."
            require_equal(values, other_values, message)
            require_equal(weights, other_weights, message)
    for size in (1, 2):
        require(removal.count_replacements(dataset, size) >= 1, f"{name}: count_replacements() must be at least 1.")
    if ready.value is not None:
        require(isinstance(ready.value, int | np.integer), f"{name}: value must be a code.")
    if ready.vectors is not None:
        shape = (dataset.n_features, ready.vectors.shape[-1])
        require_array(ready.vectors, shape, "f", f"{name}: vectors")
        require(np.isfinite(ready.vectors).all(), f"{name}: vectors must be finite.")


def _check_replacements(ready: Replacement, problem: Problem, features: Ints, name: str) -> None:
    values, weights = ready.sample(features)
    require_array(values, (len(values), len(features)), "i", f"{name}: values")
    require_array(weights, (len(values),), "f", f"{name}: weights")
    require(len(values), f"{name} puts nothing in the place of features.")
    require((weights >= 0).all() and abs(weights.sum() - 1) < 1e-9, f"{name}: weights must add up to 1.")
    for column, feature in zip(values.T, features.tolist(), strict=True):
        size = len(problem.dataset.features[feature].values)
        is_value = (column >= 0) & (column < size) | (column == ABSENT)
        require(is_value.all(), f"{name} puts in values that there are not.")
