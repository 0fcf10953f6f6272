"""What makes two computations the same: data, model, settings, and the code and packages that do it."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cfeval_cli.types import Dataset, Fingerprinted, Model, Stored

# What most numbers go through, whether or not a component imports it itself.
_ALWAYS = ("numpy", "scipy", "sklearn", "torch")
_LONGEST = 4096  # characters of a path
_FILES = 1000  # of a folder that a setting names
# where it is not named as it is imported; to look for it would take half a second
_DISTRIBUTION = {"sklearn": "scikit-learn", "anchor": "anchor-exp", "hydra": "hydra-core", "yaml": "PyYAML"}


def of_component(component: Any) -> str | None:
    """A hash of a component's class, settings, code and whatever else its results depend on; None if not all is known.

    A file that a setting names counts by its content. A class that is neither cfeval's nor of an installed package may
    read anything, and must say so itself: by `fingerprint()`.
    """
    try:
        return _hash(json.dumps(_described(component), sort_keys=True))
    except Exception:  # whatever a user's own class may do: what cannot be described is not found again
        return None


def _described(value: Any) -> Any:
    """Plain values; of a component its code and all that it holds, other components included."""
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, str | Path):
        return _with_content(str(value))
    if isinstance(value, Mapping):
        return {"map": [[_described(key), _described(item)] for key, item in value.items()]}
    if isinstance(value, list | tuple):
        return [_described(item) for item in value]
    if callable(value) or type(value).__module__ in ("builtins", "numpy"):
        raise TypeError(f"{value!r} is not a plain value")
    told = {"code": of_code(value.__class__), "holds": _described(vars(value))}
    if isinstance(value, Fingerprinted):
        fingerprint = value.fingerprint()
        if fingerprint is None:
            raise TypeError(f"{type(value).__name__} does not know what its results depend on")
        return told | {"fingerprint": str(fingerprint)}
    if _is_users(value.__class__):
        raise TypeError(f"{type(value).__name__} does not say what its results depend on")
    return told


def _with_content(text: str) -> Any:
    """A text, and if it names a file or a folder, what is in there."""
    path = Path(text)
    try:
        if not text or len(text) > _LONGEST or not path.exists():
            return text
        if path.is_file():
            return {"path": text, "sha256": _digest(path, _stamp(path))}
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
    seen: dict[str, Path] = {}
    outside = {*_ALWAYS}
    waiting = [kind.__module__, *(base.__module__ for base in kind.__mro__)]
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] in sys.stdlib_module_names:
            continue
        path = source_of(name)
        if path is None:
            continue
        if name.partition(".")[0] != "cfeval_cli" and _installed(path):
            outside.add(name.partition(".")[0])
            continue
        seen[name] = path
        # a package's own file runs before that of a module in it
        waiting += [*_modules(path, name, _stamp(path)), *([name.rpartition(".")[0]] if "." in name else [])]
    sources = [f"{name} {_digest(path, _stamp(path))}" for name, path in sorted(seen.items())]
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    return _hash(kind.__qualname__, python, *sources, *(f"{name} {version_of(name)}" for name in sorted(outside)))


def _hash(*parts: str) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


def source_of(name: str) -> Path | None:
    """The file of a module, found without running anything; a name imported from a module has none."""
    loaded = sys.modules.get(name)
    file = getattr(loaded, "__file__", None)
    if file is None and "." not in name:
        try:
            found = importlib.machinery.PathFinder.find_spec(name)
        except (ImportError, ValueError):
            found = None
        file = found.origin if found is not None else None
    if file is None and "." in name:
        package, _, last = name.rpartition(".")
        parent = source_of(package)
        if parent is None or parent.name != "__init__.py":
            return None
        tried = (parent.parent / f"{last}.py", parent.parent / last / "__init__.py")
        file = next((str(path) for path in tried if path.exists()), None)
    return Path(file) if file is not None and file.endswith(".py") else None


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
def _modules(path: Path, name: str, stamp: tuple[int, int]) -> list[str]:
    """What a file imports, without the names that are no modules: most are not, and each costs a look at the disk."""
    return [one for one in dict.fromkeys(_imports(path, name)) if source_of(one) is not None]


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
