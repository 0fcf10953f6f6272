"""`evaluate`: the same results as the command, and messages about its arguments."""

import html
import inspect
import json
import logging
import os
import pickle
import re
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

import cfeval_cli
from cfeval_cli.api import Results, evaluate
from cfeval_cli.cli.resume import read_resume_arguments
from cfeval_cli.core import Access, Metric, Score
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.explainer.random import Random
from cfeval_cli.settings.compose import format_value
from tests import tables
from tests.conftest import run_cfeval
from tests.tables import METRICS, QUICK, make_loans, predict_proba

DATASET = """\
_target_: cfeval_cli.dataset.tabular.TabularData
name: data
file: {_target_: cfeval_cli.dataset.sources.DataFile, name: train.parquet}
split: {test: {_target_: cfeval_cli.dataset.sources.DataFile, name: test.parquet}}
balance: false
label: paid
classes: ["no", "yes"]
features: {age: number, home: category, member: category, income: number}
immutable: [member]
"""
VARYING_FILES = {"run.json", "run.log", "costs.csv", "costs.md"}  # with times and paths


@pytest.fixture(scope="module")
def frames():
    table = make_loans()
    return table[:150], table[150:].set_axis([f"row {i}" for i in range(50)])


@pytest.fixture
def working_directory(tmp_path, monkeypatch):
    """An empty folder; what Hydra does with settings, the run above and those of the command show."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def scores(test):
    rng = np.random.default_rng(1)
    return pd.DataFrame(rng.normal(size=(len(test), 4)), test.index, ["age", "home", "member", "income"])


@pytest.fixture(scope="module")
def results(frames, tmp_path_factory) -> Results:
    """A run from Python."""
    train, test = frames
    return evaluate(
        predict_proba, train, test, label="paid", explainers=["random", "omission"],
        attributions={"mine": scores(test)}, metrics=METRICS, k=2, n_explain=15, seed=3,
        settings={**QUICK, "dataset.immutable": ["member"], "search.pick": "nearest"},
        into=tmp_path_factory.mktemp("python"),
    )  # fmt: skip


def test_evaluate_writes_the_same_bytes_as_the_command(frames, results, tmp_path):
    train, test = frames
    (tmp_path / "conf" / "dataset").mkdir(parents=True)
    (tmp_path / "data").mkdir()
    (tmp_path / "conf" / "dataset" / "loans.yaml").write_text(DATASET)
    train.to_parquet(tmp_path / "data" / "train.parquet", index=False)
    test.to_parquet(tmp_path / "data" / "test.parquet", index=False)
    numbered = scores(test).set_index(np.arange(150, 200)).rename_axis("instance").reset_index()
    numbered.to_csv(tmp_path / "mine.csv", index=False)
    (tmp_path / "score.py").write_text(inspect.getsource(tables))
    defaults = [f"{key}={format_value(value)}" for key, value in QUICK.items()]
    run_cfeval(
        "run", "dataset=loans", "model=function", "model.path=score.py:predict_proba",
        "explainer=[random,omission,file]", "explainer.file.path=mine.csv", f"metric=[{','.join(METRICS)}]", "k=2",
        "n_explain=15", "seed=3", "search.pick=nearest", *defaults, "hydra.run.dir=out", cwd=tmp_path,
    )  # fmt: skip
    command_files = {path.name for path in (tmp_path / "out").iterdir() if path.is_file()} - VARYING_FILES
    assert command_files == {path.name for path in results.folder.iterdir()} - VARYING_FILES and len(command_files) > 12
    for name in command_files:
        assert (tmp_path / "out" / name).read_bytes() == (results.folder / name).read_bytes(), name


def test_record_has_the_call_and_a_run_of_a_function_cannot_be_resumed(results, tmp_path):
    (call,) = results.record.command
    assert call.startswith("evaluate(predict_proba, train, test, label='paid', k=2, n_explain=15, seed=3")
    assert "attributions=['mine']" in call
    assert read_resume_arguments(results.folder, []) is None  # complete
    record = json.loads((results.folder / "run.json").read_text()) | {"status": "failed"}
    (tmp_path / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"written from Python\. Make the same call again with into="):
        read_resume_arguments(tmp_path, [])


@dataclass(frozen=True)
class Changed(Metric):
    """How many features a counterfactual changes."""

    name = "changed"
    title = "Changed"
    better = "lower"
    range = (0.0, 10.0)
    access = Access.LABEL
    display_order = 45

    def score(self, case):
        for level, results in case.counterfactuals.items():
            yield Score(level.name.lower(), (results.codes != case.codes).sum(axis=1).astype(float), np.ones(len(case)))


class LastFeature(Random):
    """An explainer of the user's own."""


def test_defaults_are_those_of_a_users_model_and_attributions_are_added(frames, working_directory):
    train, test = frames
    fast = {"explainer.lime.n_samples": 50, "truth.shapley.budget": 60, "explainer.shap.permutations": 1}
    run = evaluate(
        predict_proba, train, test, label="paid", attributions={"mine": scores(test)}, metrics=["recall"], n_explain=6,
        settings=QUICK | fast,
    )  # fmt: skip
    assert set(run.record.explainers) == {"random", "omission", "lime", "shap", "mine"}
    settings = run.record.settings
    assert (settings.k, settings.min_per_class, settings.reference) == (3, 30, 100)


def test_model_that_changes_during_the_run_is_a_failure(frames, working_directory):
    calls = []

    def drifts(rows):
        calls.append(len(rows))
        return predict_proba(rows) if len(calls) < 45 else predict_proba(rows) * 0.9 + 0.05

    defaults = {"explainers": ["omission"], "metrics": ["recall"], "n_explain": 10, "settings": QUICK}
    with pytest.raises(Failure, match="the model changed during the run: for instance"):
        evaluate(drifts, *frames, label="paid", into=working_directory / "out", **defaults)
    assert json.loads((working_directory / "out" / "run.json").read_text())["status"] == "failed"


def test_explainers_and_metrics_may_be_objects(frames, working_directory, capsys):
    run = evaluate(
        predict_proba, *frames, label="paid", explainers=["omission", LastFeature()], metrics=[Changed(), "recall"],
        k=1, n_explain=10, settings=QUICK,
    )  # fmt: skip
    assert "explain" not in capsys.readouterr().err  # nothing is shown by default
    assert set(run.metrics["explainer"]) == {"omission", "last_feature"}
    assert {"changed", "recall"} <= set(run.metrics["metric"])
    assert run.metrics.loc[run.metrics["metric"] == "changed", "value"].eq(1).all()
    assert run.folder.parent.parent == Path("outputs")
    arguments = {"explainers": ["omission", LastFeature(), LastFeature()], "settings": QUICK}
    with pytest.raises(UserError, match="two objects have the name last_feature"):
        evaluate(predict_proba, *frames, label="paid", **arguments)
    with pytest.raises(UserError, match=r"metric\.posix_path: PosixPath is not a Metric: derive it from"):
        evaluate(predict_proba, *frames, label="paid", metrics=["recall", Path()], settings=QUICK)


def test_judges_are_run_and_an_explainer_is_recommended(frames, working_directory):
    arguments = {"explainers": ["random", "omission"], "metrics": METRICS, "n_explain": 10, "settings": QUICK}
    run = evaluate(predict_proba, *frames, label="paid", judges=["tree"], **arguments)
    assert (run.folder / "judges" / "tree" / "run.json").exists()
    assert len(run.answer.headlines) == 2 and run.answer.headlines[0] in html.unescape(run._repr_html_())
    stored = json.loads((run.folder / "recommendation.json").read_text())
    assert run.recommendation.answers["change"].confidence_set == stored["answers"]["change"]["confidence_set"]
    with pytest.raises(UserError, match="there is no judge 'tre'"):
        evaluate(predict_proba, *frames, label="paid", judges=["tre"], **arguments)


def test_global_state_is_restored_after_errors(frames, working_directory):
    previous, before = GlobalHydra.instance().hydra, os.environ.get("OMP_NUM_THREADS")
    level = logging.getLogger("cfeval").level
    with pytest.raises(UserError, match="there is no setting 'nn_explain'"):
        evaluate(predict_proba, *frames, label="paid", settings={"nn_explain": 3})
    with pytest.raises(Failure, match=r"predict_proba raised KeyError: 'height' for"):
        evaluate(lambda rows: rows["height"], *frames, label="paid", settings=QUICK)
    assert GlobalHydra.instance().hydra is previous and os.environ.get("OMP_NUM_THREADS") == before
    assert logging.getLogger("cfeval").level == level and not logging.getLogger("cfeval").handlers
    assert not list(working_directory.rglob("run.json"))  # nothing had been computed


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"label": "payed"}, "label='payed' is not a column of train. Did you mean paid?"),
        ({"k": 9}, "k=9 exceeds the 4 features of data"),
        ({"k": 1, "settings": {"k": 2}}, "k is given twice"),
        ({"settings": {"model": "tree"}}, "evaluate(…) takes the model from its arguments"),
        ({"settings": {"model.batchsize": 3}}, "there is no setting model.batchsize. Did you mean batch_size?"),
        ({"settings": {"model.batch_size": 0}}, "model.batch_size must be a whole number"),
        ({"settings": {"dataset.imutable": ["age"]}}, "has no setting 'imutable'. Did you mean immutable?"),
        ({"settings": {"search": "discreet"}}, "there is no search 'discreet'. Did you mean discrete?"),
        ({"explainers": "lime"}, "explainers must be a list"),
        ({"explainers": ["lmie"]}, "there is no explainer 'lmie'. Did you mean lime?"),
        ({"classes": ["good", "bad"]}, "are not the values of paid, which are no, yes"),
        ({"predict_proba": 3}, "predict_proba must be a function of a DataFrame"),
        ({"attributions": {"a b": None}}, "use letters, digits"),
        ({"attributions": {"mine": pd.DataFrame({"age": [1.0]}, ["x"])}}, "has a row for 'x', which is not"),
        ({"attributions": {"mine": pd.DataFrame({"agee": [1.0]}, ["row 1"])}}, "neither a column for a feature"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_invalid_argument_is_one_message(frames, working_directory, change, message):
    train, test = frames
    defaults = {"predict_proba": predict_proba, "train": train, "test": test, "label": "paid", "settings": QUICK}
    with pytest.raises(UserError) as error:
        evaluate(**defaults | change)
    assert message in str(error.value) and "/tmp" not in str(error.value) and ".parquet" not in str(error.value)
    assert not list(working_directory.rglob("run.json"))


def test_progress_is_shown_and_an_explainer_that_always_fails_is_a_warning(frames, working_directory, capsys):
    empty = pd.DataFrame({"age": pd.Series(dtype=float)}, index=pd.Index([], dtype=object))
    with pytest.warns(RuntimeWarning, match=r"explainer\.mine failed on every instance"):
        run = evaluate(
            predict_proba, *frames, label="paid", explainers=["random", "omission"], attributions={"mine": empty},
            metrics=["validity"], n_explain=5, settings=QUICK, progress=True,
        )  # fmt: skip
    assert run.record.explained["mine"].faults == 5
    output = capsys.readouterr().err
    assert "explain: random: 5 to do" in output and "explain: random" in (run.folder / "run.log").read_text()


def swap_columns(rows):
    return predict_proba(rows)[:, ::-1]


def predict(rows):
    return predict_proba(rows).argmax(axis=1)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (swap_columns, r"less often than a guess \(50.0%\)\. Are its classes in another order than no, yes\?"),
        (predict, "predict_proba returns labels"),
    ],
)
def test_warning_of_the_command_is_a_python_warning_at_the_call(frames, working_directory, capsys, model, message):
    arguments = {
        "explainers": ["random", "decision_boundary"],
        "metrics": ["validity"],
        "n_explain": 5,
        "settings": QUICK,
    }
    with pytest.warns(UserWarning, match=message) as issued:
        evaluate(model, *frames, label="paid", **arguments)
    assert {warning.filename for warning in issued} == {__file__} and not capsys.readouterr().err
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        evaluate(model, *frames, label="paid", progress=True, **arguments)
    assert re.search(message, capsys.readouterr().err)


def test_scores_with_the_wrong_sign_are_a_warning_and_in_the_record(frames, working_directory):
    train, test = frames
    effects = np.zeros((len(test), 4))
    for j, name in enumerate(["age", "home", "member", "income"]):
        removed = [
            predict_proba(test.assign(**{name: value}))[:, 1] for value in train[name].sample(50, random_state=0)
        ]
        effects[:, j] = predict_proba(test)[:, 1] - np.mean(removed, axis=0)
    attributions = {"mine": pd.DataFrame(effects, test.index, ["age", "home", "member", "income"])}
    arguments = {"explainers": ["random", "omission"], "metrics": ["recall"], "n_explain": 30, "settings": QUICK}
    with pytest.warns(UserWarning, match="explainer.mine: the scores seem to have the wrong sign .* predicts no"):
        run = evaluate(predict_proba, *frames, label="paid", attributions=attributions, **arguments)
    (doubt,) = run.record.warnings
    assert "multiply those of instances predicted as no by -1" in doubt
    attributions["mine"] *= np.where(predict_proba(test)[:, [1]] > 0.5, 1, -1)
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*wrong sign")
        run = evaluate(predict_proba, *frames, label="paid", attributions=attributions, **arguments)
    assert run.record.warnings == []


def test_existing_results_of_a_function_are_kept_unless_redo(frames, working_directory):
    arguments = {
        "explainers": ["random", "omission"],
        "metrics": ["validity"],
        "n_explain": 5,
        "into": working_directory / "run",
    }
    evaluate(predict_proba, *frames, label="paid", settings=QUICK, **arguments)
    with pytest.raises(
        UserError, match=r"Whether they are of this run is unknown.* the dependencies of model are not declared"
    ) as error:
        evaluate(predict_proba, *frames, label="paid", settings=QUICK, **arguments)
    assert "another run" not in str(error.value) and "redo=true" in str(error.value)
    evaluate(predict_proba, *frames, label="paid", settings=QUICK | {"redo": True}, **arguments)


def test_folder_name_that_is_not_utf8_is_a_user_error(frames, working_directory, monkeypatch):
    with pytest.raises(UserError, match=r"the argument .*caf\\udce9' is not valid UTF-8"):
        evaluate(predict_proba, *frames, label="paid", settings=QUICK, into=working_directory / "caf\udce9")
    (working_directory / "caf\udce9").mkdir()
    monkeypatch.chdir(working_directory / "caf\udce9")
    with pytest.raises(UserError, match=r"the working directory .* is not valid UTF-8"):
        evaluate(predict_proba, *frames, label="paid", settings=QUICK)


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.5, "greedy", "true", "a b", "it's", "x=1,y", "${k}", ["a", 1], {"age": "up"}, [], "1", "-x"],
    ids=repr,
)
def test_values_survive_the_override_syntax_of_hydra(value):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    override = OverridesParser.create().parse_override(f"key={format_value(value)}")
    parsed = OmegaConf.to_container(OmegaConf.create({"key": override.value()}), resolve=True)["key"]
    assert parsed == value


def test_package_imports_nothing_heavy_and_has_type_stubs():
    code = "import cfeval_cli, sys; print(cfeval_cli.__version__, *sorted(sys.modules)); cfeval_cli.nothing"
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    package_names = {name.partition(".")[0] for name in process.stdout.split()[1:]}
    assert not package_names & {"numpy", "pandas", "torch", "hydra", "omegaconf", "matplotlib"}
    assert "has no attribute 'nothing'" in process.stderr
    assert cfeval_cli.evaluate is evaluate and {"evaluate", "load"} <= set(dir(cfeval_cli))
    stub = (Path(cfeval_cli.__file__).parent / "__init__.pyi").read_text()
    assert all(f"import {name} as {name}" in stub for name in cfeval_cli.__all__)
    assert "Explainer" in str(inspect.signature(evaluate).parameters["explainers"].annotation)
    assert pickle.loads(pickle.dumps(evaluate)) is evaluate
