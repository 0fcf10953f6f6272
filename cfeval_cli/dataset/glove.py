"""GloVe vectors: the packaged ones, or a user's own text file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cfeval_cli.core import Floats, npy
from cfeval_cli.core.files import hash_file
from cfeval_cli.dataset.sources import File, find_all
from cfeval_cli.errors import UserError


@dataclass(frozen=True)
class Glove:
    """Word vectors; only those of the vocabulary are kept."""

    table: File  # .npy, float32 (words, d)
    index: File  # .parquet with the words in the table's order
    title: str
    path: str | None = None  # a text file, "word number number …" a line, instead of the two above

    def files(self) -> list[File]:
        """What has to be there, or be fetched."""
        return [] if self.path else [self.table, self.index]

    def vectors(self, data_dir: Path, words: Sequence[str]) -> Vectors:
        """Vectors of the words; the last row is the mean of all, which a word that is not known has too."""
        read = self._from_text(Path(self.path), words) if self.path else self._from_package(data_dir, words)
        rows, mean, name, sha256 = read
        if not rows:
            raise UserError(
                f"{name} knows none of the {len(words):,} words of the vocabulary. Is it a file of vectors?"
            )
        table = np.tile(mean, (len(words) + 1, 1))
        for i, word in enumerate(words):
            if word in rows:
                table[i] = rows[word]
        return Vectors(table, {"name": name, "sha256": sha256, "dim": len(mean), "words": len(rows)})

    def _from_package(self, data_dir: Path, words: Sequence[str]) -> _Read:
        table, index = find_all(self.files(), data_dir)
        try:
            everything = npy.mapped(table.path)
            if everything.ndim != 2 or everything.dtype.kind != "f" or not 0 < everything.shape[1] <= _WIDEST:
                raise ValueError(f"numbers (words, d) are expected, not {everything.dtype} {everything.shape}")
        except (ValueError, OSError) as error:
            raise UserError(f"{table.path} is not what it should be ({error}).") from error
        names = _words(index.path, len(everything))
        with np.errstate(invalid="ignore", over="ignore"):  # looked at below
            mean = np.asarray(everything.mean(axis=0, dtype=np.float64)) if len(everything) else np.zeros(0)
        if not (len(everything) and (np.abs(mean) < _HUGE).all()):  # one that is not finite makes the mean so
            raise UserError(f"{table.path} has no vectors, or some that are not finite.")
        wanted = set(words)
        place = {name: i for i, name in enumerate(names) if name in wanted}
        rows = {word: everything[i].astype(float) for word, i in place.items()}
        return rows, mean, self.title, table.sha256

    def _from_text(self, path: Path, words: Sequence[str]) -> _Read:
        """Streamed: a file of gigabytes costs no more memory than the vocabulary."""
        wanted, rows = set(words), {}
        total, lines, dim = np.zeros(0), 0, 0
        try:
            with path.open(encoding="utf-8-sig", newline="\n") as stream:
                for number, line in enumerate(iter(lambda: stream.readline(_LONGEST), ""), 1):
                    dim = dim or line.count(" ")  # of the first line; later words may contain spaces
                    word, vector = _parsed(line, dim) if len(line) < _LONGEST and dim <= _WIDEST else ("", None)
                    if vector is None or (number == 1 and _number(word)):
                        raise UserError(
                            f"{path}, line {number}: expected a word and {dim} numbers, separated by single spaces and "
                            "without a header. Mend it, or set dataset.embedding.path to another file."
                        )
                    total = vector.copy() if lines == 0 else total + vector
                    lines += 1
                    if word in wanted:
                        rows[word] = vector
            sha256 = hash_file(path)
        except OSError as error:
            raise UserError(f"dataset.embedding.path={path} cannot be read ({error.strerror}).") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8 text, after line {lines}.") from error
        except ValueError as error:  # a path that no file can have
            raise UserError(f"dataset.embedding.path={path} cannot be read ({error}).") from error
        if not lines:
            raise UserError(f"{path} has no vectors.")
        return rows, total / lines, path.name, sha256


@dataclass(frozen=True)
class Vectors:
    """Word vectors and where they came from."""

    table: Floats  # (words + 1, d)
    origin: dict[str, object]  # name, sha256, dim, how many of the words are known


_Read = tuple[dict[str, Floats], Floats, str, str]  # vectors by word, mean of all, name, sha256


def _parsed(line: str, dim: int) -> tuple[str, Floats | None]:
    """A word and its vector, or None if the line has not so many finite numbers, or more of them."""
    word, *cells = line.rstrip("\n").rsplit(" ", dim)
    told = line[len(word) :]
    if "_" in told or not told.isascii():  # which float() takes for digits
        return word, None
    try:
        vector = np.array(list(map(float, cells)))
    except ValueError:
        return word, None
    good = (
        0 < dim == len(vector) and bool((np.abs(vector) < _HUGE).all()) and not _number(word.rpartition(" ")[2], word)
    )
    return word, vector if good else None


_HUGE = 1e10  # no word vector has such a number; a broken file may
_WIDEST = 10_000  # numbers of a vector
_LONGEST = 1 << 20  # characters of a line


def _words(path: Path, most: int) -> list[Any]:
    """The first column; no more is read than there are vectors for, since a small file can tell of billions."""
    import pyarrow
    import pyarrow.parquet

    names: list[Any] = []
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            kind = file.schema_arrow.field(0).type
            if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
                raise ValueError(f"words are expected in its first column, not {kind}")
            count = file.metadata.num_rows
            if count == most:
                for batch in file.iter_batches(columns=[file.schema_arrow.names[0]]):
                    names += batch.column(0).to_pylist()
                    count = len(names)
                    if count > most:
                        break
    except (ValueError, OSError, LookupError, TypeError, OverflowError, MemoryError, pyarrow.ArrowException) as error:
        raise UserError(f"{path} is not what it should be ({error}).") from error
    if count != most:
        raise UserError(f"{path} names {count:,} words, and there are {most:,} vectors.")
    return names


def _number(text: str, word: str = "") -> bool:
    """Whether a text is a number; the one token of a word may be, "1984" is a word."""
    if text == word:
        return False
    try:
        float(text)
    except ValueError:
        return False
    return True
