"""What the README tells users to do, done word for word."""

import re
import shlex
from pathlib import Path

import pandas as pd

from cfeval_cli.commands import configs
from tests.conftest import cfeval, only_run

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", README, re.S | re.M)[1]


def test_adding_an_explainer_in_one_file_and_one_yaml(adults, tmp_path):
    text = section("Add an explainer")
    files = re.findall(r"`([\w/.]+)`:\n\n```\w+\n(.*?)```", text, re.S)
    assert [Path(name).suffix for name, _ in files] == [".py", ".yaml"]
    for name, body in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(body)
    (command,) = re.findall(r"^cfeval run .*$", text, re.M)
    # with workers, which must find the file too, and a cache of its own
    more = ["n_jobs=2", "executor.min_seconds=0", f"cache.folder={tmp_path / 'cache'}", "figures=[]", "report=false"]
    cfeval(*shlex.split(command)[1:], *more, cwd=tmp_path, env={"CFEVAL_DATA": str(adults)})
    metrics = pd.read_csv(only_run(tmp_path) / "metrics.csv")
    mine = metrics[(metrics["explainer"] == Path(files[0][0]).stem) & (metrics["metric"] == "c")]
    assert len(mine) == 2 and (mine["value"] > 0).all() and (mine["coverage"] == 1).all()


def test_every_command_that_is_shown_is_one_that_hydra_composes():
    shown = re.findall(r"^cfeval run (.*?)(?:\s+#.*)?$", README, re.M)
    assert len(shown) >= 8
    for line in shown:
        arguments = [a for a in shlex.split(line) if a not in ("--multirun", "--config-dir", "my_conf")]
        if "rarest" in line or "install=bash" in line or "--help" in arguments:
            continue  # run for real above, and in test_cli.py
        # a sweep's lists are not values of a single run
        arguments = [re.sub(r"^([\w.]+=)(\w+)(,\w+)+$", r"\1\2", re.sub(r"=range\(\d+\)$", "=1", a)) for a in arguments]
        arguments = [a for a in arguments if a not in ("--cfg", "job")]  # which is tried in test_cli.py
        with configs.opened():
            configs.run(arguments)


def test_every_make_target_that_is_shown_exists():
    lines = re.findall(r"^([a-z0-9 -]+):", (ROOT / "Makefile").read_text(), re.M)
    shown = set(re.findall(r"(?:`|<code>|^)make ([a-z0-9-]+)", README, re.M))
    assert {"run", "movie", "paper", "table1"} <= shown <= {target for line in lines for target in line.split()}
