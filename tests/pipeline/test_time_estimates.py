"""Expected model evaluations against those that are counted, and the settings that reduce them."""

from dataclasses import replace

import numpy as np
import pytest

from cfeval_cli.core import NO_FEATURE, Access, Cost, Ledger, LedgerKey, ModelSpec, Probabilistic
from cfeval_cli.explainer.anchor import Anchor
from cfeval_cli.explainer.decision_boundary import DecisionBoundary
from cfeval_cli.explainer.gradient_input import GradientInput
from cfeval_cli.explainer.integrated_gradients import IntegratedGradients
from cfeval_cli.explainer.lime import Lime
from cfeval_cli.explainer.omission import Omission
from cfeval_cli.explainer.shap import Shap
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.time_estimates import estimate_explainer, estimate_repetition, estimate_search, estimate_truth
from cfeval_cli.search.continuous import Continuous
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.search.exact import Exact
from tests.inside import make_plan
from tests.problems import (
    ALL_REMOVALS,
    choose_features,
    draw_linear,
    make_batch,
    make_dataset,
    make_mixed,
    make_task,
    make_text,
)

TABLE, TEXT = make_dataset([9] * 12, n=60, seed=2), make_text(width=12, words=30, n=40, seed=4)
CASES = [
    (Lime(), ("n_samples",)),
    (DecisionBoundary(), ("n_samples",)),
    (Anchor(), ("threshold",)),
    (Shap(algorithm="permutation"), ("permutations", "background")),
    (Shap(algorithm="kernel", n_samples=500), ("n_samples", "background")),
    (Shap(algorithm="linear"), ()),
    (Omission(ALL_REMOVALS, removal="marginal"), ("removals.marginal.draws",)),
    (Omission(ALL_REMOVALS, removal="zero"), ()),
    (IntegratedGradients(ALL_REMOVALS, removal="mean"), ("steps",)),
    (IntegratedGradients(ALL_REMOVALS, removal="marginal"), ("steps", "removals.marginal.draws")),
    (GradientInput(ALL_REMOVALS, removal="zero"), ()),
]


@pytest.mark.parametrize("dataset", [TABLE, TEXT], ids=["table", "text"])
@pytest.mark.parametrize(("explainer", "settings"), CASES)
def test_an_explainer_uses_about_as_many_evaluations_as_expected(dataset, explainer, settings):
    if isinstance(explainer, Shap):
        settings = settings if dataset is TABLE else tuple(name for name in settings if name != "background")
    model, ledger = draw_linear(dataset, 7, 3), Ledger()
    spec = ModelSpec(dataset, type(model))
    explain = explainer.fit(
        dataset, ledger.open_client(model, explainer.choose_access(spec), LedgerKey("test"), padded=dataset.padded)
    )
    ledger.n_evaluations.clear()
    explain(make_batch(dataset, model))
    workload, n_evaluations = (
        explainer.estimate_workload(spec),
        ledger.n_evaluations[LedgerKey("test")] / len(dataset.test),
    )
    assert workload.settings == settings
    if isinstance(explainer, Anchor):
        assert workload.evaluations == 5000 and n_evaluations < 50_000  # a rough figure
    else:
        assert workload.evaluations == pytest.approx(n_evaluations, rel=0.3, abs=3)


def test_algorithms_for_some_models_have_no_estimate():
    from sklearn.linear_model import LogisticRegression

    from cfeval_cli.model.estimator import Estimator

    workload = Shap().estimate_workload(ModelSpec.from_settings(TABLE, Estimator(LogisticRegression())))
    assert workload.evaluations is None and workload.settings == ("permutations", "background")


@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize(
    ("dataset", "settings"),
    [(TABLE, ()), (make_mixed(3, n=60), ("dataset.candidates",)), (TEXT, ("dataset.search_words",))],
    ids=["table", "numbers", "text"],
)
def test_a_search_uses_about_as_many_evaluations_as_expected(dataset, settings, k):
    model = draw_linear(dataset, 7, 3)
    features = choose_features(dataset, k, 0)
    features[:, 1:][::4] = NO_FEATURE
    features = np.where(np.take_along_axis(dataset.test.codes, features, axis=1) < 0, NO_FEATURE, features)
    for search, access in ((Discrete(), Access.PROBABILITY), (Exact(), Access.GRADIENT)):
        ledger = Ledger()
        client = ledger.open_client(model, access, LedgerKey("search"))
        task = replace(make_task(dataset, model, features, access), model=client)
        search.find(task)
        workload = search.estimate_workload(dataset, features)
        n_evaluations = ledger.n_evaluations[LedgerKey("search")] / len(features)
        assert workload.evaluations == pytest.approx(n_evaluations, rel=0.3, abs=3)
        if isinstance(search, Discrete):
            assert workload.settings == (*settings, *(["k"] if k > 1 else []))
    assert Continuous().estimate_workload(dataset, features).settings == ("search.restarts", "search.steps")


class ProbabilityBlackBox(Probabilistic):
    def __init__(self, model):
        self.model = model

    def predict_proba(self, codes):
        return self.model.predict_proba(codes)


def make_context(model, *overrides):
    plan = make_plan("cache=off", "n_jobs=1", *overrides)
    return create_context(plan.restrict_to(ModelSpec(TABLE, type(model))), TABLE, model)


def test_estimates_list_the_keys_of_settings():
    model = draw_linear(TABLE, 7, 3)
    context = make_context(
        ProbabilityBlackBox(model), "explainer=[random,shap_kernel,omission]", "explainer.shap_kernel.n_samples=500"
    )
    seconds = len(TABLE.train) * 502 * 0.001  # background, sets of features
    assert estimate_explainer(context, "shap_kernel", 0.001) == (
        "explainer.shap_kernel.n_samples or explainer.shap_kernel.background or n_explain", seconds,
    )  # fmt: skip
    assert (
        estimate_explainer(context, "omission", 0.001).settings
        == "explainer.omission.removals.marginal.draws or n_explain"
    )
    assert estimate_explainer(context, "random", 0.001) == ("n_explain", None)
    features = choose_features(TABLE, 2, 0)
    assert estimate_search(context, features, 0.001) == ("k or n_explain", 81 * 0.001)
    context.ledger.record(LedgerKey("explainer", "omission"), Cost(seconds=60.0))
    context.ledger.record(LedgerKey("search", "omission", Access.LABEL), Cost(seconds=30.0))
    assert estimate_repetition(context) == ("explainer_stability", 90 / (3 * len(TABLE.test)))


def test_models_that_evaluate_edits_fast_have_no_estimate():
    context = make_context(draw_linear(TABLE, 7, 3), "explainer=[random,lr]")
    assert estimate_search(context, choose_features(TABLE, 2, 0), 0.001) == ("k or n_explain", None)


def test_truths_have_an_estimate_if_they_evaluate_the_model():
    model, overrides = draw_linear(TABLE, 7, 3), ("truth=[shapley]", "explainer=[random]", "truth.shapley.budget=50")
    estimates = [
        estimate_truth(make_context(subject, *overrides), "shapley", 0.001)
        for subject in (ProbabilityBlackBox(model), model)
    ]
    assert estimates == [("reference or truth.budget", 0.05), ("reference or truth.budget", None)]
