"""Which explainer to use, in sentences and tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfeval_cli.report.numbers import COUNT, PERCENT, NumberFormat
from cfeval_cli.report.table import CIRCULAR_MARK, Cell, Row, Table, Title
from cfeval_cli.report.titles import make_metric_title
from cfeval_cli.report.wording import format_p_value, join_names
from cfeval_cli.results.read import StoredRun
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES
from cfeval_cli.statistics.recommendation import (
    Answer,
    Difference,
    GroupScores,
    Question,
    Recommendation,
    ReferenceScore,
)

_TITLES: dict[Question, str] = {"contribution": "Contribution", "change": "Change"}
_MAX_LISTED = 4  # explainers in a headline
_CHECKS = {
    "metric": "A metric measures faithfulness indirectly; the reference attributions are computed on the model itself.",
    "judge": "A judge is another model: explainers may rank differently on it.",
}


@dataclass(frozen=True)
class AnswerText:
    """The answer to one question in words."""

    statement: str  # which explainer to use
    evidence: str  # its score and those of the next ones; empty without scores
    details: Sequence[str]  # sentences that belong to the answer: stability, cost, sample size
    checks: Sequence[str]

    @property
    def headline(self) -> str:
        """Statement and evidence in one sentence."""
        return f"{self.statement} ({self.evidence})." if self.evidence else f"{self.statement}."

    @property
    def paragraph(self) -> str:
        """The answer with the sentences that belong to it."""
        return " ".join([self.headline, *self.details])

    def __str__(self) -> str:
        return self.paragraph


@dataclass(frozen=True)
class RecommendationText:
    """The answers in words, and the tables that they rest on."""

    answers: Mapping[Question, AnswerText]
    tables: Sequence[Table]
    notes: Sequence[str]
    disagreements: Sequence[int] = ()  # instances for which the explainers select the most different features

    @property
    def headlines(self) -> list[str]:
        """One sentence for each question."""
        return [answer.headline for answer in self.answers.values()]

    @property
    def paragraphs(self) -> list[str]:
        """For each question the answer, with the sentences that belong to it."""
        return [answer.paragraph for answer in self.answers.values()]

    def __str__(self) -> str:
        return "\n".join(self.paragraphs)


def write_recommendation(results: StoredRun) -> RecommendationText | None:
    """Write the recommendation of a run; None if no question has an answer."""
    recommendation = results.recommendation
    if recommendation is None or not recommendation.is_computed:
        return None
    return describe_recommendation(recommendation, results.record, results.data.feature_names)


def write_paragraphs(recommendation: Recommendation) -> list[str]:
    """Write the answers without their checks, which need the whole run; nothing if no question has an answer."""
    if not recommendation.is_computed:
        return []
    writer = _Writer(recommendation)
    return [writer.write_answer(question).paragraph for question in recommendation.answers]


def describe_recommendation(
    recommendation: Recommendation, record: RunRecord, features: Sequence[str]
) -> RecommendationText:
    """Write a recommendation; features are the names of those of the data."""
    writer = _Writer(recommendation, record)
    answers = {question: writer.write_answer(question) for question in recommendation.answers}
    tables = [
        table
        for question, answer in recommendation.answers.items()
        if answer.scores
        for table in writer.build_tables(question)
    ]
    numbers = [entry.instance for entry in recommendation.disagreements]
    return RecommendationText(answers, tables, writer.list_disagreements(features), numbers)


@dataclass(frozen=True)
class _Writer:
    """The sentences and tables of one recommendation."""

    recommendation: Recommendation
    record: RunRecord | None = None  # for the titles of metrics

    def write_answer(self, question: Question) -> AnswerText:
        """Write the answer to a question."""
        answer = self.recommendation.answers[question]
        statement = f"{_TITLES[question]}: {self._write_statement(answer)}"
        if answer.best is None:
            return AnswerText(statement, "", [], [])
        return AnswerText(
            statement, self._write_evidence(answer), self._list_details(answer), self._list_checks(answer)
        )

    def _get_title(self, name: str) -> str:
        return self.recommendation.explainers[name].title

    def _join_titles(self, names: Sequence[str]) -> str:
        return join_names([self._get_title(name) for name in names])

    @property
    def _target(self) -> str:
        k = self.recommendation.k
        return "the reference top feature" if k == 1 else f"the reference top {k} features"

    def _get_recall(self, score: ReferenceScore) -> float:
        return score.recall[self.recommendation.k - 1]

    def _write_statement(self, answer: Answer) -> str:
        """Write which explainer to use, or between which ones the comparison is inconclusive."""
        best = answer.best
        if best is None:
            return f"not computed, because {answer.reason}"
        if len(self._list_contenders(answer)) == 1:
            return f"{self._get_title(best)} is the only explainer that is not a control"
        if answer.n_instances < MIN_INSTANCES:
            return (
                f"inconclusive, because {answer.n_instances} instances are too few (at least {MIN_INSTANCES}); "
                f"{self._get_title(best)} scored highest"
            )
        if answer.is_conclusive:
            return f"use {self._get_title(best)}"
        return (
            f"inconclusive between {self._join_titles(answer.confidence_set)}; {self._get_title(best)} scored highest"
        )

    def _list_contenders(self, answer: Answer) -> list[ReferenceScore]:
        facts = self.recommendation.explainers
        return [score for score in answer.scores if not facts[score.explainer].is_control]

    def _write_evidence(self, answer: Answer) -> str:
        """Write the score of the best explainer with its interval, and the scores of the next ones."""
        best, *competitors = self._list_contenders(answer)
        level = f"{100 * self.recommendation.confidence:.4g}"
        share = _write_percent(self._get_recall(best))
        interval = ", reweighted to the test distribution" if answer.is_reweighted else ""
        if best.low is not None and best.high is not None:
            interval += f", {level} % CI [{100 * best.low:.0f}, {100 * best.high:.0f}]"
        if self.recommendation.k == 1:
            text = f"it selects {self._target} for {share} of {answer.n_instances:,} instances{interval}"
        else:
            text = f"it selects {share} of {self._target} on {answer.n_instances:,} instances{interval}"
        parts = [
            f"{self._get_title(score.explainer)} {_write_percent(self._get_recall(score))}"
            for score in competitors[:_MAX_LISTED]
        ]
        return f"{text}; {', '.join(parts)}" if parts else text

    def _list_details(self, answer: Answer) -> list[str]:
        """Return the sentences on circularity, stability, cost and sample size."""
        return [
            *self._circularity_notes(answer),
            self._write_stability_and_cost(answer),
            *self._alternative_notes(answer),
            *self._sample_size_notes(answer),
        ]

    def _circularity_notes(self, answer: Answer) -> list[str]:
        contenders = self._list_contenders(answer)
        if not contenders[0].is_circular:
            return []
        circular = [score.explainer for score in contenders if score.is_circular]
        verb = "approximates" if len(circular) == 1 else "approximate"
        text = f"{self._join_titles(circular)} {verb} the reference attributions by construction."
        other = next((score for score in contenders if not score.is_circular), None)
        if other is None:
            return [text]
        recall = _write_percent(self._get_recall(other))
        return [f"{text} Of the others, {self._get_title(other.explainer)} scored highest ({recall})."]

    def _write_stability_and_cost(self, answer: Answer) -> str:
        """Write how stable the best explainer is, and what it costs."""
        facts, k = self.recommendation.explainers[str(answer.best)], self.recommendation.k
        if facts.stability is None:
            stability = "its stability was not computed"
        else:
            features = "top features" if k == 1 else f"top {k} features"
            share = _write_percent(facts.stability)
            sample = f" ({facts.n_repeated:,} instances)" if facts.n_repeated else ""
            equal = f"{share} of its {features} are the same{sample}"
            stability = (
                f"it is unstable: under another explainer seed only {equal}"
                if facts.is_unstable
                else f"under another explainer seed {equal}"
            )
        if facts.evaluations is None:
            return f"{facts.title}: {stability}; its cost is unknown."
        count = f"{facts.evaluations:,.0f}" if facts.evaluations else "no"
        return f"{facts.title} uses {count} model evaluations per instance; {stability}."

    def _alternative_notes(self, answer: Answer) -> list[str]:
        alternative = answer.alternative
        if alternative is None:
            return []
        name, best = self._get_title(alternative.explainer), self._get_title(str(answer.best))
        cost = f"{100 * alternative.cost_share:.2g} %"
        margin = f"{100 * self.recommendation.margin:g} percentage points"
        if alternative.is_non_inferior:
            return [f"{name} is non-inferior (margin: {margin}) and uses {cost} of the model evaluations of {best}."]
        return [
            f"{name} uses {cost} of the model evaluations of {best}, but is not shown to be non-inferior (margin: "
            f"{margin}); about {alternative.n_required:,} instances are needed to show it."
        ]

    def _sample_size_notes(self, answer: Answer) -> list[str]:
        if len(answer.confidence_set) < 2:
            return []
        first, second = answer.confidence_set[:2]
        if answer.n_to_separate is None:
            return [f"{self._join_titles([first, second])} have the same score."]
        pair = f"{self._get_title(first)} from {self._get_title(second)}"
        needed, n_instances = answer.n_to_separate, answer.n_instances
        number = f"About {needed:,}" if needed > n_instances else f"More than {n_instances:,}"
        return [f"{number} instances are needed to separate {pair}."]

    def _list_checks(self, answer: Answer) -> list[str]:
        """Return the checks; what a disagreement means is stated once for each source."""
        notes, sources = [], dict.fromkeys(check.source for check in answer.checks if not check.agrees)
        for check in answer.checks:
            verb = "agrees" if check.agrees else "disagrees"
            fidelity = "" if check.fidelity is None else f", fidelity {_write_percent(check.fidelity)}"
            name = check.name
            if check.source == "metric" and self.record is not None:
                name = make_metric_title(check.name, check.variant, self.record).plain
            notes.append(
                f"{check.source.capitalize()} {name} {verb}: it ranks {self._join_titles(check.first)} first{fidelity}."
            )
        return [*notes, *(_CHECKS[source] for source in sources)]

    def list_disagreements(self, features: Sequence[str]) -> list[str]:
        """Return the instances for which the explainers select the most different features."""
        parts = []
        for entry in self.recommendation.disagreements:
            selected = "; ".join(
                f"{self._get_title(name)}: {join_names([features[j] for j in numbers]) if numbers else 'no feature'}"
                for name, numbers in entry.selected.items()
            )
            parts.append(f"instance {entry.instance} ({selected})")
        return [f"The explainers differ most on {', '.join(parts)}."] if parts else []

    def build_tables(self, question: Question) -> list[Table]:
        """Build the tables that an answer rests on; all but the first are details."""
        answer = self.recommendation.answers[question]
        tables = [self.build_scores(question), self.build_mass(question)]
        tables += [self.build_differences(question)] if answer.differences else []
        return [*tables, *([self.build_groups(question)] if answer.groups else [])]

    def build_scores(self, question: Question) -> Table:
        """Build the recall for each k, the captured mass, the cost and the stability of each explainer."""
        answer, run_k = self.recommendation.answers[question], self.recommendation.k
        ks = range(1, len(answer.scores[0].recall) + 1)
        header = [Title("Explainer"), *(Title(f"recall@{k}", direction="higher") for k in ks)]
        header += [
            Title(f"mass@{run_k}", direction="higher"),
            Title("evaluations"),
            Title("stability"),
        ]
        rows = []
        for score in answer.scores:
            facts = self.recommendation.explainers[score.explainer]
            cells = [
                Cell(value, score.low, score.high, bold=True, form=PERCENT) if k == run_k else Cell(value, form=PERCENT)
                for k, value in zip(ks, score.recall, strict=True)
            ]
            cells.append(Cell(score.mass[run_k - 1], form=PERCENT))
            cells.append(Cell(facts.evaluations, form=COUNT, reason="unknown: the explanations were made elsewhere"))
            cells.append(Cell(facts.stability, form=PERCENT))
            marks = CIRCULAR_MARK * score.is_circular
            rows.append(Row(Title(facts.title, marks=marks, is_explainer=True), cells))
        level = f"{100 * self.recommendation.confidence:.4g} %"
        notes = [
            f"recall@k: share of the reference top k features ({answer.truth}) that are among the first k of the "
            f"explainer, {answer.n_instances:,} instances; features that it does not return count as missed. "
            f"{level} CI for k = {run_k}.",
            f"mass@{run_k}: share of the positive reference attributions that the first {run_k} capture.",
            "evaluations: of the model, per instance. stability: share of equal features under another explainer seed.",
        ]
        if answer.is_reweighted:
            notes.append(
                "Small predicted classes have more instances than their share; scores are reweighted to the test set."
            )
        if any(score.is_circular for score in answer.scores):
            notes.append(f"{CIRCULAR_MARK} circular: approximates the reference attributions by construction.")
        return Table(
            f"{_TITLES[question]}: agreement with the reference attributions", header, [rows], notes, part="scores"
        )

    def build_mass(self, question: Question) -> Table:
        """Build the captured mass of each explainer for each k."""
        answer, run_k = self.recommendation.answers[question], self.recommendation.k
        ks = range(1, len(answer.scores[0].mass) + 1)
        rows = [
            Row(
                Title(self._get_title(score.explainer), is_explainer=True),
                [Cell(value, bold=k == run_k, form=PERCENT) for k, value in zip(ks, score.mass, strict=True)],
            )
            for score in answer.scores
        ]
        header = [Title("Explainer"), *(Title(f"mass@{k}", direction="higher") for k in ks)]
        n_omitted = f" {answer.n_without_mass:,} instances without positive ones are left out." * (
            answer.n_without_mass > 0
        )
        notes = [
            "mass@k: sum of the positive reference attributions of the first k features of the explainer, relative to "
            f"that of the best k, so that near-ties count little.{n_omitted}"
        ]
        title = f"{_TITLES[question]}: captured mass of the reference attributions"
        return Table(title, header, [rows], notes, part="scores", is_supplementary=True)

    def build_differences(self, question: Question) -> Table:
        """Build the paired differences between all explainers."""
        answer = self.recommendation.answers[question]
        header = [Title("Explainers"), Title("difference"), Title("p")]
        rows = [
            Row(
                Title(f"{self._get_title(entry.explainer)} − {self._get_title(entry.other)}"),
                [
                    Cell(entry.difference, entry.low, entry.high, form=_POINTS),
                    Cell(self._write_p(entry, answer.smallest_p)),
                ],
            )
            for entry in answer.differences
        ]
        notes = [
            f"Differences of recall@{self.recommendation.k} on the same {answer.n_instances:,} instances, with "
            "simultaneous intervals and p-values for all pairs (bootstrap, single-step max |t|)."
        ]
        title = f"{_TITLES[question]}: differences between explainers"
        return Table(title, header, [rows], notes, part="scores", is_supplementary=True)

    def _write_p(self, entry: Difference, smallest: float | None) -> str:
        if smallest is not None and entry.p <= smallest:
            return f"≤ {smallest:.1g}"
        return format_p_value(entry.p).removeprefix("p ").removeprefix("= ")

    def build_groups(self, question: Question) -> Table:
        """Build the recall by predicted class and by the columns of `by`."""
        answer = self.recommendation.answers[question]
        names = [score.explainer for score in answer.scores]
        header = [Title("Group"), Title("n"), *(Title(self._get_title(name), is_explainer=True) for name in names)]
        rows = [
            Row(
                Title(f"{group.column} = {group.value}"),
                [Cell(group.n_instances, form=COUNT), *(self._make_group_cell(group, name) for name in names)],
            )
            for group in answer.groups
        ]
        notes = [f"Groups of fewer than {MIN_INSTANCES} instances have no interval."]
        title = f"{_TITLES[question]}: recall@{self.recommendation.k} by group"
        return Table(title, header, [rows], notes, part="scores", is_supplementary=True)

    def _make_group_cell(self, group: GroupScores, name: str) -> Cell:
        return Cell(group.recall[name], group.low.get(name), group.high.get(name), form=PERCENT)


_POINTS = NumberFormat(decimals=3)


def _write_percent(share: float) -> str:
    return f"{100 * share:.0f} %"
