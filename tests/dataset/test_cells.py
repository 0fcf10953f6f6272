import csv

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.dataset.cells import DELIMITERS, Layout, make_matcher, parse_number, read_csv_rows
from cfeval_cli.errors import UserError


@pytest.mark.parametrize(("cell", "value"), [("12", 12), (" -0.5 ", -0.5), ("1e3", 1000), (".5", 0.5), ("+1.", 1)])
def test_numbers_are_parsed(cell, value):
    assert parse_number(cell) == value


@pytest.mark.parametrize("cell", ["", "1_000", "nan", "inf", "1e400", "١٢", "0x1f", "1,5"])
def test_texts_that_only_python_reads_as_numbers_are_no_numbers(cell):
    assert parse_number(cell) is None


def test_rows_have_the_number_of_their_first_line(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeffa, b\n\n"two\nlines", c\n', encoding="utf-8")
    assert list(read_csv_rows(tmp_path / "a.csv")) == [(1, ["a", "b"]), (3, ["two\nlines", "c"])]
    (tmp_path / "b.csv").write_bytes(b"a\xff")
    with pytest.raises(UserError, match="is not UTF-8"):
        list(read_csv_rows(tmp_path / "b.csv"))


def write_csv(path, table, delimiter=",", header=True):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        if header:
            writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_columns_are_read_by_name_in_any_order_delimiter_and_format(tmp_path, seed):
    """The oracle is pandas."""
    rng = np.random.default_rng(seed)
    names = [f"c {j}" for j in rng.permutation(6)]
    table = {name: [str(x) for x in rng.integers(0, 99, 8)] for name in names}
    table[names[0]] = [f"a, b; {x}" for x in range(8)]
    requested_columns = [str(name) for name in rng.permutation(names)[:3]]
    is_explicit = bool(seed % 2)
    path = tmp_path / "table.any"
    if seed % 3 == 0:
        typed = pd.DataFrame(table).assign(**{names[1]: rng.normal(size=8), names[2]: rng.integers(0, 9, 8) > 4})
        typed.loc[3, names[1]] = np.nan
        typed.to_parquet(path)
        expected = {name: ["" if x != x else str(x) for x in typed[name].tolist()] for name in requested_columns}
        table = Layout().read(path, requested_columns)
        assert table.describe_position(2) == f"{path}, row 3"
    else:
        delimiter = list(DELIMITERS)[seed % 4]
        write_csv(path, table, delimiter, header=seed % 3 == 1)
        columns = None if seed % 3 == 1 else names
        expected = pd.read_csv(path, sep=delimiter, dtype=str, names=columns, header=0 if columns is None else None)
        expected = {name: expected[name].tolist() for name in requested_columns}
        layout = Layout(
            columns, header=(columns is None) if is_explicit else None, delimiter=delimiter if is_explicit else None
        )
        table = layout.read(path, requested_columns)
        assert table.describe_position(2) == f"{path}, line {3 + (columns is None)}"
    assert table.cells == expected and list(table.cells) == requested_columns and len(table.row_numbers) == 8


def test_equal_cells_are_stored_once(tmp_path):
    values = [f"value {i % 7}" for i in range(50)]
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(values) + "\n")
    table = Layout().read(tmp_path / "a.csv", ["x"])
    assert table.cells["x"] == values and list(table.row_numbers) == list(range(2, 52))
    assert len({id(cell) for cell in table.cells["x"]}) == 7


def test_header_overrides_the_order_of_the_columns_setting(tmp_path):
    write_csv(tmp_path / "a.csv", {"b": ["1", "2"], "a": ["x", "y"]})
    for header in (True, None):
        table = Layout(["a", "b"], header=header).read(tmp_path / "a.csv", ["a", "b"])
        assert table.cells == {"a": ["x", "y"], "b": ["1", "2"]}
    assert Layout(["a", "b"], header=False).read(tmp_path / "a.csv", ["a"]).cells == {"a": ["b", "1", "2"]}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_column_with_an_ambiguous_name_needs_a_position(tmp_path, kind):
    path = tmp_path / "a"
    if kind == "csv":
        path.write_text("a,b,a,c\n1,2,3,4\n5,6,7,8\n")
    else:
        import pyarrow
        import pyarrow.parquet

        columns = [pyarrow.array(column) for column in ([1, 5], [2, 6], [3, 7], [4, 8])]
        pyarrow.parquet.write_table(pyarrow.Table.from_arrays(columns, names=["a", "b", "a", "c"]), path)
    assert Layout().read(path, ["c", "b"]).cells == {"c": ["4", "8"], "b": ["2", "6"]}
    with pytest.raises(UserError, match=r"2 columns are named a, 1 and 3 of 4.*dataset\.positions=\{a: 1\}"):
        Layout().read(path, ["a"])
    assert Layout(positions={"a": 3}).read(path, ["b", "a"]).cells == {"b": ["2", "6"], "a": ["3", "7"]}
    with pytest.raises(UserError, match=r"dataset\.positions\.a=2, and column a is 1 and 3 of 4"):
        Layout(positions={"a": 2}).read(path, ["a"])


@pytest.mark.parametrize(
    ("body", "layout", "message"),
    [
        ("age,sex\n1,m\n", Layout(), r"no column label\. Its first line has age, sex\. If that is no header, name"),
        ("age,lable\n1,m\n", Layout(), r"no column label\. Did you mean lable\?"),
        ("age;label\n1;m\n", Layout(delimiter=","), r"It has semicolons in it: set dataset\.delimiter=';'"),
        ("1;m\n", Layout(["age", "label"], delimiter=","), r"1 field where dataset\.columns names 2\. It has semicol"),
        ("age,label\n1\n", Layout(), r"line 2: 1 field where the first line names 2"),
        ("age,label\n", Layout(), "has no rows"),
        ("", Layout(), "has no rows"),
        ("x,y\n1,m\n", Layout(["age", "label"], header=True), r"than dataset\.columns, age, label\. Its"),
        ("PAR1 is not", Layout(), "cannot be read as a Parquet file"),
    ],
)
def test_mismatched_file_is_reported_with_remedy(tmp_path, body, layout, message):
    (tmp_path / "a.csv").write_text(body)
    with pytest.raises(UserError, match=message) as error:
        layout.read(tmp_path / "a.csv", ["age", "label"])
    assert str(tmp_path / "a.csv") in str(error.value)


def test_unreadable_parquet_file_is_reported(tmp_path):
    pd.DataFrame({"a": [[1], [2]], "b": [1, 2]}).to_parquet(tmp_path / "a")
    with pytest.raises(UserError, match="column a holds lists"):
        Layout().read(tmp_path / "a", ["a"])
    with pytest.raises(UserError, match=r"has no column bb\. Did you mean b\? It has a, b"):
        Layout().read(tmp_path / "a", ["bb"])
    pd.DataFrame({"a": []}).to_parquet(tmp_path / "b")
    with pytest.raises(UserError, match="has no rows"):
        Layout().read(tmp_path / "b", ["a"])
    body = (tmp_path / "a").read_bytes()
    (tmp_path / "c").write_bytes(body[: len(body) // 2])
    with pytest.raises(UserError, match="c cannot be read as a Parquet file"):
        Layout().read(tmp_path / "c", ["a"])


def test_lines_before_the_table_are_skipped(tmp_path):
    (tmp_path / "a.csv").write_text("made in 1994\n\na;b\n1;2\n")
    assert Layout(skip_lines=1).read(tmp_path / "a.csv", ["b"]).cells == {"b": ["2"]}


@given(st.lists(st.integers(-5, 5) | st.sampled_from(["no", "yes", "1.0", True]), min_size=1, max_size=5))
def test_matcher_compares_texts_and_numbers(values):
    match = make_matcher(values)
    for index, value in enumerate(values):
        matched = match(str(value))
        same = values[matched]
        assert matched <= index and (str(same) == str(value) or float(same) == float(value))


def test_matcher_compares_booleans_and_mixed_values():
    match = make_matcher([False, True])
    assert [match(cell) for cell in ("False", "true", "TRUE")] == [0, 1, None]
    assert [make_matcher([0, 1])(cell) for cell in ("0", "1.0", "1e0", "2", "")] == [0, 1, 1, None, None]
    assert [make_matcher(["a", 2])(cell) for cell in ("a", "2.00", "b")] == [0, 1, None]
