"""GloVe vectors: the packaged ones, or a user's own text file."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cfeval_cli.dataset.sources import File, find_all
from cfeval_cli.errors import UserError
from cfeval_cli.types import Floats


@dataclass(frozen=True)
class Glove:
    """Word vectors; only those of the vocabulary are kept."""

    table: File  # .npy, float32 (words, d)
    index: File  # .parquet with the words in the table's order
    title: str
    path: str | None = None  # a text file, "word number number …" a line, instead of the two above

    @property
    def label(self) -> str:
        """What the run's record says."""
        return Path(self.path).name if self.path else self.title

    def files(self) -> list[File]:
        """What has to be there, or be fetched."""
        return [] if self.path else [self.table, self.index]

    def vectors(self, data_dir: Path, words: Sequence[str]) -> tuple[int, Floats]:
        """How many of the words are known, and vectors (len(words) + 1, d).

        The last row is the mean of all vectors; a word that is not known has it too.
        """
        rows, mean = self._from_text(Path(self.path), words) if self.path else self._from_package(data_dir, words)
        table = np.tile(mean, (len(words) + 1, 1))
        for i, word in enumerate(words):
            if word in rows:
                table[i] = rows[word]
        return len(rows), table

    def _from_package(self, data_dir: Path, words: Sequence[str]) -> tuple[dict[str, Floats], Floats]:
        import pyarrow.parquet

        table, index = find_all(self.files(), data_dir)
        everything = np.load(table.path, mmap_mode="r", allow_pickle=False)
        names = pyarrow.parquet.read_table(index.path).column(0).to_pylist()
        if len(names) != len(everything):
            raise UserError(f"{index.path} names {len(names):,} words, and {table.path} has {len(everything):,}.")
        wanted = set(words)
        place = {name: i for i, name in enumerate(names) if name in wanted}
        rows = {word: everything[i].astype(float) for word, i in place.items()}
        return rows, np.asarray(everything.mean(axis=0, dtype=np.float64))

    def _from_text(self, path: Path, words: Sequence[str]) -> tuple[dict[str, Floats], Floats]:
        """Streamed: a file of gigabytes costs no more memory than the vocabulary."""
        wanted, rows = set(words), {}
        total, lines, dim = np.zeros(0), 0, 0
        try:
            with path.open(encoding="utf-8", newline="\n") as stream:
                for number, line in enumerate(stream, 1):
                    dim = dim or line.count(" ")  # of the first line; later words may contain spaces
                    word, vector = _parsed(line, dim)
                    if vector is None:
                        raise UserError(
                            f"{path}, line {number}: expected a word and {dim} numbers. Mend the line, or set "
                            "dataset.embedding.path to another file."
                        )
                    total = vector.copy() if lines == 0 else total + vector
                    lines += 1
                    if word in wanted:
                        rows[word] = vector
        except OSError as error:
            raise UserError(f"dataset.embedding.path={path} cannot be read ({error.strerror}).") from error
        except UnicodeDecodeError as error:
            raise UserError(f"{path} is not UTF-8 text, after line {lines}.") from error
        if not lines:
            raise UserError(f"{path} has no vectors.")
        return rows, total / lines


def _parsed(line: str, dim: int) -> tuple[str, Floats | None]:
    """A word and its vector, or None if the line has not so many finite numbers."""
    word, *cells = line.rstrip("\n").rsplit(" ", dim)
    try:
        vector = np.array(list(map(float, cells)))
    except ValueError:
        return word, None
    return word, vector if 0 < dim == len(vector) and math.isfinite(vector.sum()) else None
