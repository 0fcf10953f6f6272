"""Models and data without a meaningful result: an answer with the reason, or one message."""

import json

import pytest

from cfeval_cli.results.read import read_recommendation

SMALL_SETTINGS = (
    "n_explain=20", "bounds=0", "explainer=[random,omission,lime]", "explainer.lime.n_samples=50",
    "n_jobs=1", "metric=[comprehensiveness,validity_soft,recall]", "truth.shapley.background=20",
)  # fmt: skip


def read_answers(folder):
    return read_recommendation(folder).answers


@pytest.fixture
def script(toy, tmp_path):
    def write(body):
        (tmp_path / "score.py").write_text(f"import numpy as np\n\ndef predict_proba(rows):\n    {body}\n")
        return ("model=function", f"model.path={tmp_path / 'score.py'}:predict_proba")

    return write


def test_a_constant_model_is_reported_as_without_differences(toy, make_run, script):
    folder = make_run(toy, *script("return np.tile([0.25, 0.75], (len(rows), 1))"), *SMALL_SETTINGS, "n_explain=40")
    for answer in read_answers(folder).values():
        assert not answer.is_conclusive and answer.n_to_separate is None  # there is no difference to be shown


def test_a_class_without_predictions_does_not_end_the_run(toy, make_run, script):
    folder = make_run(toy, *script("p = 0.6 + 0.01 * (np.arange(len(rows)) * 0 + rows['shape'].eq('flat')); "
                               "return np.column_stack([1 - p, p])"), *SMALL_SETTINGS, "n_explain=40")  # fmt: skip
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "complete" and set(read_answers(folder)) == {"contribution", "change"}


def test_one_feature_leaves_nothing_to_choose(toy, make_run):
    without = [f"~dataset.features.{name}" for name in ("shape", "colour", "weight")]
    folder = make_run(toy, "model=tree", *without, *SMALL_SETTINGS)
    for answer in read_answers(folder).values():
        assert not answer.is_conclusive


def test_without_editable_features_no_counterfactual_is_reported(toy, make_run):
    folder = make_run(
        toy, "model=tree", "+dataset.immutable=[size,shape,colour,weight]", *SMALL_SETTINGS, "n_explain=40"
    )
    assert not read_answers(folder)["change"].is_conclusive
    assert json.loads((folder / "run.json").read_text())["status"] == "complete"
