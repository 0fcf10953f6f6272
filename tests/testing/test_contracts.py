"""Every component of cfeval keeps the promises of its kind."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.core import Distance, Explainer, Metric, Removal, Search, Trainable, Truth
from cfeval_cli.errors import UserError
from cfeval_cli.judge.judge import Judge
from cfeval_cli.settings import build, compose
from cfeval_cli.testing.dataset import check_dataset
from cfeval_cli.testing.distance import check_distance
from cfeval_cli.testing.explainer import check_explainer
from cfeval_cli.testing.infrastructure import check_cache, check_executor, check_judge
from cfeval_cli.testing.metric import check_metric
from cfeval_cli.testing.model import check_model
from cfeval_cli.testing.problems import Problem, make_problems, make_table
from cfeval_cli.testing.removal import check_removal
from cfeval_cli.testing.search import check_search
from cfeval_cli.testing.truth import check_truth
from tests.dataset.test_packaged import EXPECTED_COUNTS
from tests.inside import compose_config
from tests.problems import draw_linear, make_dataset

CONF = compose.get_package_folder()
# Presets, and components that need files or servers, which have tests of their own.
PRESETS = {"paper", "field", "core"}
NEED_FILES = {"file", "function", "onnx", "skops"}
KEYS = {"dfr_deleted": "dfr", "lime_package": "lime"}  # files with the name of another file's component
# Quick settings of slow components; what is checked does not depend on them.
QUICK = {
    "anchor": ["explainer.anchor.batch_size=20"],
    "continuous": ["search.steps=100", "search.restarts=4"],
    "decision_boundary": ["explainer.decision_boundary.n_samples=200"],
    "graded": ["truth=[signed]"],  # read off the model, so that the same scores follow in any order
    "lime": ["explainer.lime.n_samples=200"],
    "lime_package": ["explainer.lime.n_samples=200"],
    "lime_absolute": ["explainer.lime_absolute.n_samples=200"],
    "marginal": ["removal.marginal.draws=5"],
    "mlp": ["model.max_epochs=3"],
}


def list_names(group):
    return sorted({path.stem for path in (CONF / group).glob("*.yaml")} - PRESETS - NEED_FILES)


def make_single_component(group, name, kind, *overrides):
    """A component of a group that is chosen one at a time."""
    return build.make_component(compose_config(f"{group}={name}", *QUICK.get(name, []), *overrides), group, kind)


def make_listed_component(group, name, kind, *overrides):
    """A component of a group that is chosen several at a time."""
    cfg = compose_config(f"{group}=[{name}]", *QUICK.get(name, []), *overrides)
    return build.make_component(cfg, f"{group}.{KEYS.get(name, name)}", kind)


@pytest.mark.parametrize("name", list_names("explainer"))
def test_explainers(name):
    check_explainer(make_listed_component("explainer", name, Explainer))


@pytest.fixture(scope="module")
def wide():
    """Many features of many values, and weights that are not exact in binary: sums depend on their order."""
    rng = np.random.default_rng(0)
    dataset = make_dataset(rng.integers(2, 30, 12).tolist(), n=40)
    return Problem("a wide table", dataset, draw_linear(dataset, 0, 3, scale=0.3))


@pytest.mark.parametrize("name", [name for name in list_names("explainer") if name != "omission_mask"])
def test_explainers_give_the_same_bits_on_wide_tables(name, wide):
    check_explainer(make_listed_component("explainer", name, Explainer), [wide])


@pytest.mark.parametrize("name", ["integrated_gradients", "gradient_input"])
@pytest.mark.parametrize("removal", ["mask", "marginal"])
def test_gradients_with_other_baselines(name, removal):
    explainer = make_listed_component("explainer", name, Explainer, f"explainer.{name}.removal={removal}")
    check_explainer(explainer, [problem for problem in make_problems() if problem.dataset.padded])


@pytest.mark.parametrize("name", list_names("metric"))
def test_metrics(name):
    check_metric(make_listed_component("metric", name, Metric))


@pytest.mark.parametrize("name", list_names("truth"))
def test_truths(name):
    check_truth(make_listed_component("truth", name, Truth))


@pytest.mark.parametrize("name", list_names("removal"))
def test_removals(name):
    check_removal(make_listed_component("removal", name, Removal))


@pytest.mark.parametrize("name", list_names("search"))
def test_searches(name):
    check_search(make_single_component("search", name, Search))


@pytest.mark.parametrize("name", list_names("distance"))
def test_distances(name):
    check_distance(make_single_component("distance", name, Distance))


@pytest.mark.parametrize("name", list_names("model"))
def test_models(name):
    check_model(make_single_component("model", name, Trainable))


@pytest.mark.parametrize("name", list_names("judge"))
def test_judges(name):
    check_judge(make_listed_component("judge", name, Judge))


@pytest.mark.parametrize(("n_jobs", "min_seconds"), [(1, 0.0), (2, 0.0), (3, 0.0), (2, 1e9), (-1, 0.0)])
def test_the_local_executor(n_jobs, min_seconds):
    check_executor(
        make_single_component("executor", "local", object, f"n_jobs={n_jobs}", f"executor.min_seconds={min_seconds}")
    )


@pytest.mark.parametrize("name", list_names("cache"))
def test_caches(name, tmp_path):
    extra = [f"cache.folder={tmp_path}"] if name == "disk" else []
    check_cache(make_single_component("cache", name, object, *extra))


@pytest.mark.parametrize("name", ["adults", *EXPECTED_COUNTS])
def test_datasets(name):
    dataset = build.make_component(compose_config(f"dataset={name}", "explainer=[random]"), "dataset")
    folder = Path(os.environ.get("CFEVAL_DATA", Path(__file__).parents[2] / "data"))
    try:
        dataset.fetch(folder)
    except UserError:
        pytest.skip(f"the data of {name} cannot be had from here")
    check_dataset(dataset, folder)


def test_explanations_from_files(tmp_path):
    table, *_ = make_problems()
    scores = np.random.default_rng(0).normal(size=(len(table.rows), table.dataset.n_features))
    frame = pd.DataFrame(scores, columns=[feature.name for feature in table.dataset.features])
    frame.insert(0, "instance", table.rows.ids)
    frame.to_csv(tmp_path / "mine.csv", index=False)
    check_explainer(
        make_listed_component("explainer", "file", Explainer, f"explainer.file.path={tmp_path / 'mine.csv'}"), [table]
    )


def test_a_function_as_a_model(tmp_path):
    (tmp_path / "score.py").write_text("def f(rows):\n    return 0.1 + 0.1 * (rows['colour'] == 'red')\n")
    check_model(
        make_single_component("model", "function", Trainable, f"model.path={tmp_path / 'score.py'}:f"), [make_table()]
    )
