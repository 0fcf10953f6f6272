"""The contract of metrics."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

import numpy as np

from cfeval_cli.core import (
    NO_FEATURE,
    AbsentScore,
    Access,
    CircularRelation,
    EvaluationCache,
    Explanation,
    FittedRemoval,
    Floats,
    HasAdditiveEffects,
    HasLinearLogit,
    Ints,
    Metric,
    MetricInput,
    Score,
)
from cfeval_cli.core.metric import Needs, Role
from cfeval_cli.core.ranking import find_top_k
from cfeval_cli.removal.marginal import Marginal
from cfeval_cli.removal.mask import Mask
from cfeval_cli.removal.mean import Mean
from cfeval_cli.removal.zero import Zero
from cfeval_cli.search.continuous import Continuous
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.testing.problems import TOLERANCE, Problem
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
from cfeval_cli.testing.search import find_counterfactuals
from cfeval_cli.truth.contrast import Contrast
from cfeval_cli.truth.shapley import Shapley

_K = 2


def check_metric(metric: Metric, problems: Sequence[Problem] | None = None) -> None:
    """Check what a metric declares, and its scores: in range, reproducible, independent of batch and order."""
    name = type(metric).__name__
    require(isinstance(metric, Metric), f"{name} must derive from cfeval_cli.core.Metric.")
    require_declared(metric, "name", "title", "better", "range", "access", "display_order")
    _check_declarations(metric, name)
    has_score = False
    for problem in list_applicable(metric, problems):
        inputs = _make_inputs(problem)
        for level in _list_levels(metric, problem):
            has_score |= _check_on(metric, problem, inputs, level)
        if metric.role == "truth":
            _check_direction(metric, inputs, f"{name} on {problem.name}")
    require(has_score, f"{name} has no score on any of the problems, pass others.")


def _check_declarations(metric: Metric, name: str) -> None:
    require_text(metric.name, f"{name}.name")
    require(re.fullmatch(r"\w[\w-]*", metric.name), f"{name}.name must be of letters, digits, _ and -.")
    require_text(metric.title, f"{name}.title")
    require(metric.better in ("higher", "lower", "none"), f"{name}.better must be 'higher', 'lower' or 'none'.")
    require(metric.role in get_args(Role), f"{name}.role must be one of {', '.join(get_args(Role))}.")
    is_fact = metric.role == "fact"
    require(is_fact == (metric.better == "none"), f"{name}: better must be 'none' exactly for a metric of role 'fact'.")
    require(metric.needs in get_args(Needs), f"{name}.needs must be one of {', '.join(get_args(Needs))}.")
    low, high = metric.range
    require(low < high, f"{name}.range must be the lowest and the highest value, not {metric.range}.")
    require(metric.access in list(Access), f"{name}.access must be an Access, not {metric.access!r}.")
    require(
        metric.max_access is None or metric.max_access >= metric.access,
        f"{name}.max_access must not be below {name}.access.",
    )
    require(isinstance(metric.display_order, int | float), f"{name}.display_order must be a number.")


def _list_levels(metric: Metric, problem: Problem) -> list[Access]:
    """Return the levels of access that a run may give the metric."""
    if metric.role != "judged":
        return [Access.NOTHING]
    higher_levels = [level for level in Access if metric.access < level <= (metric.max_access or metric.access)]
    return [metric.access, *(level for level in higher_levels if problem.spec.missing_access_reason(level) is None)]


@cache
def _make_inputs(problem: Problem) -> MetricInput:
    """Return the input of a metric for random explanations."""
    rows, dataset, rng = problem.rows, problem.dataset, np.random.default_rng(0)
    pairs = []
    for i, row in enumerate(rows.codes):
        present = rng.permutation(np.flatnonzero(row >= 0))[: None if i else 1]
        pairs.append(list(zip(present.tolist(), np.sort(rng.normal(size=len(present)))[::-1].tolist(), strict=True)))
    explanation = Explanation.from_lists(pairs)
    features = explanation.top_k(_K)
    levels = [
        level for level in (Access.LABEL, Access.PROBABILITY) if problem.spec.missing_access_reason(level) is None
    ]
    edits = {level: find_counterfactuals(Discrete(), problem, features, level) for level in levels}
    if problem.spec.supports(HasLinearLogit):
        search = Continuous(steps=50, restarts=2)
        edits[Access.GRADIENT] = find_counterfactuals(search, problem, features, Access.GRADIENT)
    client, removals = problem.make_client(Access.WHITE_BOX), {}
    for removal in (Zero(), Mask(), Mean(), Marginal(draws=8)):
        reason = removal.not_applicable_reason(problem.spec)
        removals[removal.name] = FittedRemoval(removal, None if reason else removal.fit(dataset, client), reason or "")
    truths = [Shapley(), Contrast()] if problem.spec.supports(HasAdditiveEffects) else []
    return MetricInput(
        rows.ids, rows.codes, rows.predicted_classes, rows.probability,
        dataset=dataset, model=client, features=features, k=_K,
        complete=(features != NO_FEATURE).all(axis=1), counterfactuals=edits, removals=removals,
        truth={truth.name: truth.compute_masked_importance(dataset, client, rows) for truth in truths},
        explanation=explanation,
    )  # fmt: skip


def _take(inputs: MetricInput, order: Ints) -> MetricInput:
    """Return the input of some instances, with an empty memory."""
    rows = inputs.take(order)
    return replace(
        inputs, ids=rows.ids, codes=rows.codes, predicted_classes=rows.predicted_classes, probability=rows.probability,
        features=inputs.features[order], complete=inputs.complete[order],
        counterfactuals={level: edits.take(order) for level, edits in inputs.counterfactuals.items()},
        truth={name: values[order] for name, values in inputs.truth.items()},
        explanation=None if inputs.explanation is None else inputs.explanation.take(order), memory=EvaluationCache(),
    )  # fmt: skip


@dataclass(frozen=True)
class _Values:
    """A variant's numerator and denominator (n,); NaN for instances without a score."""

    numerator: Floats
    denominator: Floats


def _check_on(metric: Metric, problem: Problem, inputs: MetricInput, level: Access) -> bool:
    """Check the scores at one level of access; return whether there is any."""
    name = f"{type(metric).__name__} with {level.name.lower()} access on {problem.name}"
    order = np.arange(len(inputs))
    is_likely = max(level, metric.access) >= Access.PROBABILITY
    permitted = replace(
        _take(inputs, order),
        model=problem.make_client(level),
        probability=inputs.probability if is_likely else None,
    )
    with enforce_access(name), forbid_global_generator(name):
        before = permitted.codes.copy(), permitted.features.copy()
        all_scores = _score(metric, permitted, name)
        require(
            (before[0] == permitted.codes).all() and (before[1] == permitted.features).all(),
            f"{name} changes its input.",
        )
        for part, other, condition in (
            (order, permitted, "with its previous evaluations in memory"),
            (order, _take(permitted, order), "a second time"),
            (order[::-1], _take(permitted, order[::-1]), "in another order"),
            (order[::2], _take(permitted, order[::2]), "for some of the instances alone"),
        ):
            _require_same(all_scores, _score(metric, other, name), part, f"{name} returns other scores {condition}.")
        _score(metric, replace(_take(permitted, order), explanation=None), f"{name}, for an explainer without an order")
    for variant, values in all_scores.items():
        _check_range(metric, values, f"{name}, {variant}")
        relation = metric.circular_with(problem.spec, _K, variant, {})
        require(isinstance(relation, CircularRelation), f"{name}: circular_with() must return a CircularRelation.")
    return bool(all_scores)


def _check_direction(metric: Metric, inputs: MetricInput, name: str) -> None:
    """Require that the most important features have a better score of a ground truth than the least important ones."""
    for truth, importance in inputs.truth.items():
        means = []
        for values in (importance, np.where(np.isfinite(importance), -importance, -np.inf)):
            score = _score(metric, replace(inputs, features=find_top_k(values, _K)), name)[truth]
            means.append(score.numerator.sum() / score.denominator.sum())
        best, worst = means if metric.better == "higher" else means[::-1]
        require(best > worst, f"{name}: better={metric.better!r} contradicts the scores of the ground truth {truth}.")


def _score(metric: Metric, inputs: MetricInput, name: str) -> Mapping[str, _Values]:
    """Return the scores by variant, after checking their form."""
    values: dict[str, _Values] = {}
    variants = []
    for score in metric.score(inputs):
        require(
            isinstance(score, Score | AbsentScore),
            f"{name} must yield Score or AbsentScore, not {type(score).__name__}.",
        )
        require_text(score.variant, f"{name}: a variant")
        require(score.variant not in variants, f"{name} has the variant {score.variant} twice.")
        variants.append(score.variant)
        if isinstance(score, AbsentScore):
            require_text(score.reason, f"{name}: the reason why {score.variant} is absent")
            continue
        positions = np.arange(len(inputs)) if score.positions is None else score.positions
        for field in ("numerator", "denominator"):
            require_array(getattr(score, field), (len(positions),), "f", f"{name}, {score.variant}: {field}")
        require(np.isfinite(score.numerator).all(), f"{name}, {score.variant}: numerators must be finite.")
        require((score.denominator >= 0).all(), f"{name}, {score.variant}: denominators must not be negative.")
        fields = set(re.findall(r"{(\w+)}", score.method + score.remark))
        require(fields <= set(score.counts), f"{name}, {score.variant}: method or remark has fields without counts.")
        dense = np.full((2, len(inputs)), np.nan)
        dense[:, positions] = score.numerator, score.denominator
        values[score.variant] = _Values(*dense)
    return values


def _require_same(all_scores: Mapping[str, _Values], other: Mapping[str, _Values], order: Ints, message: str) -> None:
    require(set(all_scores) == set(other), message)
    for variant, values in all_scores.items():
        require_equal(values.numerator[order], other[variant].numerator, message)
        require_equal(values.denominator[order], other[variant].denominator, message)


def _check_range(metric: Metric, values: _Values, name: str) -> None:
    is_defined = values.denominator > 0
    if not is_defined.any():
        return
    low, high = metric.range
    value = values.numerator[is_defined].sum() / values.denominator[is_defined].sum()
    require(low - TOLERANCE <= value <= high + TOLERANCE, f"{name}: {value:g} is outside its range {metric.range}.")
