"""Names and docstrings follow the rules of language that can be checked mechanically."""

import ast
import tomllib
from collections import Counter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "cfeval_cli"
FILES = {
    path.relative_to(ROOT).as_posix(): path
    for folder in ("cfeval_cli", "tests", "benchmarks", "docs/site", "examples")
    for path in sorted((ROOT / folder).rglob("*.py"))
}
# language.toml has the lists of words.
RULES = tomllib.loads(Path(__file__).with_name("language.toml").read_text(encoding="utf-8"))
PACKAGE_FILES = [file for file in FILES if file.startswith("cfeval_cli/")]

# Participles, pronouns and adverbs do not say what a value is.
VAGUE_NAMES = set(RULES["vague_names"])
# A function is described by what it does, in the imperative.
VAGUE_BEGINNINGS = {"The", "What", "How", "Whether"}

# The first word of a function's name: add verbs as they are needed.
VERBS = set(RULES["verbs"])
# A predicate answers yes or no.
PREDICATES = set(RULES["predicates"])
# Constructors (from_lists), changed copies (with_max_draws), conversions (to_dict), hooks (on_run_start), commands
# (main) and mathematical functions.
OTHER_BEGINNINGS = {"from", "with", "to", "on", "main", "logit", "logits", "sigmoid", "softmax"}
# Words that a report or message is made of, and declarations of components.
NOUN_ENDINGS = ("_note", "_notes", "_reason", "_lines", "_hint")
DECLARATIONS = {"circular_with", "output_type", "top_k", "short_name", "formatException", "bins"}


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


def list_vague_names(tree):
    return sorted({name for name in list_names(tree) if name.strip("_").lower() in VAGUE_NAMES})


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
    summary, _, remaining_text = docstring.partition("\n")
    if remaining_text and not remaining_text.startswith("\n"):
        return f"{node.name}: the first sentence of its docstring does not end on its first line"
    if not isinstance(node, ast.ClassDef) and not is_property(node) and summary.split()[0] in VAGUE_BEGINNINGS:
        return f"{node.name}: its docstring begins with {summary.split()[0]!r}, which is no imperative"
    return ""


def list_docstring_faults(tree):
    faults = [describe_docstring_fault(node) for node in list_public_definitions(tree)]
    return [fault for fault in faults if fault]


def is_property(node):
    """Return whether a function is read like an attribute, which a noun describes."""
    names = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
    return bool(names & {"property", "cached_property", "setter"})


def is_verb_phrase(name):
    """Return whether the name of a function begins with a verb."""
    if name.startswith("__") or name in DECLARATIONS or name.endswith(NOUN_ENDINGS):
        return True
    return name.strip("_").split("_")[0] in VERBS | PREDICATES | OTHER_BEGINNINGS


def list_nouns_as_functions(tree):
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    return [node.name for node in functions if not is_property(node) and not is_verb_phrase(node.name)]


def list_classes(tree):
    return [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]


def parse(file):
    return ast.parse(FILES[file].read_text(encoding="utf-8"))


@pytest.mark.parametrize("file", FILES)
def test_no_name_is_vague(file):
    assert not list_vague_names(parse(file))


@pytest.mark.parametrize("file", PACKAGE_FILES)
def test_public_definitions_have_a_docstring_in_the_imperative(file):
    assert not list_docstring_faults(parse(file))


@pytest.mark.parametrize("file", PACKAGE_FILES)
def test_functions_are_verb_phrases(file):
    assert not list_nouns_as_functions(parse(file))


def test_class_names_are_unique():
    counts = Counter(name for file in FILES for name in list_classes(parse(file)))
    assert not [name for name, count in counts.items() if count > 1]


def test_faults_are_detected():
    tree = ast.parse(
        'class Table:\n    """A table."""\n'
        '    def get_size(self):\n        """Return its size."""\n'
        '    def rows(self):\n        """The rows."""\n'
        "    def _columns(self): pass\n"
        '    @property\n    def width(self):\n        """The number of columns."""\n'
        'def load(path):\n    """Load a table\n    from a file."""\n    found = [_kept for _kept in path]\n'
        "def to_dict(): pass\n"
    )
    assert list_vague_names(tree) == ["_kept", "found"]
    assert list_docstring_faults(tree) == [
        "rows: its docstring begins with 'The', which is no imperative",
        "load: the first sentence of its docstring does not end on its first line",
        "to_dict has no docstring",
    ]
    assert list_nouns_as_functions(tree) == ["rows", "_columns"]
    assert list_classes(tree) == ["Table"]
