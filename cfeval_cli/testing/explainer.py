"""The contract of explainers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Access,
    Batch,
    CircularRelation,
    Explainer,
    Explanation,
    Ints,
    NotExplained,
    Workload,
)
from cfeval_cli.errors import UserError
from cfeval_cli.testing.problems import Problem
from cfeval_cli.testing.require import (
    enforce_access,
    forbid_global_generator,
    list_applicable,
    require,
    require_array,
    require_declared,
    require_equal,
    require_reason,
    require_text,
)


def check_explainer(explainer: Explainer, problems: Sequence[Problem] | None = None, tolerance: float = 0.0) -> None:
    """Check what an explainer declares, and its explanations: valid, reproducible, independent of batch and order.

    Scores must be equal to the last bit, or to a `tolerance` for models of matrix products.
    """
    name = type(explainer).__name__
    require(isinstance(explainer, Explainer), f"{name} must derive from cfeval_cli.core.Explainer.")
    require_declared(explainer, "access")
    members = explainer.expand("checked")
    require(members, f"{name}.expand() must have at least one explainer.")
    for key, member in members.items():
        require_text(key, f"{name}.expand(): a name")
        _check_declarations(member)
        applicable = [problem for problem in list_applicable(member, problems) if _is_accepted(member, problem)]
        require(applicable, f"{name}.check() refuses every problem that not_applicable_reason() accepts.")
        for problem in applicable:
            _check_on(member, problem, tolerance)


def _check_declarations(explainer: Explainer) -> None:
    name = type(explainer).__name__
    require(isinstance(explainer.access, int) and explainer.access in list(Access), f"{name}.access must be an Access.")
    min_access = explainer.min_access
    require(min_access is None or min_access <= explainer.access, f"{name}.min_access must not exceed {name}.access.")
    require(
        explainer.output in ("set", "scores"), f"{name}.output must be 'set' or 'scores', not {explainer.output!r}."
    )
    require(isinstance(explainer.display_order, int | float), f"{name}.display_order must be a number.")
    if explainer.title is not None:
        require_text(explainer.title, f"{name}.title")


def _is_accepted(explainer: Explainer, problem: Problem) -> bool:
    """Return whether `check` accepts the data and the model; a refusal must have a text."""
    try:
        explainer.check(problem.spec)
    except (ValueError, UserError) as error:
        require_reason(str(error), f"{type(explainer).__name__}.check() on {problem.name}: the message")
        return False
    return True


def _check_on(explainer: Explainer, problem: Problem, tolerance: float) -> None:
    name = f"{type(explainer).__name__} on {problem.name}"
    access, dataset = explainer.choose_access(problem.spec), problem.dataset
    require(access in list(Access), f"{name}: choose_access() must return an Access, not {access!r}.")
    workload = explainer.estimate_workload(problem.spec)
    require(isinstance(workload, Workload), f"{name}: estimate_workload() must return a Workload, not {workload!r}.")
    relation = explainer.circular_with(problem.spec, 1)
    require(isinstance(relation, CircularRelation), f"{name}: circular_with() must return a CircularRelation.")
    order = np.arange(len(problem.rows))
    with enforce_access(name), forbid_global_generator(name):
        explanation = _explain(explainer.fit(dataset, problem.make_client(access)), problem, order, name)
        repetition = _explain(explainer.fit(dataset, problem.make_client(access)), problem, order, name)
        function = explainer.fit(dataset, problem.make_client(access))
        reverse = _explain(function, problem, order[::-1], name)
        single_explanations = [_explain(function, problem, order[i : i + 1], name) for i in (2, 0)]
        batch = _explain(function, problem, order[1:8], name)
    _check_explanation(explainer, explanation, problem, name)
    for other, own_rows, condition in (
        (repetition, order, "a second time, with the same seed,"),
        (reverse, order[::-1], "in another order"),
        (Explanation.concatenate(single_explanations), np.array([2, 0]), "alone"),
        (batch, order[1:8], "in another batch"),
    ):
        message = f"{name} returns another explanation when an instance is explained {condition}."
        _require_same(explanation.take(own_rows), other, tolerance, message)


def _explain(function: Callable[[Batch], Explanation], problem: Problem, order: Ints, name: str) -> Explanation:
    """Return the explanations of some instances; of one that raises NotExplained an empty one."""
    batch = problem.make_batch(order)
    before = batch.codes.copy()
    try:
        explanation = function(batch)
    except NotExplained as error:
        require_text(str(error), f"{name}: the reason of NotExplained")
        if len(order) == 1:
            return Explanation.from_lists([[]])
        return Explanation.concatenate([_explain(function, problem, order[i : i + 1], name) for i in range(len(order))])
    require((batch.codes == before).all(), f"{name} changes the codes that it is given.")
    require(isinstance(explanation, Explanation), f"{name} must return an Explanation, not {explanation!r}.")
    require(len(explanation) == len(order), f"{name} explains {len(explanation)} of {len(order)} instances.")
    return explanation


def _check_explanation(explainer: Explainer, explanation: Explanation, problem: Problem, name: str) -> None:
    features, codes = explanation.features, problem.rows.codes
    require_array(features, features.shape, "iu", f"{name}: features")
    require(features.ndim == 2, f"{name}: features must have the shape (n, K), not {features.shape}.")
    require_array(explanation.scores, features.shape, "f", f"{name}: scores")
    selected = features != NO_FEATURE
    valid = (features[selected] >= 0) & (features[selected] < problem.dataset.n_features)
    require(valid.all(), f"{name} selects features that do not exist.")
    require((selected[:, 1:] <= selected[:, :-1]).all(), f"{name}: NO_FEATURE must follow all selected features.")
    for i, row in enumerate(features):
        selection = row[row != NO_FEATURE]
        require(len(set(selection.tolist())) == len(selection), f"{name} selects a feature twice, for instance {i}.")
        require((codes[i, selection] != ABSENT).all(), f"{name} selects a feature that is absent, for instance {i}.")
    if explainer.output == "scores":
        has_finite_score = np.isfinite(explanation.scores[selected])
        require(has_finite_score.all(), f"{name}: every selected feature must have a finite score.")


def _require_same(first: Explanation, second: Explanation, tolerance: float, message: str) -> None:
    width = max(first.features.shape[1], second.features.shape[1])
    require((first.top_k(width) == second.top_k(width)).all(), message)
    require_equal(
        first.scores[first.features != NO_FEATURE], second.scores[second.features != NO_FEATURE], message, tolerance
    )
