"""The contract of truths."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

import numpy as np

from cfeval_cli.core import ABSENT, Access, Ints, Truth, TruthEstimate
from cfeval_cli.core.truth import TruthQuestion
from cfeval_cli.testing.problems import Problem
from cfeval_cli.testing.require import (
    enforce_access,
    forbid_global_generator,
    list_applicable,
    require,
    require_array,
    require_declared,
    require_equal,
    require_text,
)


def check_truth(truth: Truth, problems: Sequence[Problem] | None = None) -> None:
    """Check what a truth declares, and its importances: valid, reproducible, independent of batch and order."""
    name = type(truth).__name__
    require(isinstance(truth, Truth), f"{name} must derive from cfeval_cli.core.Truth.")
    require_declared(truth, "name", "question")
    require_text(truth.name, f"{name}.name")
    questions = get_args(TruthQuestion)
    require(truth.question in questions, f"{name}.question must be one of {', '.join(questions)}.")
    require(truth.access in list(Access), f"{name}.access must be an Access, not {truth.access!r}.")
    for problem in list_applicable(truth, problems):
        _check_on(truth, problem)


def _check_on(truth: Truth, problem: Problem) -> None:
    name = f"{type(truth).__name__} on {problem.name}"
    require(
        isinstance(truth.evaluates_model(problem.spec), bool), f"{name}: evaluates_model() must return True or False."
    )
    cost = truth.count_evaluations(problem.spec)
    require(
        isinstance(cost, int) and cost >= 0,
        f"{name}: count_evaluations() must be a number of model evaluations, not {cost!r}.",
    )
    order = np.arange(len(problem.rows))
    with enforce_access(name), forbid_global_generator(name):
        estimate_of_all = _compute(truth, problem, order, name)
        repetition = _compute(truth, problem, order, name)
        reverse = _compute(truth, problem, order[::-1], name)
        single_estimate = _compute(truth, problem, order[2:3], name)
    for other, own_rows, condition in (
        (repetition, order, "a second time"),
        (reverse, order[::-1], "in another order"),
    ):
        require_equal(estimate_of_all.importance[own_rows], other.importance, f"{name} has other values {condition}.")
    require_equal(
        estimate_of_all.importance[2:3],
        single_estimate.importance,
        f"{name} has other values for an instance alone.",
    )


def _compute(truth: Truth, problem: Problem, order: Ints, name: str) -> TruthEstimate:
    rows, client = problem.rows.take(order), problem.make_client(truth.access)
    before = rows.codes.copy()
    estimate = truth.estimate(problem.dataset, client, rows)
    require((rows.codes == before).all(), f"{name} changes the codes that it is given.")
    require(isinstance(estimate, TruthEstimate), f"{name}: estimate() must return a TruthEstimate, not {estimate!r}.")
    require_array(estimate.importance, rows.codes.shape, "f", f"{name}: importance")
    present = rows.codes != ABSENT
    require(np.isneginf(estimate.importance[~present]).all(), f"{name}: absent features must have the importance -inf.")
    is_computed = ~np.isnan(estimate.importance).any(axis=1)
    require(
        np.isfinite(estimate.importance[is_computed][present[is_computed]]).all(),
        f"{name}: importances must be finite.",
    )
    if estimate.standard_error is not None:
        require_array(estimate.standard_error, (len(rows),), "f", f"{name}: standard_error")
        require(not (estimate.standard_error < 0).any(), f"{name}: standard errors must not be negative.")
    require_text(estimate.method, f"{name}: method")
    return estimate
