"""The contract of searches for counterfactuals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cfeval_cli.core import NO_FEATURE, Access, Counterfactuals, FittedDistance, Ints, Search, SearchTask, Workload
from cfeval_cli.core.counterfactual import select_changeable
from cfeval_cli.distance.euclidean import Euclidean
from cfeval_cli.testing.problems import Problem, make_problems
from cfeval_cli.testing.require import (
    enforce_access,
    forbid_global_generator,
    require,
    require_array,
    require_declared,
    require_equal,
    require_reason,
    require_text,
)


def check_search(search: Search, problems: Sequence[Problem] | None = None) -> None:
    """Check what a search declares, and its counterfactuals: valid, reproducible, independent of batch and order."""
    name = type(search).__name__
    require(isinstance(search, Search), f"{name} must derive from cfeval_cli.core.Search.")
    require_declared(search, "title")
    require_text(search.title, f"{name}.title")
    require_text(search.label, f"{name}.label")
    require(search.levels and all(level in list(Access) for level in search.levels), f"{name}.levels must have levels.")
    applicable = [
        problem
        for problem in (make_problems() if problems is None else problems)
        if require_reason(
            search.not_applicable_reason(problem.spec), f"{name}.not_applicable_reason() on {problem.name}"
        )
    ]
    require(applicable, f"{name} refuses all of the problems, pass others.")
    for problem in applicable:
        search.check(problem.dataset, 2)
        require(search.choose_chunk_size(problem.dataset, 2) >= 1, f"{name}.choose_chunk_size() must be at least 1.")
        for level in search.levels:
            if problem.spec.missing_access_reason(level) is None:
                _check_on(search, problem, level)


def choose_features(problem: Problem, k: int) -> Ints:
    """Return k features (n, k) of each test instance, NO_FEATURE where an instance has fewer."""
    rng = np.random.default_rng(0)
    features = np.full((len(problem.rows), k), NO_FEATURE)
    for i, row in enumerate(problem.rows.codes):
        own_rows = rng.permutation(np.flatnonzero(row >= 0))[: k if i else 1]
        features[i, : len(own_rows)] = own_rows
    return features


def find_counterfactuals(search: Search, problem: Problem, features: Ints, level: Access) -> Counterfactuals:
    """Return counterfactuals of all test instances, at the Euclidean distance."""
    distance = Euclidean().fit(problem.dataset, problem.model, level)
    return search.find(_make_task(problem, features, level, np.arange(len(features)), distance))


def _make_task(problem: Problem, features: Ints, level: Access, order: Ints, distance: FittedDistance) -> SearchTask:
    rows = problem.rows.take(order)
    return SearchTask(
        rows.ids, rows.codes, rows.predicted_classes, rows.probability if level >= Access.PROBABILITY else None, seed=0,
        component="search", features=select_changeable(problem.dataset, features[order]), dataset=problem.dataset,
        model=problem.make_client(level), distance=distance,
    )  # fmt: skip


def _check_on(search: Search, problem: Problem, level: Access) -> None:
    name = f"{type(search).__name__} with {level.name.lower()} access on {problem.name}"
    features, order = choose_features(problem, 2), np.arange(len(problem.rows))
    workload = search.estimate_workload(problem.dataset, features)
    require(isinstance(workload, Workload), f"{name}: estimate_workload() must return a Workload, not {workload!r}.")
    distance = Euclidean().fit(problem.dataset, problem.model, level)
    parts = (order, order, order[::-1], order[2:3], order[:0])
    tasks = [_make_task(problem, features, level, part, distance) for part in parts]
    with enforce_access(name), forbid_global_generator(name):
        all_edits, repetition, reverse, single_edit, no_edits = (search.find(task) for task in tasks)
    _check_counterfactuals(all_edits, tasks[0], name)
    require(len(no_edits.labels) == 0, f"{name} finds counterfactuals of no instances.")
    for other, own_rows, condition in (
        (repetition, order, "a second time, with the same seed"),
        (reverse, order[::-1], "in another order"),
        (single_edit, order[2:3], "for an instance alone"),
    ):
        for first, second in zip(_list_arrays(all_edits.take(own_rows)), _list_arrays(other), strict=True):
            require_equal(first, second, f"{name} finds another counterfactual {condition}.")


def _list_arrays(edits: Counterfactuals) -> list[NDArray[Any]]:
    arrays: tuple[NDArray[Any] | None, ...] = (
        edits.labels,
        edits.distance,
        edits.probability,
        edits.codes,
        edits.vectors,
        edits.converged,
    )
    return [array for array in arrays if array is not None]


def _check_counterfactuals(edits: Counterfactuals, task: SearchTask, name: str) -> None:
    n = len(task)
    require(
        isinstance(edits, Counterfactuals),
        f"{name} must return Counterfactuals, not {type(edits).__name__}.",
    )
    require_array(edits.features, task.features.shape, "i", f"{name}: features")
    require((edits.features == task.features).all(), f"{name} changes the list of features that it may edit.")
    require_array(edits.labels, (n,), "i", f"{name}: labels")
    require_array(edits.flipped, (n,), "b", f"{name}: flipped")
    require_array(edits.distance, (n,), "f", f"{name}: distance")
    require(
        (edits.flipped == (edits.labels != task.predicted_classes)).all(),
        f"{name}: flipped contradicts labels.",
    )
    require((edits.distance >= 0).all(), f"{name}: distances must not be negative.")
    require(
        (edits.codes is None) != (edits.vectors is None),
        f"{name} must return either codes or vectors.",
    )
    if edits.probability is not None:
        require(task.access >= Access.PROBABILITY, f"{name}: probabilities need probability access.")
        require_array(edits.probability, (n,), "f", f"{name}: probability")
    if edits.codes is not None:
        _check_exchanged(edits, task, name)
    if edits.vectors is not None:
        require_array(edits.vectors, (*task.features.shape, edits.vectors.shape[-1]), "f", f"{name}: vectors")
        require(np.isfinite(edits.vectors).all(), f"{name}: vectors must be finite.")


def _check_exchanged(edits: Counterfactuals, task: SearchTask, name: str) -> None:
    codes = edits.codes
    require_array(codes, task.codes.shape, "i", f"{name}: codes")
    if codes is None:
        return
    require(
        (task.model.predict_labels(codes) == edits.labels).all(),
        f"{name}: labels are not those of the edited rows.",
    )
    rows, features = np.nonzero(codes != task.codes)
    is_open = (task.features[rows] == features[:, None]).any(axis=1)
    require(is_open.all(), f"{name} changes features that it may not edit.")
    for row, j in zip(rows.tolist(), features.tolist(), strict=True):
        own_rows, new = task.codes[row, j], codes[row, j]
        require(new in task.dataset.candidates[j], f"{name} uses a value that is not among the candidates.")
        is_allowed = task.dataset.features[j].allows(np.array(own_rows), np.array(new))
        require(bool(is_allowed), f"{name} changes a feature in a way that the data do not allow.")
