"""The contract of distances."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cfeval_cli.core import Access, Distance, FittedDistance, HasEmbeddings
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.testing.problems import Problem, make_problems
from cfeval_cli.testing.require import (
    forbid_global_generator,
    require,
    require_array,
    require_equal,
    require_reason,
    require_text,
)

_CLOSE = 1e-6  # the root of a difference of sums has few correct digits
_LEVELS = (Access.LABEL, Access.PROBABILITY, Access.GRADIENT)


def check_distance(distance: Distance, problems: Sequence[Problem] | None = None) -> None:
    """Check that a distance is finite, not negative, and the same however pairs are given to it."""
    name = type(distance).__name__
    require(isinstance(distance, Distance), f"{name} must derive from cfeval_cli.core.Distance.")
    require_text(distance.label, f"{name}.label")
    require(
        isinstance(distance.make_judge_distance(), Distance), f"{name}.make_judge_distance() must return a Distance."
    )
    applicable = [
        problem
        for problem in (make_problems() if problems is None else problems)
        if require_reason(
            distance.not_applicable_reason(problem.spec, Discrete()),
            f"{name}.not_applicable_reason() on {problem.name}",
        )
    ]
    require(applicable, f"{name} refuses all of the problems, pass others.")
    for problem in applicable:
        for level in _LEVELS:
            if problem.spec.missing_access_reason(level) is None:
                _check_on(distance, problem, level)


def _check_on(distance: Distance, problem: Problem, level: Access) -> None:
    name = f"{type(distance).__name__} with {level.name.lower()} access on {problem.name}"
    embeds = distance.uses_embeddings(problem.model, level)
    require(isinstance(embeds, bool), f"{name}: uses_embeddings() must return True or False.")
    cost = distance.estimate_fit_cost(problem.dataset, problem.model, level)
    require(
        isinstance(cost, int) and cost >= 0,
        f"{name}: estimate_fit_cost() must be a number of operations, not {cost!r}.",
    )
    with forbid_global_generator(name):
        fitted_distance, repeated_fit = (distance.fit(problem.dataset, problem.model, level) for _ in range(2))
        _check_fitted_distance(
            fitted_distance, repeated_fit, problem, name, checks_embeddings=embeds and level >= Access.GRADIENT
        )


def _check_fitted_distance(
    fitted_distance: FittedDistance,
    repeated_fit: FittedDistance,
    problem: Problem,
    name: str,
    *,
    checks_embeddings: bool,
) -> None:
    codes = problem.rows.codes
    features, values = np.array([0, 1]), np.array([[0, 0], [1, 0], [1, 2]], dtype=np.int32)
    edited = np.repeat(codes[:, None], len(values), axis=1)
    edited[:, :, features] = values
    rows, edits = np.repeat(codes, len(values), axis=0), edited.reshape(-1, codes.shape[1])
    between = fitted_distance.compute_distances(rows, edits)
    require_array(between, (len(rows),), "f", f"{name}: compute_distances()")
    require(np.isfinite(between).all() and (between >= 0).all(), f"{name}: distances must be finite and not negative.")
    require_equal(between, repeated_fit.compute_distances(rows, edits), f"{name} returns different distances.")
    reverse = fitted_distance.compute_distances(rows[::-1], edits[::-1])[::-1]
    require_equal(between, reverse, f"{name} returns other distances in another order.")
    single = fitted_distance.compute_distances(rows[:1], edits[:1])
    require_equal(between[:1], single, f"{name} returns another distance for a pair alone.")
    matrix = fitted_distance.compute_distance_matrix(codes, features, values)
    require_array(matrix, (len(codes), len(values)), "f", f"{name}: compute_distance_matrix()")
    require_equal(
        matrix.ravel(), between, f"{name}: compute_distance_matrix() and compute_distances() disagree.", _CLOSE
    )
    if checks_embeddings and isinstance(problem.model, HasEmbeddings):
        first = edited[:, 0]
        vectors = np.stack([problem.model.embed_values(j, first[:, j]) for j in features.tolist()], axis=1)
        distances = fitted_distance.compute_embedding_distances(codes, np.tile(features, (len(codes), 1)), vectors)
        require_array(distances, (len(codes),), "f", f"{name}: compute_embedding_distances()")
        require_equal(
            distances, matrix[:, 0], f"{name}: compute_embedding_distances() and compute_distances() disagree.", _CLOSE
        )
