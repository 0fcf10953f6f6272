"""The searches on the real white boxes, against closed forms; and what those white boxes reach."""

from dataclasses import replace

import numpy as np
import pytest

from cfeval_cli.core import ABSENT, Access, ModelSpec
from cfeval_cli.core.ranking import find_top_k
from cfeval_cli.errors import UserError
from cfeval_cli.pipeline import train
from cfeval_cli.pipeline.context import create_context
from cfeval_cli.pipeline.search import search_counterfactuals
from cfeval_cli.search.discrete import Discrete
from cfeval_cli.search.exact import Exact
from tests.inside import make_plan

# trained in a tenth of the time, to nearly the same accuracy
QUICK = ("model.max_epochs=3", "model.batch_size.text=256", "model.learning_rate.text=0.004")


@pytest.fixture(scope="module", params=["adults", "movie_reviews"])
def study(request, adults):
    """A sample of instances and the trained white box."""
    n_instances = 60 if request.param == "adults" else 12  # among so many words every search takes its time
    overrides = [f"dataset={request.param}", "search=continuous", "explainer=[lr]", "truth=[signed]"]
    plan = make_plan(*overrides, f"n_explain={n_instances}", *QUICK, f"data_dir={adults}")
    try:
        plan.dataset.fetch(adults)
    except UserError as error:
        if "could not be fetched" not in str(error):
            raise
        pytest.skip(f"no source has the data: {error}")
    dataset = plan.dataset.load(plan.settings.data_dir, plan.settings.seed)
    model = plan.model.fit(dataset, plan.settings.seed)
    return create_context(plan.restrict_to(ModelSpec(dataset, type(model))), dataset, model)


def search_features(study, search, features, level):
    other = replace(study, plan=replace(study.plan, search=search, levels=(level,)))
    distances = {level: study.plan.distance.fit(study.dataset, study.model, level)}
    plan = replace(other, distances=distances)
    return search_counterfactuals(plan, study.rows, features, "test", lambda _: None, use_cache=False)[level]


def test_continuous_is_within_1_percent_of_the_optimum_and_exact_is_a_lower_bound(study):
    model, codes = study.model, study.instances.codes
    rng = np.random.default_rng(0)
    alpha = study.plan.search.alpha
    for features in (
        find_top_k(study.compute_importance("signed"), 1),
        np.array([[rng.choice(np.flatnonzero(row != ABSENT))] for row in codes]),
    ):
        continuous = search_features(study, study.plan.search, features, Access.GRADIENT)
        objective = continuous.distance**2 + alpha * continuous.probability
        lengths = np.linalg.norm(model.weights[features[:, 0]], axis=1)
        best = []
        for size, length in zip(np.abs(model.compute_logits(codes)), lengths, strict=True):
            t = np.linspace(0, alpha**0.5, 40_001)
            best.append((t**2 + alpha / (1 + np.exp(-(size - length * t)))).min())
        best = np.array(best)
        assert (objective <= 1.01 * best).mean() >= 0.99
        assert (objective >= best * (1 - 1e-6)).all()  # the grid's own error
        assert continuous.converged.mean() > 0.99
        exact = search_features(study, Exact(), features, Access.GRADIENT)
        assert exact.flipped.all()
        assert exact.distance == pytest.approx(np.abs(model.compute_logits(codes)) / lengths, abs=1e-7)
        nearest = search_features(study, Discrete(pick="nearest"), features, Access.PROBABILITY)
        for other in (continuous, nearest):
            assert (other.distance[other.flipped] >= exact.distance[other.flipped] - 1e-7).all()


def test_the_white_box_reaches_the_papers_accuracy_and_the_data_have_its_size(study):
    data = study.dataset
    if not data.origin["complete"]:
        assert data.origin["rows_used"] == 8356
        return  # the paper's figure is for the whole
    model = make_plan(f"dataset={data.name}").model.fit(data, 0)
    accuracy = train.measure_quality(model, data)[0]["accuracy"]["test"]
    assert accuracy >= data.reference["test_accuracy"]
    n_rows = sum(len(split) for split in (data.train, data.validation, data.test))
    assert n_rows == {"adults": 15_682, "movie_reviews": 10_433}[data.name]
    if data.kind == "text":
        labels = np.concatenate([split.labels for split in (data.train, data.validation, data.test)])
        assert np.bincount(labels).tolist() == [5212, 5221]
        assert data.n_features == 59
