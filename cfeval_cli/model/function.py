"""A prediction function of the user, in a Python file."""

from __future__ import annotations

import importlib.machinery
import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from cfeval_cli.core import Codes, Dataset, Fingerprinted
from cfeval_cli.core.fingerprint import find_unknown_dependency, hash_component, hash_file_code
from cfeval_cli.errors import Failure, UserError, check_int, check_option, did_you_mean
from cfeval_cli.model.external import LabelModel, PredictionFunction, Predictor, ProbabilityModel, find_model_file

log = logging.getLogger("cfeval")

_PATH_HELP = "model.path=score.py:predict_proba names a file and a function in it"


@dataclass(frozen=True)
class Function(PredictionFunction, Fingerprinted):
    """A prediction function, which receives a DataFrame of rows or a list of texts."""

    path: str  # file.py:function
    gives: str = "auto"  # probabilities or labels; auto: inferred from its output for a few rows
    batch_size: int = 10_000
    depends: Sequence[str] = ()  # files and folders that the code reads; their content is part of the cache key

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise ValueError(f"path must be given: {_PATH_HELP}")
        check_option("gives", self.gives, ("auto", "probabilities", "labels"))
        check_int("batch_size", self.batch_size, 1)
        if isinstance(self.depends, str) or not all(isinstance(path, str) for path in self.depends):
            raise ValueError(f"depends must be a list of files, not {self.depends!r}")
        for path in self.depends:
            if not Path(path).exists():
                raise ValueError(f"depends: there is no file {path}")

    def fingerprint(self) -> str | None:
        """Hash the file and the modules that it imports; None if it may use more than `depends` names."""
        file = self._split_path()[0]
        return hash_file_code(file, self.depends) if find_unknown_dependency(file, self.depends) is None else None

    def fit(self, dataset: Dataset, seed: int) -> LabelModel | ProbabilityModel:
        """Return the model, which is trained already; warn if its results cannot be cached."""
        model = super().fit(dataset, seed)
        if model.source.mark is None:
            log.warning(
                "model.path=%s: results are not cached or resumed, because its dependencies are unknown (%s). Name the "
                "files that it reads, and the folders that it imports from: model.depends=[FILE,FOLDER,…]",
                self.path,
                find_unknown_dependency(self._split_path()[0], self.depends) or "the source cannot be analysed",
            )
        return model

    def make_predictor(self, dataset: Dataset) -> _FilePredictor:
        """Return the function in its file."""
        file, name = self._split_path()
        mark = hash_component(self)
        code = None if mark is None else hash_file_code(file, self.depends)
        depends = tuple(str(Path(path).absolute()) for path in self.depends)
        title = f"model.path={self.path}"
        return _FilePredictor(dataset, title, mark, self.batch_size, file=file, name=name, depends=depends, code=code)

    def _split_path(self) -> tuple[Path, str]:
        """Return the file and the name of the function."""
        path, colon, name = self.path.rpartition(":")
        if not colon:
            find_model_file(self.path, "a file and a function in it")
            raise UserError(f"model.path={self.path} names no function: {_PATH_HELP}.")
        file = find_model_file(path, f"a Python file: {_PATH_HELP}")
        if file.suffix != ".py":
            raise UserError(
                f"model.path={self.path}: {file.name} is not a .py file. model=function loads Python source only, no "
                "compiled module such as .pyc or .so."
            )
        return file.absolute(), name


@dataclass(frozen=True)
class _FilePredictor(Predictor):
    """Predictions of the function, which each process loads for itself."""

    file: Path
    name: str
    depends: tuple[str, ...] = ()  # absolute paths
    code: str | None = None  # a hash of the code that is part of the cache key; None if its dependencies are unknown

    def predict_raw(self, codes: Codes) -> Any:
        """Call the function with decoded rows."""
        return load_function(self.file, self.name, self.depends, self.code)(self.dataset.decode(codes))


@cache
def load_function(
    file: Path, name: str, depends: tuple[str, ...] = (), code: str | None = None
) -> Callable[[Any], Any]:
    """Return the function, which can import modules beside its file; Failure if its code is not what was hashed."""
    module, executed_code = _load_module(file, depends)
    if code not in (None, executed_code):
        raise Failure(f"{file}, or a module that it imports, was changed since it was loaded. Start the run again.")
    function = vars(module).get(name)
    if not callable(function):
        names = [other for other, value in vars(module).items() if callable(value) and not other.startswith("_")]
        problem = "is not a function" if name in vars(module) else "is not defined"
        raise UserError(f"model.path={file.name}:{name}: {name!r} {problem}.{did_you_mean(name, names)}")
    return function  # type: ignore[no-any-return]


@cache
def _load_module(file: Path, depends: tuple[str, ...]) -> tuple[ModuleType, str]:
    """Return the module, executed once in each process, and the hash of its code at that time."""
    if str(file.parent) not in sys.path:
        sys.path.append(str(file.parent))
    key = f"cfeval_function_{sha256(str(file).encode()).hexdigest()[:16]}"
    loader = _SourceLoader(key, str(file))
    spec = importlib.util.spec_from_file_location(key, file, loader=loader)
    if spec is None:
        raise UserError(f"{file} is not a Python file: {_PATH_HELP}.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[key] = module  # pickle looks up classes of the file there
    try:
        code = hash_file_code(file, depends)
        loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[key]
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(file)]
        line = f", line {lines[-1]}" if lines else ""
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise UserError(f"{file}{line} could not be loaded: {message}") from error
    return module, code


class _SourceLoader(importlib.machinery.SourceFileLoader):
    """Load a module from its source, which is part of the cache key, and never from bytecode beside it."""

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self.get_data(self.path), self.path)
