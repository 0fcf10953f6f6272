"""GloVe vectors: the packaged ones, or a text file of the user."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cfeval_cli.core import Floats, npy
from cfeval_cli.core.files import hash_file
from cfeval_cli.dataset.sources import DataFile, find_files
from cfeval_cli.errors import UserError

_MAX_COMPONENT = 1e10  # no word vector has a larger number; a broken file may
_MAX_DIMENSION = 10_000
_MAX_LINE_CHARACTERS = 1 << 20


@dataclass(frozen=True)
class Glove:
    """Word vectors of a vocabulary."""

    table: DataFile  # .npy, float32 (words, d)
    index: DataFile  # .parquet with the words in the table's order
    title: str
    path: str | None = None  # a text file, "word number number …" a line, instead of the two above

    def list_files(self) -> list[DataFile]:
        """Return the files that are needed."""
        return [] if self.path else [self.table, self.index]

    def load_vectors(self, data_dir: Path, words: Sequence[str]) -> WordVectors:
        """Load the vectors of the words; the last row, and the row of an unknown word, is the mean of all vectors."""
        read = self._read_text(Path(self.path), words) if self.path else self._read_package(data_dir, words)
        vectors, mean, name, sha256 = read
        if not vectors:
            raise UserError(
                f"{name} has none of the {len(words):,} words of the vocabulary. Is it a file of word vectors?"
            )
        table = np.tile(mean, (len(words) + 1, 1))
        for i, word in enumerate(words):
            if word in vectors:
                table[i] = vectors[word]
        return WordVectors(table, {"name": name, "sha256": sha256, "dim": len(mean), "words": len(vectors)})

    def _read_package(self, data_dir: Path, words: Sequence[str]) -> _ReadVectors:
        table_file, index_file = find_files(self.list_files(), data_dir)
        try:
            table = npy.open_memory_map(table_file.path)
            if table.ndim != 2 or table.dtype.kind != "f" or not 0 < table.shape[1] <= _MAX_DIMENSION:
                raise ValueError(f"numbers (words, d) are expected, not {table.dtype} {table.shape}")
        except (ValueError, OSError) as error:
            raise UserError(f"{table_file.path} is not a valid table of word vectors ({error}).") from error
        names = _read_index(index_file.path, len(table))
        with np.errstate(invalid="ignore", over="ignore"):  # checked below
            mean = np.asarray(table.mean(axis=0, dtype=np.float64)) if len(table) else np.zeros(0)
        # a vector that is not finite makes the mean so
        if not (len(table) and (np.abs(mean) < _MAX_COMPONENT).all()):
            raise UserError(f"{table_file.path} has no vectors, or some that are not finite.")
        needed_words = set(words)
        row_of = {name: i for i, name in enumerate(names) if name in needed_words}
        return {word: table[i].astype(float) for word, i in row_of.items()}, mean, self.title, table_file.sha256

    def _read_text(self, path: Path, words: Sequence[str]) -> _ReadVectors:
        """Read line by line: a file of gigabytes needs no more memory than the vocabulary."""
        needed_words, vectors = set(words), {}
        total, n_lines, dim = np.zeros(0), 0, 0
        try:
            with path.open(encoding="utf-8-sig", newline="\n") as stream:
                for number, line in enumerate(iter(lambda: stream.readline(_MAX_LINE_CHARACTERS), ""), 1):
                    dim = dim or line.count(" ")  # of the first line; later words may contain spaces
                    is_readable = len(line) < _MAX_LINE_CHARACTERS and dim <= _MAX_DIMENSION
                    word, vector = _parse_line(line, dim) if is_readable else ("", None)
                    if vector is None or (number == 1 and _is_number(word)):
                        raise UserError(
                            f"{path}, line {number}: expected a word and {dim} numbers, separated by single spaces and "
                            "without a header. Correct it, or set dataset.embedding.path to another file."
                        )
                    total = vector.copy() if n_lines == 0 else total + vector
                    n_lines += 1
                    if word in needed_words:
                        vectors[word] = vector
            sha256 = hash_file(path)
        except OSError as error:
            raise UserError(f"dataset.embedding.path={path} cannot be read ({error.strerror}).") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8 text, after line {n_lines}.") from error
        except ValueError as error:  # a path that no file can have
            raise UserError(f"dataset.embedding.path={path} cannot be read ({error}).") from error
        if not n_lines:
            raise UserError(f"{path} has no vectors.")
        return vectors, total / n_lines, path.name, sha256


@dataclass(frozen=True)
class WordVectors:
    """Word vectors and their origin."""

    table: Floats  # (words + 1, d)
    origin: dict[str, object]  # name, sha256, dim, and how many of the words the file has


_ReadVectors = tuple[dict[str, Floats], Floats, str, str]  # vectors by word, mean of all, name, sha256


def _parse_line(line: str, dim: int) -> tuple[str, Floats | None]:
    """Return a word and its vector, which is None unless the line has exactly `dim` finite numbers."""
    word, *cells = line.rstrip("\n").rsplit(" ", dim)
    numbers = line[len(word) :]
    if "_" in numbers or not numbers.isascii():  # float() accepts both
        return word, None
    try:
        vector = np.array(list(map(float, cells)))
    except ValueError:
        return word, None
    is_valid = 0 < dim == len(vector) and bool((np.abs(vector) < _MAX_COMPONENT).all())
    last_value = word.rpartition(" ")[2]
    # a word such as 1984 may be a number, but a word of several tokens that ends with one has a number too many
    if last_value != word and _is_number(last_value):
        is_valid = False
    return word, vector if is_valid else None


def _read_index(path: Path, n_vectors: int) -> list[Any]:
    """Return the words of the first column; read no more than there are vectors, as a small file can hold billions."""
    import pyarrow
    import pyarrow.parquet

    names: list[Any] = []
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            kind = file.schema_arrow.field(0).type
            if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                raise ValueError(f"its first column must contain words, not {kind}")
            count = file.metadata.num_rows
            if count == n_vectors:
                for batch in file.iter_batches(columns=[file.schema_arrow.names[0]]):
                    names += batch.column(0).to_pylist()
                    count = len(names)
                    if count > n_vectors:
                        break
    except (ValueError, OSError, LookupError, TypeError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} is not a valid index of words ({error}).") from error
    if count != n_vectors:
        raise UserError(f"{path} names {count:,} words, but there are {n_vectors:,} vectors.")
    return names


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
