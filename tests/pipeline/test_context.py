"""What the model says of the instances, if it is what a model may say; and what the stages make of it."""

from dataclasses import replace

import numpy as np
import pytest

from cfeval_cli.core import (
    NO_FEATURE,
    AbsentScore,
    Access,
    Cost,
    ExplainerResult,
    Explanation,
    Metric,
    ModelSpec,
    Score,
)
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline import explain, robustness
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.model_checks import compute_predictions
from cfeval_cli.pipeline.score import create_metric_input, evaluate_metric
from cfeval_cli.pipeline.search import find_explained, search_counterfactuals
from tests.inside import planned
from tests.problems import TRUTHS, importance, kept, labels, make_dataset, make_linear

DATASET = make_dataset([3, 4, 2], n=30)
MODEL = make_linear(DATASET)


@pytest.fixture(scope="module")
def plan():
    truths = "truth=[signed,shapley,contrast,absolute]"
    made = planned("cache=off", "n_jobs=1", "explainer=[random,lr]", "k=2", truths)
    return made.restrict_to(ModelSpec(DATASET, type(MODEL)))


def changed(plan, **settings):
    return replace(plan, settings=plan.settings.model_copy(update=settings))


def test_instances_are_all_or_a_seeded_sample_with_what_the_model_says(plan):
    context = create_context(plan, DATASET, MODEL)
    codes = DATASET.test.codes
    assert (context.rows.codes == codes).all() and (context.rows.labels == labels(MODEL, codes)).all()
    assert context.rows.probability == pytest.approx(kept(MODEL, codes, context.rows.labels))
    assert context.probabilities == pytest.approx(MODEL.predict_proba(codes)) and context.subject_hash is not None
    assert set(context.distances) == {Access.LABEL, Access.PROBABILITY}
    assert {name: way.reason for name, way in context.removals.items() if way.replacement is None} == {
        "mask": "toy has no mask token"
    }
    some, again, other = (
        create_context(changed(plan, n_explain=9, seed=seed), DATASET, MODEL).instances.ids.tolist()
        for seed in (0, 0, 1)
    )
    assert len(some) == 9 and some == sorted(some) == again != other
    for name in TRUTHS:
        assert (context.truth(name) == importance(name, MODEL, DATASET, codes, context.rows.labels)).all()


class Says:
    """A black box that gives whatever it was made with."""

    def __init__(self, answer):
        self.answer = answer

    def predict_proba(self, codes):
        return self.answer(len(codes))


def only_labels(answer):
    class Silent:
        def predict(self, codes):
            return answer(len(codes))

    return Silent()


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda n: np.ones((n, 3)) / 3, r"shape \(30, 3\)"),
        (lambda n: np.ones(n), r"shape \(30,\)"),
        (lambda n: np.ones((n + 1, 2)), "returns 31 predictions for 30 rows"),
        (
            lambda n: np.full((n, 2), np.nan),
            "returns nan, not a number between 0 and 1, for the row 60 .test split",
        ),
        (lambda n: np.full((n, 2), np.inf), "returns inf"),
    ],
)
def test_probabilities_that_are_none_are_refused(answer, message):
    with pytest.raises(Failure, match=message):
        compute_predictions(Says(answer), DATASET, DATASET.test.codes)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (
            lambda n: np.full(n, 2),
            "predicts the class 2, where a number from 0 to 1 is needed for the row 60 .test split",
        ),
        (lambda n: np.full(n, -1), "predicts the class -1"),
        (lambda n: np.zeros((n, 1)), r"gives labels of shape \(30, 1\) for 30 rows: one label for each row is needed"),
    ],
)
def test_classes_that_there_are_not_are_refused(answer, message):
    with pytest.raises(Failure, match=message):
        compute_predictions(only_labels(answer), DATASET, DATASET.test.codes)


def test_labels_alone_are_enough():
    class First:
        def predict(self, codes):
            return codes[:, 0] % 2

    said, none = compute_predictions(First(), DATASET, DATASET.test.codes)
    assert none is None and said.tolist() == [row[0] % 2 for row in DATASET.test.codes.tolist()]


def test_a_model_of_three_classes_is_taken_at_its_word():
    three = replace(DATASET, classes=("a", "b", "c"))
    told = np.random.default_rng(0).dirichlet(np.ones(3), 30)
    said, probabilities = compute_predictions(Says(lambda n: told), three, DATASET.test.codes)
    assert (said == told.argmax(axis=1)).all() and (probabilities == told).all()


FEATURES = np.tile([[0, 2]], (30, 1))


def test_edits_are_found_at_each_level_and_counted(plan):
    context = create_context(plan, DATASET, MODEL)
    edits = search_counterfactuals(context, context.rows, FEATURES, "search.x.{level}", lambda _: None, use_cache=False)
    assert set(edits) == {Access.LABEL, Access.PROBABILITY}
    assert edits[Access.LABEL].probability is None and edits[Access.PROBABILITY].probability is not None
    for found in edits.values():
        assert (found.codes[:, 1] == context.rows.codes[:, 1]).all()
        assert (found.labels == labels(MODEL, found.codes)).all()
    assert all(context.ledger.rows[f"search.x.{level}"] > 30 for level in ("label", "probability"))


def test_a_metric_sees_no_more_than_it_declares(plan):
    context = create_context(plan, DATASET, MODEL)
    seen = []

    class Curious(Metric):
        name, title, better, range, place = "curious", "Curious", "higher", (0.0, 1.0), 1

        def __init__(self, access, role="judged"):
            self.access, self.role = access, role

        def score(self, case):
            seen.append((case.model.access, case.probability is None))
            yield Score("all", np.ones(len(case)), np.ones(len(case)))
            yield AbsentScore("none", "no reason")

    case = create_metric_input(context, context.rows, FEATURES, np.ones(30, bool), {}, {})
    assert case.k == 2 and case.model.access is Access.NOTHING
    for metric in (Curious(Access.LABEL), Curious(Access.PROBABILITY), Curious(Access.WHITE_BOX, "truth")):
        assert [result.variant for result in evaluate_metric(context, case, metric, "metric.x")] == ["all", "none"]
    assert seen == [(Access.LABEL, True), (Access.PROBABILITY, False), (Access.NOTHING, False)]
    seen.clear()
    wants = Curious(Access.LABEL)
    wants.max_access = Access.GRADIENT
    for able in (context, replace(context, plan=replace(plan, access=Access.PROBABILITY))):  # as much as one may
        list(evaluate_metric(able, case, wants, "metric.x"))
    assert seen == [(Access.GRADIENT, False), (Access.PROBABILITY, False)]


def test_incomplete_explanations_are_skipped_filled_or_kept(plan):
    features = FEATURES.copy()
    features[:5, 1] = NO_FEATURE
    features[5] = NO_FEATURE
    done = ExplainerResult(
        Explanation(features, np.where(features == NO_FEATURE, np.nan, 1.0)), Cost(), 0, {5: "failed"}
    )
    for how in ("skip", "random", "keep"):
        context = create_context(changed(plan, incomplete=how), DATASET, MODEL)
        chosen = explain.select_top_k(context, "x", done)
        assert (chosen[6:] == FEATURES[6:]).all() and (chosen[5] == NO_FEATURE).all()
        if how == "skip":
            assert (chosen[:6] == NO_FEATURE).all() and len(find_explained(chosen)) == 24
        elif how == "keep":
            assert (chosen == features).all() and len(find_explained(chosen)) == 29
        else:
            assert (chosen[:5, 0] == 0).all() and set(chosen[:5, 1].tolist()) <= {1, 2}
            assert (explain.select_top_k(context, "x", done) == chosen).all()


def test_a_sample_is_explained_again_with_another_seed_and_searched_with_the_same():
    made = planned("cache=off", "n_jobs=1", "explainer=[random,lr,ladder]", "k=2", "explainer_stability=9")
    made = made.restrict_to(ModelSpec(DATASET, type(MODEL)))
    context = create_context(made, DATASET, MODEL)
    part, rows = robustness.sample_instances(context)
    assert rows.tolist() == sorted(set(rows.tolist())) and len(rows) == 9
    assert rows.tolist() == robustness.sample_instances(context)[1].tolist()
    assert list(part.plan.explainers) == ["random", "lr"] and part.ledger is not context.ledger
    for amount, many in ((0, 0), (1000, 30), ("auto", 7)):  # of 30
        assert (
            len(robustness.sample_instances(replace(context, plan=changed(made, explainer_stability=amount)))[1])
            == many
        )
    truth = {name: context.truth(name) for name in made.truths}
    steps = []
    second = robustness.repeat_explanations(part, {name: of[rows] for name, of in truth.items()}, steps.append)
    assert sum(steps) == 18 and (part.instances.ids == context.instances.ids[rows]).all()
    first = {name: explain.explain_instances(context, name, {}, lambda _: None) for name in ("random", "lr")}
    same = {
        name: (second.explanations[name].explanation.scores == done.explanation.scores[rows]).all()
        for name, done in first.items()
    }
    assert same == {"random": False, "lr": True}
    chosen = explain.select_top_k(context, "lr", first["lr"])
    edits = search_counterfactuals(context, context.rows, chosen, "search.lr.{level}", lambda _: None, use_cache=False)
    for level, found in edits.items():
        again = second.edits["lr"][level]
        assert (again.codes == found.codes[rows]).all() and (again.distance == found.distance[rows]).all()
    assert set(second.scores.to_frame()["instance"]) == set(context.instances.ids[rows].tolist())
    assert set(second.scores.to_frame()["explainer"]) == {"random", "lr"}
    assert part.ledger.rows["search"] > 0
