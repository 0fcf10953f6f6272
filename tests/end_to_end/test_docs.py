"""The pages on how to add something, done word for word."""

import contextlib
import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest

from cfeval_cli.report.verdict import write_verdict
from cfeval_cli.results.read import read_results
from tests import inside
from tests.conftest import FEW_METRICS, drop_overridden

PAGES = sorted((Path(__file__).parents[2] / "docs" / "add").glob("*.md"))
GROUPS = {"model", "explainer", "truth", "removal", "metric", "distance", "search"}


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory):
    """A cache that the pages share: most use the same model."""
    return tmp_path_factory.mktemp("cache")


@contextlib.contextmanager
def alone(module):
    """Other tests may have modules of the same name."""
    sys.modules.pop(module, None)
    try:
        yield
    finally:
        sys.modules.pop(module, None)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_code_and_commands_of_a_page_work(page, toy, shared_cache, tmp_path, monkeypatch):
    """On a small table in the place of Adults."""
    shutil.copytree(toy.folder / "conf", tmp_path / "conf")
    text = page.read_text()
    files = re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)```", text, re.S)
    assert [Path(name).suffix for name, _ in files] == [".py", ".yaml"]
    assert Path(files[1][0]).parent == Path("conf") / page.stem
    for name, body in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    (check,) = re.findall(r"^```python\n(from cfeval_cli.testing .*?)```$", text, re.M | re.S)
    (command,) = re.findall(r"^```sh\n(cfeval run .*)\n```$", text, re.M)
    options = ["n_jobs=1", f"cache.folder={shared_cache}", "figures=[]", "report=false", "resamples=100"]
    options += ["bounds=0", "explainer_stability=0", "reparametrisations=0", "n_explain=20"]
    words = shlex.split(command)[2:]
    components = [
        *drop_overridden([FEW_METRICS], words),
        *drop_overridden(["truth=[shapley,contrast,signed]"], words),
    ]
    assert not any(word.startswith("dataset=") for word in words)
    words += [*components, *options, *toy.arguments[2:]]
    (tmp_path / "run").mkdir()
    name = Path(files[0][0]).stem
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    with alone(name):
        exec(compile(check, page.name, "exec"), {})
        inside.run(tmp_path / "run", *words, folder=tmp_path / "conf")
    results = read_results(tmp_path / "run")
    metrics = results.statistics.metrics
    assert metrics["value"].notna().sum() > 5 and write_verdict(results.statistics, results.record).headline
    column_of_page = {
        "explainer": metrics["explainer"], "metric": metrics["metric"], "truth": metrics["variant"],
        "removal": metrics["variant"],
    }  # fmt: skip
    if page.stem in column_of_page:
        rows = metrics[column_of_page[page.stem] == name]
        assert len(rows) and rows["value"].notna().any()


def test_every_extensible_group_has_a_page():
    assert {page.stem for page in PAGES} == GROUPS
