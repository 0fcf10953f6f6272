"""Which explainer to use on a model, in words and as a table: from recommendation.json and the run's record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfeval_cli.errors import UserError
from cfeval_cli.report.numbers import COUNT, TENTH_PERCENT, fixed
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.titles import make_metric_title
from cfeval_cli.results.read import Results
from cfeval_cli.results.recommendation import AnswerEntry, ContestEntry, RecommendationRecord
from cfeval_cli.results.record import RunRecord

_ASKED = {"contribution": "What contributed?", "change": "What would change it?"}
_EQUAL = 1e-12  # values that differ by less are equal: sums in another order


@dataclass(frozen=True)
class Recommendation:
    """A headline for each question, what is to be said below, and the figures."""

    headlines: Sequence[str]
    points: Sequence[str]
    table: Table
    disagreements: Sequence[int] = ()  # instances about which the explainers disagree most


def write_recommendation(results: Results) -> Recommendation | None:
    """What the run recommends; None of the paper's white box, which nobody asks about."""
    try:
        advice = results.recommendation_record
        return None if advice is None else _Words(advice, results.record, results.data.features).all()
    except (LookupError, ValueError) as error:
        raise UserError(f"{results.folder / 'recommendation.json'} is damaged: {error}.") from error


@dataclass(frozen=True)
class _Words:
    advice: RecommendationRecord
    record: RunRecord
    features: Sequence[str]

    def all(self) -> Recommendation:
        """Everything."""
        questions = {"contribution": self.advice.questions.contribution, "change": self.advice.questions.change}
        headlines = [f"{_ASKED[name]} {self.headline(answer)}" for name, answer in questions.items()]
        points = [f"{_ASKED[name]} {' '.join(self.points(name, answer))}" for name, answer in questions.items()]
        points += self.disagree()
        points.append(f"The rule: {self.advice.rule.source}.")
        apart = [one.instance for one in self.advice.disagree]
        return Recommendation(headlines, points, self.table(questions, [*headlines, *points]), apart)

    def title(self, name: str) -> str:
        """An explainer as the tables call it."""
        return self.record.explainers.get(name, name)

    def listed(self, names: Sequence[str]) -> str:
        """a, b and c."""
        titles = [self.title(name) for name in names]
        return titles[0] if len(titles) == 1 else f"{', '.join(titles[:-1])} and {titles[-1]}"

    def headline(self, answer: AnswerEntry) -> str:
        """Whom to use, or that nothing can be told; a contradiction comes first."""
        against = self.contradiction(answer)
        found = answer.basis
        if found is None or answer.cheapest is None:
            return f"{against}Nothing can be told: {answer.because}."
        tied, values = found.tied, list(found.values)
        if not found.decides:
            return f"{against}{self.undecided(found)} {self.title(answer.cheapest)} uses the fewest model evaluations."
        beaten = [name for name in values if name not in tied]
        p = _p(max(_known_p(found, beaten), default=None))
        best = self.title(tied[0])
        told = f"{best} beats {self.listed(beaten)} (p {p})"
        if len(tied) > 1:  # which does not say that these beat the others too
            least = _p(min(_known_p(found, tied[1:]), default=None))
            told += f", and cannot be told from {self.listed(tied[1:])} (p {least})"
        cheaper = self.cheaper(answer.cheapest, tied)
        return f"{against}Use {self.title(answer.cheapest)}. On this model {told}{cheaper}."

    def undecided(self, found: ContestEntry) -> str:
        """Why no explainer is recommended, and how many instances would separate the best from another."""
        values, instances = found.values, f"{found.instances:,} instances"
        if max(values.values()) - min(values.values()) < _EQUAL:
            return f"{self.listed(list(values))} have the same value on {instances}."
        text = f"{self.listed(list(values))} are not significantly different on {instances}"
        needed = found.needed
        return f"{text}; about {needed:,} would separate the best from another." if needed else f"{text}."

    def contradiction(self, answer: AnswerEntry) -> str:
        """Who contradicts whom, if anybody does."""
        told = []
        if "reference" in answer.contradictions and answer.reference is not None and answer.rule is not None:
            best, others = self.title(answer.reference.best), self.listed(answer.rule.tied)
            told.append(f"the truth of this model puts {best} first, and the rule {others}")
        if "judges" in answer.contradictions:
            against = [one.judge for one in answer.judges if not one.holds]
            many = f"{len(against)} of {len(answer.judges)} judges"
            told.append(f"{many} on these data ({', '.join(against)}) contradict the rule")
        return f"Contradiction: {'; '.join(told)}. " if told else ""

    def cheaper(self, cheapest: str, tied: Sequence[str]) -> str:
        """How much less the recommended one asks of the model than the dearest of those that are as good."""
        rows = {name: self.advice.explainers[name].model_rows for name in tied}
        known = {name: many for name, many in rows.items() if many is not None}
        dearest = max(known, key=lambda name: known[name], default=None)
        mine = known.get(cheapest)
        if dearest is None or mine is None or dearest == cheapest or known[dearest] == mine:
            return ""
        share = mine / known[dearest]
        return f"; {self.title(cheapest)} asks {share:.1%} of the model rows of {self.title(dearest)}"

    def points(self, question: str, answer: AnswerEntry) -> list[str]:
        """What the answer rests on, and what would change it."""
        told = []
        if answer.believed:
            told.append(f"Believed: the {answer.believed}, because {answer.because}.")
        if answer.reference is not None and answer.truth is not None:
            told.append(self.reference(answer.truth, answer.reference))
        else:
            told.append("Reference: none, since no truth that answers this question is known of this model.")
        if answer.rule is not None:
            found = answer.rule
            row = make_metric_title(found.metric, found.variant, self.record).plain
            first = f"{self.listed(found.tied)} {'come' if len(found.tied) > 1 else 'comes'} first"
            told.append(f"Rule: by {row} on {found.instances:,} instances {first}.")
        else:
            told.append("Rule: this run has none of its metrics.")
        told += self.judges(answer)
        return [*told, *self.otherwise(answer)]

    def reference(self, name: str, found: ContestEntry) -> str:
        """Which truth, how it was found, and how well."""
        truth = self.record.truths[name]
        error = "" if truth.error is None else f", mean standard error {truth.error:.4f}"
        values = ", ".join(f"{self.title(explainer)} {value:.3f}" for explainer, value in found.values.items())
        return f"Reference: {name} ({truth.how}{error}) on {found.instances:,} instances: {values}."

    def judges(self, answer: AnswerEntry) -> list[str]:
        """Whether the rule holds where the truth is known."""
        if not answer.judges:
            return []
        told = []
        for one in answer.judges:
            faithful = f", fidelity {one.fidelity.test:.1%}" if one.fidelity else ""
            what = "picks the best" if one.picked == one.best else f"loses {one.regret:.3f}"
            told.append(f"{one.judge} ({what}{'' if one.holds else ', surely'}{faithful})")
        good = sum(one.holds for one in answer.judges)
        return [f"Judges: the rule holds on {good} of {len(told)}: {', '.join(told)}."]

    def otherwise(self, answer: AnswerEntry) -> list[str]:
        """What would change the answer: who is nearest to the best, and how far behind."""
        found = answer.basis
        if found is None:
            return []
        rival, one = min(found.duels.items(), key=lambda item: item[1].difference)
        ends = "" if one.low is None else f" [{one.low:.3f}, {one.high:.3f}]"
        best = self.title(found.best)
        told = f"Nearest to the best, {best}: {self.title(rival)}, {one.difference:.3f}{ends} behind"
        if found.left_out:
            told += f"; silent about too many instances to be compared: {self.listed(found.left_out)}"
        return [f"What would change the answer: {told[0].lower()}{told[1:]}; other instances, another k."]

    def disagree(self) -> list[str]:
        """The instances on which explainers name the most different features."""
        told = []
        for one in self.advice.disagree:
            named = {self.title(name): [self.features[j] for j in some] for name, some in one.named.items()}
            said = ", ".join(f"{title}: {' and '.join(some) or 'nothing'}" for title, some in named.items())
            told.append(f"{one.instance} ({said})")
        return [f"They disagree most about instances {'; '.join(told)}."] if told else []

    def table(self, questions: Mapping[str, AnswerEntry], notes: Sequence[str]) -> Table:
        """Build how good, how expensive and how stable each explainer is, and its coverage."""
        header, columns = [Title("Explainer")], []
        for name, answer in questions.items():
            basis = answer.basis
            columns.append((answer, basis.values if basis else {}))
            header.append(Title(name, (str(answer.believed), f"n = {basis.instances:,}") if basis else ()))
        header += map(Title, ("rows an instance", "coverage", "same with another seed"))
        rows = []
        for name, facts in self.advice.explainers.items():
            cells = [
                Cell(values.get(name), bold=name in values and name == answer.explainer, form=fixed(4))
                for answer, values in columns
            ]
            cells.append(Cell(facts.model_rows, form=COUNT))
            cells += [Cell(share, form=TENTH_PERCENT) for share in (facts.coverage, facts.stability)]
            rows.append(Row(Title(self.title(name), is_explainer=True), cells))
        return Table("Which explainer to use on this model", header, [rows], list(notes), part="scores")


def _known_p(contest: ContestEntry, names: Sequence[str]) -> list[float]:
    """Return the p of those differences of some explainers from the best that are known."""
    return [p for name in names if (p := contest.duels[name].p) is not None]


def _p(p: float | None) -> str:
    if p is None:
        return "not known"
    return "< 0.001" if p < 0.001 else f"= {p:.3f}"
