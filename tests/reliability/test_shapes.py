"""Whatever the shape of the machine and the past of the run: the same metrics."""

import itertools
import json

import pandas as pd
import pytest

from tests.conftest import cfeval

TABLE = "explainer=[random,omission,lime,anchor,decision_boundary]"
WORDS = ("k=2", "explainer.lime.n_samples=200", "explainer.decision_boundary.n_samples=50", "resamples=100",
         "bounds=20", "figures=[]", "report=false", "n_explain=40")  # fmt: skip


def lines(path):
    """The rows of metrics.csv but those of the explainer that is one more, without ranks, which it changes."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    return (
        table[table["explainer"] != "lr"].drop(columns=[c for c in table if c.startswith("rank")]).to_csv(index=False)
    )


@pytest.mark.parametrize("kind", ["toy", "toy_text"])
def test_metrics_are_equal(kind, request, tmp_path):
    toy = request.getfixturevalue(kind)
    search = "search=discrete" if kind == "toy" else "search=continuous"
    seen = set()
    ways = itertools.product((1, 2), ("cold", "warm"))
    for n_jobs, state in ways:
        words = [TABLE, *WORDS, search, f"n_jobs={n_jobs}", "executor.min_seconds=0", "cache=disk"]
        words += [f"cache.folder={tmp_path}/cache{n_jobs}", f"hydra.run.dir={tmp_path}/{n_jobs}{state}"]
        cfeval("run", *toy.arguments, *words, cwd=tmp_path)
        folder = tmp_path / f"{n_jobs}{state}"
        known = {one["known"] for one in json.loads((folder / "run.json").read_text())["explained"].values()}
        assert known == ({0} if state == "cold" else {40})
        seen.add((folder / "metrics.csv").read_bytes())
    assert len(seen) == 1
    more = TABLE.replace("]", ",lr]")
    cfeval(
        "run",
        *toy.arguments,
        more,
        *WORDS,
        search,
        "n_jobs=2",
        "cache=off",
        f"hydra.run.dir={tmp_path}/more",
        cwd=tmp_path,
    )
    assert lines(tmp_path / "more" / "metrics.csv") == lines(tmp_path / "1cold" / "metrics.csv")
    assert "lr" in (tmp_path / "more" / "metrics.csv").read_text()
