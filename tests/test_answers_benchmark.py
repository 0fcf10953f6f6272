"""benchmarks/answers.py: the answer over seeds, and beside explainers with random scores."""

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from cfeval_cli.results.validation import read_verified_record
from cfeval_cli.study.regret.sample import read_questions
from tests.scripts import load_script

ROOT = Path(__file__).parents[1]
STORED_RUN = (
    "model=tree", "n_explain=100", "+dataset.split=[0.6,0.2,0.2]", "metric=[recall]", "resamples=0",
)  # fmt: skip


answers = load_script("answers")


def test_noise_explainers_do_not_change_the_answer_of_a_run(toy, make_run):
    folder = make_run(toy, *STORED_RUN, "explainer=[random,omission,lime]")
    for question in read_questions(folder, read_verified_record(folder)):
        noisy = answers.add_noise(question, 2, 0)
        assert len(noisy.answer_again(noisy.sample).scores) == len(question.stored.scores) + 2
        changes = pd.DataFrame(answers.compare_with_noise(question)).sum()
        assert changes[["another best", "becomes conclusive", "another alternative"]].tolist() == [0, 0, 0]


@pytest.mark.slow
@pytest.mark.parametrize("n_noise", [1, 5])
def test_files_of_random_scores_do_not_change_the_answer_of_a_run(toy, make_run, tmp_path, n_noise):
    explainers = "explainer=[random,omission,lime,{}]"
    folder = make_run(toy, *STORED_RUN, "explainer=[random,omission,lime]")
    instances = pd.read_parquet(folder / "instances.parquet")["instance"]
    for number in range(n_noise):
        scores = pd.DataFrame(
            np.random.default_rng(number).normal(size=(len(instances), 4)),
            columns=["size", "shape", "colour", "weight"],
        )
        scores.insert(0, "instance", instances)
        (tmp_path / "files").mkdir(exist_ok=True)
        scores.to_csv(tmp_path / "files" / f"noise_{number}.csv", index=False)
    noisy = make_run(toy, *STORED_RUN, explainers.format("file"), f"explainer.file.path={tmp_path / 'files'}")
    first, second = (
        json.loads((path / "recommendation.json").read_text(encoding="utf-8"))["answers"] for path in (folder, noisy)
    )
    for question in ("contribution", "change"):
        assert len(second[question]["scores"]) == len(first[question]["scores"]) + n_noise
        assert second[question]["confidence_set"] == first[question]["confidence_set"]


def make_seed_table(bests, sets):
    return pd.DataFrame(
        {"data": "d", "model": "m", "question": "change", "seed": [0, 1, 2], "best": bests, "confidence set": sets}
    ).assign(conclusive=[len(names.split(", ")) == 1 for names in sets])


def test_disagreements_of_seeds_are_counted_in_pairs():
    counts = answers.count_disagreements(make_seed_table(["a", "b", "a"], ["a", "b, a", "a, b"]))
    assert counts == {
        "pairs": 3, "different": 2, "one conclusive": 1, "both conclusive": 0, "in the other set": 1,
    }  # fmt: skip
    counts = answers.count_disagreements(make_seed_table(["a", "b", "a"], ["a", "b", "a"]))
    assert (counts["different"], counts["both conclusive"]) == (2, 2)


def read_page(*parts):
    return " ".join(ROOT.joinpath(*parts).read_text(encoding="utf-8").split())


def test_statements_of_docs_are_those_of_answers_page():
    statements = re.findall(r"^- (.*)$", (ROOT / "benchmarks" / "answers.md").read_text(encoding="utf-8"), re.M)
    page = read_page("docs", "statistics.md")
    assert len(statements) == 5 and all(statement in page for statement in statements)
