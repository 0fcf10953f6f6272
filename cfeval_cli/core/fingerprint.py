"""Hashes of everything that results depend on: data, model, settings, code, and versions of packages."""

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
from cfeval_cli.core.model import Fingerprinted, HasArrays, Model

# Packages that most results depend on, whether or not a component imports them itself.
_BASE_PACKAGES = ("numpy", "scipy", "sklearn", "torch")
_MAX_PATH_CHARACTERS = 4096  # characters of a path
_MAX_FOLDER_FILES = 1000  # of a folder that a setting names
# Distributions with another name than the import; searching for them would take half a second.
_DISTRIBUTION_NAMES = {"sklearn": "scikit-learn", "anchor": "anchor-exp", "hydra": "hydra-core", "yaml": "PyYAML"}
# Modules that read no files or services, unless one of the names below is used. Any other may load something.
_PURE_MODULES = {
    "__future__", "abc", "array", "bisect", "cmath", "collections", "contextlib", "copy", "dataclasses", "datetime",
    "decimal", "difflib", "enum", "fractions", "functools", "heapq", "html", "itertools", "json", "logging", "math",
    "numbers", "operator", "random", "re", "statistics", "string", "textwrap", "types", "typing", "typing_extensions",
    "unicodedata", "warnings", "numpy", "pandas", "scipy", "sklearn",
}  # fmt: skip
# Names that let a file use more than its source and its imports.
_READING_NAMES = re.compile(
    r"(__(builtins|file|import|loader|path|spec)__|io|os|sys|now|today|utcnow|input|open|open_\w*|\w*memmap|from(file|regex)"
    r"|\w+from(txt|csv)|mmread|DataSource|HDFStore|ExcelFile|(un)?load\w*|read\w*|fetch\w*)$"
)
# Builtins; methods of these names, as in torch and pandas, are harmless.
_EXECUTING_NAMES = ("exec", "eval")


def hash_component(component: Any, *, hash_folders: bool = True) -> str | None:
    """Return a hash of everything that the results of a component depend on; None if something is unknown.

    A file that a setting names counts by its content. A class that is neither cfeval's nor of an installed package may
    read anything, and must declare it by `fingerprint()`. With `hash_folders=False` a folder counts by its name.
    """
    try:
        return _hash(json.dumps(_describe(component, hash_folders), sort_keys=True))
    except Exception:  # A user's class may raise anything; without a description, its results are not cached.
        return None


def _describe(value: Any, hash_folders: bool) -> Any:
    """Return plain values; for components, their code and settings."""
    if isinstance(value, bool | int | float | None):
        return value
    if isinstance(value, str | Path):
        return _describe_text(str(value), hash_folders)
    if isinstance(value, Mapping):
        return {"map": [[_describe(part, hash_folders) for part in pair] for pair in value.items()]}
    if isinstance(value, list | tuple):
        return [_describe(item, hash_folders) for item in value]
    if callable(value) or type(value).__module__ in ("builtins", "numpy"):
        raise TypeError(f"{value!r} is not a plain value")
    description = {"code": hash_code(value.__class__), "fields": _describe(vars(value), hash_folders)}
    if isinstance(value, Fingerprinted):
        fingerprint = value.fingerprint()
        if fingerprint is None:
            raise TypeError(f"{type(value).__name__} returned no fingerprint: its dependencies are unknown")
        return description | {"fingerprint": str(fingerprint)}
    if _is_user_class(value.__class__):
        raise TypeError(f"{type(value).__name__} does not declare its dependencies: derive it from Fingerprinted")
    return description


def _describe_text(text: str, hash_folders: bool) -> Any:
    """Return a text, with the content of the file or folder that it names."""
    path = Path(text)
    try:
        if not text or len(text) > _MAX_PATH_CHARACTERS or not path.exists():
            return text
        if path.is_file():
            return {"path": text, "sha256": _hash_content(path, _get_stamp(path))}
        if not hash_folders:
            return text
        files = sorted(file for file in path.rglob("*") if file.is_file())[: _MAX_FOLDER_FILES + 1]
    except (OSError, ValueError):  # not a file name
        return text
    if len(files) > _MAX_FOLDER_FILES:
        raise TypeError(f"{text} has more than {_MAX_FOLDER_FILES:,} files")
    return {
        "path": text,
        "files": [[str(file.relative_to(path)), _hash_content(file, _get_stamp(file))] for file in files],
    }


def _is_user_class(kind: type) -> bool:
    """Return whether a class belongs to the user, not to cfeval or an installed package."""
    path = find_source(kind.__module__)
    return kind.__module__.partition(".")[0] != "cfeval_cli" and (path is None or not _is_installed(path))


def hash_work(code: type, *parts: Any) -> str | None:
    """Return a hash of the code and the inputs of a computation; None if an input is unknown."""
    if None in parts:
        return None
    return _hash(json.dumps(parts, sort_keys=True), hash_code(code))


def hash_data_and_model(dataset: Dataset, model: Model) -> str | None:
    """Return a hash of the dataset and the trained model; None if the model cannot be hashed."""
    kind: Any = model.__class__
    if isinstance(model, Fingerprinted):
        fingerprint = model.fingerprint()
        return None if fingerprint is None else _hash(dataset.fingerprint, hash_code(kind), fingerprint)
    if not isinstance(model, HasArrays):
        return None
    digest = sha256(f"{dataset.fingerprint} {hash_code(kind)}".encode())
    for name, array in sorted(model.to_arrays().items()):
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()


@cache
def hash_code(kind: Any) -> str:
    """Return a hash of the source of a class and its imports; installed packages count by version."""
    return _hash(kind.__qualname__, *_list_import_closure([kind.__module__, *(b.__module__ for b in kind.__mro__)])[1])


def hash_file_code(file: Path, depends: Sequence[str] = ()) -> str:
    """Return a hash of a Python file with the modules that it imports, from its folder or from those in `depends`."""
    modules, folders = _list_file_imports(file, depends)
    return _hash(_hash_content(file, _get_stamp(file)), *_list_import_closure(modules, folders)[1])


def find_unknown_dependency(file: Path, depends: Sequence[str] = ()) -> str | None:
    """Return where a Python file, or a module that it imports, may use what is not hashed; None if nowhere.

    Files that it reads are known if `depends` names any file or folder. A module that is not found is unknown.
    """
    return _describe_unknown_dependency(file, _get_stamp(file), tuple(depends))


# Cached until the file changes (`stamp`): once executed, a file may have made other modules importable, so that the
# result would differ from that of a new process.
@cache
def _describe_unknown_dependency(file: Path, stamp: tuple[int, int], depends: tuple[str, ...]) -> str | None:
    try:
        modules, folders = _list_file_imports(file, depends)
        return _find_unknown({file.stem: file} | _list_import_closure(modules, folders)[0], folders, bool(depends))
    except (ImportError, SyntaxError, ValueError) as error:
        return f"{type(error).__name__}: {error}"


def hash_type_code(types: Sequence[str]) -> str | None:
    """Return a hash of the code of types, such as `package.module.Class`; None if a dependency is unknown."""
    modules = [_find_module(name) for name in types]
    if None in modules:
        return None
    sources, lines = _list_import_closure([name for name in modules if name])
    return _hash(*types, *lines) if _find_unknown(sources, (), is_declared=False) is None else None


def _find_module(name: str) -> str | None:
    """Return the module of a type; None if there is no such module."""
    while name and name not in sys.stdlib_module_names and find_source(name) is None:
        name = name.rpartition(".")[0]
    return name or None


def _find_unknown(sources: Mapping[str, Path], folders: tuple[str, ...], is_declared: bool) -> str | None:
    user_files = [(name, path) for name, path in sources.items() if name.partition(".")[0] != "cfeval_cli"]
    places = (_find_unknown_in_file(path, name, _get_stamp(path), folders, is_declared) for name, path in user_files)
    return next((place for place in places if place is not None), None)


def _list_file_imports(file: Path, depends: Sequence[str]) -> tuple[list[str], tuple[str, ...]]:
    """Return the modules that a file outside any package imports, and the folders where some of them may be."""
    named = [path.parent if path.suffix == ".py" else path for path in map(Path, depends)]
    folders = tuple(str(folder.absolute()) for folder in (file.parent, *named) if folder.is_dir())
    return _list_modules(file, file.stem, _get_stamp(file), folders), folders


def _list_import_closure(modules: Sequence[str], folders: tuple[str, ...] = ()) -> tuple[dict[str, Path], list[str]]:
    """Return the files of modules and of all that they import, and a line for each file, package and Python itself.

    Installed packages count by version. `folders` are searched after the module search path.
    """
    files: dict[str, Path] = {}
    outside = {*_BASE_PACKAGES}
    waiting = list(modules)
    while waiting:
        name = waiting.pop()
        if name in files or _is_standard(name):
            continue
        path = find_source(name, folders)
        if path is None:
            continue
        if name.partition(".")[0] != "cfeval_cli" and _is_installed(path):
            outside.add(name.partition(".")[0])
            continue
        files[name] = path
        # The file of a package is executed before that of a module in it.
        waiting += [
            *_list_modules(path, name, _get_stamp(path), folders),
            *([name.rpartition(".")[0]] if "." in name else []),
        ]
    sources = [f"{name} {_hash_content(path, _get_stamp(path))}" for name, path in sorted(files.items())]
    python = f"python {sys.version_info.major}.{sys.version_info.minor}"
    return files, [python, *sources, *(f"{name} {get_version(name)}" for name in sorted(outside))]


def _hash(*parts: str) -> str:
    return sha256(json.dumps(parts).encode()).hexdigest()


def find_source(name: str, folders: tuple[str, ...] = ()) -> Path | None:
    """Return the file of a module without executing it; None for names that are not modules.

    A package without a file of its own (a namespace package) has none either. `folders` are searched after
    the module search path.
    """
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None:
        spec = _find_spec(name, folders)
        file = spec.origin if spec is not None and spec.has_location else None
    return Path(file) if file is not None else None


def _find_spec(name: str, folders: tuple[str, ...]) -> importlib.machinery.ModuleSpec | None:
    """Find a module without importing its package, as `importlib.util.find_spec` would."""
    package = name.rpartition(".")[0]
    try:
        if not package:
            spec = importlib.machinery.PathFinder.find_spec(name, [*sys.path, *folders])
            return spec or importlib.util.find_spec(name)  # such as a package that is installed from its folder
        package_folders = getattr(sys.modules.get(package), "__path__", None)
        if package_folders is None and (parent := _find_spec(package, folders)) is not None:
            package_folders = parent.submodule_search_locations
        if package_folders is None:
            return None
        return importlib.machinery.PathFinder.find_spec(name, list(package_folders))
    except (ImportError, ValueError, AttributeError, TypeError):
        return None


def _is_installed(path: Path) -> bool:
    return bool({"site-packages", "dist-packages"} & set(path.parts))


def _get_stamp(path: Path) -> tuple[int, int]:
    """Return modification time and size: an argument of cached functions, so that a changed file is read again."""
    status = path.stat()
    return status.st_mtime_ns, status.st_size


@cache
def _hash_content(path: Path, stamp: tuple[int, int]) -> str:
    return sha256(path.read_bytes()).hexdigest()


@cache
def _list_distributions() -> Mapping[str, list[str]]:
    """Return the distributions of all import names; cached, because searching all installed packages is slow."""
    return importlib.metadata.packages_distributions()


@cache
def get_version(name: str) -> str:
    """Return the version of the package of an import name; empty if there is no package."""
    try:
        return importlib.metadata.version(_DISTRIBUTION_NAMES.get(name, name))
    except importlib.metadata.PackageNotFoundError:
        names = _list_distributions().get(name, [])
        return " ".join(f"{distribution} {importlib.metadata.version(distribution)}" for distribution in names)


@cache
def _list_modules(path: Path, name: str, stamp: tuple[int, int], folders: tuple[str, ...]) -> list[str]:
    """Return the modules that a file imports; cached, because each name is looked up on the disk."""
    if path.suffix != ".py":
        return []  # compiled modules count by their content
    return [module for module in dict.fromkeys(_list_imports(path, name)) if find_source(module, folders) is not None]


@cache
def _find_unknown_in_file(
    path: Path, name: str, stamp: tuple[int, int], folders: tuple[str, ...], is_declared: bool
) -> str | None:
    """Return the first place of a file where it may use what is not hashed; None if there is none.

    If what it reads is declared elsewhere, only modules that are not found count.
    """
    if path.suffix != ".py":
        return f"{path.name} is compiled"
    nodes = [node for node in ast.walk(ast.parse(path.read_bytes())) if isinstance(node, ast.expr | ast.stmt)]
    for node in sorted(nodes, key=lambda node: (node.lineno, node.col_offset)):
        reason = None
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = _list_statement_modules(node, _get_package(path, name), folders)
            reasons = [_describe_unknown_import(module, folders, is_declared) for module in modules]
            names = [] if is_declared else [alias.name.rpartition(".")[2] for alias in node.names]
            reasons += [f"imports {imported}" for imported in names if _READING_NAMES.match(imported)]
            reason = next((unknown_reason for unknown_reason in reasons if unknown_reason is not None), None)
        elif is_declared:
            continue
        elif isinstance(node, ast.Name | ast.Attribute):
            name_in_code = node.id if isinstance(node, ast.Name) else node.attr
            runs_text = isinstance(node, ast.Name) and name_in_code in _EXECUTING_NAMES
            reason = f"uses {name_in_code}" if runs_text or _READING_NAMES.match(name_in_code) else None
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            reason = f"names the file {node.value}" if _is_file_name(node.value, path.parent) else None
        if reason is not None:
            return f"{path.name}, line {node.lineno}, {reason}"
    return None


def _list_statement_modules(node: ast.Import | ast.ImportFrom, package: str, folders: tuple[str, ...]) -> list[str]:
    """Return the modules that an import statement needs."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    module = _resolve_name(node, package)
    within = [f"{module}.{alias.name}" for alias in node.names]  # of a package that may be without a file
    return within if all(find_source(module_name, folders) is not None for module_name in within) else [module]


def _describe_unknown_import(module: str, folders: tuple[str, ...], is_declared: bool) -> str | None:
    """Return why a module makes a file's dependencies unknown; None if it does not, or is searched itself."""
    top = module.partition(".")[0]
    path = find_source(module, folders)
    if path is None and not _is_standard(module):
        return f"imports {module}, which is not found"
    is_own = path is not None and not (_is_standard(module) or _is_installed(path) or top == "cfeval_cli")
    if is_declared or is_own or top in _PURE_MODULES:
        return None
    return f"imports {module}, which can read more than its arguments"


def _is_standard(module: str) -> bool:
    return module.partition(".")[0] in sys.stdlib_module_names


def _is_file_name(text: str, folder: Path) -> bool:
    """Return whether a text is the path of a file, from the current folder or from another."""
    try:
        return 0 < len(text) <= _MAX_PATH_CHARACTERS and (Path(text).is_file() or (folder / text).is_file())
    except (OSError, ValueError):
        return False


def _list_imports(path: Path, name: str) -> list[str]:
    """Return the modules that a file imports, at the top or within functions, and the names imported from them."""
    names: list[str] = []
    for node in _iterate_statements(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            module = _resolve_name(node, _get_package(path, name))
            names += [module, *(f"{module}.{alias.name}" for alias in node.names)]
    return names


def _get_package(path: Path, name: str) -> str:
    """Return the package that a module's relative imports start from."""
    return name if path.name == "__init__.py" else name.rpartition(".")[0]


def _resolve_name(node: ast.ImportFrom, package: str) -> str:
    """Return the full name of the module that names are imported from."""
    return importlib.util.resolve_name("." * node.level + (node.module or ""), package)


def _iterate_statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield all statements of a file, without the expressions in them."""
    for field in ("body", "orelse", "finalbody", "handlers", "cases"):
        for child in getattr(node, field, ()):
            yield child
            yield from _iterate_statements(child)
