"""CSV files of a user's own: rows of two classes, or sentences."""

import csv
import io
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.dataset.sources import DataFile
from cfeval_cli.dataset.tabular import Category, Number, Quartiles, TabularData, Tiers
from cfeval_cli.dataset.text import Lines, Text, TextTable
from cfeval_cli.errors import UserError
from tests.dataset import test_text as texts
from tests.dataset.test_tabular import ROWS
from tests.hostile.mutations import list_names, mutate, parametrize_seeds

CELLS = [
    "", " ", "?", "=cmd|' /C calc'!A0", "@SUM(A1)", "+1", "-1+cmd|x", "\x1b[2J", "a\x9bb", "<script>", "$\\frac",
    "x" * 200_000,
    "1e400", "-1e308", "1e308", "nan", "inf", "1_000", "１２", "0x10", "1,5", "1e-320", "-0", "NA", "yes", "\u202eabc",
    '"', "a\nb",
    "a\0b", "é", "😀", "\ud7ff",
]  # fmt: skip
COLUMNS = ["age", "colour", "gain", "label"]


def make_table(**changes):
    features = {"age": Quartiles(), "colour": Category({"warm": ["red"]}), "gain": Tiers()}
    settings = {"columns": COLUMNS, "features": features, "label": "label", "classes": ["no", "yes"], "balance": False}
    return TabularData("toy", DataFile("toy.csv"), **{**settings, **changes})


def make_hostile_file(rng):
    """A file that is mostly right: strange cells, well or badly written, in some encoding, and perhaps damaged."""
    rows = [list(row) for row in ROWS]
    for _ in range(int(rng.integers(0, 4))):
        row = rows[int(rng.integers(len(rows)))]
        row[int(rng.integers(len(row)))] = CELLS[int(rng.integers(len(CELLS)))]
    if rng.random() < 0.1:
        rows[int(rng.integers(len(rows)))].append("more")
    stream = io.StringIO()
    if rng.random() < 0.7:
        csv.writer(stream, lineterminator=["\n", "\r\n", "\r"][int(rng.integers(3))]).writerows(rows)
    else:
        stream.write("\n".join(",".join(row) for row in rows))
    body = stream.getvalue().encode(
        ["utf-8", "utf-8", "utf-8", "utf-8-sig", "utf-16", "latin-1"][int(rng.integers(6))], "replace"
    )
    return mutate(body, rng) if rng.random() < 0.5 else body


def read_with_csv(body):
    """The rows as Python's csv has them, for what is accepted."""
    text = body.decode("utf-8-sig")
    reader = csv.reader(io.StringIO(text, newline=""), skipinitialspace=True, strict=True)
    return [[cell.strip() for cell in row] for row in reader if row]


def decode_values(data, codes):
    """The values as people read them."""
    return [feature.values[code] for feature, code in zip(data.features, codes, strict=True)]


@parametrize_seeds(150, 2000)
def test_damaged_tables_are_read_correctly_or_reported(tmp_path, seeds):
    path, n_accepted = tmp_path / "toy.csv", 0
    limit = csv.field_size_limit()
    for seed in seeds:
        body = make_hostile_file(np.random.default_rng(seed))
        path.write_bytes(body)
        try:
            data = make_table().load(tmp_path, 0)
        except UserError as error:
            assert str(path) in str(error) and len(str(error)) < 1000, seed
            continue
        n_accepted += 1
        rows = read_with_csv(body)
        for split in (data.train, data.validation, data.test):
            for i, codes, label in zip(split.ids, split.codes, split.labels, strict=True):
                values = decode_values(data, codes)
                assert [name == "missing" for name in values] == [not cell for cell in rows[i][:3]], seed
                assert values[1] == ({"red": "warm"}.get(rows[i][1], rows[i][1]) or "missing"), seed
                if rows[i][0]:
                    assert codes[0] == sum(float(rows[i][0]) > cut for cut in data.fitted["age"]["cuts"]), seed
                if rows[i][2]:
                    assert (codes[2] == 0) == (float(rows[i][2]) <= 0), seed
                assert label == (rows[i][3] == "yes"), seed
        assert all(np.isfinite(data.fitted["age"]["cuts"])), seed
    assert list_names(tmp_path) == {"toy.csv"} and csv.field_size_limit() == limit
    assert 0.1 * len(seeds) < n_accepted < 0.9 * len(seeds)  # both ways are tried


@pytest.mark.parametrize(
    ("cell", "message"),
    [
        ("x" * 131_073, "field larger than field limit"),
        ("1_000", "'1_000' is not a number"),
        ("１２", "is not a number"),
        ("1e400", "is not a number"),
        ("nan", "is not a number"),
        ("9" * 5000, "5,000 characters"),
        ("\x1b[2J", r"'\\x1b\[2J' is not a number"),
        ("a\0b", "NUL byte"),
        ('"open', "begins on line 4"),
    ],
)
def test_invalid_cell_is_reported_with_line(tmp_path, cell, message):
    lines = [",".join(row) for row in ROWS]
    lines[3] = f"{cell},blue,1,no"
    (tmp_path / "toy.csv").write_text("\n".join(lines))
    with pytest.raises(UserError, match=message) as error:
        make_table().load(tmp_path, 0)
    assert "line 4" in str(error.value)


def test_line_of_a_million_fields_is_reported(tmp_path):
    (tmp_path / "toy.csv").write_text(",".join(["1"] * 1_000_000) + "\n")
    with pytest.raises(UserError, match="1000000 fields"):
        make_table().load(tmp_path, 0)


@pytest.mark.parametrize("n_rows", [10_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_long_categories_do_not_fill_the_memory(tmp_path, n_rows):
    """One long category among many rows, and the smallest and largest floats."""
    import tracemalloc

    rows = [["1e300", "z" * 100_000, "0", "yes"], *(["-1e300", f"v{i}", str(i % 3), "no"] for i in range(n_rows))]
    text = "\n".join(",".join(row) for row in rows) + "\n2,v,0,yes\n3,v,0,yes\n"
    (tmp_path / "toy.csv").write_text(text)
    tracemalloc.start()
    data = make_table().load(tmp_path, 0)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e3 * n_rows  # NumPy would take 400 KB for each
    assert len(data.features[1].values) == n_rows + 2 and np.isfinite(data.fitted["age"]["cuts"]).all()


@parametrize_seeds(40, 600)
def test_damaged_parquet_tables_are_read_or_reported(tmp_path, seeds):
    path = tmp_path / "toy.parquet"
    frame = pd.DataFrame(ROWS, columns=COLUMNS)
    frame["age"] = pd.to_numeric(frame["age"], errors="coerce")
    frame.to_parquet(path, index=False)
    settings = {"columns": None, "features": {"age": Number(), "colour": Category()}}
    body, n_accepted = path.read_bytes(), 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        path.write_bytes(body if seed % 10 == 0 else mutate(body, rng, 3))
        try:
            data = replace(make_table(**settings), file=DataFile("toy.parquet")).load(tmp_path, 0)
        except UserError as error:
            assert "toy.parquet" in str(error), seed
        else:
            n_accepted += 1
            assert [feature.name for feature in data.features] == ["age", "colour"], seed
    assert len(seeds) // 10 <= n_accepted < len(seeds) and list_names(tmp_path) == {"toy.parquet"}


@parametrize_seeds(100, 1000)
def test_damaged_sentences_are_read_correctly_or_reported(tmp_path, seeds):
    texts.write_corpus(tmp_path)
    examples = [(i % 2, sentence) for i, sentence in enumerate(texts.SENTENCES)]
    stream = io.StringIO()
    csv.writer(stream).writerows([("text", "label", "source"), *((text, label, "mine") for label, text in examples)])
    bodies = {
        "neg": (tmp_path / "neg").read_bytes(),
        "pos": (tmp_path / "pos").read_bytes(),
        "all.csv": stream.getvalue().encode(),
    }
    lines, sentences = Lines(DataFile("neg"), DataFile("pos"), 40), TextTable(DataFile("all.csv"), "mine", 40)
    n_accepted = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        for name, body in bodies.items():
            (tmp_path / name).write_bytes(mutate(body, rng, 4))
        corpus = (lines, sentences)[seed % 2]
        dataset = texts.make_text_dataset(tmp_path, corpora=[corpus])
        assert isinstance(dataset, Text)
        try:
            data = dataset.load(tmp_path, 0)
        except UserError as error:
            assert str(tmp_path) in str(error) and len(str(error)) < 1000, seed
            continue
        n_accepted += 1
        values = set(data.features[0].values)
        for split in (data.train, data.validation, data.test):
            for codes, text in zip(split.codes, split.texts, strict=True):
                words = [data.features[0].values[code] for code in codes if code >= 0]
                assert words == [word if word in values else "<unk>" for word in text.split()], seed
    assert list_names(tmp_path) == {"neg", "pos", "all.csv", "glove.txt"}
    assert 0.1 * len(seeds) < n_accepted < len(seeds)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"text,label,source\na,1\n", "line 2: 2 fields where the first line names 3"),
        (b"text,label,source\na,1,mine,x\n", "line 2: 4 fields"),
        (b"", "has no rows"),
        (b"text,label\na,1\n", "has no column source"),
        (b"text,label,source\n\0,1,mine\n", "NUL"),
    ],
)
def test_incomplete_row_is_reported(tmp_path, body, message):
    (tmp_path / "all.csv").write_bytes(body)
    corpus = TextTable(DataFile("all.csv"), "mine", 1)
    with pytest.raises(UserError, match=message):
        list(corpus.read_sentences([corpus.file.find(tmp_path)]))


def test_endless_sentence_is_reported(tmp_path):
    texts.write_corpus(tmp_path, negative=["a " * 1_000_000, *texts.SENTENCES[1:20]])
    with pytest.raises(UserError, match=r"neg.*a sentence has 1,000,000 words"):
        texts.make_text_dataset(tmp_path).load(tmp_path, 0)
