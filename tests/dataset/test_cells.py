import csv

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cfeval_cli.dataset import cells
from cfeval_cli.dataset.cells import DELIMITERS, Layout, matching, number, rows
from cfeval_cli.dataset.split import check_shares, shuffled
from cfeval_cli.errors import UserError


@pytest.mark.parametrize(("cell", "value"), [("12", 12), (" -0.5 ", -0.5), ("1e3", 1000), (".5", 0.5), ("+1.", 1)])
def test_numbers_as_tables_have_them(cell, value):
    assert number(cell) == value


@pytest.mark.parametrize("cell", ["", "1_000", "nan", "inf", "1e400", "١٢", "0x1f", "1,5"])
def test_what_python_would_take_for_a_number_and_tables_would_not(cell):
    assert number(cell) is None


def test_rows_come_with_the_line_that_they_begin_on(tmp_path):
    (tmp_path / "a.csv").write_text('\ufeffa, b\n\n"two\nlines", c\n', encoding="utf-8")
    assert list(rows(tmp_path / "a.csv")) == [(1, ["a", "b"]), (3, ["two\nlines", "c"])]
    (tmp_path / "b.csv").write_bytes(b"a\xff")
    with pytest.raises(UserError, match="is not UTF-8"):
        list(rows(tmp_path / "b.csv"))


def test_rows_are_divided_without_loss_and_by_the_seed_alone():
    parts = shuffled(np.arange(30), (0.8, 0.1, 0.1), 3)
    assert [len(part) for part in parts] == [24, 3, 3] and sorted(np.concatenate(parts)) == list(range(30))
    again = shuffled(np.arange(30), (0.8, 0.1, 0.1), 3)
    assert all((a == b).all() for a, b in zip(parts, again, strict=True))
    assert any((a != b).any() for a, b in zip(parts, shuffled(np.arange(30), (0.8, 0.1, 0.1), 4), strict=True))
    for bad in ((0.5, 0.5), (0.8, 0.1, 0.2), (1.0, 0.0, 0.0)):
        with pytest.raises(ValueError, match="split"):
            check_shares(bad)


def written(path, table, delimiter=",", header=True):
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream, delimiter=delimiter)
        if header:
            writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))


@pytest.mark.parametrize("seed", range(12))
def test_columns_are_found_by_name_whatever_the_order_the_delimiter_or_the_format(tmp_path, seed):
    """As pandas reads the same file."""
    rng = np.random.default_rng(seed)
    names = [f"c {j}" for j in rng.permutation(6)]
    table = {name: [str(x) for x in rng.integers(0, 99, 8)] for name in names}
    table[names[0]] = [f"a, b; {x}" for x in range(8)]
    wanted = [str(name) for name in rng.permutation(names)[:3]]
    said = bool(seed % 2)
    path = tmp_path / "table.any"
    if seed % 3 == 0:
        typed = pd.DataFrame(table).assign(**{names[1]: rng.normal(size=8), names[2]: rng.integers(0, 9, 8) > 4})
        typed.loc[3, names[1]] = np.nan
        typed.to_parquet(path)
        theirs = {name: ["" if x != x else str(x) for x in typed[name].tolist()] for name in wanted}
        sheet = Layout().read(path, wanted)
        assert sheet.where(2) == f"{path}, row 3"
    else:
        delimiter = list(DELIMITERS)[seed % 4]
        written(path, table, delimiter, header=seed % 3 == 1)
        columns = None if seed % 3 == 1 else names
        theirs = pd.read_csv(path, sep=delimiter, dtype=str, names=columns, header=0 if columns is None else None)
        theirs = {name: theirs[name].tolist() for name in wanted}
        layout = Layout(columns, header=(columns is None) if said else None, delimiter=delimiter if said else None)
        sheet = layout.read(path, wanted)
        assert sheet.where(2) == f"{path}, line {3 + (columns is None)}"
    assert sheet.cells == theirs and list(sheet.cells) == wanted and len(sheet.lines) == 8


@pytest.mark.parametrize("most", [0, 3, 1000])
def test_equal_cells_are_in_memory_once_unless_too_many_differ(tmp_path, monkeypatch, most):
    monkeypatch.setattr(cells, "_TEXTS", most)
    said = [f"value {i % 7}" for i in range(50)]
    (tmp_path / "a.csv").write_text("x\n" + "\n".join(said) + "\n")
    sheet = Layout().read(tmp_path / "a.csv", ["x"])
    assert sheet.cells["x"] == said and list(sheet.lines) == list(range(2, 52))
    assert len({id(cell) for cell in sheet.cells["x"] if cell in said[:most]}) == min(most, 7)


def test_a_header_in_another_order_than_the_columns_names_them_itself(tmp_path):
    written(tmp_path / "a.csv", {"b": ["1", "2"], "a": ["x", "y"]})
    for header in (True, None):
        sheet = Layout(["a", "b"], header=header).read(tmp_path / "a.csv", ["a", "b"])
        assert sheet.cells == {"a": ["x", "y"], "b": ["1", "2"]}
    assert Layout(["a", "b"], header=False).read(tmp_path / "a.csv", ["a"]).cells == {"a": ["b", "1", "2"]}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_of_two_columns_of_one_name_one_has_to_be_chosen_if_it_is_used(tmp_path, kind):
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
        ("PAR1 is not", Layout(), "is no Parquet file that can be read"),
    ],
)
def test_what_does_not_fit_is_told_with_what_to_write(tmp_path, body, layout, message):
    (tmp_path / "a.csv").write_text(body)
    with pytest.raises(UserError, match=message) as told:
        layout.read(tmp_path / "a.csv", ["age", "label"])
    assert str(tmp_path / "a.csv") in str(told.value)


def test_a_parquet_file_of_something_else_is_refused(tmp_path):
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
    with pytest.raises(UserError, match="c is no Parquet file that can be read"):
        Layout().read(tmp_path / "c", ["a"])


def test_lines_before_the_table_are_passed_over(tmp_path):
    (tmp_path / "a.csv").write_text("made in 1994\n\na;b\n1;2\n")
    assert Layout(skip_lines=1).read(tmp_path / "a.csv", ["b"]).cells == {"b": ["2"]}


@given(st.lists(st.integers(-5, 5) | st.sampled_from(["no", "yes", "1.0", True]), min_size=1, max_size=5))
def test_values_are_known_as_text_and_as_numbers(values):
    match = matching(values)
    for place, value in enumerate(values):
        found = match(str(value))
        same = values[found]
        assert found <= place and (str(same) == str(value) or float(same) == float(value))
    if values == [0, 1]:
        assert [match(cell) for cell in ("0", "1.0", "1e0", "2", "")] == [0, 1, 1, None, None]


def test_classes_of_other_types():
    match = matching([False, True])
    assert [match(cell) for cell in ("False", "true", "TRUE")] == [0, 1, None]
    assert [matching([0, 1])(cell) for cell in ("0", "1.0", "1e0", "2", "")] == [0, 1, 1, None, None]
    assert [matching(["a", 2])(cell) for cell in ("a", "2.00", "b")] == [0, 1, None]
