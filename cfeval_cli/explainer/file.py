"""Explanations that were computed elsewhere, one explainer for each file of scores."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, ModelSpec, NotExplained
from cfeval_cli.errors import UserError, check_option
from cfeval_cli.explainer.scores import SUFFIXES, ScoreTable, read_scores

log = logging.getLogger("cfeval")


@dataclass(frozen=True)
class File(Explainer):
    """Scores by instance and feature, sorted from the highest to the lowest."""

    path: str | Sequence[str]  # a file, a folder of files, or a list of either
    order: str = "signed"  # or absolute: by absolute value
    invalid_lines: str = "refuse"  # invalid lines are an error; skip: they are left out with a warning

    has_known_cost = False
    portable = False
    access = Access.NOTHING

    def __post_init__(self) -> None:
        paths = [self.path] if isinstance(self.path, str) else self.path
        if not paths or not all(isinstance(path, str) and path for path in paths):
            raise ValueError("path must be given: a file such as shap.csv, a folder, or a list of them")
        check_option("order", self.order, ("signed", "absolute"))
        check_option("invalid_lines", self.invalid_lines, ("refuse", "skip"))

    @property
    def title(self) -> str:
        """The name of the file."""
        return self._file.stem

    @property
    def _file(self) -> Path:
        if not isinstance(self.path, str):
            raise TypeError("an explainer has one file. expand() has an explainer for each of several files")
        return Path(self.path).expanduser()

    def expand(self, key: str) -> dict[str, Explainer]:
        """Return an explainer for each file, by the file's name."""
        explainers: dict[str, Explainer] = {}
        for file in _list_files([self.path] if isinstance(self.path, str) else self.path):
            name = re.sub(r"[^\w-]+", "_", file.stem).lstrip("-") or key
            if name in explainers:
                raise ValueError(f"path: two files would be called {name}, the second is {file}. Rename one")
            explainers[name] = replace(self, path=str(file))
        return explainers

    def check(self, spec: ModelSpec) -> None:
        """Read the file before anything is computed."""
        self._read(spec.dataset)

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Read the file; instances without valid scores are not explained."""
        table = self._read(dataset)
        positions = {instance: row for row, instance in enumerate(table.instances.tolist())}

        def explain(batch: Batch) -> Explanation:
            row_numbers = []
            for instance, codes in zip(batch.ids.tolist(), batch.codes, strict=True):
                if instance in table.failures:
                    raise NotExplained(table.failures[instance])
                if instance not in positions:
                    raise NotExplained(f"not in {self._file.name}")
                if (~np.isnan(table.scores[positions[instance]]) & (codes == ABSENT)).any():
                    raise NotExplained(f"{self._file.name} has a score for a position behind the end of the text")
                row_numbers.append(positions[instance])
            scores = table.scores[row_numbers]
            by = np.abs(scores) if self.order == "absolute" else scores
            return Explanation.from_scores(scores, ~np.isnan(scores), by)

        return explain

    def _read(self, dataset: Dataset) -> ScoreTable:
        """Return the scores; raise ValueError if there are problems that are not to be skipped."""
        table = _read_once(self._file, dataset)
        if table.problems and self.invalid_lines == "refuse":
            raise ValueError(f"{self._file}: {'; '.join(table.problems)}. Use invalid_lines=skip to leave them out")
        return table


_TABLES: dict[tuple[Path, int, str], ScoreTable] = {}  # by file, time of its last change, and fingerprint of the data


def _read_once(file: Path, dataset: Dataset) -> ScoreTable:
    """Read a file once for a dataset, so that its problems are logged once."""
    key = (file, file.stat().st_mtime_ns, dataset.fingerprint)
    if key not in _TABLES:
        _TABLES[key] = read_scores(file, dataset)
        for problem in _TABLES[key].problems:
            log.warning("%s: %s", file.name, problem)
    return _TABLES[key]


def _list_files(paths: Sequence[str]) -> list[Path]:
    """Return the files, those of a folder sorted by name."""
    files: list[Path] = []
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            files_inside = sorted(file for file in path.iterdir() if file.suffix.lower() in SUFFIXES and file.is_file())
            if not files_inside:
                raise ValueError(f"path: the folder {text} has no file of {', '.join(SUFFIXES)}")
            files += files_inside
        elif path.is_file():
            if path.suffix.lower() not in SUFFIXES:
                raise ValueError(f"path: {text} is not one of {', '.join(SUFFIXES)}")
            files.append(path)
        else:
            raise UserError(f"explainer.file.path: there is no file or folder {text}.")
    return files
