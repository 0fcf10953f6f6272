import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.dataset.sources import File
from cfeval_cli.dataset.tabular import Category, Quartiles, Table, Tiers
from cfeval_cli.errors import UserError

ROWS = [
    [str(i % 7), ["red", "blue", "green"][i % 3], str(max(0, i - 20)), ["no", "yes"][i % 4 == 0]] for i in range(60)
]


def make(**changes):
    settings = {
        "name": "toy",
        "file": File("toy.csv"),
        "columns": ["age", "colour", "gain", "label"],
        "features": {"age": Quartiles(), "colour": Category({"warm": ["red"]}), "gain": Tiers()},
        "label": "label",
        "classes": ["no", "yes"],
    }
    return Table(**{**settings, **changes})


def write(folder, rows=ROWS, text=None):
    body = "\n".join(", ".join(row) for row in rows) + "\n\n" if text is None else text
    (folder / "toy.csv").write_text(body) if isinstance(body, str) else (folder / "toy.csv").write_bytes(body)


def test_features_bins_and_groups(tmp_path):
    write(tmp_path)
    data = make(balance=False).load(tmp_path, 0)
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
    data = make().load(tmp_path, 0)
    ids = np.concatenate([split.ids for split in (data.train, data.validation, data.test)])
    assert len(ids) == len(set(ids)) == 30  # 15 of 60 rows say yes
    labels = np.concatenate([split.labels for split in (data.train, data.validation, data.test)])
    assert np.bincount(labels).tolist() == [15, 15]
    assert [len(s) for s in (data.train, data.validation, data.test)] == [24, 3, 3]
    assert data.frequencies[1] == pytest.approx(np.bincount(data.train.codes[:, 1], minlength=3) / 24)
    assert data.origin["rows_read"] == 60 and data.origin["rows_used"] == 30


def test_the_seed_decides_the_sample_and_the_split_and_the_fingerprint_tells(tmp_path):
    write(tmp_path)
    first, again, other = (make().load(tmp_path, seed) for seed in (0, 0, 1))
    assert first.fingerprint == again.fingerprint != other.fingerprint


@given(st.lists(st.integers(-5, 5), min_size=2, max_size=30))
def test_quartiles_put_each_number_into_the_bin_that_its_name_says(numbers):
    codes, names, _ = Quartiles().encode("x", [str(number) for number in numbers])
    for number, code in zip(numbers, codes, strict=True):
        low, _, high = names[code].partition(" x ")
        if names[code].startswith("x ≤"):
            assert number <= float(names[code].split()[-1])
        elif names[code].startswith("x >"):
            assert number > float(names[code].split()[-1])
        else:
            assert float(low.split()[0]) < number <= float(high.split()[-1])


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
def test_bad_rows_are_named(tmp_path, rows, message):
    write(tmp_path, rows)
    with pytest.raises(UserError, match=message):
        make().load(tmp_path, 0)


@pytest.mark.parametrize(
    ("text", "message"), [(b"1,\xff,2,no\n", "not UTF-8"), ('1,"red,0,no\n', r"line \d+"), ('"a"b,1,2,no\n', "line 1")]
)
def test_bad_text_is_named(tmp_path, text, message):
    write(tmp_path, text=text)
    with pytest.raises(UserError, match=message):
        make().load(tmp_path, 0)


def test_a_header_line_is_skipped_when_there_is_one(tmp_path):
    write(tmp_path, [["age", "colour", "gain", "label"], *ROWS])
    assert make(header=True).load(tmp_path, 0).origin["rows_read"] == 60


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"label": "nope"}, "columns does not list nope"),
        ({"classes": ["a"]}, "classes must name two values"),
        ({"classes": ["a", "a"]}, "classes must name two values"),
        ({"split": [0.5, 0.2, 0.2]}, "split"),
        ({"split": [1.0, 0.0, 0.0]}, "split"),
    ],
)
def test_bad_settings_are_named(changes, key):
    with pytest.raises(ValueError, match=key):
        make(**changes)
