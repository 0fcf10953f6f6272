"""Whatever the shape of the machine and the past of the run: the same metrics."""

import json

import pandas as pd
import pytest

from cfeval_cli.folder.write import RunFolder
from cfeval_cli.run import pipeline
from cfeval_cli.run.progress import Progress
from tests.inside import planned

TABLE = "explainer=[random,omission,lime,anchor,decision_boundary]"
WORDS = ("k=2", "explainer.lime.n_samples=100", "explainer.decision_boundary.n_samples=50", "resamples=100",
         "bounds=5", "noise=4", "reparametrisations=1", "figures=[]", "report=false", "n_explain=12",
         "executor.min_seconds=0")  # fmt: skip


def lines(path):
    """The rows of metrics.csv but those of the explainer that is one more, without ranks, which it changes."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    ranks = [column for column in table if column.startswith("rank")]
    return table[table["explainer"] != "lr"].drop(columns=ranks).to_csv(index=False)


@pytest.mark.parametrize("kind", ["toy", "toy_text"])
def test_metrics_are_equal(kind, request, tmp_path):
    toy = request.getfixturevalue(kind)

    def run(name, *words):
        folder = tmp_path / name
        folder.mkdir()
        plan = planned(*toy.arguments[2:], f"search={search}", *WORDS, *words, folder=toy.folder / "conf")
        pipeline.run(plan, RunFolder(folder, []), Progress())
        return folder / "metrics.csv"

    search, seen = "discrete" if kind == "toy" else "continuous", set()
    for n_jobs in (1, 2):
        for state in ("cold", "warm"):
            cache = [f"n_jobs={n_jobs}", f"cache.folder={tmp_path}/cache{n_jobs}"]
            metrics = run(f"{n_jobs}{state}", TABLE, *cache)
            record = json.loads(metrics.with_name("run.json").read_text())
            known = {one["known"] for one in record["explained"].values()}
            assert known == ({0} if state == "cold" else {12})
            seen.add(metrics.read_bytes())
    assert len(seen) == 1
    more = run("more", TABLE.replace("]", ",lr]"), "n_jobs=1", "cache=off")
    assert lines(more) == lines(tmp_path / "1cold" / "metrics.csv") and "lr" in more.read_text()
