"""Who may import whom, and where the tests of a module are."""

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
PLACE = {room: place for place, rooms in enumerate(LAYERS) for room in rooms}


def room(module):
    """The package or root module that a module belongs to."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else "cfeval_cli"


@cache
def statements(path):
    """All statements of a file, those within others too."""
    found, waiting = [], [ast.parse(path.read_text())]
    while waiting:
        node = waiting.pop()
        found.append(node)
        for part in ("body", "orelse", "handlers", "finalbody", "cases"):
            waiting += getattr(node, part, ())
    return found


@cache
def imports(path, within):
    """All modules of cfeval_cli that a file imports: at the top, within functions, or for type checkers only."""
    found = set()
    for node in statements(path):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = within if path.name == "__init__.py" else within.rpartition(".")[0]
            base = package.rsplit(".", node.level - 1)[0] if node.level else ""
            module = ".".join(part for part in (base, node.module) if part)
            # what is imported from a package is one of its modules, or a name in its own file
            for alias in node.names:
                found.add(f"{module}.{alias.name}" if f"{module}.{alias.name}" in MODULES else module)
    return {module for module in found if module.partition(".")[0] == "cfeval_cli"} - {within}


@cache
def imported():
    """What each module imports; not when tests are collected, which every process does."""
    return {module: imports(path, module) for module, path in MODULES.items()}


def test_every_module_has_a_layer_and_what_it_imports_exists():
    assert {room(module) for module in MODULES} == set(PLACE)
    assert {target for targets in imported().values() for target in targets} <= set(MODULES)


def test_imports_go_downwards():
    upwards = {
        module: [target for target in sorted(targets) if PLACE[room(target)] > PLACE[room(module)]]
        for module, targets in imported().items()
    }
    assert len(upwards) == len(MODULES) > 100
    assert not {module: targets for module, targets in upwards.items() if targets}, "imported from above"


def test_modules_of_types_import_each_other_and_not_the_whole():
    inside = [module for module in MODULES if module.startswith("cfeval_cli.core.")]
    assert inside and not [module for module in inside if "cfeval_cli.core" in imported()[module]]


def cycles(graph):
    """Sets of nodes that reach each other."""
    reached = {}
    for start in graph:
        seen, waiting = set(), list(graph[start])
        while waiting:
            node = waiting.pop()
            if node not in seen:
                seen.add(node)
                waiting += graph.get(node, ())
        reached[start] = seen
    return {
        frozenset({one, *(two for two in reached[one] if one in reached[two])}) for one in graph if one in reached[one]
    }


def test_cycles_are_found():
    assert cycles({"a": {"b"}, "b": {"c"}, "c": {"b"}, "d": {"a"}}) == {frozenset("bc")}


def test_no_module_imports_itself_by_way_of_others():
    assert not cycles(imported())


def test_packages_do_not_import_each_other_in_circles():
    graph = {place: set() for place in PLACE}
    for module, targets in imported().items():
        graph[room(module)] |= {room(target) for target in targets} - {room(module)}
    assert not cycles(graph)


def test_layers_are_disjoint():
    assert not any(one & two for one, two in combinations(LAYERS, 2))


# a starting point has nothing to test but that it starts; protocols have no code
NO_TEST = {"cfeval_cli.__main__", "cfeval_cli.core.infrastructure"}


def mirrored(module):
    """The tests that should know a module: of the same room, or of the same name for one in the root."""
    path = MODULES[module].relative_to(ROOT)
    if len(path.parts) == 1:
        return [TESTS / f"test_{path.stem}.py"]
    return sorted((TESTS / path.parts[0]).rglob("test_*.py"))


@cache
def known_to(path):
    """The modules that a test imports; a name that `cfeval_cli.core` passes on counts for the module that has it."""
    found = set(imports(path, f"tests.{path.stem}"))
    if "cfeval_cli.core" in found:
        passed_on = importlib.import_module("cfeval_cli.core")
        for node in statements(path):
            if isinstance(node, ast.ImportFrom) and node.module == "cfeval_cli.core":
                found |= {getattr(getattr(passed_on, alias.name, None), "__module__", "") for alias in node.names}
    return found


@cache
def texts():
    return {path: path.read_text() for path in TESTS.rglob("*.py")}


def test_every_module_has_a_test_where_its_mirror_is():
    """One that imports it or, for what is tried through the command, is named after it."""
    modules = sorted({module for module, path in MODULES.items() if path.name != "__init__.py"} - NO_TEST)
    assert len(modules) > 80
    assert not [said for said in map(untested, modules) if said]


def untested(module):
    """What is wrong with the tests of a module, if anything is."""
    tests = [path for path in mirrored(module) if path.exists()]
    if not tests:
        return f"no test for {module}"
    name = module.rpartition(".")[2]
    named = [path for path in tests if path.stem == f"test_{name}"]
    if module.startswith("cfeval_cli.cli.") and name in COMMANDS:
        called = re.compile(rf'cfeval\(\s*"{name}"')
        named += [path for path, text in texts().items() if called.search(text)]
    known = {target for path in tests for target in known_to(path)}
    return "" if named or module in known else f"no test in {tests[0].parent.relative_to(TESTS)} imports {module}"
