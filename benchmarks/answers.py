"""How stable the answer about the best explainer is: over seeds, and beside explainers with random scores.

Reads stored runs (`make judges`) and answers again from their reference attributions and rankings.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd

from cfeval_cli.results.record import RunRecord
from cfeval_cli.results.validation import read_verified_record
from cfeval_cli.statistics.recommendation import Answer, ExplainerFacts
from cfeval_cli.study.regret.sample import StoredQuestion, read_questions
from cfeval_cli.study.run_folders import find_run_folders

FOLDER = Path(__file__).parent
MAX_NOISE = 5
N_DRAWS = 5  # of each number of noise explainers
FEW_INSTANCES = 30  # for which more answers are inconclusive


@dataclass(frozen=True)
class AnsweredRun:
    """One question of a stored run."""

    record: RunRecord
    question: StoredQuestion

    @property
    def key(self) -> tuple[str, str, str]:
        """The data set, the model and the question."""
        model = self.record.model.name.removeprefix("Estimator (").removesuffix(")")
        return self.record.data.name, model, self.question.question


def read_runs(folders: Sequence[Path]) -> list[AnsweredRun]:
    """Return the questions of all complete runs, sorted."""
    records = {path: read_verified_record(path) for path in find_run_folders(folders)}
    runs = [
        AnsweredRun(record, question)
        for path, record in records.items()
        if record.status == "complete"
        for question in read_questions(path, record)
    ]
    return sorted(runs, key=lambda run: (run.question.question != "contribution", run.key, run.record.settings.seed))


def add_noise(question: StoredQuestion, n_noise: int, seed: int) -> StoredQuestion:
    """Return the question with explainers that rank the features at random, and are cheap and stable."""
    rng, sample = np.random.default_rng([n_noise, seed]), question.sample
    names = [f"noise_{i}" for i in range(n_noise)]
    ranks = {name: rng.random(sample.importance.shape).argsort(axis=1).argsort(axis=1) for name in names}
    facts = {name: ExplainerFacts(name, evaluations=1.0, stability=1.0) for name in names}
    recommendation = question.recommendation
    return replace(
        question,
        sample=replace(sample, ranks={**sample.ranks, **ranks}),
        recommendation=replace(recommendation, explainers={**recommendation.explainers, **facts}),
    )


def compare_with_noise(question: StoredQuestion) -> list[dict[str, bool]]:
    """Return what changes with one to five noise explainers."""
    stored, changes = question.answer_again(question.sample), []
    for n_noise in range(1, MAX_NOISE + 1):
        for seed in range(N_DRAWS):
            noisy = add_noise(question, n_noise, seed)
            answer = noisy.answer_again(noisy.sample)
            changes.append(
                {
                    "another best": answer.best != stored.best,
                    "becomes conclusive": answer.is_conclusive and not stored.is_conclusive,
                    "becomes inconclusive": stored.is_conclusive and not answer.is_conclusive,
                    "another set": set(answer.confidence_set) != set(stored.confidence_set),
                    "another alternative": get_alternative(answer) != get_alternative(stored),
                }
            )
    return changes


def get_alternative(answer: Answer) -> str | None:
    """Return the cheaper explainer that is shown to be non-inferior."""
    alternative = answer.alternative
    return alternative.explainer if alternative is not None and alternative.is_non_inferior else None


def build_noise_table(runs: Sequence[AnsweredRun], seed: int) -> pd.DataFrame:
    """Return how many of the answers with noise differ, for all and for the first instances of runs with one seed."""
    lines = []
    for run in runs:
        size = len(run.question.sample.importance)
        for n_instances in (size, FEW_INSTANCES) if run.record.settings.seed == seed else ():
            question = replace(run.question, sample=run.question.sample.take(np.arange(n_instances)))
            answer, changes = question.answer_again(question.sample), pd.DataFrame(compare_with_noise(question)).sum()
            lines.append(
                dict(zip(("data", "model", "question"), run.key, strict=True))
                | {"instances": n_instances, "best": answer.best, "conclusive": answer.is_conclusive}
                | changes.to_dict()
            )
    return pd.DataFrame(lines)


def build_seed_table(runs: Sequence[AnsweredRun]) -> pd.DataFrame:
    """Return a row for each question of each run: the answer with its evidence."""
    lines = []
    for run in runs:
        answer = run.question.stored
        score = next(score for score in answer.scores if score.explainer == answer.best)
        recall = score.recall[run.question.recommendation.k - 1]
        lines.append(
            dict(zip(("data", "model", "question"), run.key, strict=True))
            | {
                "seed": run.record.settings.seed,
                "best": answer.best,
                "confidence set": ", ".join(answer.confidence_set),
                "conclusive": answer.is_conclusive,
                "recall": f"{recall:.2f}",
                "95 % CI": f"[{score.low:.2f}, {score.high:.2f}]",
                "seconds": f"{run.record.seconds:.0f}",
            }
        )
    return pd.DataFrame(lines)


def count_disagreements(table: pd.DataFrame) -> dict[str, int]:
    """Return how many pairs of seeds name different explainers, and with which certainty."""
    counts = {"pairs": 0, "different": 0, "one conclusive": 0, "both conclusive": 0, "in the other set": 0}
    for _, rows in table.groupby(["data", "model", "question"], sort=False):
        for (_, first), (_, second) in combinations(rows.iterrows(), 2):
            is_different = first["best"] != second["best"]
            n_conclusive = int(first["conclusive"]) + int(second["conclusive"])
            counts["pairs"] += 1
            counts["different"] += is_different
            counts["one conclusive"] += is_different and n_conclusive == 1
            counts["both conclusive"] += is_different and n_conclusive == 2
            counts["in the other set"] += is_different and (
                first["best"] in second["confidence set"].split(", ")
                and second["best"] in first["confidence set"].split(", ")
            )
    return counts


def write_seed_summary(table: pd.DataFrame) -> list[str]:
    """Return the statements about seeds."""
    counts, lines = count_disagreements(table), []
    for question, rows in table.groupby("question", sort=False):
        n_conclusive, of_question = int(rows["conclusive"].sum()), count_disagreements(rows)
        lines.append(
            f"- {question}: {n_conclusive} of {len(rows)} answers are conclusive; {of_question['different']} of "
            f"{of_question['pairs']} pairs of seeds name different explainers."
        )
    shares = table.groupby(["data", "model", "question"])["conclusive"].mean()
    n_mixed = int(((shares > 0) & (shares < 1)).sum())
    lines.append(
        f"- For {n_mixed} of {len(shares)} models and questions, some seeds give a conclusive answer and others do not."
    )
    lines.append(
        f"- Two seeds name different explainers in {counts['different']} of {counts['pairs']} pairs. Of these pairs, "
        f"{counts['both conclusive']} have two conclusive answers and {counts['one conclusive']} one; in "
        f"{counts['in the other set']}, each explainer is in the confidence set of the other seed."
    )
    return lines


def write_noise_summary(table: pd.DataFrame) -> list[str]:
    """Return the statement about noise explainers."""
    n_runs, n_noisy = len(table[["data", "model"]].drop_duplicates()), MAX_NOISE * N_DRAWS
    n_inconclusive = int((~table["conclusive"].astype(bool)).sum()) * n_noisy
    sums = table.drop(columns=["data", "model", "question", "instances", "best", "conclusive"]).sum()
    return [
        f"- Of {len(table) * n_noisy:,} answers of {n_runs} runs with 1 to {MAX_NOISE} noise explainers, "
        f"{sums['another best']} name another explainer. Without noise, {n_inconclusive:,} of them are inconclusive: "
        f"{sums['becomes conclusive']} of these turn conclusive, and {sums['becomes inconclusive']} of the others "
        f"inconclusive. {sums['another set']} have another confidence set, and {sums['another alternative']} another "
        "non-inferior alternative."
    ]


def write_table(table: pd.DataFrame) -> str:
    """Return a table in Markdown."""
    lines = [list(table.columns), ["---"] * len(table.columns)]
    lines += [["yes" if v is True else "no" if v is False else str(v) for v in row] for row in table.to_numpy(object)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def write_page(seeds: pd.DataFrame, noise: pd.DataFrame) -> str:
    """Return the page."""
    blocks = [
        "# Stability of the answer",
        "Made by `make judges` (runs of boosted trees and random forests, k = 3, 100 instances each) and `python "
        "benchmarks/answers.py outputs/judges`.",
        "## Over seeds",
        "A seed draws the split, the training, the explainers and the explained instances: it is another model. Data "
        "sets with one seed only are left out. Seconds are those of the whole run in one process, with other work on "
        "the machine.",
        "\n".join(write_seed_summary(seeds)),
        write_table(seeds),
        "## With noise explainers",
        f"Explainers that rank the features at random, declared cheap and stable, are added: 1 to {MAX_NOISE}, "
        f"{N_DRAWS} draws each. Each run is answered for all its instances and for the first {FEW_INSTANCES}. The "
        f"columns on the right count answers of {MAX_NOISE * N_DRAWS}.",
        "\n".join(write_noise_summary(noise)),
        write_table(noise),
    ]
    return "\n\n".join(blocks) + "\n"


def main() -> None:
    """Write the page."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="+", type=Path, help="folders of runs, or folders above them")
    parser.add_argument("--into", type=Path, default=FOLDER, help="folder of answers.md")
    options = parser.parse_args()
    runs = read_runs(options.folders)
    table = build_seed_table(runs)
    n_seeds = table.groupby(["data", "model"])["seed"].transform("nunique")
    page = write_page(table[n_seeds > 1], build_noise_table(runs, int(table["seed"].min())))
    (options.into / "answers.md").write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
