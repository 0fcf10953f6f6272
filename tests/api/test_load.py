"""`load`: the tables of a run folder, and their display in a notebook."""

import json

import numpy as np
import pandas as pd
import pytest

from cfeval_cli import load
from cfeval_cli.errors import UserError
from tests.conftest import reseal
from tests.report.test_page import FOUR, SMALL_RUN


@pytest.fixture(scope="module")
def folder(toy, make_run):
    return make_run(toy, FOUR, *SMALL_RUN)


def test_tables_equal_the_files(folder):
    run = load(str(folder))
    assert len(run.metrics) == len(pd.read_csv(folder / "metrics.csv"))
    assert len(run.correlations) == len(pd.read_csv(folder / "correlations.csv"))
    pd.testing.assert_frame_equal(run.scores, pd.read_parquet(folder / "scores.parquet"))
    assert run.instances["instance"].is_unique and len(run.instances) == run.record.instances == 40
    assert run.answer is None  # the only truth depends on the parametrisation of the model
    assert set(run.recommendation.answers) == {"contribution", "change"}
    assert run.report is None and run.verdict and f"40 instances: {folder}" in repr(run)


@pytest.mark.parametrize("training", [True, False])
def test_training_data_in_the_folder_is_mentioned(toy, make_run, training):
    folder = make_run(toy, FOUR, *SMALL_RUN, copy=True)
    if not training:
        (folder / "training.parquet").unlink()
        reseal(folder)
    results, note = load(folder), "contains training data (training.parquet); training=0 leaves it out"
    assert (note in repr(results), note in results._repr_html_()) == (training, training)


def test_features_and_values_have_names(folder):
    run, data = load(folder), json.loads((folder / "dataset.json").read_text())
    names = [feature["name"] for feature in data["features"]]
    raw = pd.read_parquet(folder / "explanations.parquet")
    for features, numbers in zip(run.explanations["features"], raw["features"], strict=True):
        assert features == [names[j] for j in numbers]
    raw = pd.read_parquet(folder / "counterfactuals.parquet")
    for features, values, numbers, codes in zip(
        run.counterfactuals["features"], run.counterfactuals["values"], raw["features"], raw["codes"], strict=True
    ):
        assert features == [names[j] for j in numbers]
        assert values == [
            data["values"][data["features"][j]["values"]][code] for j, code in zip(numbers, codes, strict=True)
        ]


def test_moved_embeddings_have_no_values(toy, make_run):
    run = load(make_run(toy, "search=continuous", "explainer=[random,omission]", "metric=[c,recall]", "n_explain=10"))
    assert run.counterfactuals["values"].isna().all() and run.counterfactuals["vectors"].notna().all()


def test_figures_are_drawn_from_any_run(toy, make_run):
    figures = load(make_run(toy, FOUR, *SMALL_RUN)).figures
    assert figures and all(np.isfinite(figure.get_figwidth()) for figure in figures.values())


def test_notebook_output_is_escaped(toy, make_run):
    folder = make_run(toy, FOUR, *SMALL_RUN, copy=True)
    record = json.loads((folder / "run.json").read_text())
    record["explainers"]["omission"] = "<script>alert(1)</script>"
    record["data"]["name"] = "<img src=x>"
    (folder / "run.json").write_text(json.dumps(record))
    reseal(folder)
    page = load(folder)._repr_html_()
    assert "&lt;script&gt;" in page and "<script" not in page and "<img" not in page
    assert page.count("<tr") == page.count("</tr>") > 5 and '<p class="note">' in page


def test_changed_or_incomplete_folder_is_refused(toy, make_run, tmp_path):
    folder = make_run(toy, FOUR, *SMALL_RUN, copy=True)
    (folder / "metrics.csv").write_text("")
    with pytest.raises(UserError, match="is not as the run left it"):
        load(folder)
    with pytest.raises(UserError, match=r"run\.json cannot be read"):
        load(tmp_path)
