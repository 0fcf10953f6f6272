"""Small runs, made in this process, for pages to be made from."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from hydra import compose, initialize_config_module

from cfeval_cli import config
from cfeval_cli.commands.run import _report
from cfeval_cli.folder.write import RunFolder
from cfeval_cli.run import pipeline
from cfeval_cli.run.progress import Progress

QUICK = ["cache=off", "n_jobs=1", "figures=[]", "report=false", "bounds=0", "n_explain=40", "resamples=100"]


@pytest.fixture(scope="session")
def made(tmp_path_factory):
    """Makes a run of a toy dataset, the same one only once; give it a copy to change it."""
    known: dict[tuple[str, ...], Path] = {}

    def make(toy, *overrides: str, copy: bool = False) -> Path:
        key = (*toy.arguments, *overrides)
        if key not in known:
            folder = tmp_path_factory.mktemp("run")
            paths = f"hydra.searchpath=[file://{toy.folder / 'conf'}]"
            with initialize_config_module("cfeval_cli.conf", version_base="1.3"):
                cfg = compose("run", [paths, *toy.arguments[2:], *QUICK, *overrides])
            plan, run = config.plan(cfg), RunFolder(folder, ["cfeval", "run", *overrides])
            pipeline.run(plan, run, Progress())
            _report(run, plan)
            run.finish()
            known[key] = folder
        if not copy:
            return known[key]
        changed = tmp_path_factory.mktemp("copy") / "run"
        shutil.copytree(known[key], changed)
        return changed

    return make


def text_of(html: str) -> str:
    """What a page says, without its markup, its scripts and its pictures."""
    html = re.sub(r"<(script|style|svg)\b.*?</\1>", " ", html, flags=re.S)
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", html))
