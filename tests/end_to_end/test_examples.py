"""Every example runs as described, in an empty folder."""

import json
import re
import runpy
from pathlib import Path

import pytest

from cfeval_cli import api as python

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
# quicker than a user would have it
QUICK = {
    "figures": [],
    "bounds": 0,
    "explainer_stability": 0,
    "resamples": 100,
    "cache": "off",
    "n_jobs": 1,
    "truth.shapley.budget": 300,
    "removal.marginal.draws": 20,
}


@pytest.fixture(autouse=True)
def quick(tmp_path, monkeypatch):
    """Smaller runs, in a folder of their own."""
    real = python.evaluate

    def evaluate(*arguments, settings=None, **options):
        fewer = {"explainer.lime.n_samples": 200} if "lime" in options["explainers"] else {}
        return real(*arguments, settings={**(settings or {}), **QUICK, **fewer}, **{**options, "n_explain": 30})

    monkeypatch.setattr(python, "evaluate", evaluate)
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_runs(path, capsys, tmp_path):
    runpy.run_path(str(path), run_name="__main__")
    output = capsys.readouterr().out
    assert ("report.html" in output) == (path.stem == "own_model") and "nan" not in output.lower()
    assert {"own_model": "omission", "own_metric": "probability_after_edit"}[path.stem] in output
    assert len(list(tmp_path.glob("outputs/*/*/run.json"))) == 1


def test_the_model_takes_twenty_lines():
    lines = [line for line in (EXAMPLES / "own_model.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 20


def test_the_notebook_runs_from_top_to_bottom():
    notebook = json.loads((EXAMPLES / "notebook.ipynb").read_text())
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert not any(cell.get("outputs") for cell in notebook["cells"])  # which differ from machine to machine
    names: dict[str, object] = {}
    for cell in cells:
        exec(compile(cell, "notebook", "exec"), names)
    assert "<table " in names["results"]._repr_html_() and names["figure"].get_figwidth() > 0


def test_the_page_on_python_runs(tmp_path):
    text = (EXAMPLES.parent / "docs" / "python.md").read_text()
    names: dict[str, object] = {}
    for block in re.findall(r"^```python\n(.*?)^```$", text, re.M | re.S):
        exec(compile(block, "python.md", "exec"), names)
    assert names["results"].folder.exists()


def test_every_example_is_listed():
    readme = (EXAMPLES / "README.md").read_text()
    examples = {path.name for path in EXAMPLES.iterdir() if path.suffix in (".py", ".ipynb")}
    assert examples == {name for name in examples if f"[{name}]({name})" in readme} and len(examples) == 3
