"""DataFrames as the dataset of a run, and a function of a DataFrame as its model."""

import pickle

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.api.frames import DataFrames, FunctionModel
from cfeval_cli.errors import UserError
from tests.tables import make_loans, predict_proba


def make_mixed_table(size=120):
    """Columns of many types, some of them missing, one constant, one an identifier."""
    rng = np.random.default_rng(2)
    table = make_loans(size, seed=1).drop(columns="paid")
    table["income"] = table["income"].astype("float32")
    table["member"] = table["member"].astype("boolean")
    table["zip"] = pd.Categorical(rng.integers(1, 4, size))
    table["rooms"] = rng.integers(1, 5, size).astype("int8")
    table["colour"] = rng.choice(np.array(["red", "blue", None], dtype=object), size)
    table["country"] = "here"
    table["id"] = np.arange(size)
    table.loc[[3, 70], "income"] = np.nan
    table.loc[[5, 80], "member"] = pd.NA
    return table.assign(paid=rng.integers(0, 2, size))


def make_inputs(frames, tmp_path, **settings):
    """The dataset and the model as a run has them."""
    table, excluded = frames.make_dataset(tmp_path, "mine", None, settings)
    dataset = table.load(tmp_path, 0)
    return dataset, FunctionModel(predict_proba, frames, excluded).make_predictor(dataset)


def test_model_gets_the_original_values_of_every_type(tmp_path):
    table = make_mixed_table()
    frames = DataFrames(table[:90], table[90:], "paid")
    dataset, source = make_inputs(frames, tmp_path)
    assert [feature.kind for feature in dataset.features] == [
        "number", "category", "category", "number", "category", "number", "category",
    ]  # fmt: skip
    expected = table.drop(columns=["paid", "id"])
    for part in (dataset.train, dataset.validation, dataset.test):
        pd.testing.assert_frame_equal(source.make_rows(part.codes), expected.iloc[part.ids].reset_index(drop=True))
    restored = pickle.loads(pickle.dumps(source))  # as it is sent to workers
    pd.testing.assert_frame_equal(restored.make_rows(dataset.test.codes), source.make_rows(dataset.test.codes))
    np.testing.assert_array_equal(restored.predict_raw(dataset.test.codes), source.predict_raw(dataset.test.codes))


def test_splits_follow_the_two_frames(tmp_path):
    table = make_loans()
    dataset, _ = make_inputs(DataFrames(table[:150], table[150:], "paid"), tmp_path)
    assert dataset.test.ids.tolist() == list(range(150, 200))
    assert sorted([*dataset.train.ids, *dataset.validation.ids]) == list(range(150))
    labels = np.concatenate([dataset.train.labels, dataset.validation.labels, dataset.test.labels])
    ids = np.concatenate([dataset.train.ids, dataset.validation.ids, dataset.test.ids])
    np.testing.assert_array_equal(labels, (table["paid"] == "yes").to_numpy()[ids])


def test_function_of_a_script_is_accepted_and_not_cached():
    frames = DataFrames(make_loans(), make_loans(seed=1), "paid")
    function_model = FunctionModel(lambda rows: np.full(len(rows), 0.5), frames)
    with pytest.raises(AttributeError):
        pickle.dumps(function_model.function)
    assert function_model.fingerprint() is None


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        (["good", "no"], None, ("good", "no")),  # sorted, as classifiers have them, though no is the negative one
        (["good", "no"], ["no", "good"], ("no", "good")),
        ([2, 10], None, ("2", "10")),
        ([2, 10], [10, 2], ("10", "2")),
        ([False, True], None, ("False", "True")),
    ],
)
def test_classes_have_the_order_of_the_probability_columns(values, classes, expected, tmp_path):
    table = make_loans()
    table["paid"] = np.where(table["paid"] == "yes", values[1], values[0])
    table["paid"] = table["paid"].astype(type(values[0]) if not isinstance(values[0], str) else object)
    dataset, _ = DataFrames(table[:150], table[150:], "paid").make_dataset(tmp_path, "mine", classes, {})
    assert dataset.load(tmp_path, 0).classes == expected


def test_attributions_are_matched_by_the_index_of_test():
    table = make_loans()
    frames = DataFrames(table[:150], table[150:].set_axis([f"r{i}" for i in range(50)]), "paid")
    wide = pd.DataFrame({"age": [1.0, 2.0]}, ["r7", "r3"])
    assert frames.number_instances("mine", wide)["instance"].tolist() == [157, 153]
    long = pd.DataFrame({"instance": ["r0", "r0"], "feature": ["age", "home"], "score": [1.0, 2.0]})
    assert frames.number_instances("mine", long)["instance"].tolist() == [150, 150]
    duplicated = DataFrames(table[:150], table[150:].set_axis([0] * 50), "paid")
    with pytest.raises(UserError, match=r"attributions\['mine'\] must be a DataFrame, not a list"):
        frames.number_instances("mine", [[1.0, 2.0]])
    with pytest.raises(UserError, match="has duplicates"):
        duplicated.number_instances("mine", wide)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.to_numpy(), "train must be a DataFrame, not a ndarray"),
        (lambda table: table.rename(columns={"age": 3}), "train has a column called 3: names must be text"),
        (lambda table: table.set_axis(["age", "age", "b", "c", "paid"], axis=1), "two columns called age"),
        (lambda table: table[:0], "train has no rows"),
        (lambda table: table.assign(more=1), "test has no column more"),
        (lambda table: table.assign(age=[1, "x"] * 75), "column age holds values of several types"),
        (lambda table: table.assign(paid="no").iloc[:, -1:], "all rows are of one class|no column that could be"),
    ],
)
def test_invalid_frame_is_refused(change, message, tmp_path):
    table = make_loans()
    with pytest.raises(UserError, match=message):
        DataFrames(change(table[:150]), table[150:].assign(paid="no"), "paid").make_dataset(tmp_path, "mine", None, {})


def test_model_gets_original_amounts_dates_and_infinite_numbers(tmp_path, caplog):
    table = make_loans(120, seed=1)
    table["start"] = pd.Timestamp("2022-01-01") + pd.to_timedelta(np.arange(120) % 50, unit="D")
    table["fee"] = [f"${1000 + i % 40:,}" for i in range(120)]
    table["ratio"] = np.where(np.arange(120) == 7, np.inf, np.arange(120) % 9 / 2)
    dataset, source = make_inputs(DataFrames(table[:90], table[90:], "paid"), tmp_path)
    kinds = {feature.name: feature.kind for feature in dataset.features}
    assert [kinds[name] for name in ("start", "fee", "ratio")] == ["number"] * 3
    expected = table.drop(columns="paid").iloc[dataset.train.ids].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        source.make_rows(dataset.train.codes)[["start", "fee", "ratio"]], expected[["start", "fee", "ratio"]]
    )
    assert "ratio: 1 infinite cell counts as missing ('inf')." in caplog.text


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("ratio", [1.5, 2.5, np.nan, np.inf], "column ratio: 'inf' and 'nan' count as the same value"),
        ("colour", ["red", "blue", None, "?"], "column colour: '\\?' and 'nan' count as the same value"),
        ("colour", ["red", " red", "blue", "blue"], "column colour: ' red' and 'red' count as the same value"),
    ],
)
def test_values_that_share_a_code_are_refused(tmp_path, name, values, message):
    table = make_loans(120, seed=1)
    table[name] = values * 30
    with pytest.raises(UserError, match=message):
        make_inputs(DataFrames(table[:90], table[90:], "paid"), tmp_path)
