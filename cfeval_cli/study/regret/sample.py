"""The questions that a stored run answered, with the reference attributions and rankings to answer them again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from cfeval_cli.core import Floats, Ints
from cfeval_cli.pipeline.sampling import compute_class_weights
from cfeval_cli.results.read import read_recommendation
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.recommendation import (
    Answer,
    Question,
    Recommendation,
    ReferenceSample,
    answer_question,
)
from cfeval_cli.study.run_folders import read_columns


@dataclass(frozen=True)
class StoredQuestion:
    """One question of a run: its answer, and all that the answer follows from."""

    question: Question
    stored: Answer
    recommendation: Recommendation
    sample: ReferenceSample
    seed: int

    @property
    def names(self) -> list[str]:
        """The explainers that are not controls, in the order of the tables."""
        return [name for name, facts in self.recommendation.explainers.items() if not facts.is_control]

    @property
    def circular(self) -> list[str]:
        """The explainers that approximate the reference attributions by construction."""
        return [score.explainer for score in self.stored.scores if score.is_circular]

    def answer_again(self, sample: ReferenceSample) -> Answer:
        """Return the answer for other instances or explainers of the same run."""
        run = self.recommendation
        return answer_question(
            str(self.stored.truth), sample, run.explainers, self.circular,
            k=run.k, margin=run.margin, confidence=run.confidence, seed=self.seed,
        )  # fmt: skip


def read_questions(folder: Path, record: RunRecord) -> list[StoredQuestion]:
    """Return the questions of a complete run that have reference attributions."""
    recommendation = read_recommendation(folder)
    instances = read_columns(folder, record, "instances", ["instance", "predicted"])
    ids, classes = pd.Index(instances["instance"]), instances["predicted"].to_numpy(np.int64)
    questions = []
    for question, answer in recommendation.answers.items():
        if answer.truth is not None and answer.confidence_set:
            importance = _read_importance(folder, record, answer.truth, ids)
            positions = np.flatnonzero(~np.isnan(importance).all(axis=1))
            importance = np.where(np.isnan(importance), -np.inf, importance)  # features that are absent
            ranks = _read_ranks(folder, record, list(recommendation.explainers), ids, importance.shape[1])
            weights = compute_class_weights(classes, positions)
            sample = ReferenceSample(
                importance[positions], {name: of_name[positions] for name, of_name in ranks.items()},
                weights / weights.mean(),
                classes[positions],
            )  # fmt: skip
            questions.append(StoredQuestion(question, answer, recommendation, sample, record.settings.seed))
    return questions


def _read_importance(folder: Path, record: RunRecord, truth: str, ids: pd.Index) -> Floats:
    """Return the reference attributions (N, M) of all instances, NaN where they were not computed."""
    table = read_columns(folder, record, "truth", ["instance", "truth", "importance"])
    return np.stack(table[table["truth"] == truth].set_index("instance")["importance"].loc[ids].to_list())


def _read_ranks(
    folder: Path, record: RunRecord, names: Sequence[str], ids: pd.Index, n_features: int
) -> dict[str, Ints]:
    """Return the rank (N, M) of each feature by each explainer, M for features that are not ranked."""
    table = read_columns(folder, record, "explanations", ["instance", "explainer", "features"])
    by_name = {}
    for name in names:
        ranks = np.full((len(ids), n_features), n_features)
        features = table[table["explainer"] == name].set_index("instance")["features"].loc[ids]
        for row, selected in enumerate(features):
            ranks[row, selected] = np.arange(len(selected))
        by_name[name] = ranks
    return by_name
