"""The same computation has the same identity, and any change of it another."""

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


def test_settings_and_class_tell_components_apart():
    told = [Lime(), Lime(n_samples=4999), Lime(order="absolute"), Random()]
    told += [Lr(truth, name) for name, truth in TRUTHS.items()] + [Omission(REMOVALS), Omission(REMOVALS, "zero")]
    told += [Omission({**REMOVALS, "marginal": Marginal(draws=99)}), *REMOVALS.values(), *TRUTHS.values()]
    assert len({identity.hash_component(one) for one in told}) == len(told)
    assert identity.hash_component(Lime()) == identity.hash_component(Lime(n_samples=5000))


class Told(Fingerprinted):
    """What a user's own class says so that its results are found again."""

    def fingerprint(self):
        return ""


def test_settings_that_are_not_plain_values_have_no_identity():
    @dataclass(frozen=True)
    class Own(Told):
        function: object

    @Fingerprinted.register
    class Slots:
        __slots__ = ("value",)

        def fingerprint(self):
            return ""

    for odd in (Own(print), Own(threading.Lock()), Own(np.zeros(2)), Own({1, 2}), Slots()):
        assert identity.hash_component(odd) is None
    for plain in (Own(3), Own(None), Own([1, (2.5, "x")]), Own({"a": {"b": True}})):
        assert identity.hash_component(plain) is not None


def test_a_component_within_a_component_counts_with_its_class_and_settings():
    @dataclass(frozen=True)
    class Kernel(Told):
        width: float = 1.0

    class Wide(Kernel):
        pass

    @dataclass(frozen=True)
    class Outer(Told):
        kernel: object
        scale: InitVar[float] = 1.0

        def __post_init__(self, scale):
            object.__setattr__(self, "scaled", scale)

    told = [
        Outer(Kernel()),
        Outer(Wide()),
        Outer(Kernel(2.0)),
        Outer(Kernel(), 3.0),
        Outer([Kernel()]),
        Outer({"k": 1}),
    ]
    assert len({identity.hash_component(one) for one in told}) == len(told)
    assert identity.hash_component(Outer(Kernel())) == identity.hash_component(Outer(Kernel(1.0)))


def test_a_users_class_is_found_again_only_if_it_says_what_its_results_depend_on():
    @dataclass(frozen=True)
    class Mute:
        width: float = 1.0

    @dataclass(frozen=True)
    class Says(Fingerprinted):
        what: object

        def fingerprint(self):
            return self.what

    class Raises(Fingerprinted):
        def fingerprint(self):
            raise OSError("the service is away")

    assert identity.hash_component(Mute()) is None
    assert identity.hash_component(Says(Mute())) is None  # what it holds counts too
    assert identity.hash_component(Says(None)) is None  # it does not know
    assert identity.hash_component(Raises()) is None
    told = [identity.hash_component(Says(what)) for what in ("", "v1", "v2")]
    assert None not in told and len(set(told)) == 3
    assert identity.hash_component(Says("v1")) == told[1]
    assert identity.hash_component(Lime()) is not None  # cfeval's own need not say

    @dataclass(frozen=True)
    class Apart(Fingerprinted):
        setting: int
        said: object

        def fingerprint(self):
            return str(self.said)

        def __reduce__(self):
            return Apart, (self.setting, 0)

    assert identity.hash_component(Apart(1, "a")) != identity.hash_component(Apart(1, "b"))
    assert identity.hash_component(Apart(1, "a")) != identity.hash_component(Apart(2, "a"))


def test_a_file_or_folder_that_a_setting_names_counts_by_its_content(tmp_path):
    @dataclass(frozen=True)
    class Reads(Told):
        where: object

    file, folder = tmp_path / "weights.txt", tmp_path / "many"
    for where in (file, folder, "no/such/file", "x" * 10_000, "a\0b", ""):
        assert identity.hash_component(Reads(str(where))) is not None
    missing = identity.hash_component(Reads(str(file)))
    file.write_text("one")
    first = identity.hash_component(Reads(str(file)))
    assert first != missing and identity.hash_component(Reads(str(file))) == first
    assert identity.hash_component(Reads([{"deep": str(file)}])) is not None
    file.write_text("three")
    assert identity.hash_component(Reads(str(file))) not in (first, missing)
    deep = identity.hash_component(Reads([{"deep": str(file)}]))
    os.utime(file, ns=(1, 1))
    assert identity.hash_component(Reads([{"deep": str(file)}])) == deep  # when it was written does not count
    file.write_text("one")
    assert identity.hash_component(Reads(str(file))) == first == identity.hash_component(Reads(file))
    assert identity.hash_component(Reads([{"deep": str(file)}])) != deep

    (folder / "inner").mkdir(parents=True)
    seen = {identity.hash_component(Reads(str(folder)))}
    for name, text in (("a", "1"), ("a", "22"), ("inner/b", "1"), ("inner/c", "1")):
        (folder / name).write_text(text)
        told = identity.hash_component(Reads(str(folder)))
        assert told is not None and told not in seen and told == identity.hash_component(Reads(str(folder)))
        seen.add(told)
    (folder / "inner" / "c").rename(folder / "inner" / "d")
    assert identity.hash_component(Reads(str(folder))) not in seen


def test_a_folder_with_too_many_files_is_never_the_same(tmp_path, monkeypatch):
    @dataclass(frozen=True)
    class Reads(Told):
        where: str

    monkeypatch.setattr(identity, "_MAX_FOLDER_FILES", 3)
    for name in "abc":
        (tmp_path / name).touch()
    assert identity.hash_component(Reads(str(tmp_path))) is not None
    (tmp_path / "d").touch()
    assert identity.hash_component(Reads(str(tmp_path))) is None


def test_data_and_model_tell_subjects_apart():
    model = make_linear(DATASET)
    weights = model.weights.copy()
    weights[0, 0] = np.nextafter(weights[0, 0], 9)
    changed = [
        identity.hash_data_and_model(DATASET, model),
        identity.hash_data_and_model(DATASET, replace(model, bias=model.bias + 1e-12)),
        identity.hash_data_and_model(DATASET, replace(model, weights=weights)),
        identity.hash_data_and_model(make_dataset([3, 4, 2], seed=1), model),
        identity.hash_data_and_model(replace(DATASET, candidates=DATASET.candidates[::-1]), model),
        identity.hash_data_and_model(replace(DATASET, kind="text"), model),
    ]
    assert len(set(changed)) == len(changed)
    same = LinearModel(model.bias, model.weights.copy(), tuple(t.copy() for t in model.tables), model.means)
    assert identity.hash_data_and_model(make_dataset([3, 4, 2]), same) == changed[0]
    assert identity.hash_data_and_model(DATASET, object()) is None

    class Service(Told):
        version = "1"

        def fingerprint(self):
            return self.version

    one, two = Service(), Service()
    two.version = "2"
    assert identity.hash_data_and_model(DATASET, one) != identity.hash_data_and_model(DATASET, two)
    assert identity.hash_data_and_model(DATASET, one) == identity.hash_data_and_model(
        make_dataset([3, 4, 2]), Service()
    )
    two.version = None
    assert identity.hash_data_and_model(DATASET, two) is None


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A user's own package: an explainer, what it imports, what that imports, and what it does not."""
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


def code(folder):
    for name in [name for name in sys.modules if name.partition(".")[0] == "mine"]:
        del sys.modules[name]
    importlib.invalidate_caches()
    identity.hash_code.cache_clear()
    return identity.hash_code(importlib.import_module("mine.explainer").Own)


def test_code_counts_as_far_as_it_is_imported(package):
    before = code(package)
    assert code(package) == before
    (package / "apart.py").write_text("value = 2\n")
    assert code(package) == before
    files = ["mine/explainer", "mine/helper", "mine/deeper", "mine/__init__", "mine/broken", "beside", "deeper_still"]
    for name in files:
        path = package.parent / f"{name}.py"
        text = path.read_text()
        path.write_text(text + "# changed\n")
        assert code(package) != before, name
        path.write_text(text)
        assert code(package) == before


def test_compiled_modules_and_namespace_packages_of_the_user_count(package):
    compiled = package / f"fast{importlib.machinery.EXTENSION_SUFFIXES[0]}"
    (package.parent / "spacious").mkdir()
    apart = package.parent / "spacious" / "inside.py"
    (package / "deeper.py").write_text("def later():\n    from mine import fast\n    from spacious import inside\n")
    for file in (compiled, apart):
        file.write_text("x = 1\n")
    before = code(package)
    for file in (compiled, apart):
        file.write_text("x = 22\n")
        assert code(package) != before, file
        file.write_text("x = 1\n")
        assert code(package) == before


def test_imports_are_found_wherever_a_statement_may_stand(tmp_path):
    """As by a walk through all that there is in a file."""
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


def test_versions_of_packages_count_even_those_imported_within_functions(package, monkeypatch):
    before = code(package)
    real = identity.get_version
    for name in ("numpy", "sklearn"):
        monkeypatch.setattr(identity, "get_version", lambda n, name=name: "0.0.1" if n == name else real(n))
        assert code(package) != before, name
    monkeypatch.setattr(identity, "get_version", lambda n: "0.0.1" if n == "lime" else real(n))
    assert code(package) == before  # it does not use it
    identity.hash_code.cache_clear()
    changed = identity.hash_code(Lime)
    monkeypatch.setattr(identity, "get_version", real)
    identity.hash_code.cache_clear()
    assert identity.hash_code(Lime) != changed


def test_every_package_that_an_explainer_imports_has_a_version():
    for name in ("numpy", "scipy", "sklearn", "torch", "lime", "anchor", "yaml"):
        assert identity.get_version(name)[0].isdigit() or " " in identity.get_version(name), name
    assert identity.get_version("no_such_package") == ""
