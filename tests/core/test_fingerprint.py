"""Equal computations have equal fingerprints, and changed ones have different fingerprints."""

import ast
import importlib
import importlib.machinery
import os
import subprocess
import sys
import threading
from dataclasses import InitVar, dataclass, replace
from pathlib import Path

import numpy as np
import pytest

from cfeval_cli.core import Fingerprinted
from cfeval_cli.core import fingerprint as identity
from cfeval_cli.explainer.lime import Lime
from cfeval_cli.explainer.lr import Lr
from cfeval_cli.explainer.omission import Omission
from cfeval_cli.explainer.random import Random
from cfeval_cli.model.linear import LinearModel
from cfeval_cli.removal.marginal import Marginal
from tests.problems import REMOVALS, TRUTHS, make_dataset, make_linear

DATASET = make_dataset([3, 4, 2])


def test_fingerprint_depends_on_class_and_settings():
    components = [Lime(), Lime(n_samples=4999), Lime(order="absolute"), Random()]
    components += [Lr(truth, name) for name, truth in TRUTHS.items()] + [Omission(REMOVALS), Omission(REMOVALS, "zero")]
    components += [Omission({**REMOVALS, "marginal": Marginal(draws=99)}), *REMOVALS.values(), *TRUTHS.values()]
    assert len({identity.hash_component(component) for component in components}) == len(components)
    assert identity.hash_component(Lime()) == identity.hash_component(Lime(n_samples=5000))


class EmptyFingerprint(Fingerprinted):
    """A user's class with a fingerprint, so that its results are cached."""

    def fingerprint(self):
        return ""


def test_settings_that_cannot_be_hashed_have_no_fingerprint():
    @dataclass(frozen=True)
    class ComponentWithValue(EmptyFingerprint):
        function: object

    @Fingerprinted.register
    class ComponentWithSlots:
        __slots__ = ("value",)

        def fingerprint(self):
            return ""

    for component in (
        ComponentWithValue(print),
        ComponentWithValue(threading.Lock()),
        ComponentWithValue(np.zeros(2)),
        ComponentWithValue({1, 2}),
        ComponentWithSlots(),
    ):
        assert identity.hash_component(component) is None
    for identifiable_component in (
        ComponentWithValue(3),
        ComponentWithValue(None),
        ComponentWithValue([1, (2.5, "x")]),
        ComponentWithValue({"a": {"b": True}}),
    ):
        assert identity.hash_component(identifiable_component) is not None


def test_fingerprint_depends_on_nested_components():
    @dataclass(frozen=True)
    class Kernel(EmptyFingerprint):
        width: float = 1.0

    class WideKernel(Kernel):
        pass

    @dataclass(frozen=True)
    class ComponentWithKernel(EmptyFingerprint):
        kernel: object
        scale: InitVar[float] = 1.0

        def __post_init__(self, scale):
            object.__setattr__(self, "scaled", scale)

    components = [
        ComponentWithKernel(Kernel()),
        ComponentWithKernel(WideKernel()),
        ComponentWithKernel(Kernel(2.0)),
        ComponentWithKernel(Kernel(), 3.0),
        ComponentWithKernel([Kernel()]),
        ComponentWithKernel({"k": 1}),
    ]
    assert len({identity.hash_component(component) for component in components}) == len(components)
    assert identity.hash_component(ComponentWithKernel(Kernel())) == identity.hash_component(
        ComponentWithKernel(Kernel(1.0))
    )


def test_user_classes_need_a_fingerprint_method():
    @dataclass(frozen=True)
    class ComponentWithoutFingerprint:
        width: float = 1.0

    @dataclass(frozen=True)
    class ComponentWithFingerprint(Fingerprinted):
        value: object

        def fingerprint(self):
            return self.value

    class ComponentWithFailingFingerprint(Fingerprinted):
        def fingerprint(self):
            raise OSError("the service is away")

    assert identity.hash_component(ComponentWithoutFingerprint()) is None
    assert (
        identity.hash_component(ComponentWithFingerprint(ComponentWithoutFingerprint())) is None
    )  # its attribute has no fingerprint
    assert identity.hash_component(ComponentWithFingerprint(None)) is None  # without a fingerprint
    assert identity.hash_component(ComponentWithFailingFingerprint()) is None
    fingerprints = [identity.hash_component(ComponentWithFingerprint(value)) for value in ("", "v1", "v2")]
    assert None not in fingerprints and len(set(fingerprints)) == 3
    assert identity.hash_component(ComponentWithFingerprint("v1")) == fingerprints[1]
    assert identity.hash_component(Lime()) is not None  # classes of cfeval need no method

    @dataclass(frozen=True)
    class ComponentWithReduction(Fingerprinted):
        setting: int
        version: object

        def fingerprint(self):
            return str(self.version)

        def __reduce__(self):
            return ComponentWithReduction, (self.setting, 0)

    assert identity.hash_component(ComponentWithReduction(1, "a")) != identity.hash_component(
        ComponentWithReduction(1, "b")
    )
    assert identity.hash_component(ComponentWithReduction(1, "a")) != identity.hash_component(
        ComponentWithReduction(2, "a")
    )


def test_fingerprint_depends_on_contents_of_files_in_settings(tmp_path):
    @dataclass(frozen=True)
    class ComponentWithFile(EmptyFingerprint):
        path: object

    file, folder = tmp_path / "weights.txt", tmp_path / "many"
    for path in (file, folder, "no/such/file", "x" * 10_000, "a\0b", ""):
        assert identity.hash_component(ComponentWithFile(str(path))) is not None
    missing = identity.hash_component(ComponentWithFile(str(file)))
    file.write_text("one")
    first = identity.hash_component(ComponentWithFile(str(file)))
    assert first != missing and identity.hash_component(ComponentWithFile(str(file))) == first
    assert identity.hash_component(ComponentWithFile([{"deep": str(file)}])) is not None
    file.write_text("three")
    assert identity.hash_component(ComponentWithFile(str(file))) not in (first, missing)
    deep = identity.hash_component(ComponentWithFile([{"deep": str(file)}]))
    os.utime(file, ns=(1, 1))
    # the time of writing does not count
    assert identity.hash_component(ComponentWithFile([{"deep": str(file)}])) == deep
    file.write_text("one")
    assert (
        identity.hash_component(ComponentWithFile(str(file)))
        == first
        == identity.hash_component(ComponentWithFile(file))
    )
    assert identity.hash_component(ComponentWithFile([{"deep": str(file)}])) != deep

    (folder / "inner").mkdir(parents=True)
    fingerprints = {identity.hash_component(ComponentWithFile(str(folder)))}
    for name, text in (("a", "1"), ("a", "22"), ("inner/b", "1"), ("inner/c", "1")):
        (folder / name).write_text(text)
        fingerprint = identity.hash_component(ComponentWithFile(str(folder)))
        assert (
            fingerprint is not None
            and fingerprint not in fingerprints
            and fingerprint == identity.hash_component(ComponentWithFile(str(folder)))
        )
        fingerprints.add(fingerprint)
    (folder / "inner" / "c").rename(folder / "inner" / "d")
    assert identity.hash_component(ComponentWithFile(str(folder))) not in fingerprints


def test_folders_with_too_many_files_have_no_fingerprint(tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class ComponentWithFolder(EmptyFingerprint):
        path: str

    monkeypatch.setattr(identity, "_MAX_FOLDER_FILES", 3)
    for name in "abc":
        (tmp_path / name).touch()
    assert identity.hash_component(ComponentWithFolder(str(tmp_path))) is not None
    (tmp_path / "d").touch()
    assert identity.hash_component(ComponentWithFolder(str(tmp_path))) is None


def test_fingerprint_depends_on_data_and_model():
    model = make_linear(DATASET)
    weights = model.weights.copy()
    weights[0, 0] = np.nextafter(weights[0, 0], 9)
    fingerprints = [
        identity.hash_data_and_model(DATASET, model),
        identity.hash_data_and_model(DATASET, replace(model, bias=model.bias + 1e-12)),
        identity.hash_data_and_model(DATASET, replace(model, weights=weights)),
        identity.hash_data_and_model(make_dataset([3, 4, 2], seed=1), model),
        identity.hash_data_and_model(replace(DATASET, candidates=DATASET.candidates[::-1]), model),
        identity.hash_data_and_model(replace(DATASET, kind="text"), model),
    ]
    assert len(set(fingerprints)) == len(fingerprints)
    equal_model = LinearModel(model.bias, model.weights.copy(), tuple(t.copy() for t in model.tables), model.means)
    assert identity.hash_data_and_model(make_dataset([3, 4, 2]), equal_model) == fingerprints[0]
    assert identity.hash_data_and_model(DATASET, object()) is None

    class VersionedModel(EmptyFingerprint):
        version = "1"

        def fingerprint(self):
            return self.version

    first, second = VersionedModel(), VersionedModel()
    second.version = "2"
    assert identity.hash_data_and_model(DATASET, first) != identity.hash_data_and_model(DATASET, second)
    assert identity.hash_data_and_model(DATASET, first) == identity.hash_data_and_model(
        make_dataset([3, 4, 2]), VersionedModel()
    )
    second.version = None
    assert identity.hash_data_and_model(DATASET, second) is None


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return the folder of a user's package: an explainer, its direct and indirect imports, and an unrelated module."""
    (tmp_path / "mine").mkdir()
    files = {
        "__init__": "",
        "explainer": "def later():\n    from . import helper\n    import beside\n    from mine.broken import x\n\n"
        "class Own:\n    pass\n",
        "broken": "raise SystemExit('never to be run')\n",
        "helper": "from mine.deeper import value\nimport numpy, json\n",
        "deeper": "value = 1\n",
        "apart": "value = 1\n",
    }
    for name, text in files.items():
        (tmp_path / "mine" / f"{name}.py").write_text(text)
    (tmp_path / "beside.py").write_text("import deeper_still\n")
    (tmp_path / "deeper_still.py").write_text("value = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path / "mine"
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]


def compute_code_fingerprint(folder):
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    identity.hash_code.cache_clear()
    return identity.hash_code(importlib.import_module("mine.explainer").Own)


def test_fingerprint_depends_on_imported_code_only(package):
    before = compute_code_fingerprint(package)
    assert compute_code_fingerprint(package) == before
    (package / "apart.py").write_text("value = 2\n")
    assert compute_code_fingerprint(package) == before
    files = ["mine/explainer", "mine/helper", "mine/deeper", "mine/__init__", "mine/broken", "beside", "deeper_still"]
    for name in files:
        path = package.parent / f"{name}.py"
        text = path.read_text()
        path.write_text(text + "# changed\n")
        assert compute_code_fingerprint(package) != before, name
        path.write_text(text)
        assert compute_code_fingerprint(package) == before


def test_fingerprint_depends_on_compiled_modules_and_namespace_packages(package):
    compiled = package / f"fast{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    (package.parent / "spacious").mkdir()
    module_in_namespace = package.parent / "spacious" / "inside.py"
    (package / "deeper.py").write_text("def later():\n    from mine import fast\n    from spacious import inside\n")
    for file in (compiled, module_in_namespace):
        file.write_text("x = 1\n")
    before = compute_code_fingerprint(package)
    for file in (compiled, module_in_namespace):
        file.write_text("x = 22\n")
        assert compute_code_fingerprint(package) != before, file
        file.write_text("x = 1\n")
        assert compute_code_fingerprint(package) == before


def test_imports_are_found_in_all_statements(tmp_path):
    """The result equals that of a walk through the syntax tree."""
    (tmp_path / "odd.py").write_text(
        "import a\nif 1: import b\nelif 2: import c\nelse: import d\n"
        "try: import e\nexcept E: import f\nelse: import g\nfinally: import h\n"
        "try: pass\nexcept* E: import i\n"
        "match 1:\n    case 1: import j\n    case _:\n        while 1: import k\n        else: import l\n"
        "class C:\n    async def f(self):\n        async with x: import m\n        async for y in z: import n.o\n"
    )
    for path in (tmp_path / "odd.py", Path(subprocess.__file__), Path(identity.__file__)):
        tree = ast.parse(path.read_bytes())
        by_walk = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        assert by_walk and by_walk <= {*identity._list_imports(path, "odd")}, path
    assert {*identity._list_imports(tmp_path / "odd.py", "odd")} == {*"abcdefghijklm", "n.o"}


def test_fingerprint_depends_on_versions_of_imported_packages(package, monkeypatch):
    before = compute_code_fingerprint(package)
    get_version = identity.get_version
    for name in ("numpy", "sklearn"):
        monkeypatch.setattr(identity, "get_version", lambda n, name=name: "0.0.1" if n == name else get_version(n))
        assert compute_code_fingerprint(package) != before, name
    monkeypatch.setattr(identity, "get_version", lambda n: "0.0.1" if n == "lime" else get_version(n))
    assert compute_code_fingerprint(package) == before  # lime is not imported
    identity.hash_code.cache_clear()
    changed = identity.hash_code(Lime)
    monkeypatch.setattr(identity, "get_version", get_version)
    identity.hash_code.cache_clear()
    assert identity.hash_code(Lime) != changed


def test_packages_of_explainers_have_a_version():
    for name in ("numpy", "scipy", "sklearn", "torch", "lime", "anchor", "yaml"):
        assert identity.get_version(name)[0].isdigit() or " " in identity.get_version(name), name
    assert identity.get_version("no_such_package") == ""
