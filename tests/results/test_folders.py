"""What a run writes can be read again, and what was changed is noticed."""

import json

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.core.scratch import Scratch
from cfeval_cli.errors import UserError
from cfeval_cli.results import tables
from cfeval_cli.results import validation as checked
from cfeval_cli.results.files import ResultFiles
from cfeval_cli.results.folder import RunFolder
from cfeval_cli.results.read import read_results
from tests.conftest import reseal, seal

FAST_SETTINGS = ("explainer=[random,lr]", "n_explain=20", "truth=[signed,shapley,contrast,absolute]")


def test_results_equal_the_written_files(toy, make_run):
    folder = make_run(toy, *FAST_SETTINGS)
    record = checked.read_verified_record(folder)
    assert record.schema_ == checked.SCHEMA_VERSION and record.status == "complete"
    loaded = read_results(folder, record)
    metrics = pd.read_csv(folder / "metrics.csv")
    assert loaded.statistics.metrics["value"].to_numpy() == pytest.approx(metrics["value"].to_numpy(), nan_ok=True)
    assert set(metrics["role"]) == {"judged", "truth", "fact"}
    assert RunFolder(folder, []).has_results_of(record.inputs)


def test_instances_have_predictions_and_truths(toy, make_run):
    folder = make_run(toy, *FAST_SETTINGS)
    record = checked.read_verified_record(folder)
    instances = pd.read_parquet(folder / "instances.parquet")
    positive = instances["probability"].to_numpy()
    expected = np.where(instances["predicted"] == 1, positive, 1 - positive)
    assert instances["predicted_probability"].to_numpy() == pytest.approx(expected)
    truth = pd.read_parquet(folder / "truth.parquet")
    assert set(truth["instance"]) == set(instances["instance"])
    assert set(record.truths) == {"signed", "shapley", "contrast", "absolute"}
    assert {name: removal.title for name, removal in record.removals.items()} == {
        "del": "del.", "mask": "mask", "marginal": "marginal",
    }  # fmt: skip
    for metric in record.metrics.values():
        assert {"title", "latex", "better", "display_order", "role", "block", "details"} <= metric.model_fields_set


def test_changed_or_missing_file_is_named(toy, make_run):
    for change in (lambda path: path.write_text("changed"), lambda path: path.unlink()):
        folder = make_run(toy, *FAST_SETTINGS, copy=True)
        inputs = checked.read_record(folder).inputs
        change(folder / "metrics.csv")
        with pytest.raises(UserError, match=r"metrics\.csv is (missing|not as the run left it)"):
            checked.read_verified_record(folder)
        assert not RunFolder(folder, []).has_results_of(inputs)  # it is computed again


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda record: record.update(schema=2),
            f"written by another version of cfeval .schema 2, not {checked.SCHEMA_VERSION}",
        ),
        (lambda record: record.update(status=None), "not the record of a run"),
        (lambda record: record["settings"].update(k="x"), "settings.k must be a whole number"),
        (
            lambda record: record["metrics"]["c"].update(role="judge"),
            "metrics.c.role must be one of judged, truth, fact",
        ),
        (lambda record: record["metrics"]["c"].pop("block"), "metrics.c.block is missing"),
        (lambda record: record["files"].update({"../x": "00"}), "not in the run's folder"),
    ],
)
def test_invalid_record_is_refused(toy, make_run, change, message):
    folder = make_run(toy, *FAST_SETTINGS, copy=True)
    record = json.loads((folder / "run.json").read_text())
    change(record)
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=message):
        checked.read_verified_record(folder)


LARGE = ("n_explain=15", "explainer=[random,lr,graded]", "explainer.graded.quality_levels=3", "truth=[shapley]",
         "incomplete=keep", "explainer_stability=2", "metric=[comprehensiveness,c,recall]", "resamples=0",
         "model.max_epochs=10")  # fmt: skip


def in_row_groups(toy, make_run, monkeypatch, search):
    """The run of LARGE in small parts; its explicit seed makes it a different run for fixtures that keep runs."""
    monkeypatch.setattr(tables, "ROWS_PER_GROUP", 7)
    monkeypatch.setattr(tables, "SCALAR_ROWS_PER_GROUP", 50)
    return make_run(toy, *LARGE, f"search={search}", "seed=0")


@pytest.mark.parametrize("search", ["discrete", "continuous"])
def test_tables_in_row_groups_equal_tables_in_one_piece(toy, make_run, monkeypatch, search):
    import pyarrow.parquet as pq

    reference, folder = make_run(toy, *LARGE, f"search={search}"), in_row_groups(toy, make_run, monkeypatch, search)
    names = ["instances", "truth", "explanations", "counterfactuals", "scores"]
    for name in names:
        assert pq.read_metadata(folder / f"{name}.parquet").num_row_groups > 1
        expected, actual = (pq.read_table(path / f"{name}.parquet") for path in (reference, folder))
        assert expected.schema.equals(actual.schema) and expected.equals(actual.combine_chunks()), name
    for name in ("metrics.csv", "correlations.csv", "explanations_again.parquet"):
        assert (reference / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.parametrize("search", ["discrete", "continuous"])
def test_rows_of_some_instances_equal_that_part_of_the_table(toy, make_run, monkeypatch, search):
    path = in_row_groups(toy, make_run, monkeypatch, search)
    results = read_results(path, checked.read_verified_record(path))
    ids = results.predictions["instance"].to_numpy()[[1, 2, 13]].tolist()
    for name in ("instances", "explanations", "counterfactuals", "truth"):
        table = pd.read_parquet(results.folder / f"{name}.parquet")
        is_expected = table["instance"].isin(ids)
        if "explainer" in table:
            is_expected &= table["explainer"].isin(["random", "lr"])  # the rungs of a ladder are not shown
        rows = results.read_rows(name, ids)
        assert rows["instance"].tolist() == table.loc[is_expected, "instance"].tolist() and len(rows) >= 3
        for column in table:
            pairs = zip(rows[column], table.loc[is_expected, column], strict=True)
            assert all(repr(actual) == repr(expected) for actual, expected in pairs), (name, column)
    edits = pd.read_parquet(results.folder / "counterfactuals.parquet")
    assert results.moves_embeddings == edits["vectors"].notna().any() == (search == "continuous")


def test_row_group_without_values_has_the_types_of_the_others(tmp_path):
    """A column of empty lists, or of nothing, is of no kind until a part has something."""
    files = ResultFiles(tmp_path, Scratch(tmp_path))
    parts = [
        pd.DataFrame({"a": [[], []], "b": [None, None]}),
        pd.DataFrame({"a": [[1], []], "b": ["x", None]}),
    ]
    files.write_row_groups("some.parquet", [lambda part=part: part for part in parts])
    restored = pd.read_parquet(tmp_path / "some.parquet")
    assert [list(values) for values in restored["a"]] == [[], [], [1], []] and restored["b"].tolist()[2] == "x"


@pytest.mark.parametrize(
    ("place", "parent"),
    [("2026-11-17/09-30-00", "mine"), ("2026-11-17/09-30-00/3", "mine"), ("results/new", "mine/results")],
)
def test_run_without_results_removes_only_folders_that_it_made(tmp_path, place, parent):
    (tmp_path / parent).mkdir(parents=True)
    path = tmp_path / "mine" / place
    (path / ".hydra").mkdir(parents=True)
    (path / ".hydra" / "config.yaml").write_text("k: 1\n")
    folder = RunFolder(path, [])
    with folder.open():
        pass
    folder.discard()
    assert not path.exists() and (tmp_path / parent).is_dir() and not any((tmp_path / parent).iterdir())


def test_complete_job_of_a_resumed_sweep_is_kept_without_known_inputs(tmp_path):
    seal(tmp_path, {"status": "complete", "inputs": None, "data": {"name": "toy"}, "accuracy": {"test": 1.0}}, ["k=1"])
    assert RunFolder(tmp_path, [], ["n_jobs=1", "k=1"], is_resumed=True).has_results_of(None)
    assert not RunFolder(tmp_path, [], ["k=2"], is_resumed=True).has_results_of(None)
    assert not RunFolder(tmp_path, [], ["k=1"]).has_results_of(None)


def test_figures_in_a_record_must_be_formats(toy, make_run):
    folder = make_run(toy, *FAST_SETTINGS, copy=True)
    record = json.loads((folder / "run.json").read_text())
    record["settings"]["figures"] = ["../../x.svg"]
    (folder / "run.json").write_text(json.dumps(record))
    with pytest.raises(UserError, match=r"settings\.figures\.0 must be one of png, svg, pdf"):
        checked.read_verified_record(folder)


def test_load_of_a_sweep_names_its_runs(tmp_path):
    from cfeval_cli.api.load import load

    (tmp_path / "0").mkdir()
    seal(tmp_path / "0", {"status": "complete"}, [])
    with pytest.raises(UserError, match=r"is not a run folder\. Load one of the runs in it: .*/0\."):
        load(tmp_path)
    (tmp_path / "multirun.yaml").touch()
    with pytest.raises(UserError, match=r"is the folder of a sweep\. Load one of the runs in it: .*/0\."):
        load(tmp_path)


def test_invalid_record_is_not_written(toy, make_run):
    with pytest.raises(UserError, match=r"reference\.test_accuracy must be a number, not 'high'"):
        make_run(toy, *FAST_SETTINGS, "+dataset.reference={test_accuracy: high}")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content.pop("kind"), "dataset.json: kind is missing"),
        (lambda content: content["features"][0].update(name=3), "dataset.json: features.0.name must be a word, not 3"),
        (lambda content: content["features"][0].update(values=99), "has no list of values"),
    ],
)
def test_invalid_description_of_the_data_is_refused(toy, make_run, change, message):
    folder = make_run(toy, *FAST_SETTINGS, copy=True)
    content = json.loads((folder / "dataset.json").read_text())
    change(content)
    (folder / "dataset.json").write_text(json.dumps(content))
    reseal(folder)
    with pytest.raises(UserError, match=message):
        read_results(folder)
