"""Names and docstrings of the package follow the rules of language that can be checked mechanically."""

import ast
from pathlib import Path

import pytest

import cfeval_cli

ROOT = Path(cfeval_cli.__file__).parent
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
# Participles and pronouns do not say what a value is.
VAGUE_NAMES = {"told", "found", "mine", "kept", "said", "whom", "theirs", "made"}
# A function is described by what it does, in the imperative.
VAGUE_BEGINNINGS = {"The", "What", "How", "Whether"}

# Files that do not follow a rule yet: remove a file from its list when it does, and add none.
WITH_VAGUE_NAMES = {
    "api/evaluate.py",
    "api/frames.py",
    "api/load.py",
    "cache/disk.py",
    "cli/main.py",
    "cli/run.py",
    "settings/build.py",
    "settings/plan.py",
    "statistics/explainer_comparison.py",
    "statistics/recommendation.py",
}
WITH_VAGUE_DOCSTRINGS = {
    "api/frames.py",
    "api/load.py",
    "cli/screen.py",
    "core/data.py",
    "pipeline/recommend.py",
    "settings/plan.py",
    "statistics/explainer_comparison.py",
    "statistics/recommendation.py",
}


def list_names(tree):
    """Return the names of all variables, parameters, functions and classes."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.arg):
            names.add(node.arg)
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def list_public_definitions(tree):
    """Yield public functions, classes and methods; what is inside functions or private classes is not public."""
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from list_public_definitions(node)


def describe_docstring_fault(node):
    """Return what is wrong with the docstring of a public function or class, or an empty string."""
    docstring = ast.get_docstring(node)
    if not docstring:
        return f"{node.name} has no docstring"
    summary, _, rest = docstring.partition("\n")
    if rest and not rest.startswith("\n"):
        return f"{node.name}: the first sentence of its docstring does not end on its first line"
    if not isinstance(node, ast.ClassDef) and not is_property(node) and summary.split()[0] in VAGUE_BEGINNINGS:
        return f"{node.name}: its docstring begins with {summary.split()[0]!r}, which is no imperative"
    return ""


def is_property(node):
    """Return whether a function is read like an attribute, which a noun describes."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property"})


def list_faults(text):
    """Return the vague names, and the faults of docstrings, of a module."""
    tree = ast.parse(text)
    docstrings = [describe_docstring_fault(node) for node in list_public_definitions(tree)]
    return sorted(list_names(tree) & VAGUE_NAMES), [fault for fault in docstrings if fault]


@pytest.mark.parametrize("file", FILES)
def test_names_and_docstrings_follow_the_rules(file):
    names, docstrings = list_faults(FILES[file].read_text(encoding="utf-8"))
    assert not names or file in WITH_VAGUE_NAMES
    assert not docstrings or file in WITH_VAGUE_DOCSTRINGS


def test_faults_are_found():
    text = (
        'class Table:\n    """A table."""\n'
        '    def size(self):\n        """Return its size."""\n'
        '    def rows(self):\n        """The rows."""\n'
        "    def columns(self): pass\n"
        '    @property\n    def width(self):\n        """The number of columns."""\n'
        'def load(path):\n    """Load a table\n    from a file."""\n    found = [kept for kept in path]\n'
    )
    names, docstrings = list_faults(text)
    assert names == ["found", "kept"] and len(docstrings) == 3
