"""Models that are functions in a user's file."""

import importlib.util
import pickle
import py_compile
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from cfeval_cli.core import ModelSpec
from cfeval_cli.core.fingerprint import hash_component
from cfeval_cli.errors import Failure, UserError
from cfeval_cli.model.external import LabelModel, ProbabilityModel
from cfeval_cli.model.function import Function, load_function
from tests.model.mixed import make_mixed_table, make_sentences

DATASET = make_mixed_table()
CODES = DATASET.test.codes
SCORE = """
import numpy as np
from {helper} import weight

def table(rows):
    assert list(rows.columns) == ["colour", "age", "debt", "flag"] and rows["debt"].dtype == float
    p = 1 / (1 + np.exp(-weight * (rows["colour"] == "red") + rows["debt"] / 1000))
    return np.stack([1 - p, p], axis=1)

def positive(rows):
    return table(rows)[:, 1]

def frame(rows):
    import pandas as pd
    return pd.DataFrame(table(rows))

def labels(rows):
    return np.where(positive(rows) > 0.5, "good", "bad")

def numbers(rows):
    return (positive(rows) > 0.5).astype(int).tolist()

def words(texts):
    assert isinstance(texts, list) and all(isinstance(text, str) for text in texts)
    return [0.9 if "good" in text.split() else 0.1 for text in texts]

def raises(rows):
    if (rows["colour"] == "green").any():
        raise KeyError("green")
    return positive(rows)

constant = 3
"""


@pytest.fixture(scope="module")
def script_folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own")
    (folder / "helper_of_a_test.py").write_text("weight = 3\n")
    (folder / "score.py").write_text(SCORE.format(helper="helper_of_a_test"))
    before = list(sys.path)
    yield folder
    sys.path[:] = before


def compute_expected(codes):
    rows = DATASET.decode(codes)
    return 1 / (1 + np.exp(-3.0 * (rows["colour"] == "red") + rows["debt"] / 1000)).to_numpy()


@pytest.mark.parametrize("name", ["table", "positive", "frame"])
def test_probabilities_can_have_several_forms(script_folder, name):
    settings = Function(f"{script_folder / 'score.py'}:{name}", batch_size=7)
    assert ModelSpec.from_settings(DATASET, settings).kind is ProbabilityModel
    model = settings.fit(DATASET, 0)
    assert model.predict_proba(CODES)[:, 1] == pytest.approx(compute_expected(CODES))
    unpickled = pickle.loads(pickle.dumps(model))  # models are sent to other processes
    assert (unpickled.predict_proba(CODES) == model.predict_proba(CODES)).all()


def test_unexpected_labels_give_a_warning(script_folder, caplog):
    path = str(script_folder / "score.py")
    Function(f"{path}:labels").fit(DATASET, 0)
    (message,) = caplog.messages
    assert message.startswith(f"model.path={path}:labels returns labels. ") and "need probabilities" in message
    caplog.clear()
    Function(f"{path}:labels", gives="labels").fit(DATASET, 0)
    Function(f"{path}:positive").fit(DATASET, 0)
    assert not caplog.messages


@pytest.mark.parametrize("name", ["labels", "numbers"])
def test_labels_are_class_names_or_numbers(script_folder, name):
    settings = Function(f"{script_folder / 'score.py'}:{name}")
    assert settings.output_type(DATASET) is LabelModel
    assert (settings.fit(DATASET, 0).predict(CODES) == (compute_expected(CODES) > 0.5)).all()


def test_output_type_can_be_set(script_folder):
    assert Function(f"{script_folder / 'score.py'}:positive", gives="labels").output_type(DATASET) is LabelModel
    with pytest.raises(Failure, match=r"score.py:positive returns the class '0\."):
        Function(f"{script_folder / 'score.py'}:positive", gives="labels").fit(DATASET, 0).predict(CODES)


def test_texts_are_passed_as_a_list_of_strings(script_folder):
    data = make_sentences()
    probabilities = Function(f"{script_folder / 'score.py'}:words").fit(data, 0).predict_proba(data.test.codes)
    assert probabilities[:, 1] == pytest.approx(np.where((data.test.codes == 0).any(axis=1), 0.9, 0.1))


def test_failing_row_is_reported(script_folder):
    with pytest.raises(
        Failure,
        match=r"score.py:raises raised KeyError: 'green' for (the row \d+ \(\w+ split\)|a row with replaced values)",
    ):
        Function(f"{script_folder / 'score.py'}:raises").output_type(DATASET)


def test_fingerprint_depends_on_content_not_on_path(tmp_path):
    file, data = tmp_path / "score.py", tmp_path / "weights.txt"
    data.write_text("1")
    file.write_text("def f(rows):\n    return [0.5] * len(rows)\n")
    settings = Function(f"{file}:f", depends=[str(data)])
    fingerprints = [settings.fit(DATASET, 0).fingerprint()]
    assert fingerprints[0] == hash_component(settings) is not None
    file.write_text("def f(rows):\n    return [0.25] * len(rows)\n")
    fingerprints.append(hash_component(settings))
    data.write_text("2!")
    fingerprints.append(hash_component(settings))
    assert len(set(fingerprints)) == 3


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Return the folder of a function with direct and indirect imports that are not loaded yet."""
    files = {
        "score.py": "import first_of_a_test\ndef f(rows):\n    return [first_of_a_test.p] * len(rows)\n",
        "first_of_a_test.py": "from space_of_a_test.second import p\nimport whole_of_a_test.third, re, numpy.linalg\n"
        "from sklearn.preprocessing import StandardScaler\n",
        "space_of_a_test/second.py": "p = 0.5\n",  # a namespace package without __init__.py
        "whole_of_a_test/__init__.py": "",
        "whole_of_a_test/third.py": "x = 1\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield tmp_path
    for name in [name for name in sys.modules if name.partition(".")[0].endswith("_of_a_test")]:
        del sys.modules[name]


def test_fingerprint_depends_on_imported_modules(package):
    settings = Function(f"{package / 'score.py'}:f")
    before = hash_component(settings)
    assert before is not None
    for file in sorted(package.rglob("*.py")):
        text = file.read_text()
        file.write_text(f"{text}# changed\n")
        assert hash_component(settings) not in (before, None), file
        file.write_text(text)
        assert hash_component(settings) == before
    assert settings.fit(DATASET, 0).fingerprint() == before  # also after the modules are loaded


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("import pickle\nmodel = pickle.load(open('m.pkl', 'rb'))", "line 1, imports pickle, which can read more than"),
        ("from joblib import load", "line 1, imports joblib"),
        ("from numpy import load", "line 1, imports load"),
        ("import numpy\nw = numpy.fromfile('w.bin')", "line 2, uses fromfile"),
        ("import sys\nsys.path.insert(0, 'src')", "line 1, imports sys"),
        ("import site", "line 1, imports site"),
        ("import linecache", "line 1, imports linecache"),
        ("import lightgbm\nlightgbm.Booster(model_file=f'{1}.txt')", "line 1, imports lightgbm"),
        ("HERE = __file__", "line 1, uses __file__"),
        ("try:\n    import nonesuch\nexcept ImportError:\n    pass", "line 2, imports nonesuch, which is not found"),
        ("from space_of_a_test import nonesuch", "line 1, imports space_of_a_test, which is not found"),
        ("from datetime import datetime\nx = datetime.now()", "line 2, uses now"),
        ("import importlib", "line 1, imports importlib"),
        ("third = __import__('whole_of_a_test')", "line 1, uses __import__"),
        ("exec('x = 1')", "line 1, uses exec"),
        ("from pathlib import Path\nx = Path('w').read_text", "line 1, imports pathlib"),
        ("x = 'weights.txt'", "line 1, names the file weights.txt"),
    ],
)
def test_results_are_not_cached_if_dependencies_are_unknown(package, caplog, source, reason):
    (package / "weights.txt").write_text("1")
    (package / "score.py").write_text("import later_of_a_test\ndef f(rows):\n    return [0.5] * len(rows)\n")
    (package / "later_of_a_test.py").write_text(f"def later():\n    {source.replace(chr(10), chr(10) + '    ')}\n")
    settings = Function(f"{package / 'score.py'}:f")
    model = settings.fit(DATASET, 0)
    assert model.fingerprint() is None
    (message,) = caplog.messages
    shifted = re.sub(r"line (\d)", lambda match: f"line {int(match[1]) + 1}", reason)
    assert "results are not cached" in message and "model.depends" in message
    assert re.search(f"later_of_a_test.py, {shifted}", message)
    caplog.clear()
    declared = replace(settings, depends=[str(package / "weights.txt")])
    if "not found" in reason:  # missing code is in none of the declared files
        assert declared.fingerprint() is None
    else:
        assert hash_component(declared) is not None


def test_import_folder_can_be_declared(package):
    """The script adds the folder with `sys.path.insert(0, HERE / "src")`."""
    (package / "src").mkdir()
    (package / "src" / "apart_of_a_test.py").write_text("p = 0.25\n")
    (package / "score.py").write_text(
        "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parent / 'src'))\n"
        "import apart_of_a_test\ndef f(rows):\n    return [apart_of_a_test.p] * len(rows)\n"
    )
    path = f"{package / 'score.py'}:f"
    file = package / "src" / "apart_of_a_test.py"
    assert Function(path).fit(DATASET, 0).fingerprint() is None
    assert Function(path).fit(DATASET, 0).fingerprint() is None  # also after the folder was added to the path
    for depends in ([str(package / "src")], [str(file)]):
        settings = Function(path, depends=depends)
        before = hash_component(settings)
        file.write_text("p = 0.125\n")
        assert None is not before != hash_component(settings) is not None
        file.write_text("p = 0.25\n")
        assert hash_component(settings) == before


@pytest.mark.parametrize("changed", ["score.py", "first_of_a_test.py"])
def test_code_changed_after_loading_is_refused(package, changed):
    """All jobs of a sweep share a process and its loaded modules."""
    settings = Function(f"{package / 'score.py'}:f")
    assert settings.fit(DATASET, 0).predict_proba(CODES)[0, 1] == 0.5
    (package / changed).write_text((package / changed).read_text() + "# changed\n")
    with pytest.raises(Failure, match=r"score\.py, or a module that it imports, was changed since it was loaded"):
        settings.fit(DATASET, 0)


def test_model_can_change_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "away").mkdir()
    (tmp_path / "cd_of_a_test.py").write_text(
        "import os\nos.chdir('away')\n\n\ndef f(rows):\n    os.chdir('/')\n    return [0.5] * len(rows)\n"
    )
    monkeypatch.chdir(tmp_path)
    settings = Function("cd_of_a_test.py:f")
    assert settings.output_type(DATASET) is ProbabilityModel and Path.cwd() == tmp_path
    assert settings.fit(DATASET, 0).predict_proba(CODES)[0, 1] == 0.5 and Path.cwd() == tmp_path


def test_bytecode_beside_the_file_is_not_executed(tmp_path):
    (tmp_path / "other.py").write_text("def f(rows):\n    return [0.75] * len(rows)\n")
    file = tmp_path / "m_of_a_test.py"
    file.write_text("class Error(Exception):\n    pass\n\n\ndef f(rows):\n    return [0.25] * len(rows)\n\n\n"
                    "def g(rows):\n    raise Error\n")  # fmt: skip
    bytecode_file = importlib.util.cache_from_source(file)
    unchecked = py_compile.PycInvalidationMode.UNCHECKED_HASH
    py_compile.compile(str(tmp_path / "other.py"), bytecode_file, str(file), doraise=True, invalidation_mode=unchecked)
    bytecode = Path(bytecode_file).read_bytes()
    assert Function(f"{file}:f").fit(DATASET, 0).predict_proba(CODES)[0, 1] == 0.25
    assert Path(bytecode_file).read_bytes() == bytecode
    function = load_function(file, "g")
    with pytest.raises(sys.modules[function.__module__].Error) as error:
        function(None)
    assert (error.traceback[-1].path, error.traceback[-1].lineno + 1) == (file, 10)
    assert type(pickle.loads(pickle.dumps(error.value))) is type(error.value)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("score.py", "names no function: model.path=score.py:predict_proba names a file and a function in it"),
        ("nowhere.py:f", "there is no such file. It should be a Python file"),
        ("model.pkl:f", "is a pickle"),
        ("model.joblib", "is a pickle"),
        ("score.py:tabel", "'tabel' is not defined. Did you mean table"),
        ("score.py:constant", "'constant' is not a function"),
        ("notes.txt:f", r"notes.txt is not a .py file"),
        ("broken.py:f", r"broken.py could not be loaded: SyntaxError"),
        ("leaves.py:f", r"leaves.py, line 2 could not be loaded: SystemExit: 3"),
        ("needs.py:f", r"needs.py, line 1 could not be loaded: ModuleNotFoundError: No module named 'nonesuch'"),
    ],
)
def test_loading_errors_are_reported(script_folder, path, message):
    for name, text in {
        "notes.txt": "f", "broken.py": "def f(:\n", "leaves.py": "import sys\nsys.exit(3)\n",
        "needs.py": "import nonesuch", "model.pkl": "x", "model.joblib": "x",
    }.items():  # fmt: skip
        (script_folder / name).write_text(text)
    with pytest.raises(UserError, match=message):
        Function(str(script_folder / path)).fit(DATASET, 0)


def test_corrected_file_can_be_loaded(tmp_path):
    file = tmp_path / "mended.py"
    file.write_text("import nonesuch")
    with pytest.raises(UserError, match="nonesuch"):
        load_function(file, "f")
    file.write_text("def f(rows):\n    return 1\n")
    assert load_function(file, "f")(None) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"path": None}, "path must be given"),
        ({"path": ""}, "path must be given"),
        ({"path": "a.py:f", "gives": "scores"}, "gives must be one of auto, probabilities, labels"),
        ({"path": "a.py:f", "batch_size": 0}, "batch_size must"),
        ({"path": "a.py:f", "depends": "x"}, "depends must be a list"),
        ({"path": "a.py:f", "depends": ["nowhere.txt"]}, "depends: there is no file nowhere.txt"),
    ],
)
def test_invalid_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        Function(**settings)
