"""The pages on one's own model and one's own explanations, done word for word."""

import json
import re
import runpy
import shlex
from itertools import islice
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.cli import data as data_command
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.pipeline.context import select_explained_instances
from cfeval_cli.report.page import build
from cfeval_cli.results.read import read_results
from tests import inside
from tests.conftest import run_cfeval

DOCS = Path(__file__).parents[2] / "docs"
# quicker than a user would have it
FEWER_INSTANCES = ["n_explain=4"]
FAST_SETTINGS = [
    "figures=[]",
    "report=false",
    "resamples=0",
    "bounds=0",
    "explainer_stability=0",
    "cache=off",
    "n_jobs=1",
    *FEWER_INSTANCES,
]
# so that models are evaluated less
FAST_SETTINGS += [
    "metric=[comprehensiveness,validity,c,recall]",
    "truth.shapley.budget=200",
    "removal.marginal.draws=20",
]


@pytest.fixture
def few_adults(adults, tmp_path_factory, monkeypatch):
    """The first lines of Adults in the data folder, and the setting with which they are taken for it."""
    folder = tmp_path_factory.mktemp("adults")
    with (adults / "adult.data").open() as file:
        (folder / "adult.data").write_text("".join(islice(file, 2000)))
    monkeypatch.setenv("CFEVAL_DATA", str(folder))
    return ["dataset.file.sha256=null"]


def follow(page, place, monkeypatch, options=()):
    """Write the files of a page, run its commands in order in this process, and return the folder of each run."""
    text = (DOCS / f"{page}.md").read_text()
    for name, body in re.findall(r"`([\w.]+)`:\n\n```python\n(.*?)```", text, re.S):
        (place / name).write_text(body)
    monkeypatch.chdir(place)
    monkeypatch.syspath_prepend(place)
    folders = []
    for block in re.findall(r"^```sh\n(.*?)^```$", text, re.M | re.S):
        for line in block.splitlines():
            first, second, *words = shlex.split(line)
            if first == "python":
                runpy.run_path(second, run_name="__main__")
            elif (first, second) == ("cfeval", "data"):
                data_command.main([*words, *([*FEWER_INSTANCES, *options] if "export" in words else ())])
            else:
                assert (first, second) == ("cfeval", "run")
                folders.append(place / f"run{len(folders)}")
                folders[-1].mkdir()
                inside.run(folders[-1], *words, *FAST_SETTINGS, *options, *fewer(words), folder=place / "conf")
    return folders


def fewer(words):
    """Fewer samples of LIME, and fewer trees where a page leaves the kind of estimator as it is."""
    samples = ["explainer.lime.n_samples=200"] if any("lime" in word for word in words) else []
    boosted = "model=estimator" in words and not any(word.startswith("model.estimator") for word in words)
    return [*samples, *(["+model.estimator.max_iter=20"] if boosted else [])]


def onnx_model(frame, path):
    """A logistic regression of numbers and a category, as a file that holds no code."""
    from skl2onnx import to_onnx
    from skl2onnx.common.data_types import FloatTensorType, StringTensorType
    from sklearn.compose import make_column_transformer
    from sklearn.impute import SimpleImputer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder

    rows = frame[FEATURES]
    columns = make_column_transformer((SimpleImputer(), FEATURES[:2]), (OneHotEncoder(), FEATURES[2:]))
    model = make_pipeline(columns, LogisticRegression(max_iter=500)).fit(rows, frame["default"])
    kinds = [(name, StringTensorType([None, 1]) if name == "home" else FloatTensorType([None, 1])) for name in rows]
    path.write_bytes(to_onnx(model, initial_types=kinds, options={"zipmap": False}).SerializeToString())


def read_run(folder):
    record = json.loads((folder / "run.json").read_text())
    assert record["status"] == "complete" and record["warnings"] == []
    metrics = pd.read_csv(folder / "metrics.csv")
    return record, metrics[metrics["metric"] == "coverage"].set_index("explainer")["value"], metrics


def test_the_page_on_models(few_adults, tmp_path, monkeypatch):
    for package in ("onnxruntime", "skl2onnx", "skops"):
        pytest.importorskip(package)
    folders = follow("model", tmp_path, monkeypatch, few_adults)
    boosted, forest, function, onnx, skops = map(read_run, folders)
    assert boosted[0]["accuracy"]["test"] > 0.78 and forest[0]["accuracy"]["test"] > 0.75
    assert function[0]["accuracy"]["test"] > 0.65
    # one and the same model in two forms
    assert onnx[0]["accuracy"] == skops[0]["accuracy"]
    joined = onnx[2].merge(skops[2], on=["metric", "variant", "explainer"])
    assert len(joined) == len(onnx[2])
    assert joined["value_x"].to_numpy() == pytest.approx(joined["value_y"].to_numpy(), abs=1e-4, nan_ok=True)
    # code of the file of a function
    spec = (tmp_path / "score.py").read_text()
    scope = {}
    exec(compile(spec, "score.py", "exec"), scope)
    instances = pd.read_parquet(folders[2] / "instances.parquet")
    names = [feature["name"] for feature in json.loads((folders[2] / "dataset.json").read_text())["features"]]
    rows = pd.DataFrame(instances["values"].to_list(), columns=names)
    assert instances["probability"].to_numpy() == pytest.approx(scope["predict_proba"](rows)[:, 1])


def test_the_page_on_explanations(few_adults, tmp_path, monkeypatch):
    folders = follow("explanations", tmp_path, monkeypatch, few_adults)
    record, coverage, _ = read_run(folders[0])
    assert record["explainers"]["mine"] == "mine" and coverage["mine"] == 1.0
    explanations = pd.read_parquet(folders[0] / "explanations.parquet")
    selected_features = explanations[explanations["explainer"] == "mine"].set_index("instance")["features"]
    wide = pd.read_csv(tmp_path / "mine.csv").set_index("instance")
    for instance, selection in selected_features.items():
        assert selection.tolist() == wide.loc[instance].to_numpy().argsort(kind="stable")[::-1].tolist()
    record, coverage, metrics = read_run(folders[1])
    assert list(record["explainers"]) == ["random", "long", "mine"] and (coverage == 1.0).all()
    values = metrics.pivot(index=["metric", "variant"], columns="explainer", values="value")
    assert values["long"].to_numpy() == pytest.approx(values["mine"].to_numpy(), nan_ok=True)


def loans(place):
    """A table of a bank's: semicolons, an id, something missing, a label in the middle."""
    rng = np.random.default_rng(0)
    age, income = rng.integers(18, 70, 400), rng.lognormal(3, 1, 400).round(2)
    frame = pd.DataFrame({"id": np.arange(400) + 1000, "age": age, "income": income})
    frame["default"] = (rng.random(400) < 1 / (1 + np.exp(income / 10 - 2 + (age < 30)))).astype(int)
    frame["home"] = rng.choice(["own", "rent"], 400)
    frame.loc[::9, "income"] = np.nan
    frame.to_csv(place / "loans.csv", index=False, sep=";")
    return frame


def test_the_page_on_data(tmp_path, monkeypatch):
    loans(tmp_path)
    monkeypatch.delenv("CFEVAL_DATA", raising=False)
    (folder,) = follow("data", tmp_path, monkeypatch)
    _, coverage, _ = read_run(folder)
    assert (coverage == 1.0).all() and set(coverage.index) == {"random", "omission", "lime"}
    assert [feature["name"] for feature in json.loads((folder / "dataset.json").read_text())["features"]] == FEATURES


FEATURES = ["age", "income", "home"]
SCORE = """
import numpy as np

def predict_proba(rows):
    positive = 1 / (1 + np.exp(rows["income"].fillna(20.0) / 10 - 2 + (rows["age"] < 30)))
    return np.stack([1 - positive, positive], axis=1)
"""


def test_a_file_and_a_user_model_are_explained_from_an_empty_folder(tmp_path, monkeypatch):
    for package in ("onnxruntime", "skl2onnx"):
        pytest.importorskip(package)
    frame = loans(tmp_path)
    (tmp_path / "score.py").write_text(SCORE)
    onnx_model(frame, tmp_path / "model.onnx")
    run_cfeval("data", "init", "loans.csv", "--label", "default", cwd=tmp_path)
    model = ["model=function", "model.path=score.py:predict_proba"]  # its predictions decide which rows are explained
    run_cfeval("data", "export", "dataset=loans", *model, "--into", "explain_me.csv", *FEWER_INSTANCES, cwd=tmp_path)
    rows = pd.read_csv(tmp_path / "explain_me.csv", index_col="instance")
    assert list(rows.columns) == FEATURES
    pd.testing.assert_frame_equal(rows, frame.loc[rows.index, FEATURES], check_names=False)
    rows.assign(age=1.0, income=3.0, home=2.0).to_csv(tmp_path / "shap.csv")
    own = "model=function model.path=score.py:predict_proba explainer.file.path=shap.csv explainer.lime.n_samples=200"
    line = f"run dataset=loans explainer=[random,omission,lr,lime,anchor,file] {own}"
    process = run_cfeval(*shlex.split(line), *FAST_SETTINGS, "hydra.run.dir=function", cwd=tmp_path)
    assert "Your configs: conf/dataset/loans.yaml" in process.stderr
    assert "Explainers not applicable: lr" in " ".join(process.stdout.split())
    _, coverage, _ = read_run(tmp_path / "function")
    assert set(coverage.index) == {"random", "omission", "lime", "anchor", "shap"} and coverage["shap"] == 1.0
    explanations = pd.read_parquet(tmp_path / "function" / "explanations.parquet").query("explainer == 'shap'")
    assert set(explanations["instance"]) == set(rows.index) and all(
        list(features) == [1, 2, 0] for features in explanations["features"]
    )
    # other kinds of models, without the command
    monkeypatch.chdir(tmp_path)
    boosted = "model.estimator._target_=sklearn.ensemble.HistGradientBoostingClassifier"
    for name, model in {
        "trained": ["model=estimator", boosted, "+model.estimator.max_iter=20"],
        "onnx": ["model=onnx", "model.path=model.onnx"],
    }.items():
        (tmp_path / name).mkdir()
        settings = ["dataset=loans", *model, "explainer=[random,omission,lr]"]
        record, coverage, _ = read_run(inside.run(tmp_path / name, *settings, *FAST_SETTINGS, folder=tmp_path / "conf"))
        assert set(coverage.index) == {"random", "omission"} and set(record["explainers_absent"]) == {"lr"}


CLASSES = {"hangs": "import time\n    time.sleep(1000)", "raises": "raise KeyError('debt')", "drops": "return [0.5]"}


def test_bad_functions_end_in_one_message_before_anything_is_explained(toy, tmp_path, monkeypatch):
    messages = {
        "hangs": "the model gave no answer to 20 rows within 0.5 s",
        "raises": r"raised KeyError: 'debt' for the row \d+ \(test split\)",
        "drops": "returns 1 predictions for",
    }
    monkeypatch.chdir(tmp_path)
    for name, line in CLASSES.items():
        (tmp_path / f"{name}.py").write_text(f"def f(rows):\n    {line}\n")
        options = ["timeout_model=0.5"] if name == "hangs" else []
        with pytest.raises(Failure, match=messages[name]):
            toy.compute(tmp_path / name, "model=function", f"model.path={name}.py:f", *options)
        assert not (tmp_path / name / "explanations.parquet").exists()


def test_classes_in_another_order_are_doubted(toy, tmp_path, monkeypatch, caplog):
    text = 'def f(rows):\n    return [0.2 if "> " in size else 0.9 for size in rows["size"]]\n'
    (tmp_path / "wrong.py").write_text(text)
    run = ["model=function", "model.path=wrong.py:f", "explainer=[random]", "n_explain=5", "metric=[c,recall]"]
    monkeypatch.chdir(tmp_path)
    toy.compute(tmp_path / "run", *run)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    assert record["accuracy"]["test"] < 0.5 and "in another order than no, yes?" in record["warnings"][0]
    assert "less often than a guess" in caplog.text
    page = build.Report(read_results(tmp_path / "run")).render_page({}, [])
    assert "less often than a guess" in page and "5 instances are too few" in page


def test_an_explanation_file_that_covers_some_instances(toy, tmp_path, monkeypatch):
    plan = inside.make_plan(*toy.arguments[2:], folder=toy.folder / "conf")
    ids = select_explained_instances(plan.dataset.load(plan.settings.data_dir, 0), 0, 40).ids
    frame = pd.DataFrame({"instance": ids, "size": 2.0, "colour": 1.0, "shape": -1.0, "weight": 0.0})
    frame[:30].to_csv(tmp_path / "some.csv", index=False)
    frame.rename(columns={"colour": "color"}).to_csv(tmp_path / "misspelt.csv", index=False)
    frame[:0].to_csv(tmp_path / "none.csv", index=False)
    common = ["model=estimator", "+model.estimator.max_iter=5", "metric=[validity,recall]", "resamples=0"]
    common += ["n_explain=40", "min_per_class=0", "truth.shapley.budget=100", "removal.marginal.draws=20"]
    common += ["explainer=[random,file]"]
    monkeypatch.chdir(tmp_path)
    toy.compute(tmp_path / "run", *common, "explainer.file.path=[some.csv,none.csv]")
    record, coverage, metrics = read_run(tmp_path / "run")
    assert coverage["some"] == pytest.approx(0.75) and coverage["random"] == 1.0
    note = "some returned no explanation for 10 of 40 instances, which are left out: not in some.csv (10)"
    assert note in " ".join((tmp_path / "run" / "tables.md").read_text().split())
    assert metrics.query("explainer == 'some' and metric == 'validity'")["n"].eq(30).all()
    assert record["explained"]["none"]["faults"] == 40 and coverage["none"] == 0
    refusal = "misspelt.csv: columns that are not features: 1 ('color'; did you mean colour?)"
    with pytest.raises(UserError, match=re.escape(f"explainer.misspelt: {refusal}")):
        toy.compute(tmp_path / "other", *common, "explainer.file.path=misspelt.csv")
