"""What makes two computations the same: data, model, settings, and the code and packages that do it."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cfeval_cli.core.data import Dataset
from cfeval_cli.core.model import Fingerprinted, Model, Stored

# What most numbers go through, whether or not a component imports it itself.
_ALWAYS = ("numpy", "scipy", "sklearn", "torch")
_LONGEST = 4096  # characters of a path
_FILES = 1000  # of a folder that a setting names
# where it is not named as it is imported; to look for it would take half a second
_DISTRIBUTION = {"sklearn": "scikit-learn", "anchor": "anchor-exp", "hydra": "hydra-core", "yaml": "PyYAML"}
# Names by which Python code loads code or data that its own source does not contain.
_READS = re.compile(
    r"(open|__import__|import_module|run_path|run_module|urlopen|fromfile|genfromtxt|environ|getenv|memmap"
    r"|from_pretrained|InferenceSession|CDLL|(un)?load\w*|read\w*|open_\w*)$"
)
_RUNS_TEXT = ("exec", "eval")  # as builtins; methods of these names, such as those of torch and pandas, are harmless
_REACH_OUTSIDE = {
    "ctypes", "cffi", "ftplib", "http", "httpx", "importlib", "pkgutil", "requests", "runpy", "shelve", "socket",
    "sqlite3", "subprocess", "urllib",
}  # fmt: skip


def of_component(component: Any, *, hash_folders: bool = True) -> str | None:
    """A hash of a component's class, settings, code and whatever else its results depend on; None if not all is known.

    A file that a setting names counts by its content. A class that is neither cfeval's nor of an installed package may
    read anything, and must say so itself: by `fingerprint()`. With `hash_folders=False` a folder counts by its name.
    """
    try:
        return _hash(json.dumps(_described(component, hash_folders), sort_keys=True))
    except Exception:  # whatever a user's own class may do: what cannot be described is not found again
        return None


def _described(value: Any, hash_folders: bool) -> Any:
    """Plain values; of a component its code and all that it holds, other components included."""
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, str | Path):
        return _with_content(str(value), hash_folders)
    if isinstance(value, Mapping):
        return {"map": [[_described(one, hash_folders) for one in pair] for pair in value.items()]}
    if isinstance(value, list | tuple):
        return [_described(item, hash_folders) for item in value]
    if callable(value) or type(value).__module__ in ("builtins", "numpy"):
        raise TypeError(f"{value!r} is not a plain value")
    told = {"code": of_code(value.__class__), "holds": _described(vars(value), hash_folders)}
    if isinstance(value, Fingerprinted):
        fingerprint = value.fingerprint()
        if fingerprint is None:
            raise TypeError(f"{type(value).__name__} does not know what its results depend on")
        return told | {"fingerprint": str(fingerprint)}
    if _is_users(value.__class__):
        raise TypeError(f"{type(value).__name__} does not say what its results depend on")
    return told


def _with_content(text: str, hash_folders: bool) -> Any:
    """A text, and if it names a file or a folder, what is in there."""
    path = Path(text)
    try:
        if not text or len(text) > _LONGEST or not path.exists():
            return text
        if path.is_file():
            return {"path": text, "sha256": _digest(path, _stamp(path))}
        if not hash_folders:
            return text
        files = sorted(one for one in path.rglob("*") if one.is_file())[: _FILES + 1]
    except (OSError, ValueError):  # no name of a file at all
        return text
    if len(files) > _FILES:
        raise TypeError(f"{text} has more files than can be compared")
    return {"path": text, "files": [[str(one.relative_to(path)), _digest(one, _stamp(one))] for one in files]}


def _is_users(kind: type) -> bool:
    """Whether a class is a user's own, neither cfeval's nor of an installed package."""
    path = source_of(kind.__module__)
    return kind.__module__.partition(".")[0] != "cfeval_cli" and (path is None or not _installed(path))


def of_work(code: type, *parts: Any) -> str | None:
    """A hash of all that some work depends on, the code that does it included; None if a part is not known."""
    if None in parts:
        return None
    return _hash(json.dumps(parts, sort_keys=True), of_code(code))


def of_subject(dataset: Dataset, model: Model) -> str | None:
    """A hash of what is explained: the data and the trained model, or None if the model does not say what it is."""
    kind: Any = model.__class__
    if isinstance(model, Fingerprinted):
        fingerprint = model.fingerprint()
        return None if fingerprint is None else _hash(dataset.fingerprint, of_code(kind), fingerprint)
    if not isinstance(model, Stored):
        return None
    digest = sha256(f"{dataset.fingerprint} {of_code(kind)}".encode())
    for name, array in sorted(model.arrays().items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@cache
def of_code(kind: Any) -> str:
    """A hash of a class's source with all that it imports but installed packages, of which the versions count."""
    return _hash(kind.__qualname__, *_import_closure([kind.__module__, *(b.__module__ for b in kind.__mro__)])[1])


def hash_file_code(file: Path) -> str:
    """Hash a Python file with the modules that it imports; modules beside the file can be imported by it."""
    return _hash(_digest(file, _stamp(file)), *_import_closure(*_imports_of_file(file))[1])


def find_unknown_dependency(file: Path) -> str | None:
    """Return where a Python file, or a module that it imports, may read something else; None if nowhere."""
    sources = _import_closure(*_imports_of_file(file))[0]
    own = [path for name, path in sorted(sources.items()) if name.partition(".")[0] != "cfeval_cli"]
    return next((found for path in [file, *own] if (found := _read_elsewhere(path, _stamp(path))) is not None), None)


def _imports_of_file(file: Path) -> tuple[list[str], tuple[str, ...]]:
    """Return the modules that a file outside any package imports, and the folder where some of them may be."""
    beside = (str(file.parent),)
    return _modules(file, file.stem, _stamp(file), beside), beside


def _import_closure(modules: Sequence[str], beside: tuple[str, ...] = ()) -> tuple[dict[str, Path], list[str]]:
    """Return the files of modules and of all that they import, and a line for each file, package and Python itself.

    Installed packages count by version. `beside` are further folders to import from.
    """
    seen: dict[str, Path] = {}
    outside = {*_ALWAYS}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] in sys.stdlib_module_names:
            continue
        path = source_of(name, beside)
        if path is None:
            continue
        if name.partition(".")[0] != "cfeval_cli" and _installed(path):
            outside.add(name.partition(".")[0])
            continue
        seen[name] = path
        # a package's own file runs before that of a module in it
        waiting += [*_modules(path, name, _stamp(path), beside), *([name.rpartition(".")[0]] if "." in name else [])]
    sources = [f"{name} {_digest(path, _stamp(path))}" for name, path in sorted(seen.items())]
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    return seen, [python, *sources, *(f"{name} {version_of(name)}" for name in sorted(outside))]


def _hash(*parts: str) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


def source_of(name: str, beside: tuple[str, ...] = ()) -> Path | None:
    """The file of a module, found without running anything; a name imported from a module has none.

    A package without a file of its own (a namespace package) has none either. `beside` are further folders to look in.
    """
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        spec = _find_spec(name, beside)
        file = spec.origin if spec is not None and spec.has_location else None
    return Path(file) if file is not None else None


def _find_spec(name: str, beside: tuple[str, ...]) -> importlib.machinery.ModuleSpec | None:
    """Find a module without importing its package, as `importlib.util.find_spec` would."""
    package = name.rpartition(".")[0]
    try:
        if not package:
            found = importlib.machinery.PathFinder.find_spec(name, [*sys.path, *beside])
            return found or importlib.util.find_spec(name)  # such as a package that is installed from its folder
        folders = getattr(sys.modules.get(package), "__path__", None)
        if folders is None and (parent := _find_spec(package, beside)) is not None:
            folders = parent.submodule_search_locations
        return importlib.machinery.PathFinder.find_spec(name, list(folders)) if folders is not None else None
    except (ImportError, ValueError, AttributeError, TypeError):
        return None


def _installed(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(path.parts))


def _stamp(path: Path) -> tuple[int, int]:
    """By which a file that was changed is noticed."""
    told = path.stat()
    return told.st_mtime_ns, told.st_size


@cache
def _digest(path: Path, stamp: tuple[int, int]) -> str:
    return sha256(path.read_bytes()).hexdigest()


@cache
def _distributions() -> Mapping[str, list[str]]:
    """The distributions that an import name comes from; looking through all that are installed takes a while."""
    return importlib.metadata.packages_distributions()


@cache
def version_of(name: str) -> str:
    """Of the package that an import name belongs to; without one, nothing is known of its code but its name."""
    try:
        return importlib.metadata.version(_DISTRIBUTION.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        names = _distributions().get(name, [])
        return " ".join(f"{one} {importlib.metadata.version(one)}" for one in names)


@cache
def _modules(path: Path, name: str, stamp: tuple[int, int], beside: tuple[str, ...]) -> list[str]:
    """What a file imports, without the names that are no modules: most are not, and each costs a look at the disk."""
    if path.suffix != ".py":
        return []  # a compiled module, of which the content counts
    return [one for one in dict.fromkeys(_imports(path, name)) if source_of(one, beside) is not None]


@cache
def _read_elsewhere(path: Path, stamp: tuple[int, int]) -> str | None:
    """Return the first place of a file where it may read what is not in its source; None if there is none."""
    if path.suffix != ".py":
        return f"{path.name} is compiled"
    nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.expr | ast.stmt)]
    for node in sorted(nodes, key=lambda one: (one.lineno, one.col_offset)):
        reason = None
        if isinstance(node, ast.Name | ast.Attribute):
            name = node.id if isinstance(node, ast.Name) else node.attr
            runs_text = isinstance(node, ast.Name) and name in _RUNS_TEXT
            reason = f"uses {name}" if runs_text or _READS.match(name) else None
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [one.name for one in node.names] + ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            reason = next((f"imports {one}" for one in names if _READS.match(one.rpartition(".")[2])
                           or one.partition(".")[0] in _REACH_OUTSIDE), None)  # fmt: skip
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            reason = f"names the file {node.value}" if _names_file(node.value, path.parent) else None
        if reason is not None:
            return f"{path.name}, line {node.lineno}, {reason}"
    return None


def _names_file(text: str, folder: Path) -> bool:
    """Return whether a text is the path of a file, from the current folder or from another."""
    try:
        return 0 < len(text) <= _LONGEST and (Path(text).is_file() or (folder / text).is_file())
    except (OSError, ValueError):
        return False


def _imports(path: Path, name: str) -> list[str]:
    """The modules that a file imports, at the top or within functions, and what it imports from them."""
    found: list[str] = []
    for node in _statements(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                package = name if path.name == "__init__.py" else name.rpartition(".")[0]
                module = importlib.util.resolve_name("." * node.level + module, package)
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return found


def _statements(node: ast.AST) -> Iterator[ast.AST]:
    """All that are in a file, however deep; not the expressions in them, which are most of it."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for one in getattr(node, field, ()):
            yield one
            yield from _statements(one)
