"""Result files of one run folder: each is written whole or not at all, and listed with its sha256."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import reduce
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from cfeval_cli.core.files import format_csv, hash_file, make_subfolder, write_atomically
from cfeval_cli.core.scratch import Scratch
from cfeval_cli.errors import Failure


class ResultFiles:
    """Writes the files of a folder and keeps their sha256 by name."""

    def __init__(self, path: Path, scratch: Scratch, hashes: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.hashes = dict(hashes or {})
        self._scratch = scratch  # holds the arrays that tables are built from

    @contextlib.contextmanager
    def replace(self, name: str) -> Iterator[Path]:
        """Yield a temporary path whose file takes the place of the named one at the end."""
        try:
            if "/" in name:  # the run's own folder is not made again if it was removed
                make_subfolder(self.path, str(Path(name).parent))
            with write_atomically(self.path / name) as partial:
                yield partial
        except FileNotFoundError as error:
            if self.path.is_dir():
                raise
            raise Failure(f"{self.path} was removed during the run.") from error

    def write(self, name: str, write: Callable[[Path], object]) -> None:
        """Write a file with a function that takes its path."""
        with self.replace(name) as partial:
            write(partial)
            self.hashes[name] = hash_file(partial)

    def write_bytes(self, name: str, content: bytes) -> None:
        """Write bytes."""
        self.write(name, lambda path: path.write_bytes(content))

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write plain values as JSON."""
        self.write_bytes(name, format_json(content).encode("utf-8"))

    def write_arrays(self, name: str, arrays: Mapping[str, Any]) -> None:
        """Write arrays in NumPy's npz format."""

        def save(path: Path) -> None:
            with path.open("wb") as stream:  # a stream keeps NumPy from adding .npz to the temporary name
                np.savez(stream, **arrays)

        self.write(name, save)

    def write_frame(self, name: str, frame: pd.DataFrame) -> None:
        """Write a table, in the format of the file's suffix."""
        if name.endswith(".csv"):
            self.write_bytes(name, format_csv(frame).encode("utf-8"))
        else:
            self.write(name, lambda path: frame.to_parquet(path, index=False))

    def write_row_groups(self, name: str, builders: Sequence[Callable[[], pd.DataFrame]]) -> None:
        """Write a table with some rows from each builder; only one row group is in memory.

        Several groups are built twice: the type of a column, such as of empty lists only, is known when all were built.
        """
        import pyarrow as pa

        if len(builders) == 1:
            self.write_frame(name, builders[0]())
            self._scratch.release()
            return
        schemas = (pa.Schema.from_pandas(frame, preserve_index=False) for frame in self._build(builders))
        schema = reduce(lambda first, second: pa.unify_schemas([first, second], promote_options="permissive"), schemas)
        groups = (pa.Table.from_pandas(frame, schema=schema, preserve_index=False) for frame in self._build(builders))
        self.write(name, lambda path: _write_arrow_tables(path, groups))

    def write_arrow_groups(self, name: str, groups: Iterable[Mapping[str, Any]]) -> None:
        """Write a table in row groups, each given by its columns; all have the same types."""
        import pyarrow as pa

        def build_tables() -> Iterator[Any]:
            for columns in groups:
                yield pa.table(dict(columns))
                self._scratch.release()

        self.write(name, lambda path: _write_arrow_tables(path, build_tables()))

    def _build(self, builders: Iterable[Callable[[], pd.DataFrame]]) -> Iterator[pd.DataFrame]:
        """Yield one row group after the other; the memory of what it was built from is released."""
        for build in builders:
            yield build()
            self._scratch.release()


def _write_arrow_tables(path: Path, tables: Iterator[Any]) -> None:
    import pyarrow.parquet as pq

    first = next(tables)
    with pq.ParquetWriter(path, first.schema) as writer:
        for table in chain([first], tables):
            writer.write_table(table)


def format_json(content: Mapping[str, Any]) -> str:
    """Return plain values as the JSON of a run folder."""
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"
