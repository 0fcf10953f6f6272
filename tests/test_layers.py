"""Allowed imports between packages, and the place of the tests of each module."""

import ast
import importlib
import re
from functools import cache
from itertools import combinations
from pathlib import Path

import cfeval_cli
from cfeval_cli.cli.main import COMMANDS

ROOT = Path(cfeval_cli.__file__).parent
TESTS = Path(__file__).parent
MODULES = {
    ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(ROOT.rglob("*.py"))
}
# lowest first: a module imports from its own layer and those below
COMPONENTS = {
    "dataset", "model", "truth", "removal", "explainer", "search", "distance", "metric", "executor", "cache",
}  # fmt: skip
LAYERS = [
    {"cfeval_cli"},  # the version
    {"errors"},
    {"seeding"},
    {"core"},
    COMPONENTS,
    {"judge"},
    {"settings"},
    {"statistics"},
    {"results"},
    {"pipeline"},
    {"report"},
    {"api", "testing"},
    {"study"},
    {"cli", "__main__"},
]
PLACE = {get_package: place for place, rooms in enumerate(LAYERS) for get_package in rooms}


def get_package(module):
    """The package or root module that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "cfeval_cli"


@cache
def list_statements(path):
    """Return all statements of a file, nested ones included."""
    nodes, waiting = [], [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        nodes.append(node)
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, part, ())
    return nodes


@cache
def list_imports(path, within):
    """Return all modules of cfeval_cli that a file imports, in functions and for type checkers too."""
    modules = set()
    for node in list_statements(path):
        if isinstance(node, ast.Import):
            modules |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = within if path.name == "__init__.py" else within.rpartition(".")[0]
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # what is imported from a package is one of its modules, or a name in its own file
            for alias in node.names:
                modules.add(f"{module}.{alias.name}" if f"{module}.{alias.name}" in MODULES else module)
    return {module for module in modules if module.partition(".")[0] == "cfeval_cli"} - {within}


@cache
def collect_imports():
    """What each module imports; not when tests are collected, which every process does."""
    return {module: list_imports(path, module) for module, path in MODULES.items()}


def test_every_module_has_a_layer_and_imports_existing_modules():
    assert {get_package(module) for module in MODULES} == set(PLACE)
    assert {target for targets in collect_imports().values() for target in targets} <= set(MODULES)


def test_imports_go_downwards():
    upwards = {
        module: [target for target in sorted(targets) if PLACE[get_package(target)] > PLACE[get_package(module)]]
        for module, targets in collect_imports().items()
    }
    assert len(upwards) == len(MODULES) > 100
    assert not {module: targets for module, targets in upwards.items() if targets}, "imported from above"


def test_modules_of_types_import_each_other_and_not_the_whole():
    modules_of_core = [module for module in MODULES if module.startswith("cfeval_cli.core.")]
    assert modules_of_core and not [
        module for module in modules_of_core if "cfeval_cli.core" in collect_imports()[module]
    ]


def find_cycles(graph):
    """Return sets of nodes that reach each other."""
    reached = {}
    for start in graph:
        reachable, waiting = set(), list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in reachable:
                reachable.add(node)
                waiting += graph.get(node, ())
        reached[start] = reachable
    return {
        frozenset({start, *(end for end in reached[start] if start in reached[end])})
        for start in graph
        if start in reached[start]
    }


def test_cycles_are_detected():
    assert find_cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {frozenset("bc")}


def test_no_module_imports_itself_by_way_of_others():
    assert not find_cycles(collect_imports())


def test_packages_do_not_import_each_other_in_circles():
    graph = {place: set() for place in PLACE}
    for module, targets in collect_imports().items():
        graph[get_package(module)] |= {get_package(target) for target in targets} - {get_package(module)}
    assert not find_cycles(graph)


def test_layers_are_disjoint():
    assert not any(start & end for start, end in combinations(LAYERS, 2))


# a starting point has nothing to test but that it starts; protocols have no code
NO_TEST = {"cfeval_cli.__main__", "cfeval_cli.core.protocols"}


def list_mirrors(module):
    """The tests that should know a module: of the same room, or of the same name for one in the root."""
    path = MODULES[module].relative_to(ROOT)
    if len(path.parts) == 1:
        return [TESTS / f"test_{path.stem}.py"]
    return sorted((TESTS / path.parts[0]).rglob("test_*.py"))


@cache
def list_tested_modules(path):
    """Return the modules that a test imports; a name from `cfeval_cli.core` counts for the module that defines it."""
    modules = set(list_imports(path, f"tests.{path.stem}"))
    if "cfeval_cli.core" in modules:
        passed_on = importlib.import_module("cfeval_cli.core")
        for node in list_statements(path):
            if isinstance(node, ast.ImportFrom) and node.module == "cfeval_cli.core":
                modules |= {getattr(getattr(passed_on, alias.name, None), "__module__", "") for alias in node.names}
    return modules


@cache
def read_texts():
    return {path: path.read_text() for path in TESTS.rglob("*.py")}


def test_every_module_has_a_test_where_its_mirror_is():
    """A test imports the module or, for a command, calls it or has its name."""
    modules = sorted({module for module, path in MODULES.items() if path.name != "__init__.py"} - NO_TEST)
    assert len(modules) > 80
    assert not [problem for problem in map(describe_missing_test, modules) if problem]


def describe_missing_test(module):
    """Return which test a module lacks; empty if it has one."""
    tests = [path for path in list_mirrors(module) if path.exists()]
    if not tests:
        return f"no test for {module}"
    name = module.rpartition(".")[2]
    named = [path for path in tests if path.stem == f"test_{name}"]
    if module.startswith("cfeval_cli.cli.") and name in COMMANDS:
        called = re.compile(rf'cfeval\(\s*"{name}"')
        named += [path for path, text in read_texts().items() if called.search(text)]
    tested = {target for path in tests for target in list_tested_modules(path)}
    return "" if named or module in tested else f"no test in {tests[0].parent.relative_to(TESTS)} imports {module}"
