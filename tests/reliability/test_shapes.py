"""Whatever the shape of the machine and the past of the run: the same metrics."""

import json

import pandas as pd
import pytest

from cfeval_cli.pipeline import explanation_job
from cfeval_cli.pipeline import run as pipeline
from cfeval_cli.pipeline.progress import Progress
from cfeval_cli.results.folder import RunFolder
from tests.inside import make_plan

TABLE = "explainer=[random,omission,lime,anchor,decision_boundary]"
N = 6
WORDS = ("k=2", "explainer.lime.n_samples=100", "explainer.decision_boundary.n_samples=50", "resamples=100",
         "bounds=0", "explainer_stability=0", "reparametrisations=0", "figures=[]", "report=false", f"n_explain={N}",
         "metric=[comprehensiveness,validity,c_soft,recall]", "truth=[contrast]",
         "executor.min_seconds=0")  # fmt: skip


def lines(path):
    """The rows of metrics.csv but those of the explainer that is one more, without ranks, which it changes."""
    table = pd.read_csv(path, dtype=str, keep_default_na=False)
    ranks = [column for column in table if column.startswith("rank")]
    return table[table["explainer"] != "lr"].drop(columns=ranks).to_csv(index=False)


@pytest.mark.parametrize("kind", ["toy", "toy_text"])
def test_metrics_are_equal(kind, request, tmp_path, monkeypatch):
    toy = request.getfixturevalue(kind)
    monkeypatch.setattr(explanation_job, "_MIN_CHUNK", 2)  # three of them, so that there is something for workers

    def run(name, *words):
        folder = tmp_path / name
        folder.mkdir()
        plan = make_plan(*toy.arguments[2:], f"search={search}", *WORDS, *words, folder=toy.folder / "conf")
        pipeline.run(plan, RunFolder(folder, []), Progress())
        return folder / "metrics.csv"

    search = "discrete" if kind == "toy" else "continuous"
    cache = ["n_jobs=1", f"cache.folder={tmp_path}/cache"]
    for name, n_cached in (("alone", 0), ("known", N)):
        record = json.loads(run(name, TABLE, *cache).with_name("run.json").read_text())
        assert {entry["n_cached"] for entry in record["explained"].values()} == {n_cached}
    alone, repeated = (tmp_path / name / "metrics.csv" for name in ("alone", "known"))
    assert alone.read_bytes() == repeated.read_bytes()
    # by workers, and with another explainer beside them
    extended = run("more", TABLE.replace("]", ",lr]"), "n_jobs=2", "cache=off")
    assert lines(extended) == lines(alone) and "lr" in extended.read_text()
