"""Run folders of another hand, as `cfeval gather` and `cfeval paper compare` meet them."""

import copy
import csv
import json
import math
import os
from pathlib import Path

import numpy as np
import pytest

from cfeval_cli.errors import UserError
from cfeval_cli.report.render.latex import render_latex
from cfeval_cli.study.paper.compare import compare
from cfeval_cli.study.run_folders import find_run_folders
from cfeval_cli.study.sweep.gather import gather
from cfeval_cli.study.sweep.runs import SETTING_PREFIX
from tests.conftest import reseal
from tests.hostile.mutations import Canary, limit_calls, list_names, mutate, parametrize_seeds
from tests.study.paper.test_compare import write_runs
from tests.study.sweep.test_gather import FILES, draw_taus, draw_values, write_run

VALUES = [
    None, True, -1, 0, 1.5, 10**18, 10**400, math.nan, math.inf, "", "x", "=cmd|' /C calc'!A0", "\x1b[2J", "\ud800",
    "a\nb", "$\\frac{",
    "\\input{/etc/passwd}", "<script>", [], {}, [[]], {"a": 1}, {"_target_": "os.mkdir", "path": "made"}, "complete",
    "none", 1 << 63,
]  # fmt: skip
HEADING = b"metric,variant,explainer,quality_level,control,value,value_se,n,better,not_identifiable\n"
FILE_NAMES = ("run.json", "metrics.csv", "correlations.csv")


def places(node, path=()):
    """Every key of a record."""
    for key, child in node.items() if isinstance(node, dict) else ():
        yield (*path, key)
        yield from places(child, (*path, key))


def change_record(record, rng):
    """A record with something else at a key, or without it, or with the key twice."""
    record = copy.deepcopy(record)
    if rng.random() < 0.1:  # only an unknown key, which does no harm
        return json.dumps(record | {"unknown": VALUES[int(rng.integers(len(VALUES)))]})
    keys = list(places(record))
    *parents, last = keys[int(rng.integers(len(keys)))]
    node = record
    for key in parents:
        node = node[key]
    if rng.random() < 0.1:
        del node[last]
    else:
        node[last] = VALUES[int(rng.integers(len(VALUES)))]
    if rng.random() < 0.1:
        node[str(VALUES[int(rng.integers(len(VALUES)))])] = VALUES[int(rng.integers(len(VALUES)))]
    text = json.dumps(record)
    return text[:-1] + ', "status": "complete"}' if rng.random() < 0.1 else text


def hostile(path, rng):
    """Change a file of a run folder, and mostly the hash too; returns what they were."""
    name = FILE_NAMES[int(rng.choice(3, p=[0.6, 0.25, 0.15]))]
    before = {file: (path / file).read_bytes() for file in {name, "run.json"}}
    if name == "run.json" and rng.random() < 0.8:
        other = change_record(json.loads(before[name]), rng).encode()
    else:
        other = mutate(before[name], rng, 3)
    (path / name).write_bytes(other)
    if name != "run.json" and rng.random() < 0.9:
        reseal(path)
    return {path / file: body for file, body in before.items()}


@pytest.fixture
def canary(tmp_path, monkeypatch):
    """Change to a folder in which configs and pickles must create nothing."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    yield tmp_path
    assert list_names(tmp_path / "here") == set()


def arm(path):
    """Return a config and a pickle that create a file when they are instantiated."""
    (path / ".hydra" / "config.yaml").write_text(
        "dataset: {_target_: os.mkdir, path: made}\nmodel: {_target_: os.mkdir, path: made}\n"
    )
    (path / ".hydra" / "hydra.yaml").write_text("hydra: {callbacks: {x: {_target_: os.mkdir, path: made}}}\n")
    (path / "config.pickle").write_bytes(Canary(Path.cwd() / "made").pickled())


@parametrize_seeds(60, 1000)
def test_damaged_run_folder_is_gathered_or_named_and_executes_nothing(canary, seeds):
    runs, into, papers = canary / "runs", canary / "into", canary / "papers"
    rng = np.random.default_rng(0)
    for i in range(3):
        write_run(runs / str(i), i, [f"seed={i}"], draw_values(rng), draw_taus(rng))
    write_runs(papers, 0)
    experiments = find_run_folders([papers])
    for path in (*find_run_folders([runs]), *experiments):
        arm(path)
    before, n_gathered, n_refused = list_names(canary), 0, 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        paper = seed % 10 == 0
        source = experiments[seed // 10 % len(experiments)] if paper else runs / str(rng.integers(0, 3))
        before_it = hostile(source, rng)
        try:
            outcome = compare([papers], into) if paper else gather([runs], into)
            n_gathered += 1
            for table in outcome.tables:
                assert "\\input" not in render_latex(table), seed
            written = {file.name for file in into.iterdir()}
            assert written == (
                {"paper.md", "paper.tex", "paper.html", "paper.csv", "claims.csv"} if paper else set(FILES)
            ), seed
        except UserError as error:
            n_refused += 1
            assert str(canary) in str(error) or "none of the folders" in str(error), (seed, error)
            assert not into.exists(), seed
        if into.exists():
            for file in into.iterdir():
                assert b"\x1b" not in file.read_bytes(), seed
                file.unlink()
            into.rmdir()
        for path, body in before_it.items():
            path.write_bytes(body)
        assert list_names(canary) == before, seed
    assert n_gathered > 0.005 * len(seeds) and n_refused > 0.2 * len(seeds)


@pytest.mark.parametrize(
    ("name", "body", "reason"),
    [
        ("run.json", b"[" * 100_000, "recursion"),
        ("run.json", b'{"a":' * 100_000, "recursion"),
        ("run.json", b"1" * 10_000, "digits"),
        ("run.json", b" " * ((1 << 26) + 1), "has more than"),
        ("metrics.csv", HEADING + b"c,label,a,,False,1,1,20,higher,\n" * 2, "two lines of the same"),
        ("metrics.csv", HEADING + b"c,label,a,,False,1,1,20,best,\n", "better is one of"),
        ("metrics.csv", HEADING + b"new,label,a,,False,1,1,20,higher,\n", "has a metric that is not in run.json"),
        ("metrics.csv", b"\xff\xfe", "utf-8"),
    ],
)  # fmt: skip
def test_invalid_folder_is_reported_early(canary, name, body, reason):
    rng = np.random.default_rng(0)
    for i in range(2):
        write_run(canary / "runs" / str(i), i, [f"seed={i}"], draw_values(rng), draw_taus(rng))
    path = canary / "runs" / "1"
    (path / name).write_bytes(body)
    if name != "run.json":
        reseal(path)
    with limit_calls(), pytest.raises(UserError, match=reason) as error:
        gather([canary / "runs"], canary / "into")
    assert str(error.value).startswith((f"{path} cannot be gathered: ", f"{path / 'run.json'} is damaged: "))
    assert len(str(error.value)) < 1000


def test_pipes_devices_and_loops_are_not_followed(canary):
    rng = np.random.default_rng(0)
    write_run(canary / "runs" / "0", 0, [], draw_values(rng), draw_taus(rng))
    (canary / "runs" / "loop").symlink_to(canary / "runs")
    (canary / "runs" / "0" / "self").symlink_to(canary / "runs" / "0" / "self")
    (canary / "runs" / "dangling").mkdir()
    (canary / "runs" / "dangling" / "run.json").symlink_to(canary / "runs" / "dangling" / "run.json")
    assert find_run_folders([canary / "runs"]) == [canary / "runs" / "0"]
    assert len(gather([canary / "runs"], canary / "into").sweep.runs) == 1
    for name in ("run.json", "metrics.csv"):
        path = canary / "runs" / "0" / name
        body = path.read_bytes()
        for make in (os.mkfifo, lambda p: p.symlink_to("/dev/zero"), lambda p: p.mkdir()):
            path.unlink()
            make(path)
            with pytest.raises(UserError, match=r"is damaged|is missing|has no run\.json"):
                gather([canary / "runs"], canary / "into")
            path.rmdir() if path.is_dir() else path.unlink()
            path.write_bytes(body)


def test_unreadable_explanations_are_named(tmp_path):
    write_runs(tmp_path, 0, keys=[("1", "adults")])
    path = find_run_folders([tmp_path])[0] / "explanations.parquet"
    body = path.read_bytes()
    for other in (b"", b"PAR1" * 20, body[:-20], body.replace(b"features", b"featurez")):
        path.write_bytes(other)
        reseal(path.parent)
        with pytest.raises(UserError, match=r"explanations\.parquet cannot be read"):
            compare([tmp_path], tmp_path / "into")


def test_foreign_settings_are_escaped_in_gathered_files(canary):
    rng = np.random.default_rng(0)
    for i, setup in enumerate(("=cmd|' /C calc'!A0", "\x1b[2J")):
        write_run(canary / "runs" / str(i), i, [f"search={setup}"], draw_values(rng), draw_taus(rng), truth=[setup])
    gather([canary / "runs"], canary / "into")
    rows = list(csv.DictReader((canary / "into" / "sweep.csv").open(encoding="utf-8")))
    assert [row["setting.search"] for row in rows] == ["'=cmd|' /C calc'!A0", "\\x1b[2J"]
    assert [row["setting.truth"] for row in rows] == ["'=cmd|' /C calc'!A0", "\\x1b[2J"]
    assert SETTING_PREFIX == "setting."  # before each key, so that no heading is one either
