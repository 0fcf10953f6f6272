"""What the results of some work depend on besides its data: versions and sources, to be compared between processes."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path

import cfeval_cli
from cfeval_cli.core.fingerprint import source_of, version_of

_PYTHON, _OURS = "Python", "cfeval"


def needed(modules: Iterable[str]) -> tuple[str, ...]:
    """Python, cfeval, the packages that it is made to run with, and those that some modules come from."""
    own = {name for name in modules if name not in sys.stdlib_module_names and name not in ("cfeval_cli", "__main__")}
    return (_PYTHON, _OURS, *sorted({*_required(), *own}))


def told(names: Sequence[str]) -> dict[str, str]:
    """The version of each, or where there is none a hash of its source, as this process would import it."""
    return {name: _told(name) for name in names}


@cache
def _told(name: str) -> str:
    if name == _PYTHON:
        return f"{sys.version_info.major}.{sys.version_info.minor}"
    if name == _OURS:
        return f"{cfeval_cli.__version__} (source {_digest(Path(cfeval_cli.__file__))})"  # there may be several
    if version := version_of(name):
        return version
    path = source_of(name)
    return "missing" if path is None else f"source {_digest(path)}"


def _digest(path: Path) -> str:
    """Of a module, or of all modules of a package."""
    root = path.parent
    paths = sorted(root.rglob("*.py")) if path.name == "__init__.py" else [path]
    digest = sha256()
    for name in (one.relative_to(root).as_posix() for one in paths):
        if not name.startswith("conf/"):  # where cfeval's configs are once it is installed
            digest.update(f"{name} ".encode() + (root / name).read_bytes())
    return digest.hexdigest()[:12]


@cache
def _required() -> tuple[str, ...]:
    """What is installed here of cfeval's requirements, those of the extras for running included."""
    from packaging.requirements import Requirement

    every = [Requirement(line) for line in importlib.metadata.requires(_OURS) or ()]
    ours = [one for one in every if one.name == _OURS and one.marker and one.marker.evaluate({"extra": "all"})]
    extras = ["", *(extra for one in ours for extra in one.extras)]
    names = {
        one.name
        for one in every
        if one.name != _OURS and (one.marker is None or any(one.marker.evaluate({"extra": extra}) for extra in extras))
    }
    return tuple(sorted(name for name in names if version_of(name)))
