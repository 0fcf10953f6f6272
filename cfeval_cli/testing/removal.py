"""The contract of removals."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfeval_cli.core import ABSENT, Access, Ints, Removal, Replacement
from cfeval_cli.testing.problems import Problem
from cfeval_cli.testing.require import (
    forbid_global_generator,
    list_applicable,
    require,
    require_array,
    require_declared,
    require_equal,
    require_text,
)


def check_removal(removal: Removal, problems: Sequence[Problem] | None = None) -> None:
    """Check what a removal declares, and its replacements: valid, weighted, reproducible."""
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
    sets = [np.array(features, dtype=np.int64) for features in ([0], [1], [0, 1], [1, 0])]
    with forbid_global_generator(name):
        replacement, refit = (removal.fit(dataset, problem.make_client(Access.WHITE_BOX)) for _ in range(2))
        for features in sets:
            _check_replacements(replacement, problem, features, name)
        for features in reversed(sets):
            (values, weights), (other_values, other_weights) = replacement.sample(features), refit.sample(features)
            message = f"{name} replaces features in another way after other calls."
            require_equal(values, other_values, message)
            require_equal(weights, other_weights, message)
    for size in (1, 2):
        require(removal.count_replacements(dataset, size) >= 1, f"{name}: count_replacements() must be at least 1.")
    if replacement.value is not None:
        require(isinstance(replacement.value, int | np.integer), f"{name}: value must be a code.")
    if replacement.vectors is not None:
        shape = (dataset.n_features, replacement.vectors.shape[-1])
        require_array(replacement.vectors, shape, "f", f"{name}: vectors")
        require(np.isfinite(replacement.vectors).all(), f"{name}: vectors must be finite.")


def _check_replacements(replacement: Replacement, problem: Problem, features: Ints, name: str) -> None:
    values, weights = replacement.sample(features)
    require_array(values, (len(values), len(features)), "i", f"{name}: values")
    require_array(weights, (len(values),), "f", f"{name}: weights")
    require(len(values), f"{name} has no replacement for features.")
    require((weights >= 0).all() and abs(weights.sum() - 1) < 1e-9, f"{name}: weights must add up to 1.")
    for column, feature in zip(values.T, features.tolist(), strict=True):
        size = len(problem.dataset.features[feature].values)
        is_value = (column >= 0) & (column < size) | (column == ABSENT)
        require(is_value.all(), f"{name} uses values that do not exist.")
