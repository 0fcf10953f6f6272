"""What makes two computations the same: data, model, settings, and the code and packages that do it."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import importlib.util
import inspect
import json
import sys
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np

from cfeval_cli.types import Dataset

# What most numbers go through, whether or not a component imports it itself.
_ALWAYS = ("numpy", "scipy", "sklearn", "torch")
_DISTRIBUTION = {"sklearn": "scikit-learn", "anchor": "anchor-exp"}  # where it is not named as it is imported


def of_component(component: Any) -> str | None:
    """A hash of a component's class, settings and code, or None if its settings are not plain values."""
    settings = dataclasses.asdict(component) if dataclasses.is_dataclass(component) else vars(component)  # type: ignore[arg-type]
    try:
        told = json.dumps(settings, sort_keys=True)
    except TypeError:
        return None
    return _hash(of_code(component.__class__), told)


def of_subject(dataset: Dataset, model: Any) -> str | None:
    """A hash of what is explained: the data and the trained model, or None if the model does not show its arrays."""
    if not hasattr(model, "arrays"):
        return None
    digest = sha256(f"{dataset.fingerprint} {of_code(model.__class__)}".encode())
    for name, array in sorted(model.arrays().items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@cache
def of_code(kind: type) -> str:
    """A hash of a class's source with all that it imports from its own package and ours, and of package versions."""
    seen: dict[str, Path] = {}
    outside = {*_ALWAYS}
    ours = {"cfeval_cli", kind.__module__.partition(".")[0]}
    waiting = [kind.__module__]
    while waiting:
        name = waiting.pop()
        path = _source(name)
        if name in seen or path is None:
            continue
        seen[name] = path
        for imported in _imports(path, name):
            top = imported.partition(".")[0]
            if top in ours:
                waiting.append(imported)
            elif top not in sys.stdlib_module_names:
                outside.add(top)
    sources = [f"{name} {sha256(path.read_bytes()).hexdigest()}" for name, path in sorted(seen.items())]
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    return _hash(kind.__qualname__, python, *sources, *(f"{name} {_version(name)}" for name in sorted(outside)))


def _hash(*parts: str) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


def _source(name: str) -> Path | None:
    """The file of a module; a name imported from a module is no module and has none."""
    module = sys.modules.get(name)
    if module is not None:
        file = inspect.getsourcefile(module) if getattr(module, "__file__", None) else None
    else:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # the parent is no package
            return None
        file = found.origin if found is not None else None
    return Path(file) if file is not None and file.endswith(".py") else None


def _imports(path: Path, name: str) -> list[str]:
    """The modules that a file imports, at the top or within functions, and what it imports from them."""
    found: list[str] = []
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = node.module or ""
            if node.level:
                package = name if path.name == "__init__.py" else name.rpartition(".")[0]
                module = importlib.util.resolve_name("." * node.level + module, package)
            found += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return found


def _version(name: str) -> str:
    """Of the package that an import name belongs to; without one, nothing is known of its code but its name."""
    try:
        return importlib.metadata.version(_DISTRIBUTION.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        names = importlib.metadata.packages_distributions().get(name, [])
        return " ".join(f"{one} {importlib.metadata.version(one)}" for one in names)
