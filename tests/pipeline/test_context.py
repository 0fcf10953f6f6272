"""The context of a run, and what the stages compute from it."""

from dataclasses import replace

import numpy as np
import pytest

from cfeval_cli.core import (
    NO_FEATURE,
    AbsentScore,
    Access,
    Classifier,
    Cost,
    ExplainerResult,
    Explanation,
    LedgerKey,
    Metric,
    ModelSpec,
    Probabilistic,
    Score,
)
from cfeval_cli.pipeline import explain, repeat, robustness
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.model_checks import compute_predictions
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.pipeline.score import create_metric_input, evaluate_metric
from cfeval_cli.pipeline.search import find_instances_with_features, search_counterfactuals
from tests.inside import make_plan
from tests.problems import TRUTHS, compute_importance, get_class_proba, make_dataset, make_linear, predict_labels

DATASET = make_dataset([3, 4, 2], n=30)
MODEL = make_linear(DATASET)


@pytest.fixture(scope="module")
def plan():
    truths = "truth=[signed,shapley,contrast,absolute]"
    full_plan = make_plan("cache=off", "n_jobs=1", "explainer=[random,lr]", "k=2", truths)
    return full_plan.restrict_to(ModelSpec(DATASET, type(MODEL)))


def change_settings(plan, **settings):
    return replace(plan, settings=plan.settings.model_copy(update=settings))


def test_the_context_has_all_instances_or_a_sample_with_predictions(plan):
    context = create_context(plan, DATASET, MODEL)
    codes = DATASET.test.codes
    assert (context.rows.codes == codes).all() and (
        context.rows.predicted_classes == predict_labels(MODEL, codes)
    ).all()
    assert context.rows.probability == pytest.approx(get_class_proba(MODEL, codes, context.rows.predicted_classes))
    assert context.probabilities == pytest.approx(MODEL.predict_proba(codes)) and context.subject_hash is not None
    assert set(context.distances) == {Access.LABEL, Access.PROBABILITY}
    assert {name: removal.reason for name, removal in context.removals.items() if removal.replacement is None} == {
        "mask": "toy has no mask token"
    }
    subset, repetition, other = (
        create_context(change_settings(plan, n_explain=9, seed=seed), DATASET, MODEL).instances.ids.tolist()
        for seed in (0, 0, 1)
    )
    assert len(subset) == 9 and subset == sorted(subset) == repetition != other
    for name in TRUTHS:
        assert (
            context.compute_importance(name)
            == compute_importance(name, MODEL, DATASET, codes, context.rows.predicted_classes)
        ).all()


def test_predictions_of_a_model_without_probabilities():
    class First(Classifier):
        def predict(self, codes):
            return codes[:, 0] % 2

    predicted, probabilities = compute_predictions(First(), DATASET, DATASET.test.codes)
    assert probabilities is None and predicted.tolist() == [row[0] % 2 for row in DATASET.test.codes.tolist()]


def test_predictions_of_a_model_of_three_classes():
    class EvenProbabilityModel(Probabilistic):
        def predict_proba(self, codes):
            return expected

    expected = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    dataset = replace(DATASET, classes=("a", "b", "c"))
    predicted, probabilities = compute_predictions(EvenProbabilityModel(), dataset, DATASET.test.codes)
    assert (predicted == expected.argmax(axis=1)).all() and (probabilities == expected).all()


FEATURES = np.tile([[0, 2]], (30, 1))


def test_counterfactuals_are_searched_at_each_level_and_counted(plan):
    context = create_context(plan, DATASET, MODEL)
    edits = search_counterfactuals(context, context.rows, FEATURES, "x", lambda _: None, use_cache=False)
    assert set(edits) == {Access.LABEL, Access.PROBABILITY}
    assert edits[Access.LABEL].probability is None and edits[Access.PROBABILITY].probability is not None
    for estimate in edits.values():
        assert (estimate.codes[:, 1] == context.rows.codes[:, 1]).all()
        assert (estimate.labels == predict_labels(MODEL, estimate.codes)).all()
    assert all(context.ledger.n_evaluations[LedgerKey("search", "x", level)] > 30 for level in edits)


def test_a_metric_has_the_access_that_it_declares(plan):
    context = create_context(plan, DATASET, MODEL)
    models = []

    class AccessRecorder(Metric):
        name, title, better, range, place = "curious", "Curious", "higher", (0.0, 1.0), 1

        def __init__(self, access, role="judged"):
            self.access, self.role = access, role

        def score(self, case):
            models.append((case.model.access, case.probability is None))
            yield Score("all", np.ones(len(case)), np.ones(len(case)))
            yield AbsentScore("none", "no reason")

    case = create_metric_input(context, context.rows, FEATURES, np.ones(30, bool), {}, {})
    assert case.k == 2 and case.model.access is Access.NOTHING
    for metric in (
        AccessRecorder(Access.LABEL),
        AccessRecorder(Access.PROBABILITY),
        AccessRecorder(Access.WHITE_BOX, "truth"),
    ):
        assert [result.variant for result in evaluate_metric(context, case, metric)] == ["all", "none"]
    assert models == [(Access.LABEL, True), (Access.PROBABILITY, False), (Access.NOTHING, False)]
    models.clear()
    wants = AccessRecorder(Access.LABEL)
    wants.max_access = Access.GRADIENT
    for able in (context, replace(context, plan=replace(plan, access=Access.PROBABILITY))):  # as much as one may
        list(evaluate_metric(able, case, wants))
    assert models == [(Access.GRADIENT, False), (Access.PROBABILITY, False)]


def test_incomplete_explanations_are_skipped_filled_or_evaluated(plan):
    features = FEATURES.copy()
    features[:5, 1] = NO_FEATURE
    features[5] = NO_FEATURE
    outcome = ExplainerResult(
        Explanation(features, np.where(features == NO_FEATURE, np.nan, 1.0)), Cost(), 0, {5: "failed"}
    )
    for policy in ("skip", "random", "keep"):
        context = create_context(change_settings(plan, incomplete=policy), DATASET, MODEL)
        selection = explain.select_top_k(context, "x", outcome)
        assert (selection[6:] == FEATURES[6:]).all() and (selection[5] == NO_FEATURE).all()
        if policy == "skip":
            assert (selection[:6] == NO_FEATURE).all() and len(find_instances_with_features(selection)) == 24
        elif policy == "keep":
            assert (selection == features).all() and len(find_instances_with_features(selection)) == 29
        else:
            assert (selection[:5, 0] == 0).all() and set(selection[:5, 1].tolist()) <= {1, 2}
            assert (explain.select_top_k(context, "x", outcome) == selection).all()


def test_a_sample_is_explained_with_another_seed_and_searched_with_the_same():
    sampled_plan = make_plan("cache=off", "n_jobs=1", "explainer=[random,lr,graded]", "k=2", "explainer_stability=9")
    sampled_plan = sampled_plan.restrict_to(ModelSpec(DATASET, type(MODEL)))
    context = create_context(sampled_plan, DATASET, MODEL)
    sample, rows = repeat.sample_instances(context)
    assert rows.tolist() == sorted(set(rows.tolist())) and len(rows) == 9
    assert rows.tolist() == repeat.sample_instances(context)[1].tolist()
    assert list(sample.plan.explainers) == ["random", "lr"] and sample.ledger is not context.ledger
    for setting, size in ((0, 0), (1000, 30), ("auto", 7)):  # of 30
        plan = change_settings(sampled_plan, explainer_stability=setting)
        assert len(repeat.sample_instances(replace(context, plan=plan))[1]) == size
    repeated = repeat.repeat_explanations(context, Progress())
    assert (repeated.context.instances.ids == context.instances.ids[rows]).all()
    first = {name: explain.explain_instances(context, name, {}, lambda _: None) for name in ("random", "lr")}
    is_equal = {
        name: (repeated.explanations[name].explanation.scores == outcome.explanation.scores[rows]).all()
        for name, outcome in first.items()
    }
    assert is_equal == {"random": False, "lr": True}
    truth = {name: context.compute_importance(name) for name in sampled_plan.truths}
    second = robustness.evaluate_second_seed(context, truth, repeated).evaluated
    selection = explain.select_top_k(context, "lr", first["lr"])
    edits = search_counterfactuals(context, context.rows, selection, "lr", lambda _: None, use_cache=False)
    for level, estimate in edits.items():
        repetition = second.edits["lr"][level]
        assert (repetition.codes == estimate.codes[rows]).all()
        assert (repetition.distance == estimate.distance[rows]).all()
    assert set(second.scores.to_frame()["instance"]) == set(context.instances.ids[rows].tolist())
    assert set(second.scores.to_frame()["explainer"]) == {"random", "lr"}
    assert repeated.context.ledger.n_evaluations[LedgerKey("search", "lr", Access.LABEL)] > 0
