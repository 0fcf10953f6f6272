import io

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.dataset.sources import DataFile
from cfeval_cli.dataset.tabular import Amount, Category, Date, Number, Quartiles, TabularData, Tiers
from cfeval_cli.errors import UserError

ROWS = [
    [str(i % 7), ["red", "blue", "green"][i % 3], str(max(0, i - 20)), ["no", "yes"][i % 4 == 0]] for i in range(60)
]


def make_table(**changes):
    settings = {
        "name": "toy",
        "file": DataFile("toy.csv"),
        "columns": ["age", "colour", "gain", "label"],
        "features": {"age": Quartiles(), "colour": Category({"warm": ["red"]}), "gain": Tiers()},
        "label": "label",
        "classes": ["no", "yes"],
    }
    return TabularData(**{**settings, **changes})


def write(folder, rows=ROWS, text=None):
    body = "\n".join(", ".join(row) for row in rows) + "\n\n" if text is None else text
    (folder / "toy.csv").write_text(body) if isinstance(body, str) else (folder / "toy.csv").write_bytes(body)


def test_columns_are_binned_and_grouped(tmp_path):
    write(tmp_path)
    data = make_table(balance=False).load(tmp_path, 0)
    age = np.array([float(row[0]) for row in ROWS])
    assert data.fitted["age"]["cuts"] == np.percentile(age, [25, 50, 75]).tolist()
    assert data.features[1].values == ("blue", "green", "warm")
    assert data.features[2].values == ("None", "Low", "High")
    gain = np.array([float(row[2]) for row in ROWS])
    assert data.fitted["gain"]["median"] == np.median(gain[gain > 0])
    for split in (data.train, data.validation, data.test):
        for row, codes in zip(split.ids, split.codes, strict=True):
            cuts = data.fitted["age"]["cuts"]
            assert codes[0] == sum(age[row] > cut for cut in cuts)
            assert data.features[1].values[codes[1]] == {"red": "warm"}.get(ROWS[row][1], ROWS[row][1])
            tier = "None" if gain[row] == 0 else "Low" if gain[row] <= data.fitted["gain"]["median"] else "High"
            assert data.features[2].values[codes[2]] == tier
        assert split.labels.tolist() == [int(ROWS[row][3] == "yes") for row in split.ids]


def test_balance_is_without_replacement_and_splits_do_not_overlap(tmp_path):
    write(tmp_path)
    data = make_table().load(tmp_path, 0)
    ids = np.concatenate([split.ids for split in (data.train, data.validation, data.test)])
    assert len(ids) == len(set(ids)) == 30  # 15 of 60 rows say yes
    labels = np.concatenate([split.labels for split in (data.train, data.validation, data.test)])
    assert np.bincount(labels).tolist() == [15, 15]
    assert [len(s) for s in (data.train, data.validation, data.test)] == [24, 3, 3]
    assert data.frequencies[1] == pytest.approx(np.bincount(data.train.codes[:, 1], minlength=3) / 24)
    assert data.origin["rows_read"] == 60 and data.origin["rows_used"] == 30


def test_fingerprint_depends_on_the_seed(tmp_path):
    write(tmp_path)
    first, repetition, other = (make_table().load(tmp_path, seed) for seed in (0, 0, 1))
    assert first.fingerprint == repetition.fingerprint != other.fingerprint


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=30))
def test_quartiles_assign_each_number_to_the_bin_of_its_name(numbers):
    codes, feature, _ = Quartiles().encode("x", [str(number) for number in numbers])
    names = feature.values
    for number, code in zip(numbers, codes, strict=True):
        low, _, high = names[code].partition(" x ")
        if names[code].startswith("x ≤"):
            assert number <= float(names[code].split()[-1])
        elif names[code].startswith("x >"):
            assert number > float(names[code].split()[-1])
        else:
            assert float(low.split()[0]) < number <= float(high.split()[-1])


@given(
    st.lists(st.one_of(st.none(), st.integers(-50, 50), st.floats(-1e6, 1e6)), min_size=2, max_size=30),
    st.booleans(),
)
def test_numbers_equal_those_of_pandas(numbers, as_integers):
    """Codes ascend with the numbers, the last one is missing, and decoding restores the type of the file."""
    cells = ["" if n is None else str(int(n) if as_integers else n) for n in numbers]
    codes, feature, _ = Number().encode("x", [cell or None for cell in cells])
    expected = pd.read_csv(io.StringIO("x,y\n" + "".join(f"{cell},\n" for cell in cells)))["x"]
    if expected.notna().any():
        pd.testing.assert_series_equal(pd.Series(feature.numbers[codes], name="x"), expected, check_exact=True)
    estimate = feature.numbers[: feature.missing_code]
    assert (np.diff(estimate) > 0).all() and (feature.missing_code is None) == all(cells)
    assert len(set(feature.values)) == len(feature.values)
    for cell, code in zip(cells, codes, strict=True):
        assert feature.values[code] == "missing" if not cell else float(feature.values[code]) == float(cell)
    assert feature.kind == "number" and feature.is_ordinal and not feature.is_ordered


def test_whole_numbers_keep_all_digits_and_names_are_short():
    _, large, _ = Number().encode("x", ["9007199254740993", "9007199254740992", "-1"])
    assert large.values == ("-1", "9007199254740992", "9007199254740993") and large.numbers.dtype == np.int64
    _, larger, _ = Number().encode("x", ["1" * 30, "2"])
    assert larger.numbers.dtype == np.float64 and larger.numbers[1] == float("1" * 30)
    codes, plain, _ = Number().encode("x", ["37.0", "0.1", "-0", "0", "+5"])
    assert plain.values == ("0", "0.1", "5", "37") and codes.tolist() == [3, 1, 0, 0, 2]


@pytest.mark.parametrize("column", [Category({"warm": ["red"]}), Quartiles(), Tiers(), Number()])
def test_missing_is_a_separate_last_value(column):
    cells = ["red", None, "blue", "red"] if isinstance(column, Category) else ["3", None, "1", "2"]
    codes, feature, _ = column.encode("x", cells)
    assert feature.missing_code == codes[1] == len(feature.values) - 1 and feature.values[-1] == "missing"
    assert (np.delete(codes, 1) < feature.missing_code).all()
    without_missing = column.encode("x", [cell for cell in cells if cell])
    assert without_missing[1].missing_code is None and without_missing[1].values == feature.values[:-1]
    assert (without_missing[0] == np.delete(codes, 1)).all()
    _, named, _ = Category().encode("x", ["missing", None, "a"])
    assert named.values == ("a", "missing", "(missing)")


def load_numbers(folder, rows=400, missing_share=0.1, **changes):
    """Return rows with many distinct numbers, ties and missing cells, and the dataset that is read from them."""
    rng = np.random.default_rng(0)
    wide, tied = rng.normal(50, 20, rows).round(3), rng.choice([0, 0, 0, 0, 5, 9], rows)
    cells = [
        [
            "" if rng.random() < missing_share else str(a),
            str(b),
            rng.choice(["x", "y", "-9"]),
            ["no", "yes"][int(a > 50)],
        ]
        for a, b in zip(wide, tied, strict=True)
    ]
    write(folder, cells)
    features = {"age": Number(), "gain": Number(), "colour": Category()}
    settings = {"columns": ["age", "gain", "colour", "label"], "features": features, "balance": False}
    return cells, make_table(**settings, **changes).load(folder, 0)


def test_candidates_are_quantiles_and_missing_if_it_occurs_in_training(tmp_path):
    cells, data = load_numbers(tmp_path, missing=[-9, 0])
    train = [[cells[i][j] for i in data.train.ids] for j in range(3)]
    numbers = sorted(float(cell) for cell in train[0] if cell)
    expected = {numbers[max(0, int(np.ceil(len(numbers) * share - 1e-9)) - 1)] for share in np.linspace(0, 1, 32)}
    age, gain, colour = data.features
    candidates = data.candidates[0]
    assert (
        set(age.numbers[candidates[:-1]]) == expected and candidates[-1] == age.missing_code and len(candidates) == 33
    )
    assert gain.values == ("5", "9", "missing") and data.candidates[1].tolist() == [0, 1, 2]
    assert colour.values == ("x", "y", "missing") and data.candidates[2].tolist() == [0, 1, 2]
    _, overrides = load_numbers(tmp_path, candidates=4, missing_share=0.0)
    assert len(overrides.candidates[0]) == 4 and overrides.features[0].missing_code is None
    assert overrides.candidates[1].tolist() == [0, 1, 2]
    only = load_numbers(tmp_path, rows=60, missing_share=1 / 60)[1]  # one or two rows
    for feature, codes, candidates in zip(only.features, only.train.codes.T, only.candidates, strict=True):
        assert (feature.missing_code in candidates) == (feature.missing_code in codes) and (
            np.diff(candidates) > 0
        ).all()


def test_decoded_rows_equal_those_of_pandas(tmp_path):
    _, data = load_numbers(tmp_path)
    expected = pd.read_csv(tmp_path / "toy.csv", names=["age", "gain", "colour", "label"], skipinitialspace=True)
    for split in (data.train, data.validation, data.test):
        decoded = data.decode(split.codes)
        pd.testing.assert_frame_equal(decoded, expected.iloc[split.ids][list(decoded)].reset_index(drop=True))


def test_empty_column_is_reported(tmp_path):
    write(tmp_path, [[row[0], "", *row[2:]] for row in ROWS])
    with pytest.raises(UserError, match=r"column colour is empty. Remove it from dataset\.features"):
        make_table().load(tmp_path, 0)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([*ROWS[:7], ["1", "red", "3"], *ROWS[7:]], r"toy\.csv, line 8: 3 fields where dataset\.columns names 4"),
        ([*ROWS[:7], ["x", "red", "0", "no"]], r"line 8, column age: 'x' is not a number"),
        ([*ROWS[:7], ["inf", "red", "0", "no"]], r"line 8, column age: 'inf' is not a number"),
        ([*ROWS[:7], ["1", "red", "0", "maybe"]], r"line 8, column label: 'maybe' is not one of dataset\.classes"),
        ([[row[0], "red", *row[2:]] for row in ROWS], r"column colour has one value only"),
        ([[*row[:3], "no"] for row in ROWS], "all rows are of one class"),
        (ROWS[20:28], "too few for a split"),
        ([], "has no rows"),
    ],
)
def test_invalid_rows_are_reported_with_position(tmp_path, rows, message):
    write(tmp_path, rows)
    with pytest.raises(UserError, match=message):
        make_table().load(tmp_path, 0)


@pytest.mark.parametrize(
    ("text", "message"), [(b"1,\xff,2,no\n", "not UTF-8"), ('1,"red,0,no\n', r"line \d+"), ('"a"b,1,2,no\n', "line 1")]
)
def test_invalid_csv_is_reported(tmp_path, text, message):
    write(tmp_path, text=text)
    with pytest.raises(UserError, match=message):
        make_table().load(tmp_path, 0)


def test_constraints_reach_the_features(tmp_path):
    write(tmp_path)
    features = {"age": "number", "colour": "category", "gain": "tiers"}
    data = make_table(features=features, immutable=["colour"], only={"age": "up", "gain": "down"}).load(tmp_path, 0)
    assert [feature.allowed_change for feature in data.features] == ["up", "none", "down"] and data.has_constraints
    assert not make_table(features=features).load(tmp_path, 0).has_constraints
    with pytest.raises(UserError, match=r"dataset\.only\.colour=up: a category has no up and down"):
        make_table(features=features, only={"colour": "up"}).load(tmp_path, 0)


def test_column_kinds_can_be_given_as_words(tmp_path):
    write(tmp_path)
    words = {"age": "number", "colour": "category", "gain": "tiers"}
    classes = {"age": Number(), "colour": Category(), "gain": Tiers()}
    assert (
        make_table(features=words).load(tmp_path, 0).fingerprint
        == make_table(features=classes).load(tmp_path, 0).fingerprint
    )


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        ([0, 1], [0, 1]), (["0.0", "1.0"], [0, 1]), ([0, 1], ["0", "1"]), (["False", "True"], [False, True]),
        (["true", "false"], [True, False]), ([1, 2], [1.0, 2.0]), (["no", "yes"], ["no", "yes"]),
    ],
)  # fmt: skip
def test_classes_match_labels_of_any_type(tmp_path, labels, classes):
    write(tmp_path, [[*row[:3], str(labels[row[3] == "yes"])] for row in ROWS])
    data = make_table(classes=classes, balance=False).load(tmp_path, 0)
    assert data.classes == tuple(str(name) for name in classes)
    for split in (data.train, data.validation, data.test):
        assert split.labels.tolist() == [int(ROWS[i][3] == "yes") for i in split.ids]


def test_columns_are_read_by_name_and_others_ignored(tmp_path):
    table = pd.DataFrame(ROWS, columns=["age", "colour", "gain", "label"])
    write(tmp_path, text=table.assign(more="x;y", empty="").sample(frac=1, axis=1, random_state=1).to_csv(index=False))
    by_name = make_table(columns=None).load(tmp_path, 0)
    write(tmp_path)
    assert by_name.fingerprint == make_table().load(tmp_path, 0).fingerprint
    table.assign(gain=table["gain"].astype(int)).to_parquet(tmp_path / "toy.csv")
    assert make_table(columns=None).load(tmp_path, 0).fingerprint == by_name.fingerprint


def test_missing_markers_apply_to_all_columns_or_to_one(tmp_path):
    rows = [["-9" if i % 5 == 0 else row[0], "-9.0" if i % 7 == 0 else row[1], *row[2:]] for i, row in enumerate(ROWS)]
    write(tmp_path, rows)
    features = {"age": Number(), "colour": Category()}
    everywhere, age = (make_table(features=features, missing=m).load(tmp_path, 0) for m in ([-9], {"age": ["-9"]}))
    none = make_table(features=features).load(tmp_path, 0)
    assert [f.missing_code is not None for f in everywhere.features] == [True, True]
    assert [f.missing_code is not None for f in age.features] == [True, False]
    assert [f.missing_code for f in none.features] == [None, None] and none.features[0].values[0] == "-9"
    for i, codes in zip(age.train.ids, age.train.codes, strict=True):
        assert (codes[0] == age.features[0].missing_code) == (i % 5 == 0)
        assert (age.features[1].values[codes[1]] == "-9.0") == (i % 7 == 0)


def test_rows_are_split_by_a_column(tmp_path):
    parts = ["a", "a", "a", "b", "c", "d"]
    rows = [[*row, parts[i % 6]] for i, row in enumerate(ROWS)]
    columns = ["age", "colour", "gain", "label", "part"]
    write(tmp_path, rows)
    split = {"column": "part", "train": ["a", "d"], "validation": "b", "test": "c"}
    data = make_table(columns=columns, split=split, balance=False).load(tmp_path, 0)
    for name, letters in (("train", "ad"), ("validation", "b"), ("test", "c")):
        assert getattr(data, name).ids.tolist() == [i for i in range(60) if parts[i % 6] in letters]
    split = {"column": "part", "train": ["a", "b", "d"], "validation": 0.2, "test": "c"}
    first, repetition, other = (
        make_table(columns=columns, split=split, balance=False).load(tmp_path, s) for s in (0, 0, 1)
    )
    assert len(first.validation) == 10 and first.test.ids.tolist() == data.test.ids.tolist()
    assert sorted([*first.train.ids, *first.validation.ids]) == [i for i in range(60) if parts[i % 6] != "c"]
    assert (
        first.fingerprint == repetition.fingerprint and other.validation.ids.tolist() != first.validation.ids.tolist()
    )
    del split["validation"]
    assert len(make_table(columns=columns, split=split, balance=False).load(tmp_path, 0).validation) == 5
    split["train"] = "a"
    with pytest.raises(UserError, match=r"line 4, column part: 'b' is none of a, c, the values in dataset\.split\."):
        make_table(columns=columns, split=split, balance=False).load(tmp_path, 0)


def test_rows_are_split_by_files(tmp_path):
    for name, rows in (("toy.csv", ROWS[:40]), ("more.csv", ROWS[40:50]), ("test.csv", ROWS[50:])):
        (tmp_path / name).write_text("\n".join(",".join(row) for row in rows))
    table = make_table(split={"validation": DataFile("more.csv"), "test": DataFile("test.csv")}, balance=False)
    data = table.load(tmp_path, 0)
    assert [s.ids.tolist() for s in (data.train, data.validation, data.test)] == [
        list(range(40)), list(range(40, 50)), list(range(50, 60)),
    ]  # fmt: skip
    assert [file.path.name for file in table.fetch(tmp_path)] == ["toy.csv", "more.csv", "test.csv"]
    assert data.origin["file"] == "toy.csv, more.csv, test.csv" and len(data.origin["sha256"]) == 3
    all_rows = "\n".join(",".join(row) for row in ROWS)
    (tmp_path / "toy.csv").write_text(all_rows)
    joined_dataset = make_table(balance=False).load(tmp_path, 0)
    assert data.features == joined_dataset.features  # fitted on all rows
    (tmp_path / "toy.csv").write_text("\n".join(",".join(row) for row in ROWS[:40]))
    first = make_table(split={"test": DataFile("test.csv")}, balance=False).load(tmp_path, 0)
    assert len(first.validation) == 4 and first.test.ids.tolist() == list(range(40, 50))
    (tmp_path / "test.csv").write_text("1,red,x,no\n")
    with pytest.raises(UserError, match=r"test\.csv, line 1, column gain: 'x' is not a number"):
        table.load(tmp_path, 0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"columns": ["age", "colour", "gain", "no"], "label": "no", "header": False},
            r"line 1, column age: 'age' is not a number.*looks like a header: set dataset\.header=true",
        ),
        (
            {"features": {"colour": Category()}, "header": False},
            r"'label' is not one of dataset\.classes.*The column has 'label', 'yes', 'no'\..*header=true",
        ),
        (
            {"columns": ["age", "color", "gain", "label"], "features": {"color": Category()}},
            r"column label: 'label' is not one.*header=true",
        ),
    ],
)
def test_header_read_as_a_row_is_reported(tmp_path, changes, message):
    write(tmp_path, [["age", "colour", "gain", changes.get("label", "label")], *ROWS])
    with pytest.raises(UserError, match=message):
        make_table(**changes).load(tmp_path, 0)


def test_decimal_comma_is_reported(tmp_path):
    write(tmp_path, text="\n".join(";".join([f"{i},5", *row[1:]]) for i, row in enumerate(ROWS)))
    with pytest.raises(UserError, match=r"'0,5' is not a number.*Write 0\.5, with a point"):
        make_table().load(tmp_path, 0)


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        (
            "inf",
            r"line 1, column age: 'inf' is not a number.*To count it as missing, add it to dataset\.missing: \[inf\]",
        ),
        (
            "$1,200",
            r"line 1, column age: '\$1,200' is not a number.*The kind amount, instead of number, reads it as 1200",
        ),
    ],
)
def test_almost_numeric_cell_is_reported_with_remedy(tmp_path, cell, message):
    write(tmp_path, text="\n".join(";".join([cell if i == 0 else row[0], *row[1:]]) for i, row in enumerate(ROWS)))
    with pytest.raises(UserError, match=message):
        make_table().load(tmp_path, 0)


@pytest.mark.parametrize(
    ("column", "cells", "message"),
    [
        (Amount(), ["$1", "x"], "'x' is not an amount such as"),
        (Date(), ["2024-01-01", "1.2.2024"], "is not a date such as"),
    ],
)
def test_invalid_amount_or_date_is_reported(tmp_path, column, cells, message):
    write(tmp_path, text="\n".join(";".join([cells[i % 2], *row[1:]]) for i, row in enumerate(ROWS)))
    with pytest.raises(UserError, match=f"line 2, column age: .*{message}"):
        make_table(features={"age": column, "colour": Category()}).load(tmp_path, 0)


def test_training_rows_of_one_class_are_reported(tmp_path):
    write(tmp_path, [[*row, "train" if row[3] == "no" else "test"] for row in ROWS])
    split = {"column": "part", "train": "train", "test": "test"}
    with pytest.raises(UserError, match="all training rows are of one class"):
        make_table(columns=["age", "colour", "gain", "label", "part"], split=split, balance=False).load(tmp_path, 0)


def test_declared_header_line_is_skipped(tmp_path):
    write(tmp_path, [["age", "colour", "gain", "label"], *ROWS])
    assert make_table(header=True).load(tmp_path, 0).origin["rows_read"] == 60


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"label": "nope"}, "columns does not list nope"),
        ({"classes": ["a"]}, "classes must name two values"),
        ({"classes": ["a", "a"]}, "classes must name two values"),
        ({"split": [0.5, 0.2, 0.2]}, "split"),
        ({"split": [1.0, 0.0, 0.0]}, "split"),
        ({"candidates": 1}, "candidates must be a whole number of at least 2"),
        (
            {"features": {"age": "number", "label": "category"}},
            "features contains the label, label, so the model would see it",
        ),
        (
            {"features": {"age": "numbr"}},
            r"features\.age: 'numbr' is not a kind of column\. Did you mean number\? Write",
        ),
        ({"features": {"age": 3}}, r"features\.age: 3 is not a kind of column"),
        ({"columns": None, "header": False}, "columns must name the columns of a file without a header"),
        ({"delimiter": "tab"}, "delimiter must be one character"),
        ({"missing": "?"}, "missing must be a list such as"),
        ({"missing": {"age": "?"}}, "missing must be a list such as"),
        ({"missing": {"agee": ["?"]}}, r"missing\.agee is not a feature\. Did you mean age\?"),
        ({"classes": [1, "1.0"]}, "classes must name two values"),
        ({"immutable": ["sex"]}, "immutable names sex, which is not a feature"),
        ({"immutable": "age"}, "immutable must be a list"),
        ({"only": {"agee": "up"}}, r"only names agee, which is not a feature\. Did you mean age\?"),
        ({"only": {"age": "higher"}}, r"only\.age must be one of up, down"),
        ({"only": {"age": "up"}, "immutable": ["age"]}, r"age is in immutable and in only \(up\)"),
        ({"positions": {"age": 0}}, r"positions\.age must"),
        ({"split": {"column": "part", "train": "a", "test": "b"}, "balance": False}, "columns does not list part"),
        ({"split": {"column": "gain", "train": 0, "test": 1}, "balance": False}, "'~dataset.features.gain'"),
        ({"split": {"column": "part", "train": "a"}, "columns": None}, "needs train and test"),
        ({"split": {"column": "part", "train": "a", "test": "b"}, "columns": None}, "Set balance: false"),
        ({"split": {"test": "b"}, "balance": False}, r"split\.test must be a file"),
        (
            {"split": {"train": DataFile("a"), "test": DataFile("b")}, "balance": False},
            r"split\.train does not go with",
        ),
        ({"split": {"column": "p", "train": [1, 2], "test": 2}, "columns": None}, "split names 2 twice"),
        ({"split": {"tset": "b"}}, r"split\.tset is not known"),
        ({"split": {"validation": 0.2}}, "split by files needs test"),
        ({"split": {"test": DataFile("b"), "validation": 1.5}, "balance": False}, r"split\.validation must"),
    ],
)
def test_invalid_settings_are_reported(changes, key):
    with pytest.raises(ValueError, match=key):
        make_table(**changes)
