"""The answer stage: which explainer is most faithful, as soon as reference attributions and explanations exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan

import numpy as np

from cfeval_cli.core import ExplainerResult, Floats, Ints, TruthEstimate
from cfeval_cli.pipeline.context import RunContext
from cfeval_cli.pipeline.repeat import SecondSeedSample
from cfeval_cli.pipeline.sampling import compute_class_weights
from cfeval_cli.settings.plan import Plan
from cfeval_cli.statistics.explainer_stability import compute_mean_overlap
from cfeval_cli.statistics.recommendation import (
    QUESTIONS,
    Answer,
    ExplainerFacts,
    Question,
    Recommendation,
    ReferenceSample,
    answer_question,
    find_disagreements,
)


def answer_questions(
    context: RunContext,
    estimates: Mapping[str, TruthEstimate],
    explanations: Mapping[str, ExplainerResult],
    second_seed_sample: SecondSeedSample | None,
) -> Recommendation:
    """Return the answer to each question, from the explanations of the instances with reference attributions."""
    settings = context.plan.settings
    facts = _collect_facts(context, explanations, second_seed_sample)
    contenders = {
        name: result.explanation.top_k(settings.k)
        for name, result in explanations.items()
        if not facts[name].is_control
    }
    answers = {question: _answer(context, question, estimates, explanations, facts) for question in QUESTIONS}
    if all(answer.truth is None for answer in answers.values()):
        return Recommendation(settings.k, settings.margin, settings.confidence, facts, answers)
    disagreements = find_disagreements(contenders, context.instances.ids, context.dataset.n_features)
    context.scratch.release()
    return Recommendation(settings.k, settings.margin, settings.confidence, facts, answers, disagreements)


def find_truth(plan: Plan, question: Question) -> str | None:
    """Return the first truth of a question that does not depend on the parametrisation of the model."""
    truths = plan.truths.items()
    return next((name for name, truth in truths if truth.question == question and not truth.arbitrary), None)


def _answer(
    context: RunContext,
    question: Question,
    estimates: Mapping[str, TruthEstimate],
    explanations: Mapping[str, ExplainerResult],
    facts: Mapping[str, ExplainerFacts],
) -> Answer:
    plan, settings = context.plan, context.plan.settings
    truth = find_truth(plan, question)
    if truth is None:
        return Answer(reason=_explain_missing_truth(plan))
    importance = estimates[truth].importance
    positions = np.flatnonzero(~np.isnan(importance).any(axis=1))
    is_sampled = context.weights is not None or len(positions) < len(importance)
    answer = answer_question(
        truth,
        _create_sample(context, importance[positions], explanations, positions),
        facts,
        [name for name in facts if truth in plan.explainers[name].circular_with(context.spec, settings.k).truths],
        k=settings.k,
        margin=settings.margin,
        confidence=settings.confidence,
        seed=settings.seed,
    )
    return replace(answer, is_reweighted=is_sampled and settings.min_per_class > 0)


def _explain_missing_truth(plan: Plan) -> str:
    """Return why a question has no reference attributions."""
    reasons = [f"truth.{name} {reason}" for name, reason in plan.absent.truths.items()]
    return "; ".join(reasons) or "truth=[…] has no truth for it that is independent of the parametrisation of the model"


def _create_sample(
    context: RunContext, importance: Floats, explanations: Mapping[str, ExplainerResult], positions: Ints
) -> ReferenceSample:
    """Return the reference attributions with the rankings of the explainers; classes have the weights of all data."""
    n_features, classes = context.dataset.n_features, context.rows.predicted_classes
    weights = compute_class_weights(classes, positions, context.weights)
    return ReferenceSample(
        importance,
        {name: result.explanation.take(positions).to_ranks(n_features) for name, result in explanations.items()},
        weights / weights.mean(),
        np.asarray(classes[positions]),
        {column: describe_column(context, column, positions) for column in context.plan.settings.by},
    )


def describe_column(context: RunContext, column: str, positions: Ints) -> list[str]:
    """Return the predicted class, or the value of a feature, of some instances; numbers by quarters of training."""
    dataset = context.dataset
    if column == "predicted":
        return [dataset.classes[label] for label in context.rows.predicted_classes[positions]]
    index = next(j for j, feature in enumerate(dataset.features) if feature.name == column)
    feature, codes = dataset.features[index], context.rows.codes[positions, index]
    if feature.numbers is None:
        return [feature.values[code] for code in codes]
    quantiles = np.quantile(dataset.train.codes[:, index], [0.25, 0.5, 0.75], method="lower")
    ends = np.unique(quantiles.astype(np.int64))
    return [_describe_quarter(feature.values, ends, int(code)) for code in codes]


def _describe_quarter(values: Sequence[str], ends: Ints, code: int) -> str:
    position = int(np.searchsorted(ends, code))
    return f"> {values[ends[-1]]}" if position == len(ends) else f"≤ {values[ends[position]]}"


def _collect_facts(
    context: RunContext, explanations: Mapping[str, ExplainerResult], second_seed_sample: SecondSeedSample | None
) -> dict[str, ExplainerFacts]:
    """Return the cost per instance and the stability of each explainer; those of graded controls are left out."""
    plan, size = context.plan, max(1, len(context.instances))
    overlap = (
        {}
        if second_seed_sample is None
        else compute_mean_overlap(
            explanations, second_seed_sample.explanations, second_seed_sample.positions, plan.settings.k
        )
    )
    facts = {}
    for name, explainer in plan.explainers.items():
        result = explanations[name]
        top = result.explanation.top_k(plan.settings.k)
        facts[name] = ExplainerFacts(
            title=plan.explainer_titles[name],
            is_control=explainer.is_control or not isnan(explainer.quality_level),
            evaluations=result.cost.n_evaluations / size if explainer.has_known_cost else None,
            stability=overlap.get(name),
            n_repeated=0 if second_seed_sample is None else len(second_seed_sample.positions),
            coverage=float((top >= 0).all(axis=1).mean()),
        )
    return facts
