"""The recommendation of a run, in sentences and as a table, from recommendation.json and the run's record alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from cfeval_cli.errors import UserError
from cfeval_cli.report.numbers import COUNT, TENTH_PERCENT, NumberFormat
from cfeval_cli.report.table import Cell, Row, Table, Title
from cfeval_cli.report.titles import make_metric_title
from cfeval_cli.report.wording import format_p_value, join_names
from cfeval_cli.results.read import StoredRun
from cfeval_cli.results.recommendation import AnswerEntry, ContestEntry, RecommendationRecord
from cfeval_cli.results.record import RunRecord

_QUESTIONS = {"contribution": "What contributed?", "change": "What would change it?"}
_BASES = {"reference": "the reference attributions of this model", "rule": "the metric-based ranking"}
_ROUNDING = 1e-12  # values that differ by less are equal: sums in another order


@dataclass(frozen=True)
class Recommendation:
    """A headline for each question, the sentences below, and the values that they rest on."""

    headlines: Sequence[str]
    points: Sequence[str]
    table: Table
    disagreements: Sequence[int] = ()  # instances on which the explainers disagree most


def write_recommendation(results: StoredRun) -> Recommendation | None:
    """Write the recommendation of a run; None if it has none, as on the white box of the paper."""
    try:
        advice = results.recommendation_record
        return None if advice is None else describe_recommendation(advice, results.record, results.data.feature_names)
    except (LookupError, ValueError) as error:
        raise UserError(f"{results.folder / 'recommendation.json'} is damaged: {error}.") from error


def describe_recommendation(advice: RecommendationRecord, record: RunRecord, features: Sequence[str]) -> Recommendation:
    """Write a recommendation from its record, the record of the run and the names of the features."""
    answers = {"contribution": advice.questions.contribution, "change": advice.questions.change}
    writer = _Writer(advice, record)
    headlines = [f"{_QUESTIONS[name]} {writer.write_headline(answer)}" for name, answer in answers.items()]
    points = [f"{_QUESTIONS[name]} {' '.join(writer.list_points(answer))}" for name, answer in answers.items()]
    points += writer.disagreement_notes(features)
    points.append(f"Source of the metric-based ranking: {advice.rule.source}.")
    table = writer.build_table(answers, [*headlines, *points])
    return Recommendation(headlines, points, table, [entry.instance for entry in advice.disagree])


@dataclass(frozen=True)
class _Writer:
    """The sentences on one recommendation."""

    advice: RecommendationRecord
    record: RunRecord

    def _get_title(self, name: str) -> str:
        return self.record.explainers.get(name, name)

    def _join_titles(self, names: Sequence[str]) -> str:
        return join_names([self._get_title(name) for name in names])

    def write_headline(self, answer: AnswerEntry) -> str:
        """Write which explainer to use, or that the comparison is inconclusive; contradictions come first."""
        contradiction = self._describe_contradiction(answer)
        contest = answer.basis
        if contest is None or answer.cheapest is None:
            return f"{contradiction}Inconclusive: {answer.because}."
        if not contest.decides:
            cheapest = f"{self._get_title(answer.cheapest)} uses the fewest model evaluations."
            return f"{contradiction}{self._describe_tie(contest)} {cheapest}"
        best, *tied = contest.tied
        worse = [name for name in contest.values if name not in contest.tied]
        sentences = [f"Use {self._get_title(answer.cheapest)}."]
        if tied:
            verb = "is" if len(tied) == 1 else "are"
            sentences.append(
                f"{self._get_title(best)} scores highest; {self._join_titles(tied)} {verb} not significantly "
                f"different ({_format_p_values(contest, tied, '≥')})."
            )
        sentences += self._cost_notes(answer.cheapest, contest.tied)
        sentences.append(
            f"{self._get_title(best)} is significantly better than {self._join_titles(worse)} "
            f"({_format_p_values(contest, worse, '≤')})."
        )
        return contradiction + " ".join(sentences)

    def _describe_tie(self, contest: ContestEntry) -> str:
        """Write that no explainer is significantly better, and the required sample size."""
        values, instances = contest.values, f"{contest.instances:,} instances"
        if max(values.values()) - min(values.values()) < _ROUNDING:
            return f"{self._join_titles(list(values))} have the same value on {instances}."
        text = f"{self._join_titles(list(values))} are not significantly different on {instances}"
        if not contest.needed:
            return f"{text}."
        return f"{text}; about {contest.needed:,} would separate the best from another."

    def _describe_contradiction(self, answer: AnswerEntry) -> str:
        """Write which sources contradict each other; nothing if none do."""
        parts = []
        if "reference" in answer.contradictions and answer.reference is not None and answer.rule is not None:
            best, others = self._get_title(answer.reference.best), self._join_titles(answer.rule.tied)
            parts.append(f"{_BASES['reference']} rank {best} first, {_BASES['rule']} {others}")
        if "judges" in answer.contradictions:
            against = [judge.judge for judge in answer.judges if not judge.holds]
            count = f"{len(against)} of {len(answer.judges)} judges"
            parts.append(f"{count} on these data ({', '.join(against)}) contradict {_BASES['rule']}")
        return f"Contradiction: {'; '.join(parts)}. " if parts else ""

    def _cost_notes(self, cheapest: str, tied: Sequence[str]) -> list[str]:
        """Return the cost of the recommended explainer relative to the most expensive one that is as good."""
        counts = {name: self.advice.explainers[name].model_rows for name in tied}
        known = {name: count for name, count in counts.items() if count is not None}
        dearest = max(known, key=lambda name: known[name], default=None)
        count = known.get(cheapest)
        if dearest is None or count is None or dearest == cheapest or known[dearest] == count:
            return []
        share = f"{count / known[dearest]:.1%}"
        return [f"{self._get_title(cheapest)} uses {share} of the model evaluations of {self._get_title(dearest)}."]

    def list_points(self, answer: AnswerEntry) -> list[str]:
        """Return what the answer rests on, and what could change it."""
        sentences = []
        if answer.believed:
            sentences.append(f"Based on {_BASES[answer.believed]}: {answer.because}.")
        if answer.reference is not None and answer.truth is not None:
            sentences.append(self._describe_reference(answer.truth, answer.reference))
        else:
            sentences.append("Reference attributions: none for this question.")
        if answer.rule is not None:
            contest = answer.rule
            metric = make_metric_title(contest.metric, contest.variant, self.record).plain
            sentences.append(
                f"Metric-based ranking: {metric} on {contest.instances:,} instances ranks "
                f"{self._join_titles(contest.tied)} first."
            )
        else:
            sentences.append("Metric-based ranking: none, the run lacks its metrics.")
        return [*sentences, *self._judge_notes(answer), *self._competitor_notes(answer)]

    def _describe_reference(self, name: str, contest: ContestEntry) -> str:
        """Write which ground truth is the reference, how it was computed, and the values of the explainers."""
        truth = self.record.truths[name]
        error = "" if truth.error is None else f", mean standard error {truth.error:.4f}"
        values = ", ".join(f"{self._get_title(explainer)} {value:.3f}" for explainer, value in contest.values.items())
        return f"Reference attributions: {name} ({truth.method}{error}) on {contest.instances:,} instances: {values}."

    def _judge_notes(self, answer: AnswerEntry) -> list[str]:
        """Return whether the metric-based ranking holds on judges, whose ground truth is known."""
        if not answer.judges:
            return []
        parts = []
        for judge in answer.judges:
            fidelity = f", fidelity {judge.fidelity.test:.1%}" if judge.fidelity else ""
            if judge.picked == judge.best:
                result = "selects the best explainer"
            else:
                result = f"{judge.regret:.3f} below the best{', significant' * (not judge.holds)}"
            parts.append(f"{judge.judge} ({result}{fidelity})")
        n_holds = sum(judge.holds for judge in answer.judges)
        return [f"Judges: {_BASES['rule']} holds on {n_holds} of {len(parts)}: {', '.join(parts)}."]

    def _competitor_notes(self, answer: AnswerEntry) -> list[str]:
        """Return which explainer is closest to the best, and which ones were not compared."""
        contest = answer.basis
        if contest is None:
            return []
        name, entry = min(contest.duels.items(), key=lambda item: item[1].difference)
        interval = "" if entry.low is None else f" [{entry.low:.3f}, {entry.high:.3f}]"
        sentences = [
            f"Closest to the best, {self._get_title(contest.best)}: {self._get_title(name)}, "
            f"{entry.difference:.3f}{interval} lower."
        ]
        if contest.left_out:
            sentences.append(f"Not compared, too few explanations: {self._join_titles(contest.left_out)}.")
        return [*sentences, "Other instances or another k could change the answer."]

    def disagreement_notes(self, features: Sequence[str]) -> list[str]:
        """Return the instances on which the explainers select the most different features."""
        parts = []
        for entry in self.advice.disagree:
            selected = ", ".join(
                f"{self._get_title(name)}: {' and '.join(features[j] for j in numbers) or 'nothing'}"
                for name, numbers in entry.named.items()
            )
            parts.append(f"{entry.instance} ({selected})")
        return [f"The explainers disagree most on instances {'; '.join(parts)}."] if parts else []

    def build_table(self, answers: Mapping[str, AnswerEntry], notes: Sequence[str]) -> Table:
        """Build the value of each explainer by question, its cost, its coverage and its stability."""
        header = [Title("Explainer")]
        for question, answer in answers.items():
            basis = answer.basis
            details = (str(answer.believed), f"n = {basis.instances:,}") if basis else ()
            header.append(Title(question, details))
        header += map(Title, ("model evaluations per instance", "coverage", "explainer stability"))
        rows = []
        for name, facts in self.advice.explainers.items():
            cells = []
            for answer in answers.values():
                values = answer.basis.values if answer.basis else {}
                cells.append(
                    Cell(
                        values.get(name),
                        bold=name in values and name == answer.explainer,
                        form=NumberFormat(decimals=4),
                    )
                )
            cells.append(Cell(facts.model_rows, form=COUNT))
            cells += [Cell(share, form=TENTH_PERCENT) for share in (facts.coverage, facts.stability)]
            rows.append(Row(Title(self._get_title(name), is_explainer=True), cells))
        return Table("Which explainer to use on this model", header, [rows], list(notes), part="scores")


def _format_p_values(contest: ContestEntry, names: Sequence[str], sign: str) -> str:
    """Write the p of the difference of an explainer from the best, or a bound for several: the nearest to the level."""
    known = [p for name in names if (p := contest.duels[name].p) is not None]
    if not known:
        return format_p_value(None)
    p = min(known) if sign == "≥" else max(known)
    text = format_p_value(p)
    text = text.replace("=", sign) if len(names) > 1 else text
    return f"{text}, Holm-adjusted"
