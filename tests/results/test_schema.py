"""The schema describes every table that a run writes, and the page that documents them follows from it."""

from pathlib import Path

import pandas as pd
import pytest

from cfeval_cli.results.schema import TABLES, ColumnSchema, TableSchema, insert_columns, render_columns

PAGE = Path(__file__).parents[2] / "docs" / "run-folder.md"
WIDE = (
    "explainer=[random,omission,lr,graded]",
    "explainer_stability=20",
    "bounds=20",
    "reparametrisations=2",
    "resamples=100",
)


def read(path):
    return pd.read_csv(path) if path.suffix == ".csv" else pd.read_parquet(path)


@pytest.fixture(scope="module")
def folder(toy, make_run):
    return make_run(toy, *WIDE)


def test_every_table_of_a_run_has_the_columns_of_its_schema(folder):
    files = [path for path in folder.iterdir() if path.suffix in (".csv", ".parquet")]
    assert {path.name for path in files} == set(TABLES)
    for path in files:
        name, schema, table = path.name, TABLES[path.name], read(path)
        schema.check_columns(table.columns)
        required = {column.name for column in schema.columns if not column.optional}
        assert required <= set(table.columns), name
        assert not table.duplicated(list(schema.keys)).any() and len(table), name


def test_every_column_has_its_kind(folder):
    for name, schema in TABLES.items():
        table = read(folder / name)
        for column in schema.columns:
            if column.name in table:
                values = table[column.name].dropna()
                assert all(is_of_kind(value, column.kind) for value in values), f"{name}: {column.name}"


def is_of_kind(value, kind):
    if kind.endswith("s"):
        return all(is_of_kind(item, kind[:-1]) for item in value)
    if kind == "text":
        return isinstance(value, str)
    if kind == "flag":
        return value in (True, False)
    return float(value) == int(value) if kind == "integer" else float(value) == value or value != value


def test_documentation_equals_the_schema():
    page = PAGE.read_text(encoding="utf-8")
    assert insert_columns(page) == page
    for name, schema in TABLES.items():
        assert name.endswith("_again.parquet") or render_columns(schema) in page


def test_missing_or_unknown_column_is_named():
    columns = (ColumnSchema("text", "a", ""), ColumnSchema("text", "b", "", optional=True))
    schema = TableSchema("t.csv", "", ("a",), columns)
    schema.check_columns(["a"])
    schema.check_columns(["b", "a"])
    for names, message in ((["b"], "t.csv has no column a"), (["a", "c"], "t.csv has an unknown column c")):
        with pytest.raises(ValueError, match=message):
            schema.check_columns(names)


@pytest.mark.parametrize(
    ("rows", "message"), [(["x", "x"], "two lines of the same a"), (["x", "z"], "t.csv: a is one of x, y")]
)
def test_rows_with_equal_keys_or_values_that_are_not_allowed_are_refused(rows, message):
    schema = TableSchema("t.csv", "", ("a",), (ColumnSchema("text", "a", "", values=("x", "y")),))
    with pytest.raises(ValueError, match=message):
        schema.check_rows(pd.DataFrame({"a": rows}))
