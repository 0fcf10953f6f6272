"""`cfeval data export`: the instances of a run with their numbers."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.cli import data as data_command
from cfeval_cli.cli.export import build_table
from cfeval_cli.errors import UserError
from cfeval_cli.explainer.scores import read_scores
from tests.inside import make_plan
from tests.problems import make_dataset


@pytest.fixture
def export(monkeypatch, tmp_path, capsys):
    """`cfeval data export` of a toy in this process; what it prints."""
    monkeypatch.chdir(tmp_path)

    def call(toy, *words):
        data_command.main(["export", *toy.arguments, *map(str, words)])
        return capsys.readouterr().out

    return call


@pytest.mark.parametrize("suffix", ["csv", "tsv", "parquet"])
def test_exported_rows_are_the_instances_of_the_run(export, toy, make_run, tmp_path, suffix):
    output = export(toy, "n_explain=40", "--into", f"mine.{suffix}", "model=estimator", "k=2")
    assert output.startswith(f"40 instances of toy (seed 0): mine.{suffix}\n")
    path = tmp_path / f"mine.{suffix}"
    frame = pd.read_parquet(path) if suffix == "parquet" else pd.read_csv(path, sep="\t" if suffix == "tsv" else ",")
    assert list(frame.columns) == ["instance", "size", "shape", "colour", "weight"]
    words = ("model=estimator", "k=2", "explainer=[random]", "metric=[recall]", "resamples=0")
    run = pd.read_parquet(make_run(toy, *words) / "instances.parquet")
    assert frame["instance"].tolist() == run["instance"].tolist()
    assert frame.drop(columns="instance").to_numpy().tolist() == [list(values) for values in run["values"]]


def test_seed_number_and_split_are_those_of_the_run(export, toy, tmp_path):
    ids = {}
    for name, words in {
        "all": [], "some": ["n_explain=10"], "other": ["n_explain=10", "seed=3"],
        "split": ["+dataset.split=[0.5,0.2,0.3]"],
    }.items():  # fmt: skip
        export(toy, *words, "--into", f"{name}.csv")
        ids[name] = pd.read_csv(tmp_path / f"{name}.csv")["instance"].tolist()
        plan = make_plan(*toy.arguments[2:], *words, folder=toy.folder / "conf")
        dataset = plan.dataset.load(plan.settings.data_dir, plan.settings.seed)
        assert set(ids[name]) <= set(dataset.test.ids.tolist()) and len(ids[name]) == (
            plan.settings.n_explain or len(dataset.test)
        )
    assert (
        set(ids["some"]) < set(ids["all"]) and ids["some"] != ids["other"] and len(ids["split"]) > 2 * len(ids["all"])
    )


def test_scores_with_exported_instance_numbers_are_read(export, toy, tmp_path):
    export(toy, "n_explain=25", "--into", "mine.csv")
    frame = pd.read_csv(tmp_path / "mine.csv")
    frame[["size", "shape", "colour", "weight"]] = np.arange(100.0).reshape(25, 4)
    frame.to_csv(tmp_path / "scores.csv", index=False)
    plan = make_plan(*toy.arguments[2:], folder=toy.folder / "conf")
    scores = read_scores(tmp_path / "scores.csv", plan.dataset.load(plan.settings.data_dir, 0))
    assert scores.problems == () and scores.instances.tolist() == frame["instance"].tolist()


def test_exported_texts_have_one_word_for_each_feature(export, toy_text, tmp_path):
    export(toy_text, "n_explain=12", "--into", "mine.csv")
    frame = pd.read_csv(tmp_path / "mine.csv", keep_default_na=False)
    plan = make_plan(*toy_text.arguments[2:], folder=toy_text.folder / "conf")
    dataset = plan.dataset.load(plan.settings.data_dir, 0)
    texts = dict(zip(dataset.test.ids.tolist(), dataset.test.texts, strict=True))
    assert list(frame.columns) == ["instance", "text", "words"] and len(frame) == 12
    lengths = dict(zip(dataset.test.ids.tolist(), (dataset.test.codes >= 0).sum(axis=1), strict=True))
    for instance, text, words in frame.itertuples(index=False):
        assert text == texts[instance] and len(words.split(" ")) == lengths[instance]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "--into is missing"),
        (["--into", "mine.txt"], r"must end in \.csv, \.tsv, \.parquet"),
        (["--into", "there.csv"], r"there\.csv exists.*--force"),
        (["--into", "no/such/mine.csv"], "the folder no/such does not exist"),
        (["--into", "mine.csv", "n_explain=0"], "n_explain must be a whole number of at least 1"),
        (["--into", "mine.csv", "n_explain=9999"], "n_explain=9999 is more than the 57 test instances"),
        (["--into", "mine.csv", "seed=x"], "seed must be a whole number"),
        (["--into", "mine.csv", "toy"], "export takes settings of a run, such as dataset=NAME, not toy"),
    ],
)
def test_invalid_arguments_write_no_file(export, toy, tmp_path, words, message):
    (tmp_path / "there.csv").write_text("mine")
    with pytest.raises(UserError, match=message):
        export(toy, *words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["there.csv"]
    assert (tmp_path / "there.csv").read_text() == "mine"


def test_existing_file_is_replaced_with_force(export, toy, tmp_path):
    (tmp_path / "there.csv").write_text("mine")
    export(toy, "--into", "there.csv", "--force", "n_explain=3")
    assert len(pd.read_csv(tmp_path / "there.csv")) == 3


def test_feature_called_instance_is_refused():
    dataset = make_dataset([2, 3], n=10, seed=0)
    first, second = dataset.features
    renamed = replace(dataset, features=(replace(first, name="instance"), second))
    with pytest.raises(UserError, match=r"a feature of .* is called instance"):
        build_table(renamed, renamed.test)
