"""Word vectors: a text file of a user's own, or a table of NumPy with its words in parquet."""

import contextlib
import io
import tracemalloc

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cfeval_cli.dataset.glove import Glove
from cfeval_cli.dataset.sources import DataFile
from cfeval_cli.errors import UserError
from tests.hostile.mutations import Canary, list_names, mutate, parametrize_seeds

WORDS = ["a", "good", "bad", "film", "1984", "é", "don't", "--"]
TABLE = np.random.default_rng(0).normal(size=(len(WORDS), 6)).astype(np.float32)
TEXT = "".join(f"{word} {' '.join(f'{x:.4f}' for x in row)}\n" for word, row in zip(WORDS, TABLE, strict=True)).encode()
PACKAGED = Glove(DataFile("t.npy"), DataFile("i.parquet"), "small")


def as_npy(array, **options):
    stream = io.BytesIO()
    np.save(stream, array, **options)
    return stream.getvalue()


def as_parquet(columns, **options):
    stream = io.BytesIO()
    pq.write_table(pa.table(columns), stream, **options)
    return stream.getvalue()


@parametrize_seeds(100, 1000)
def test_damaged_text_vectors_are_read_correctly_or_reported_by_line(tmp_path, seeds):
    path, n_accepted = tmp_path / "glove.txt", 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        body = mutate(TEXT, rng, 3)
        path.write_bytes(body)
        try:
            vectors = Glove(DataFile("t"), DataFile("i"), "", str(path)).load_vectors(tmp_path, WORDS).table
        except UserError as error:
            assert path.name in str(error) and len(str(error)) < 1000, seed
            continue
        n_accepted += 1
        assert vectors.shape[0] == len(WORDS) + 1 and np.isfinite(vectors).all(), seed
        lines = [line.rsplit(" ", vectors.shape[1]) for line in body.decode("utf-8-sig").rstrip("\n").split("\n")]
        vector_of = {word: np.array(cells, dtype=float) for word, *cells in lines}
        mean = np.mean([np.array(cells, dtype=float) for _, *cells in lines], axis=0)
        for word, vector in zip(WORDS, vectors, strict=False):
            assert vector == pytest.approx(vector_of.get(word, mean), rel=1e-9, abs=1e-12), seed
    assert list_names(tmp_path) == {"glove.txt"}
    assert 0.05 * len(seeds) < n_accepted < len(seeds)


@pytest.mark.parametrize(
    "body", [b"a 1 nan\n", b"a 1 inf\n", b"a 1 1e400\n", b"a 1 1_0\n", "a 1 １\n".encode(), b"a 1 2\nb 1\n",
             b"2 2\na 1 2\n", b"a\n",
             b"a 1 2\r\rb 1 2", b"\xff\xfea\0 \x001\0", b"a" + b" 1" * 20_000, b"x" * 3_000_000,
             b"\0" * 3_000_000, b"", b" \n", b"a 1 2\n\n"]
)  # fmt: skip
def test_invalid_vectors_are_refused(tmp_path, body):
    (tmp_path / "glove.txt").write_bytes(body)
    with pytest.raises(UserError, match=r"glove\.txt"):
        Glove(DataFile("t"), DataFile("i"), "", str(tmp_path / "glove.txt")).load_vectors(tmp_path, ["a"])


@parametrize_seeds(100, 1500)
def test_damaged_packaged_vectors_are_read_correctly_or_refused(tmp_path, seeds):
    table, index = as_npy(TABLE), as_parquet({"index": WORDS})
    n_accepted = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        if seed % 2:  # mostly the header, which is half of the file
            (tmp_path / "t.npy").write_bytes(
                mutate(table[:128], rng, 3) + table[128:] if rng.random() < 0.5 else mutate(table, rng, 2)
            )
            (tmp_path / "i.parquet").write_bytes(index)
        else:
            (tmp_path / "t.npy").write_bytes(table)
            (tmp_path / "i.parquet").write_bytes(mutate(index, rng, 2))
        try:
            vectors = PACKAGED.load_vectors(tmp_path, WORDS).table
        except UserError as error:
            assert "t.npy" in str(error) or "i.parquet" in str(error) or "small has none" in str(error), seed
            continue
        n_accepted += 1
        assert vectors.shape[0] == len(WORDS) + 1 and np.isfinite(vectors).all(), seed
        if seed % 2:  # the header defines how the numbers are read: the expected values are those of NumPy
            array = np.load(tmp_path / "t.npy", allow_pickle=False)
            assert vectors[:-1] == pytest.approx(array.astype(float)), seed
    assert list_names(tmp_path) == {"t.npy", "i.parquet"}
    assert 0 < n_accepted < len(seeds)


def header(text, version=1):
    body = text.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + len(body).to_bytes(2 if version == 1 else 4, "little") + body


@pytest.mark.parametrize(
    "body",
    [
        header("{'descr': '|O', 'fortran_order': False, 'shape': (8, 6), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999, 9999999), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-8, -6), }") + TABLE.tobytes(),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (8,), }") + TABLE.tobytes()[:32],
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (), }") + b"\0" * 4,
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (8, 0), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 6), }"),
        header("{'descr': '<i4', 'fortran_order': False, 'shape': (8, 6), }") + TABLE.tobytes(),
        header("{'descr': '<f7', 'fortran_order': False, 'shape': (8, 6), }") + TABLE.tobytes(),
        header("{'descr': '<U99999999', 'fortran_order': False, 'shape': (8, 6), }"),
        header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (8, 6), }") + TABLE.tobytes(),
        header("(" * 5000), header("{'descr': " + "-" * 9000), header("'''"), header("{", 2), header("9**9**9"),
        header("{'descr': '<f4'" + " " * 60_000),
        header("__import__('os').mkdir('made')"),
        b"\x93NUMPY\x02\0\xff\xff\xff\xff{}", b"\x93NUMPY", b"", b"PK\x03\x04",
        as_npy(np.full((8, 6), np.nan, np.float32)),
        as_npy(np.where(np.arange(48).reshape(8, 6) == 7, np.inf, TABLE)), as_npy(TABLE[:-1]), as_npy(TABLE.T),
    ],
)  # fmt: skip
def test_invalid_table_is_refused(tmp_path, body):
    (tmp_path / "t.npy").write_bytes(body)
    (tmp_path / "i.parquet").write_bytes(as_parquet({"index": WORDS}))
    with pytest.raises(UserError, match=r"t\.npy|i\.parquet"):
        PACKAGED.load_vectors(tmp_path, WORDS)


@pytest.mark.parametrize(
    "columns", [{"index": list(range(8))}, {"index": [[w] for w in WORDS]}, {"index": [w.encode() for w in WORDS]}, {},
                {"index": WORDS[:-1]}, {"index": [*WORDS, "x"]}]
)  # fmt: skip
def test_index_without_words_is_refused(tmp_path, columns):
    (tmp_path / "t.npy").write_bytes(as_npy(TABLE))
    (tmp_path / "i.parquet").write_bytes(as_parquet(columns))
    with pytest.raises(UserError, match=r"i\.parquet"):
        PACKAGED.load_vectors(tmp_path, WORDS)


def test_nothing_in_a_table_or_an_index_is_executed(tmp_path):
    canary = Canary(tmp_path / "made")
    body = canary.pickled()
    objects = np.empty((8, 6), dtype=object)
    objects[:] = canary
    stored = as_npy(objects, allow_pickle=True)
    np.load(io.BytesIO(stored), allow_pickle=True)
    assert canary.path.exists()  # so it would
    canary.path.unlink()
    for table in (stored, body, as_npy(TABLE)):
        (tmp_path / "t.npy").write_bytes(table)
        for key in (b"pandas", b"ARROW:schema", b"ARROW:extension:metadata"):
            named = {b"ARROW:extension:name": b"arrow.py_extension_type", b"ARROW:extension:metadata": body, key: body}
            field = pa.field("index", pa.string(), metadata=named)
            stream = io.BytesIO()
            pq.write_table(pa.table([WORDS], schema=pa.schema([field], metadata={key: body})), stream)
            (tmp_path / "i.parquet").write_bytes(stream.getvalue())
            if table == as_npy(TABLE):
                with contextlib.suppress(UserError):  # or refused, if the words cannot be found for it
                    assert len(PACKAGED.load_vectors(tmp_path, WORDS).table) == 9
            else:
                with pytest.raises(UserError, match=r"t\.npy"):
                    PACKAGED.load_vectors(tmp_path, WORDS)
            assert not canary.path.exists()


def test_compressed_index_of_billions_of_words_is_not_unpacked(tmp_path):
    (tmp_path / "t.npy").write_bytes(as_npy(TABLE))
    (tmp_path / "i.parquet").write_bytes(
        as_parquet({"index": pa.array(["x"]).take(pa.array(np.zeros(5_000_000, dtype=np.int64)))})
    )
    assert (tmp_path / "i.parquet").stat().st_size < 100_000
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    with pytest.raises(UserError, match=r"i\.parquet names 5,000,000 words, but there are 8 vectors"):
        PACKAGED.load_vectors(tmp_path, WORDS)
    assert tracemalloc.get_traced_memory()[1] < 10e6 and pa.total_allocated_bytes() - before < 10e6
    tracemalloc.stop()
