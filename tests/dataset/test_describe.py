"""Descriptions of files: kinds of columns, classes, missing values, and excluded columns with the reason."""

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.dataset.describe import describe_file
from cfeval_cli.errors import UserError

N = 60


def table(seed=0):
    """Return a frame with one column of every kind; the label is in the middle."""
    rng = np.random.default_rng(seed)
    label = (np.arange(N) % 3 == 0).astype(int)
    return pd.DataFrame(
        {
            "customer_id": rng.permutation(10_000)[:N],
            "number": np.arange(100, 100 + N),  # counts the rows
            "age": rng.integers(20, 60, N),
            "income": rng.lognormal(3, 1, N).round(2),
            "default": label,
            "home": rng.choice(["own", "rent", "tent"], N),
            "children": rng.choice([0, 1, 2, -9], N),
            "score": np.where(np.arange(N) % 10 == 0, 999, rng.integers(0, 100, N)),
            "temperature": rng.integers(-9, 9, N),
            "seen": rng.choice(["yes", "no", "?", "NA"], N),
            "branch": 7,
            "verdict": np.where(label == 1, "bad", "good"),
            "note": [f"said {i}" for i in range(N)],
            "price": [f"{i % 9},{i % 7}5" for i in range(N)],
            "nothing": "",
        }
    )


def write_file(frame, path, file_format):
    if file_format == "parquet":
        frame.replace("", None).to_parquet(path)
    else:
        frame.to_csv(path, index=False, sep={"csv": ",", "tsv": "\t", "semicolons": ";", "bars": "|"}[file_format])
    return path


@pytest.mark.parametrize("file_format", ["csv", "tsv", "semicolons", "bars", "parquet"])
def test_every_kind_of_column_is_detected_in_every_file_format(tmp_path, file_format):
    description = describe_file(write_file(table(), tmp_path / "loans", file_format), "default")
    assert {column.name: column.kind for column in description.features} == {
        "age": "number", "income": "number", "home": "category", "children": "number", "score": "number",
        "temperature": "number", "seen": "category", "price": "amount",
    }  # fmt: skip
    reasons = {column.name: column.exclusion_reason for column in description.excluded}
    assert set(reasons) == {"customer_id", "number", "branch", "verdict", "note", "nothing"}
    for name, word in {
        "customer_id": "an identifier", "number": "an identifier", "branch": "one value only, '7'", "nothing": "empty",
        "verdict": "has one value for each class", "note": f"{N} different in {N} rows",
    }.items():  # fmt: skip
        assert word in reasons[name]
    assert (
        description.classes == (0, 1)
        and description.counts == (40, 20)
        and description.text is None
        and description.header
    )
    assert description.missing_markers == ("?", "NA") and description.suspected_missing == {
        "children": ("-9",),
        "score": ("999",),
    }
    missing = table()["seen"].isin(["?", "NA"]).sum()
    assert next(column.summary for column in description.features if column.name == "seen").endswith(
        f"; {missing} missing"
    )


def test_file_without_header_is_described_and_mistaken_header_reported(tmp_path):
    path = tmp_path / "loans.csv"
    table()[["age", "home", "default"]].to_csv(path, index=False, header=False)
    description = describe_file(path, "3")
    assert (
        not description.header
        and description.names == ("column_1", "column_2", "column_3")
        and description.label == "column_3"
    )
    assert [column.kind for column in description.features] == ["number", "category"]
    with pytest.raises(UserError, match=r"no column default\. Its first line has .*by its position: --label 3$"):
        describe_file(path, "default")
    table()[["age", "home", "default"]].to_csv(path, index=False)
    with pytest.raises(UserError, match=r"the first line looks like a header.*--label default$"):
        describe_file(path, "3")


def test_columns_with_equal_long_or_empty_names_are_excluded(tmp_path):
    path = tmp_path / "twice.csv"
    frame = table()[["default", "age", "income", "home"]].set_axis(["default", "a", "a", ""], axis=1)
    frame.to_csv(path, index=False)
    description = describe_file(path, "default")
    assert [column.name for column in description.features] == ["a"] and description.positions == {"a": 2}
    assert [(column.name, column.exclusion_reason) for column in description.excluded] == [
        ("a", "has the same name as column 2"),
        ("", "it has no name"),
    ]
    frame.set_axis(["default", "a" * 5000, "b", "c"], axis=1).to_csv(path, index=False)
    assert describe_file(path, "default").excluded[0].exclusion_reason == "its name is too long for a config"
    frame.set_axis(["default", "default", "b", "c"], axis=1).to_csv(path, index=False)
    with pytest.raises(UserError, match="2 columns are named default"):
        describe_file(path, "default")


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["no", "yes"], ("no", "yes")),
        (["True", "False"], ("False", "True")),
        (["good", "bad"], ("bad", "good")),
        (["1.0", "0.0"], (0, 1)),
        (["2", "10", "1"], (1, 2, 10)),
        (["-1", "0.5"], (-1, 0.5)),
        (["b", "a", "c"], ("a", "b", "c")),
        (["1", "x"], ("1", "x")),
    ],
)
def test_classes_are_sorted_and_the_positive_one_of_two_is_last(tmp_path, labels, classes):
    frame = pd.DataFrame({"age": np.arange(N) % 13, "label": [labels[i % len(labels)] for i in range(N)]})
    frame.to_csv(tmp_path / "a.csv", index=False)
    description = describe_file(tmp_path / "a.csv", "label")
    assert description.classes == classes and [type(name) for name in description.classes] == [
        type(name) for name in classes
    ]
    assert sum(description.counts) == N


@pytest.mark.parametrize(
    ("values", "suspects"),
    [
        ([3, 4, 5, -9, -9], ("-9",)),
        ([3, 4, 5, -9], ()),  # once only
        ([3, -4, 5, -9, -9], ()),  # others are negative too
        ([-7, -7, -8, -8, -9, -9, 1], ("-9", "-8", "-7")),
        ([1, 2, 99, 99], ("99",)),
        ([1, 60, 99, 99], ()),  # no further than others
        ([0.5, 0.7, -99.0, -99.0], ("-99",)),
        ([-9, -9, -9], ()),
    ],
)
def test_numbers_that_may_stand_for_missing_values_are_suspected(tmp_path, values, suspects):
    frame = pd.DataFrame(
        {"a": values, "b": [i % 4 for i in range(len(values))], "y": [i % 2 for i in range(len(values))]}
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert describe_file(tmp_path / "a.csv", "y").suspected_missing.get("a", ()) == suspects


def test_file_of_texts_and_labels_is_recognised(tmp_path):
    frame = pd.DataFrame(
        {
            "id": range(N),
            "review": [f"Très bon film, number {i}, of many" for i in range(N)],
            "stars": [1, 5] * (N // 2),
        }
    )
    frame.to_csv(tmp_path / "a.csv", index=False)
    description = describe_file(tmp_path / "a.csv", "stars")
    assert (
        description.text == "review"
        and description.classes == (1, 5)
        and [column.name for column in description.excluded] == ["id"]
    )
    frame["age"] = np.arange(N) % 7
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert describe_file(tmp_path / "a.csv", "stars").text is None
    assert describe_file(tmp_path / "a.csv", "stars", "review").text == "review"
    with pytest.raises(UserError, match=r"no column reviw\. Did you mean review\?"):
        describe_file(tmp_path / "a.csv", "stars", "reviw")
    with pytest.raises(UserError, match="both the text and the label"):
        describe_file(tmp_path / "a.csv", "stars", "stars")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("", "has no rows"),
        ("a,y\n", "has one row only"),
        ("justonecolumn\n1\n2\n", "divide nothing in its first line"),
        ("a,y\n1,2\n3\n", "line 3: 1 field where the first line names 2"),
        ("a,y\n1,\n3,1\n4,0\n", "line 2: the label, column y, is empty in 1 row"),
        ("a,y\n1,1\n3,1\n", "all rows are of one class in column y"),
        (
            "a,y\n" + "".join(f"1,{i}.5\n" for i in range(30)),
            "column y has 30 different values, but a label has at most 20",
        ),
        ('a,y\n"1,2\n', "unexpected end of data"),
        ("a,y\n1,2\x00\n2,3\n", "NUL"),
    ],
)
def test_undescribable_file_is_reported_with_reason(tmp_path, body, message):
    (tmp_path / "a.csv").write_text(body)
    with pytest.raises(UserError, match=message) as error:
        describe_file(tmp_path / "a.csv", "y")
    assert str(tmp_path / "a.csv") in str(error.value)


def test_unreadable_file_and_unknown_column_are_reported(tmp_path):
    (tmp_path / "a.csv").write_bytes(b"a,y\n\xff\xfe,1\n")
    with pytest.raises(UserError, match="not UTF-8"):
        describe_file(tmp_path / "a.csv", "y")
    (tmp_path / "a.parquet").write_bytes(b"PAR1 and so on")
    with pytest.raises(UserError, match="cannot be read as a Parquet file"):
        describe_file(tmp_path / "a.parquet", "y")
    with pytest.raises(UserError, match="there is no file"):
        describe_file(tmp_path / "none.csv", "y")
    pd.DataFrame({"a": [1], "y": [1]}).to_parquet(tmp_path / "b.parquet")
    with pytest.raises(UserError, match=r"has no column yy\. Did you mean y\?"):
        describe_file(tmp_path / "b.parquet", "yy")


def describe_column(tmp_path, values):
    """Return the description of column `x` in a file with two other columns, and of the file."""
    frame = pd.DataFrame({"x": values, "z": [i % 5 for i in range(len(values))]})
    frame["y"] = [(i * 7 + 3) % 11 % 2 for i in range(len(values))]
    frame.to_csv(tmp_path / "a.csv", index=False)
    description = describe_file(tmp_path / "a.csv", "y")
    (column,) = [column for column in description.columns if column.name == "x"]
    return column, description


@pytest.mark.parametrize(
    ("values", "kind", "options", "note"),
    [
        (["1.5", "2.5", "inf", "3"], "number", {}, "4 infinite cells count as missing ('inf')."),
        (["1", "2", "-inf", "Infinity", "1e400"], "number", {}, "12 infinite cells count as missing ("),
        (["1,234.50", "12.00", "7"], "amount", {}, "read as numbers, '1,234.50' as 1234.5."),
        (["$1,234.56", "-$12", "($3.10)"], "amount", {}, "read as numbers, '$1,234.56' as 1234.56."),
        (["1,234", "2,345", "12,345"], "amount", {}, "read as numbers, '12,345' as 12345."),
        (["1.234,50 €", "7,5 €"], "amount", {"decimal": ","}, "read as numbers, '1.234,50 €' as 1234.5."),
        (["27%", "3.5%", "?"], "amount", {}, "read as numbers, '3.5%' as 3.5."),
        (["1 234", "22 345,5", "7"], "amount", {"decimal": ","}, "read as numbers, '22 345,5' as 22345.5."),
        (["−0.5", "-3", "2"], "amount", {}, "read as numbers, '−0.5' as -0.5."),
        (["20240531", "19700101"], "date", {}, "dates, read as days since 1970-01-01: '20240531' is 19874."),
        (["2024-05-31", "1970-01-01"], "date", {}, "dates, read as days since 1970-01-01: '2024-05-31' is 19874."),
        (["2024-05-31T12:00:00Z", "2023-01-01"], "date", {}, "'2024-05-31T12:00:00Z' is 19874.5."),
        (["05/31/2024", "01/02/2024"], "date", {"format": "%m/%d/%Y"}, "'05/31/2024' is 19874."),
        (["31/05/2024", "01/02/2024"], "date", {"format": "%d/%m/%Y"}, "'31/05/2024' is 19874."),
        (["31.05.2024 06:00", "1.2.2024 18:30"], "date", {"format": "%d.%m.%Y %H:%M"}, "is 19874.25."),
        (["31 May 2024", "02 May 2024"], "date", {"format": "%d %b %Y"}, "'31 May 2024' is 19874."),
    ],
)
def test_numbers_and_dates_in_other_notations_are_recognised(tmp_path, values, kind, options, note):
    column, description = describe_column(tmp_path, values * 4)
    assert (column.kind, dict(column.options)) == (kind, options)
    (line,) = [line for line in description.warnings if line.startswith("x: ")]
    assert note in line


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        (["$5", "€6", "7"], "numbers in different units (none, $, €): convert them to one"),
        (["5%", "0.1"], "numbers in different units (none, %)"),
        (["01/02/2024", "03/04/2024"], "ambiguous dates: '01/02/2024' can be read"),
        (["01/02/2024", "03/04/2024"], 'format: "%m/%d/%Y"} or "%d/%m/%Y"'),
    ],
)
def test_ambiguous_notations_are_excluded_with_reason(tmp_path, values, reason):
    column, _ = describe_column(tmp_path, values * 4)
    assert not column.kind and reason in column.exclusion_reason


@pytest.mark.parametrize("values", [["(1)", "(2)"], ["inf", "nought"], ["1-2", "3-4"], ["a", "b"], ["5 kg", "6 kg"]])
def test_other_texts_stay_categories(tmp_path, values):
    column, _ = describe_column(tmp_path, values * 4)
    assert column.kind == "category" and "inf" not in column.missing_markers


def test_dates_with_a_few_other_cells_are_reported(tmp_path):
    column, description = describe_column(tmp_path, [*(f"2024-05-{day:02}" for day in range(1, 31)), "unknown"] * 2)
    assert column.kind == "category"
    (line,) = [line for line in description.warnings if line.startswith("x: ")]
    assert line.startswith("x: dates except 'unknown': not read as dates.") and line.endswith("use the kind date.")


def test_whole_numbers_that_are_not_all_dates_stay_numbers(tmp_path):
    column, _ = describe_column(tmp_path, ["20240531", "20240532"] * 4)
    assert column.kind == "number"


def test_problems_of_the_data_are_reported_in_one_line_each(tmp_path):
    rng = np.random.default_rng(0)
    n_rows = 400
    frame = pd.DataFrame(
        {
            "customer_id": rng.permutation(10_000)[:n_rows],
            "city": [f"city {i % 60}" for i in range(n_rows)],
            "pay": rng.choice(["card", "Card", "cash"], n_rows),
            "age": rng.integers(20, 60, n_rows),
            "size": [*map(str, range(n_rows // 2)), *map(str, range(n_rows // 2 - 1)), "big"],
            "churn": ["Yes", "no", "no", "yes"] * (n_rows // 4),
        }
    )
    frame["age_2"] = frame["age"]
    pd.concat([frame, frame[:3]]).to_csv(tmp_path / "churn.csv", index=False)
    description = describe_file(tmp_path / "churn.csv", "churn")
    lines = description.warnings
    assert len(lines) == 6 and not any("\n" in line for line in lines)
    for start, remainder in [
        ("churn: the labels 'Yes' (101 rows) and 'yes' (100 rows) differ by case only", "write them alike in the data"),
        ("age_2 has the same values as age.", "Remove one of them from features"),
        ("3 of 403 rows are copies of another row", "Remove them unless they are separate cases"),
        ("city: a category with 60 levels.", "remove it from features"),
        ("pay: 'Card' and 'card' differ by case only", "write them alike in the data"),
        ("size: numbers except 'big': not read as numbers.", "add it to missing"),
    ]:
        assert any(line.startswith(start) and remainder in line for line in lines), start
    # a copied row does not hide an identifier
    assert [column.name for column in description.excluded] == ["customer_id"]
    assert description.classes == ("no", "Yes", "yes")
