"""The pages on how to add something, done word for word."""

import re
import shlex
import shutil
from pathlib import Path

import pandas as pd
import pytest

from tests.conftest import SCORED, cfeval, only_run, unless

PAGES = sorted((Path(__file__).parents[2] / "docs" / "add").glob("*.md"))
GROUPS = {"model", "explainer", "truth", "removal", "metric", "distance", "search"}


@pytest.fixture(scope="session")
def kept(tmp_path_factory):
    """A cache that the pages share: most use the same model."""
    return tmp_path_factory.mktemp("cache")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_tells_to_write_and_run_works(page, toy, kept, tmp_path):
    """On a small table in the place of Adults."""
    shutil.copytree(toy.folder / "conf", tmp_path / "conf")
    text = page.read_text()
    files = re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)```", text, re.S)
    assert [Path(name).suffix for name, _ in files] == [".py", ".yaml"]
    assert Path(files[1][0]).parent == Path("conf") / page.stem
    for name, body in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    (command,) = re.findall(r"^```sh\n(cfeval run .*)\n```$", text, re.M)
    # with workers, which must find the file too (but for a metric, of which they are not told), and one cache for all
    workers = ["n_jobs=1"] if page.stem == "metric" else ["n_jobs=2", "executor.min_seconds=0"]
    more = [*workers, f"cache.folder={kept}", "figures=[]", "report=false", "resamples=100"]
    more += ["bounds=0", "noise=0", "reparametrisations=0", "n_explain=20"]
    words = shlex.split(command)[1:]
    chosen = [
        *unless([SCORED], words),
        *unless(["truth=[signed,centered,contrast]", "gold=[centered,contrast]"], words),
    ]
    assert not any(word.startswith("dataset=") for word in words)
    done = cfeval(*words, *chosen, *more, *toy.arguments[2:], cwd=tmp_path)
    metrics = pd.read_csv(only_run(tmp_path) / "metrics.csv")
    assert metrics["value"].notna().sum() > 5 and "Verdict:" in done.stdout
    name = Path(files[0][0]).stem
    shown = {
        "explainer": metrics["explainer"], "metric": metrics["metric"], "truth": metrics["variant"],
        "removal": metrics["variant"],
    }  # fmt: skip
    if page.stem in shown:
        mine = metrics[shown[page.stem] == name]
        assert len(mine) and mine["value"].notna().any()


def test_every_group_that_one_can_add_to_has_a_page():
    assert {page.stem for page in PAGES} == GROUPS
