"""What the words of a report mean: those that every report has, and those that a run's record defines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfeval_cli.report.notes import MOVES_NOTE
from cfeval_cli.report.table import CIRCULAR, MOVES, Title
from cfeval_cli.results.record import RunRecord

_ALWAYS = {
    "τ": "Kendall's τ: of all pairs of explainers, the share that two rankings order alike less the share that they "
    "order the other way round. 1: the same order, -1: the opposite, 0: no more alike than by chance.",
    "ρ": "Spearman's ρ: the correlation of the ranks of two rankings.",
    "p": "How often a random order of the explainers would agree with the truth as well; one-sided.",
    "Interval": "In brackets: from where to where the figure goes in most resamples of the instances (bootstrap).",
    "Truth": "How much each feature matters to the model by a definition that is named beside it; the k reference "
    "features are those that matter most.",
    "Contribution": "What made the prediction come out so?",
    "Change": "What would make the prediction come out otherwise?",
    "Control": "An explainer that is there to be compared with: it names features at random, or the truth itself.",
    "Counterfactual": "The instance with other values of the explained features, found by a search.",
    "Erasure": "Metrics that remove the explained features, or all others, and look at the prediction.",
    "Instance": "A row, or a text, of the test set whose prediction is explained.",
    CIRCULAR: "Good by construction: the explainer is made for this metric or this truth, which tells nothing.",
    MOVES: f"It {MOVES_NOTE}.",
    "†": "Names k features for too few of the instances.",
    "‡": "Outside its own interval: resamples are noisier than the sample.",
}


@dataclass(frozen=True)
class Term:
    """A word and what it means."""

    name: str
    definition: str

    @property
    def anchor(self) -> str:
        """Where the glossary has it."""
        return "term-" + "".join(sign if sign.isascii() and sign.isalnum() else f"-{ord(sign):x}" for sign in self.name)


def list_terms(record: RunRecord) -> list[Term]:
    """The metrics, explainers, truths and removals of a run as it defines them, and the words of all reports."""
    told = record.definitions
    metrics = _metrics(record, told.metric)
    explainers = {title: told.explainer.get(name) for name, title in record.explainers.items()}
    removals = {f"{removal.title} (removal)": told.removal.get(removal.name) for removal in record.removals.values()}
    truths = {f"{name} (truth)": what for name, what in told.truth.items()}
    known = {**metrics, **explainers, **truths, **removals, **_ALWAYS}
    return [Term(name, what) for name, what in known.items() if what]


def _metrics(record: RunRecord, told: Mapping[str, str]) -> dict[str, str]:
    """By their titles, which several may share."""
    sharing: dict[str, list[str]] = {}
    for name, facts in record.metrics.items():
        if told.get(name):
            sharing.setdefault(facts.title, []).append(name)
    return {
        title: told[names[0]] if len(names) == 1 else " ".join(f"{name}: {told[name]}" for name in names)
        for title, names in sharing.items()
    }


def find_term(title: Title, terms: Sequence[Term]) -> Term | None:
    """Return the entry of the glossary about the head of a row or of a column."""
    names = {term.name: term for term in terms}
    return names.get(title.term or title.name)
