"""A function of the user's own, in a file of her own."""

from __future__ import annotations

import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from cfeval_cli.core import Codes, Dataset
from cfeval_cli.core.fingerprint import find_unknown_dependency, hash_file_code, of_component
from cfeval_cli.errors import UserError, did_you_mean, one_of, whole
from cfeval_cli.model.outside import Called, LabelModel, ProbabilityModel, Source, model_file

log = logging.getLogger("cfeval")

_WAY = "model.path=score.py:predict_proba names a file and a function in it"


@dataclass(frozen=True)
class Function(Called):
    """Where the function is; it is given a DataFrame of rows, or a list of texts."""

    path: str  # file.py:function
    gives: str = "auto"  # probabilities or labels; auto: as its answer to a few rows looks
    batch_size: int = 10_000
    depends: Sequence[str] = ()  # files that the code reads: their content is part of the cache key

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise ValueError(f"path must be given: {_WAY}")
        one_of("gives", self.gives, ("auto", "probabilities", "labels"))
        whole("batch_size", self.batch_size, 1)
        if isinstance(self.depends, str) or not all(isinstance(one, str) for one in self.depends):
            raise ValueError(f"depends must be a list of files, not {self.depends!r}")
        for one in self.depends:
            if not Path(one).exists():
                raise ValueError(f"depends: there is no file {one}")

    def fingerprint(self) -> str | None:
        """Hash the file and the modules that it imports; None if it may read more and `depends` does not name it."""
        file = self._place()[0]
        if not self.depends and find_unknown_dependency(file) is not None:
            return None
        return hash_file_code(file)

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """Return the model, which is trained already; warn if its results cannot be cached."""
        model = super().fit(dataset, seed)
        if model.source.mark is None:
            log.warning(
                "model.path=%s: results are not cached or resumed, because its dependencies are unknown (%s). Name the "
                "files that it reads: model.depends=[FILE,…]",
                self.path,
                find_unknown_dependency(self._place()[0]) or "the source cannot be analysed",
            )
        return model

    def source(self, dataset: Dataset) -> _Called:
        """The function in its file."""
        file, name = self._place()
        return _Called(dataset, f"model.path={self.path}", of_component(self), self.batch_size, file=file, name=name)

    def _place(self) -> tuple[Path, str]:
        path, colon, name = self.path.rpartition(":")
        if not colon:
            model_file(self.path, "a file and a function in it")
            raise UserError(f"model.path={self.path} names no function: {_WAY}.")
        file = model_file(path, f"a file of Python: {_WAY}")
        if file.suffix != ".py":
            raise UserError(
                f"model.path={self.path}: {file.name} is not a .py file. model=function loads Python source only, no "
                "compiled module such as .pyc or .so."
            )
        return file.absolute(), name


@dataclass(frozen=True)
class _Called(Source):
    """The function, which each process loads for itself."""

    file: Path
    name: str

    def answer(self, codes: Codes) -> Any:
        """Given rows as people know them."""
        return loaded(self.file, self.name)(self.dataset.decode(codes))


@cache
def loaded(file: Path, name: str) -> Callable[[Any], Any]:
    """The function; modules beside its file can be imported by it."""
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    key = f"cfeval_function_{sha256(str(file).encode()).hexdigest()[:16]}"
    spec = importlib.util.spec_from_file_location(key, file)
    if spec is None or spec.loader is None:
        raise UserError(f"{file} is no file of Python: {_WAY}.")
    module = sys.modules.get(key) or importlib.util.module_from_spec(spec)
    if key not in sys.modules:
        sys.modules[key] = module  # where classes of the file are looked for
        try:
            spec.loader.exec_module(module)
        except (Exception, SystemExit) as error:
            del sys.modules[key]
            own = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
            line = f", line {own[-1]}" if own else ""
            told = " ".join(f"{type(error).__name__}: {error}".split())
            raise UserError(f"{file}{line} could not be loaded: {told}") from error
    found = vars(module).get(name)
    if not callable(found):
        names = [one for one, value in vars(module).items() if callable(value) and not one.startswith("_")]
        what = "is no function" if name in vars(module) else "is not there"
        raise UserError(f"model.path={file.name}:{name}: {name!r} {what}.{did_you_mean(name, names)}")
    return found  # type: ignore[no-any-return]
