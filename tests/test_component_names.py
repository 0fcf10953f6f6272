"""No component's name appears outside its own file, its yaml, its tests and its docs."""

import ast
from functools import cache
from pathlib import Path

import yaml

import cfeval_cli
from cfeval_cli.settings import compose
from tests.test_layers import COMPONENTS, MODULES, collect_imports, get_package

ROOT = Path(cfeval_cli.__file__).parent
GROUPS = ("metric", "truth", "explainer", "removal", "search", "distance")

# Where a component's name may stand, by the beginning of the module's name, and why.
_COLUMN = "a column of a table, or a key of a record"
_WORD = "another meaning of the word"
ALLOWED = {
    ("converged", "results"): _COLUMN,
    ("converged", "report.page.instance_browser"): _COLUMN,
    ("coverage", "results.schema"): _COLUMN,
    ("coverage", "statistics.metric_summary"): _COLUMN,
    ("exact", "core.truth"): "how a truth was computed",
    ("exact", "results"): "how a truth was computed",
    ("exact", "report"): "how a truth was computed, or a p-value",
    ("exact", "statistics.proportion"): "a method of SciPy",
    ("exact", "study.atlas.rows"): "how a truth was computed",
    ("mean", "report"): _COLUMN,
    ("mean", "statistics.seeds"): _COLUMN,
    ("mean", "study"): _COLUMN,
    ("mean", "explainer.shap"): "an argument of the shap package",
    ("file", "api"): "`attributions` of evaluate() are what this explainer reads",
    ("file", "cli"): _WORD,
    ("file", "dataset"): _COLUMN,
    ("random", "core.fingerprint"): "a module of Python",
    ("random", "settings"): "incomplete=random",
    ("random", "pipeline.explain"): "incomplete=random",
    ("random", "report.page.provenance"): "incomplete=random",
    ("constant", "core.model"): "a reparametrisation",
    ("constant", "model"): "a reparametrisation",
    ("constant", "pipeline.reparametrisation"): "a reparametrisation",
    ("continuous", "model.additive"): "a kind of column",
    ("discrete", "search.exact"): "advice to choose another search",
    ("fixed", "report.numbers"): "a format of numbers",
    ("anchor", "core.fingerprint"): "a package",
    ("lime", "results.entries"): "a package",
    ("shapley", "settings.renamed"): "what `centered` is now",
    ("graded", "settings.renamed"): "what `ladder` is now",
    ("graded", "statistics.correlation"): "a family of explainers",
    ("nearest_truth", "settings.renamed"): "what `nearest_gold` is now",
    ("shapley", "study.sweep"): "a frozen key of a random stream",
    ("c", "executor.local"): "an argument of joblib",
    ("c", "model.estimator"): "an argument of XGBoost",
    ("zero", "explainer.gradient_input"): "one of the `removals` of its yaml",
    ("mask", "explainer.gradients"): "one of the `removals` of its yaml",
    ("mean", "explainer.gradients"): "one of the `removals` of its yaml",
    ("mask", "explainer.omission"): "one of the `removals` of its yaml",
    ("marginal", "explainer.omission"): "one of the `removals` of its yaml",
}  # fmt: skip
# Components may name the metrics and truths that they are circular with, and a truth the one that it is equal to.
PAPER = ("study.paper", "report.published", "report.paper_answer")
CIRCULAR = ("explainer.", "metric.", "removal.", "truth.")


def declared(groups):
    """Yield the group, names and module of each component that has a yaml."""
    for group in groups:
        for path in (compose.get_package_folder() / group).glob("*.yaml"):
            content = yaml.safe_load(path.read_text())
            entries = {path.stem: content} if "_target_" in content else content
            for key, entry in entries.items():
                if isinstance(entry, dict) and "_target_" in entry:
                    yield group, {key, path.stem}, entry["_target_"].rpartition(".")[0]


@cache
def components():
    """The modules of the components of each name, and the names of metrics and truths."""
    modules, scores = {}, set()
    for group, names, module in declared(GROUPS):
        for name in names:
            modules.setdefault(name, set()).add(module)
        scores |= names if group in ("metric", "truth") else set()
    return modules, scores


@cache
def occurrences():
    """Return the component names that modules of other packages contain as a text, with these modules."""
    modules, scores = components()
    names = set()
    for module, path in MODULES.items():
        short = module.removeprefix("cfeval_cli.")
        for node in ast.walk(ast.parse(path.read_text())):
            name = node.value if isinstance(node, ast.Constant) else None
            if not isinstance(name, str) or module in modules.get(name, {module}):
                continue
            # The paper's printed tables have these names.
            if not (short.startswith(PAPER) or (name in scores and short.startswith(CIRCULAR))):
                names.add((name, short))
    return names


def is_allowed(name, module):
    return any(name == word and f"{module}.".startswith(f"{place}.") for word, place in ALLOWED)


def test_there_are_components_and_their_names_are_found():
    modules, scores = components()
    assert len(modules) > 60 and {"validity", "shapley"} <= scores and "lime" not in scores
    assert ("coverage", "statistics.metric_summary") in occurrences()


def test_no_component_is_named_outside_its_own_file():
    assert not sorted(pair for pair in occurrences() if not is_allowed(*pair))


def test_every_exception_is_needed():
    necessary = {(word, place) for word, place in ALLOWED if any(
        name == word and f"{module}.".startswith(f"{place}.") for name, module in occurrences()
    )}  # fmt: skip
    assert necessary == set(ALLOWED)


def test_components_import_core_and_helpers_of_their_own_package_only():
    below = {"cfeval_cli", "errors", "seeding", "core"}
    modules = [module for module in MODULES if get_package(module) in COMPONENTS]
    assert len(modules) > 60
    strange = {
        (module, target)
        for module in modules
        for target in collect_imports()[module]
        if get_package(target) not in {*below, get_package(module)}
    }
    assert not strange
    modules = {module for _, _, module in declared(COMPONENTS)}
    assert not {(module, target) for module in modules for target in collect_imports()[module] & modules}
