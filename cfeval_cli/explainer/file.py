"""Explanations that were made elsewhere and lie in files: one explainer a file."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path

import numpy as np

from cfeval_cli.core import ABSENT, Access, Batch, Dataset, Explainer, Explanation, ModelClient, ModelSpec, NotExplained
from cfeval_cli.errors import UserError, check_option
from cfeval_cli.explainer.scores import KINDS, Told, read

log = logging.getLogger("cfeval")


@dataclass(frozen=True)
class File(Explainer):
    """Scores by instance and feature, the highest first."""

    path: str | Sequence[str]  # a file, a folder of them, or a list of either
    order: str = "signed"  # or absolute: by size, whatever the sign
    bad: str = "refuse"  # what cannot be read; skip: it is left out, and told

    portable = False
    access = Access.NOTHING

    def __post_init__(self) -> None:
        if not self.path or not all(isinstance(one, str) for one in ([self.path] if self._one else self.path)):
            raise ValueError("path must be given: a file such as shap.csv, a folder, or a list of them")
        check_option("order", self.order, ("signed", "absolute"))
        check_option("bad", self.bad, ("refuse", "skip"))

    @property
    def _one(self) -> bool:
        return isinstance(self.path, str)

    @property
    def title(self) -> str:
        """The name of the file."""
        return self._file.stem

    @property
    def _file(self) -> Path:
        if not isinstance(self.path, str):
            raise TypeError("several files stand for several explainers")
        return Path(self.path).expanduser()

    def members(self, key: str) -> dict[str, Explainer]:
        """One for each file, by the file's name."""
        made: dict[str, Explainer] = {}
        for file in _files([self.path] if isinstance(self.path, str) else self.path):
            name = re.sub(r"[^\w-]+", "_", file.stem).lstrip("-") or key
            if name in made:
                raise ValueError(f"path: two files would be called {name}, the second is {file}. Rename one")
            made[name] = replace(self, path=str(file))
        return made

    def check(self, spec: ModelSpec) -> None:
        """Read all of it before anything is computed."""
        self._told(spec.dataset)

    def fit(self, dataset: Dataset, model: ModelClient) -> Callable[[Batch], Explanation]:
        """Read it; an instance that it does not tell of, or not rightly, is not explained."""
        told = self._told(dataset)
        place = {instance: row for row, instance in enumerate(told.instances.tolist())}

        def explain(batch: Batch) -> Explanation:
            rows = []
            for instance, codes in zip(batch.ids.tolist(), batch.codes, strict=True):
                if instance in told.faults:
                    raise NotExplained(told.faults[instance])
                if instance not in place:
                    raise NotExplained(f"not in {self._file.name}")
                if (~np.isnan(told.scores[place[instance]]) & (codes == ABSENT)).any():
                    raise NotExplained(f"{self._file.name} names a position behind the end of the text")
                rows.append(place[instance])
            scores = told.scores[rows]
            by = np.abs(scores) if self.order == "absolute" else scores
            return Explanation.from_scores(scores, ~np.isnan(scores), by)

        return explain

    def _told(self, dataset: Dataset) -> Told:
        """What the file says, if it may be believed."""
        told = _read(self._file, self._file.stat().st_mtime_ns, _Key(dataset))
        if told.problems and self.bad == "refuse":
            raise ValueError(f"{self._file}: {'; '.join(told.problems)}. With bad=skip that is left out")
        return told


@dataclass(frozen=True)
class _Key:
    """A dataset by what it is, so that a file is read once for it."""

    dataset: Dataset = field(compare=False)
    mark: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "mark", self.dataset.fingerprint)


@cache
def _read(file: Path, stamp: int, key: _Key) -> Told:
    told = read(file, key.dataset)
    for problem in told.problems:
        log.warning("%s: %s", file.name, problem)
    return told


def _files(paths: Sequence[str]) -> list[Path]:
    """The files, those of a folder in the order of their names."""
    found: list[Path] = []
    for text in paths:
        path = Path(text).expanduser()
        if path.is_dir():
            inside = sorted(one for one in path.iterdir() if one.suffix.lower() in KINDS and one.is_file())
            if not inside:
                raise ValueError(f"path: the folder {text} has no file of {', '.join(KINDS)}")
            found += inside
        elif path.is_file():
            if path.suffix.lower() not in KINDS:
                raise ValueError(f"path: {text} is none of {', '.join(KINDS)}")
            found.append(path)
        else:
            raise UserError(f"explainer.file.path: there is no file or folder {text}.")
    return found
