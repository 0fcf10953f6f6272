"""`make paper` from end to end on a small sample."""

import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[3]


def make(target, folder, *settings):
    if not (ROOT / ".venv" / "bin" / "cfeval").exists():
        pytest.skip("make uses .venv, which is not there")
    small = "n_explain=40 model.max_epochs=3 explainer.lime.n_samples=200 n_jobs=1 cache=off"
    command = ["make", target, f"PAPER={folder}", f"ARGS={small}", *settings]
    data = {"CFEVAL_DATA": os.environ.get("CFEVAL_DATA", str(ROOT / "data"))}
    process = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={**os.environ, **data}, timeout=1500, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr
    return process.stdout


@pytest.mark.slow
def test_make_paper_writes_everything_and_computes_nothing_twice(tmp_path, adults):
    folder = tmp_path / "paper"
    output = make("paper", folder, "SEEDS=0,1", "TRUTHS=signed,contrast")
    assert output.count("Results:") == 12 and "computed before" not in output
    runs = folder / "runs"
    assert sorted(p.name for p in runs.iterdir() if p.is_dir()) == ["table1_adults", "table1_movie_reviews", "table3"]
    names = ["claims.csv", "paper.csv", "paper.html", "paper.md", "paper.tex"]
    assert sorted(p.name for p in folder.iterdir() if p.is_file()) == names
    before = {name: (folder / name).read_bytes() for name in names}
    stamps = {path: path.stat().st_mtime_ns for path in runs.glob("*/*/metrics.csv")}
    assert len(stamps) == 12
    output = make("paper", folder, "SEEDS=0,1", "TRUTHS=signed,contrast")
    assert output.count("computed before, with the same inputs") == 12
    assert stamps == {path: path.stat().st_mtime_ns for path in stamps}
    assert before == {name: (folder / name).read_bytes() for name in names}
    cells = pd.read_csv(folder / "paper.csv")
    lines = cells[(cells["table"].astype(str) == "3") & (cells["metric"] == "dfr") & (cells["truth"] == "signed")]
    values = [pd.read_csv(runs / "table3" / f"signed-{seed}" / "metrics.csv") for seed in (0, 1)]
    for line in lines[lines["coefficient"].isna()].itertuples():
        values_by_seed = [
            v[(v["metric"] == "dfr") & (v["explainer"] == line.explainer)]["value"].item() for v in values
        ]
        assert line.cfeval == pytest.approx(sum(values_by_seed) / 2) and line.seeds == 2
    # one table alone, from stored runs
    output = make("table3", folder, "SEEDS=0,1")
    tables = (folder / "table3" / "paper.md").read_text().partition("**What the paper claims")[0]
    assert output.count("computed before") == 2 and "Table 3, Adults" in tables and "Table 1" not in tables
