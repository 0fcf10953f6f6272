"""recommendation.json: which explainer to use on a model, with the type of every entry."""

from __future__ import annotations

from typing import Any, Literal

from cfeval_cli.results.record import Count, Entry, FidelityEntry, Number, Share, parse_entry


class DifferenceEntry(Entry):
    """How far an explainer is behind the best, with its interval and its corrected p."""

    difference: Number
    low: Number | None = None
    high: Number | None = None
    p: Share | None = None


class ContestEntry(Entry):
    """The explainers by one metric or truth, on the instances that all of them have."""

    metric: str
    variant: str
    instances: Count
    values: dict[str, Number]  # the best first
    tied: list[str]  # the best, and those that are not significantly different
    decides: bool
    needed: Count | None
    left_out: list[str]
    duels: dict[str, DifferenceEntry]

    @property
    def best(self) -> str:
        """The explainer with the best value."""
        return next(iter(self.values))


class JudgeEntry(Entry):
    """What the rule picks on a judge, and how far that one is behind the best."""

    judge: str
    fidelity: FidelityEntry | None = None
    picked: str
    best: str
    regret: Number
    holds: bool


class AnswerEntry(Entry):
    """The answer to a question, and what it rests on."""

    explainer: str | None
    cheapest: str | None
    believed: Literal["reference", "rule"] | None
    truth: str | None
    because: str
    reference: ContestEntry | None
    rule: ContestEntry | None
    judges: list[JudgeEntry]
    contradictions: list[Literal["reference", "judges"]]

    @property
    def basis(self) -> ContestEntry | None:
        """The contest that the answer rests on."""
        return None if self.believed is None else {"reference": self.reference, "rule": self.rule}[self.believed]


class QuestionsEntry(Entry):
    """The answers."""

    contribution: AnswerEntry
    change: AnswerEntry


class RuleEntry(Entry):
    """Which metrics are believed for which question, and where that comes from."""

    source: str
    believed: dict[str, list[str]]


class ExplainerEntry(Entry):
    """What is known of an explainer besides being right."""

    model_rows: Number | None
    coverage: Share | None
    stability: Share | None


class DisagreementEntry(Entry):
    """An instance on which the explainers select different features."""

    instance: int
    named: dict[str, list[Count]]  # explainer: features by number


class RecommendationRecord(Entry):
    """Everything in recommendation.json."""

    questions: QuestionsEntry
    rule: RuleEntry
    explainers: dict[str, ExplainerEntry]
    disagree: list[DisagreementEntry]


def parse_recommendation(content: Any) -> RecommendationRecord:
    """Return a recommendation; ValueError names the first entry that no run writes."""
    return parse_entry(RecommendationRecord, content, "recommendation.json")
