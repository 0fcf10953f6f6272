"""The verdict on a run in sentences: which metric agrees with the ground truth, and whether that is significant."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import factorial
from typing import Any

import pandas as pd

from cfeval_cli.report.build_scores import compute_mean_ranks
from cfeval_cli.report.instance_verdict import write_instance_verdict
from cfeval_cli.report.numbers import P_VALUE
from cfeval_cli.report.titles import (
    Pair,
    list_contenders,
    list_truth_metrics,
    make_metric_title,
    mark_low_coverage,
    name_truths,
)
from cfeval_cli.report.wording import format_p_value, join_names
from cfeval_cli.results.record import RunRecord
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES
from cfeval_cli.statistics.correlation import GRADED
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL, is_underpowered
from cfeval_cli.statistics.run_statistics import RunStatistics
from cfeval_cli.statistics.small_rankings import MIN_RANKED_EXPLAINERS
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset

_MAX_NAMED_METRICS = 4
_MAX_NAMED_EXPLAINERS = 8
_MAX_EXACT_EXPLAINERS = 8  # with more, p is from random orderings
_HIGH_TAU = 0.9
_ROUNDING = 1e-9
_Line = Mapping[Any, Any]  # of a data frame
_Explainers = tuple[str, ...]  # titles


@dataclass(frozen=True)
class Verdict:
    """A headline, and the sentences below it."""

    headline: str
    is_significant: bool  # whether a τ of the headline is
    points: Sequence[str]


@dataclass(frozen=True)
class _Comparison:
    """The metrics that are compared with one ground truth: those that rank the most explainers, the highest τ first."""

    lines: pd.DataFrame  # of correlations.csv; τ is that without controls
    differences: pd.DataFrame  # between their τ
    record: RunRecord
    truth: str = ""
    contenders: Sequence[str] = ()  # titles of the explainers that are not controls
    controls: Sequence[str] = ()
    not_compared: Mapping[_Explainers, pd.DataFrame] = field(default_factory=dict)  # by the fewer explainers ranked

    @staticmethod
    def from_statistics(statistics: RunStatistics, record: RunRecord, truth: str) -> _Comparison:
        """Sort metrics by their τ without controls, equal ones by their p and then in the order of the tables."""
        correlations = _select_truth(statistics.correlations, record, truth)
        keys = ["metric", "variant"]
        tau_of_all = select_subset(correlations)[[*keys, "tau"]].rename(columns={"tau": "tau_of_all"})
        lines = select_subset(correlations, WITHOUT_CONTROLS).merge(tau_of_all, on=keys)
        lines = lines[~lines["metric"].isin(list_truth_metrics(record)) & lines["tau"].notna()]
        lines = lines.sort_values(["tau", "p_tau"], ascending=[False, True], kind="stable")
        differences = _select_truth(select_subset(statistics.differences, WITHOUT_CONTROLS), record, truth)
        contenders, controls = (
            list_contenders(statistics.metrics, record, controls=is_control) for is_control in (False, True)
        )
        groups = _group_by_explainers(lines, statistics.metrics, record, truth) or [((), lines)]
        (_, compared), *not_compared = groups
        differences = differences[differences["difference"].notna()]
        return _Comparison(compared, differences, record, truth, contenders, controls, dict(not_compared))

    @cached_property
    def pairs(self) -> list[Pair]:
        """The metrics with their variants."""
        return _list_pairs(self.lines)

    def get_title(self, pair: Pair) -> str:
        """Return a metric as the tables call it, without its arrow."""
        return make_metric_title(*pair, self.record).plain

    def join_titles(self, pairs: Sequence[Pair], max_count: int = _MAX_NAMED_METRICS) -> str:
        """Write several metrics as `A, B and 2 more`."""
        titles = [self.get_title(pair) for pair in pairs[:max_count]]
        n_more = len(pairs) - len(titles)
        return join_names([*titles, f"{n_more} more"] if n_more else titles)

    def get_difference(self, pair: Pair, other: Pair) -> _Line | None:
        """Return the test of the difference between the τ of two metrics, if there is one."""
        return self._difference_of.get((*pair, *other)) or self._difference_of.get((*other, *pair))

    @cached_property
    def _difference_of(self) -> dict[tuple[str, ...], _Line]:
        keys = ("metric", "variant", "than_metric", "than_variant")
        lines = self.differences.to_dict("records")
        return {tuple(line[key] for key in keys): line for line in reversed(lines)}  # the first of equal keys counts

    @property
    def best(self) -> Any:
        """The line with the highest τ."""
        return self.lines.iloc[0]

    @property
    def leaders(self) -> list[Pair]:
        """The metrics that share the highest τ."""
        taus = zip(self.pairs, self.lines["tau"], strict=True)
        return [pair for pair, tau in taus if abs(tau - self.best["tau"]) < _ROUNDING]

    @property
    def leader_lines(self) -> pd.DataFrame:
        """The lines of these metrics."""
        return self.lines.iloc[: len(self.leaders)]

    @property
    def n_ranked(self) -> int:
        """The number of explainers that were ranked."""
        return int(self.best["explainers"])

    @property
    def n_hypotheses(self) -> int:
        """The number of metrics with different τ."""
        return self._count_distinct(self.pairs)

    @property
    def can_be_significant(self) -> bool:
        """Whether the smallest possible p, adjusted for the number of metrics, is below the significance level."""
        if self.n_ranked > _MAX_EXACT_EXPLAINERS:
            return True
        return self.n_hypotheses / factorial(self.n_ranked) < SIGNIFICANCE_LEVEL

    @property
    def adjusted_p(self) -> float:
        """The p of the highest τ, adjusted for the number of metrics."""
        return min(1.0, float(self.best["p_tau"]) * self.n_hypotheses)

    @property
    def is_significant(self) -> bool:
        """Whether the highest τ is significantly above chance."""
        return bool(self.best["tau"] > 0 and self.can_be_significant and self.adjusted_p < SIGNIFICANCE_LEVEL)

    def _count_distinct(self, pairs: Sequence[Pair]) -> int:
        """Count metrics; those with the same τ in every resample count once."""
        same = self.differences[self.differences["same"].astype(bool)] if len(self.differences) else self.differences
        return len(pairs) - len(set(zip(same["than_metric"], same["than_variant"], strict=True)) & set(pairs))

    @property
    def resamples_note(self) -> str:
        """Why no difference between metrics can be significant; empty if there are enough resamples."""
        counts = [
            self.n_hypotheses,
            *(self._count_distinct(_list_pairs(lines)) for lines in self.not_compared.values()),
        ]
        n_tests = sum(count * (count - 1) // 2 for count in counts)  # all are adjusted together
        if not is_underpowered(self.record.resampled, n_tests):
            return ""
        return (
            f"{self.record.resampled:,} resamples are too few for any of the {n_tests} differences between metrics to "
            "be significant."
        )


def write_verdict(statistics: RunStatistics, record: RunRecord) -> Verdict:
    """Write the verdict on a run. With too few instances it is inconclusive, whatever the values are."""
    verdict = _write_verdict(statistics, record)
    count = record.instances
    if count >= MIN_INSTANCES:
        return _add_instance_verdict(verdict, write_instance_verdict(statistics, record))
    size = "1 instance is" if count == 1 else f"{count} instances are"
    return Verdict(f"Inconclusive: {size} too few to compare explainers or metrics", False, verdict.points)


def _add_instance_verdict(verdict: Verdict, sentences: Sequence[str]) -> Verdict:
    """Return a verdict that begins with the agreement within instances; few explainers allow few rankings."""
    if not sentences:
        return verdict
    return Verdict(". ".join(sentences), verdict.is_significant, [f"{verdict.headline}.", *verdict.points])


def _write_verdict(statistics: RunStatistics, record: RunRecord) -> Verdict:
    record = mark_low_coverage(statistics.metrics, record)
    if not record.truths and len(record.explainers) > 1:
        return _write_verdict_without_truth(statistics, record)
    truths = record.settings.truth
    every_comparison = [_Comparison.from_statistics(statistics, record, truth) for truth in truths]
    comparisons = [comparison for comparison in every_comparison if len(comparison.lines)]
    graded = _graded_notes(statistics.correlations, record)
    if not comparisons:
        if graded:
            return Verdict("Only graded control explainers were ranked", False, graded)
        reason = record.correlations_absent or _explain_missing_comparison(every_comparison)
        points = [note for truth in truths for note in _agreement_notes(statistics.metrics, record, truth)]
        return Verdict(f"Metrics are not ranked: {reason}", False, points)
    is_significant = any(comparison.is_significant for comparison in comparisons)
    if len(comparisons) == 1:
        (comparison,) = comparisons
        points = [*_list_points(statistics, comparison), *_not_compared_notes({"": comparison})]
        points += [*_other_truth_notes(statistics.correlations, comparison), *graded]
        headline = _write_headline(comparison)
        return Verdict(f"For this trained model: {headline}", is_significant, points)
    names = name_truths((comparison.truth for comparison in comparisons), record)
    by_question = {names[comparison.truth]: comparison for comparison in comparisons}
    points = [
        f"{question.capitalize()}: {point}"
        for question, comparison in by_question.items()
        for point in _list_brief_points(statistics, comparison)
    ]
    points += [*_not_compared_notes(by_question), _describe_tau(comparisons), *graded]
    return Verdict(_write_joint_headline(by_question), is_significant, points)


def _write_headline(comparison: _Comparison) -> str:
    """Write which metric agrees best with one ground truth, and whether that is significant."""
    leaders, best = comparison.join_titles(comparison.leaders), comparison.best
    if best["tau"] <= 0:
        return "no metric agrees with the ground truth (no τ is above 0)"
    if not comparison.can_be_significant:
        return f"inconclusive, {_describe_orderings(comparison.n_ranked)}; highest τ: {leaders}"
    verb = "have" if len(comparison.leaders) > 1 else "has"
    highest = f"{leaders} {verb} the highest τ with the ground truth"
    count = comparison.n_hypotheses
    adjusted = f"{format_p_value(comparison.adjusted_p)}{f', adjusted for {count} metrics' * (count > 1)}"
    if comparison.is_significant:
        return f"{highest}, significantly above chance ({adjusted})"
    if best["p_tau"] < SIGNIFICANCE_LEVEL:
        return f"{highest}, not significantly above chance ({adjusted})"
    return f"no metric is significantly above chance; highest τ: {leaders} ({format_p_value(best['p_tau'])})"


def _write_joint_headline(by_question: Mapping[str, _Comparison]) -> str:
    """Write the headlines of several ground truths; what all have in common is stated once."""
    comparisons = by_question.values()
    if all(comparison.best["tau"] > 0 and not comparison.can_be_significant for comparison in comparisons):
        reason = _describe_orderings(max(comparison.n_ranked for comparison in comparisons))
        highest = "; ".join(
            f"{comparison.join_titles(comparison.leaders)} for {question}"
            for question, comparison in by_question.items()
        )
        return f"Inconclusive for this trained model: {reason}. Highest τ: {highest}"
    return "For this trained model. " + ". ".join(
        f"{question.capitalize()}: {_write_headline(comparison)}" for question, comparison in by_question.items()
    )


def _describe_orderings(n_explainers: int) -> str:
    return f"{n_explainers} explainers allow only {factorial(n_explainers):,} orderings"


def _list_points(statistics: RunStatistics, comparison: _Comparison) -> list[str]:
    """Return all sentences on the only ground truth."""
    return [
        _describe_highest_tau(comparison),
        *_not_identifiable_notes(statistics, comparison),
        *_difference_notes(comparison),
        *_family_notes(comparison),
        *_agreement_notes(statistics.metrics, comparison.record, comparison.truth),
    ]


def _list_brief_points(statistics: RunStatistics, comparison: _Comparison) -> list[str]:
    """Return the sentences on one of several ground truths, in two paragraphs."""
    lines = comparison.leader_lines
    intervals = [_format_interval(*ends) for ends in zip(lines["tau_low"], lines["tau_high"], strict=True)]
    text = f"Highest τ {comparison.best['tau']:.3f}"
    if len(set(intervals)) > 1:
        text += f": {_join_with_intervals(comparison, intervals)}"
    else:
        text += f"{intervals[0]}: {comparison.join_titles(comparison.leaders)}"
    if comparison.controls:
        text += f"; with the controls {_format_range(lines['tau_of_all'])}"
    text += f"; {format_p_value(comparison.best['p_tau'])}"
    if comparison.n_hypotheses > 1:
        text += f", adjusted for {comparison.n_hypotheses} metrics {format_p_value(comparison.adjusted_p)}"
    first = [
        f"{text}.", *_not_identifiable_notes(statistics, comparison), *_difference_notes(comparison, is_brief=True)
    ]  # fmt: skip
    agreement = _agreement_notes(statistics.metrics, comparison.record, comparison.truth)
    return [" ".join(first), " ".join([*_family_notes(comparison), *agreement])]


def _join_with_intervals(comparison: _Comparison, intervals: Sequence[str]) -> str:
    """Write the metrics that share the highest τ, each with its own interval."""
    titles = [comparison.get_title(pair) for pair in comparison.leaders[:_MAX_NAMED_METRICS]]
    parts = [f"{title}{interval}" for title, interval in zip(titles, intervals, strict=False)]
    return f"{', '.join(parts)}{' …' * (len(intervals) > _MAX_NAMED_METRICS)}"


def _describe_tau(comparisons: Sequence[_Comparison]) -> str:
    """Write what τ and p are of, and what p can be with so few explainers."""
    comparison = max(comparisons, key=lambda comparison: comparison.n_ranked)
    level = f"{100 * comparison.record.settings.confidence:g} %"
    return (
        f"τ is Kendall's τ over {_describe_explainers(comparison)}, in brackets its {level} CI over instances. "
        f"p is one-sided ({_describe_test(comparison)}).{_describe_smallest_p(comparison)}"
    )


def _describe_test(comparison: _Comparison) -> str:
    return "exact" if comparison.n_ranked <= _MAX_EXACT_EXPLAINERS else "20,000 random orderings"


def _not_compared_notes(by_question: Mapping[str, _Comparison]) -> list[str]:
    """Return which metrics rank fewer explainers than those that are compared, and their τ."""
    comparisons = list(by_question.values())
    groups = []
    for explainers in dict.fromkeys(names for comparison in comparisons for names in comparison.not_compared):
        lines_of = {
            question: comparison.not_compared[explainers]
            for question, comparison in by_question.items()
            if explainers in comparison.not_compared
        }
        pairs = list(dict.fromkeys(pair for lines in lines_of.values() for pair in _list_pairs(lines)))
        absent = [title for title in comparisons[0].contenders if title not in explainers]
        without = f", without {join_names(absent)}" if absent else ""
        taus = [f"{question} {_format_range(lines['tau'])}".strip() for question, lines in lines_of.items()]
        titles = comparisons[0].join_titles(pairs)
        groups.append(f"{titles} ({len(explainers)} explainers{without}): τ {', '.join(taus)}")
    if not groups:
        return []
    return [f"Not compared, because they rank fewer explainers: {'; '.join(groups)}."]


def _explain_missing_comparison(comparisons: Sequence[_Comparison]) -> str:
    """Write why no metric can be compared with the ground truth."""
    contenders = comparisons[0].contenders if comparisons else ()
    needed = f"τ needs at least {MIN_RANKED_EXPLAINERS} explainers that are not controls"
    if len(contenders) >= MIN_RANKED_EXPLAINERS:
        return f"{needed}, and no metric has values for so many that the ground truth can rank"
    return f"{needed}, and this run has {f'{len(contenders)} ({join_names(contenders)})' if contenders else 'none'}"


def _write_verdict_without_truth(statistics: RunStatistics, record: RunRecord) -> Verdict:
    """Write which explainer ranks first by each kind of metrics, and how far the metrics agree with each other."""
    mean_ranks = compute_mean_ranks(statistics.metrics, record)
    if not mean_ranks:
        return Verdict("No ground truth for this model, and every metric ties the explainers", False, [])
    kinds_of: dict[str, list[str]] = {}  # by the explainers that rank first
    for kind, ranks in mean_ranks.items():
        best = [record.explainers[name] for name in ranks.index if ranks["mean"][name] == ranks["mean"].min()]
        verb = "ranks" if len(best) == 1 else "rank"
        kinds_of.setdefault(f"{join_names(best)} {verb} first", []).append(f"by {kind} metrics")
    points = [f"Metrics are not compared with a ground truth: {record.correlations_absent}."]
    for kind, ranks in mean_ranks.items():
        text = ", ".join(f"{record.explainers[name]} {ranks['mean'][name]:.2f}" for name in ranks.index)
        points.append(f"Mean rank over {ranks['count'].max()} {kind} metrics: {text}.")
    firsts = ", ".join(f"{first} {join_names(kinds)}" for first, kinds in kinds_of.items())
    return Verdict(
        f"No ground truth for this model: {firsts}", False, [*points, *_metric_agreement_notes(statistics, record)]
    )


def _metric_agreement_notes(statistics: RunStatistics, record: RunRecord) -> list[str]:
    """Return how far metrics agree with each other, within a kind and between kinds."""
    pairs = statistics.metric_agreement
    if pairs.empty:
        return []
    block = {name: entry.block for name, entry in record.metrics.items()}
    is_same = pairs["metric"].map(block) == pairs["other_metric"].map(block)
    notes = []
    for kinds, lines in (("the same kind", pairs[is_same]), ("different kinds", pairs[~is_same])):
        if len(lines):
            lowest = lines.sort_values("tau", kind="stable").to_dict("records")[0]
            titles = [
                make_metric_title(lowest[f"{prefix}metric"], lowest[f"{prefix}variant"], record).plain
                for prefix in ("", "other_")
            ]
            notes.append(
                f"τ between two metrics of {kinds}: {lines['tau'].mean():.2f} on average, lowest {lowest['tau']:.2f} "
                f"({titles[0]} and {titles[1]})."
            )
    return [*notes, "Agreement between metrics does not show that they are right. A ground truth is needed for that."]


def _group_by_explainers(
    lines: pd.DataFrame, metrics: pd.DataFrame, record: RunRecord, truth: str
) -> list[tuple[_Explainers, pd.DataFrame]]:
    """Group metrics by the explainers that they rank: most explainers first, then most metrics.

    The τ over different explainers are not comparable.
    """
    scored = metrics[metrics["quality_level"].isna() & ~metrics["control"].astype(bool) & metrics["value"].notna()]
    names: dict[Pair, set[str]] = {}
    for metric, variant, explainer in zip(scored["metric"], scored["variant"], scored["explainer"], strict=True):
        names.setdefault((metric, variant), set()).add(explainer)
    by_truth = names.get((record.settings.agreement, truth), set())
    ranked = [
        tuple(title for name, title in record.explainers.items() if name in names.get(pair, set()) & by_truth)
        for pair in _list_pairs(lines)
    ]
    groups = {titles: lines[[other == titles for other in ranked]] for titles in dict.fromkeys(ranked)}
    return sorted(groups.items(), key=lambda group: (-len(group[0]), -len(group[1])))


def _list_pairs(lines: pd.DataFrame) -> list[Pair]:
    return list(zip(lines["metric"], lines["variant"], strict=True))


def _format_range(values: pd.Series) -> str:
    """Write one value, or the smallest and the largest of several."""
    ends = [f"{value:.3f}" for value in (min(values), max(values))]
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def _format_interval(low: float, high: float) -> str:
    return "" if pd.isna(low) else f" [{low:.3f}, {high:.3f}]"


def _select_truth(frame: pd.DataFrame, record: RunRecord, truth: str) -> pd.DataFrame:
    return pd.DataFrame(frame[(frame["truth"] == truth) & (frame["agreement"] == record.settings.agreement)])


def _describe_highest_tau(comparison: _Comparison) -> str:
    """Write the highest τ with its interval and its p, and what p can be with so few explainers."""
    settings, best, lines = comparison.record.settings, comparison.best, comparison.leader_lines
    level = f"{100 * settings.confidence:g} % CI"
    ends = list(zip(lines["tau_low"], lines["tau_high"], strict=True))
    if len({(low, high) for low, high in ends if not pd.isna(low)}) > 1:
        intervals = [_format_interval(*pair) for pair in ends]
        interval = f" ({level}: {_join_with_intervals(comparison, intervals)})"
    elif pd.isna(best["tau_low"]):
        interval = " (no CI)"
    else:
        interval = f" ({level}{_format_interval(best['tau_low'], best['tau_high'])})"
    subject = f"{comparison.join_titles(comparison.leaders)} {'have' if len(comparison.leaders) > 1 else 'has'}"
    text = (
        f"{subject} Kendall's τ = {best['tau']:.3f}{interval} with the ground truth ({settings.agreement}, "
        f"{comparison.truth}) over {_describe_explainers(comparison)}; {format_p_value(best['p_tau'])} (one-sided, "
        f"{_describe_test(comparison)})."
    )
    if comparison.n_hypotheses > 1:
        text += f" Adjusted for {comparison.n_hypotheses} different metrics: {format_p_value(comparison.adjusted_p)}."
    text += _describe_smallest_p(comparison)
    if comparison.controls:
        text += f" With the controls ({join_names(comparison.controls)}) τ is {_format_range(lines['tau_of_all'])}."
    return text


def _describe_smallest_p(comparison: _Comparison) -> str:
    """Write the smallest p that so few explainers allow; nothing if there are many."""
    count = comparison.n_ranked
    if count > _MAX_EXACT_EXPLAINERS:
        return ""
    smallest = 1 / factorial(count)
    text = f" {_describe_orderings(count)}: the smallest possible p is {P_VALUE.write(smallest)}"
    if not comparison.can_be_significant:
        return (
            f"{text}, not significant among {comparison.n_hypotheses} metrics. More explainers would help, more "
            "instances would not."
        )
    return f"{text}."


def _describe_explainers(comparison: _Comparison) -> str:
    """Write which explainers are ranked."""
    count, contenders = comparison.n_ranked, comparison.contenders
    named = f" ({join_names(contenders)})" if count == len(contenders) else ""
    return f"the {count} explainers{' that are not controls' * bool(comparison.controls)}{named}"


def _not_identifiable_notes(statistics: RunStatistics, comparison: _Comparison) -> list[str]:
    """Return which of the highest τ depend on the parametrisation of the model, and how far they can change."""
    if statistics.invariance is None:
        return []
    ranges = select_subset(statistics.invariance, WITHOUT_CONTROLS)
    lines = _select_truth(ranges, comparison.record, comparison.truth)
    lines = lines[lines["not_identifiable"].isin([True])]
    parts = [
        f"{comparison.get_title(pair)} {line['tau_lowest']:.3f} to {line['tau_highest']:.3f}"
        for pair in comparison.leaders[:_MAX_NAMED_METRICS]
        for line in lines[(lines["metric"] == pair[0]) & (lines["variant"] == pair[1])].to_dict("records")
    ]
    if not parts:
        return []
    return [
        "Not identifiable: this τ depends on the parametrisation of the model. Other parameters with the same "
        f"predictions and the same explanations give {'; '.join(parts)}"
        f"{' …' * (len(comparison.leaders) > _MAX_NAMED_METRICS)}."
    ]


def _difference_notes(comparison: _Comparison, *, is_brief: bool = False) -> list[str]:
    """Return how many other metrics have a significantly lower τ, and which do not."""
    first, leaders = comparison.pairs[0], comparison.leaders
    lower_pairs = [pair for pair in comparison.pairs if pair not in leaders]
    if not lower_pairs:
        return []
    tests = {pair: line for pair in lower_pairs if (line := comparison.get_difference(first, pair)) is not None}
    if not tests:
        return ["Differences between metrics were not tested: too few instances, or resamples=0."]
    if comparison.resamples_note:
        return [comparison.resamples_note]
    lower = [pair for pair, line in tests.items() if line["p_holm"] < SIGNIFICANCE_LEVEL]
    close = [pair for pair in lower_pairs if pair not in lower]
    text = (
        f"{len(lower)} of {len(lower_pairs)} other metrics have a significantly lower τ (p < {SIGNIFICANCE_LEVEL}, "
        "Holm-adjusted, over resampled instances)."
    )
    if not is_brief:
        text += " This holds for these explainers; with others the order may differ."
    if close:
        text += f" Not significantly different: {comparison.join_titles(close)}."
    return [text]


def _family_notes(comparison: _Comparison) -> list[str]:
    """Return the best counterfactual metric beside the best erasure metric, and whether they differ."""
    blocks = {name: entry.block for name, entry in comparison.record.metrics.items()}
    erasure = [pair for pair in comparison.pairs if blocks[pair[0]] == "erasure"]
    counterfactual = [pair for pair in comparison.pairs if blocks[pair[0]] == "counterfactual"]
    if not erasure or not counterfactual:
        return []
    taus = dict(zip(comparison.pairs, comparison.lines["tau"], strict=True))
    first, second = counterfactual[0], erasure[0]
    text = (
        f"Best counterfactual metric: {comparison.get_title(first)} (τ = {taus[first]:.3f}); best erasure metric: "
        f"{comparison.get_title(second)} (τ = {taus[second]:.3f})"
    )
    line = comparison.get_difference(first, second)
    if line is None:
        return [f"{text}."]
    if abs(taus[first] - taus[second]) < _ROUNDING:
        return [f"{text}; no difference."]
    if comparison.resamples_note:
        return [f"{text}."]
    negation = "" if line["p_holm"] < SIGNIFICANCE_LEVEL else "not "
    return [f"{text}; {negation}significantly different ({format_p_value(line['p_holm'])}, Holm-adjusted)."]


def _other_truth_notes(correlations: pd.DataFrame, comparison: _Comparison) -> list[str]:
    """Return which metric has the highest τ with each ground truth that the run does not lead with."""
    record, settings = comparison.record, comparison.record.settings
    correlations = select_subset(correlations, WITHOUT_CONTROLS)
    judged = correlations[
        (correlations["agreement"] == settings.agreement)
        & ~correlations["metric"].isin(list_truth_metrics(record)) & correlations["tau"].notna()
    ]  # fmt: skip
    highest = comparison.lines["tau"].max()
    leaders = {pair for pair, tau in zip(comparison.pairs, comparison.lines["tau"], strict=True) if tau == highest}
    parts, has_same_leader = [], True
    for truth in dict.fromkeys(judged["truth"]):
        if truth in settings.truth:
            continue
        lines = judged[judged["truth"] == truth]
        lines = lines[[pair in comparison.pairs for pair in _list_pairs(lines)]]  # over the same explainers
        if lines.empty:
            continue
        best = lines[lines["tau"] == lines["tau"].max()]
        pairs = _list_pairs(best)
        has_same_leader &= bool(leaders & set(pairs))
        parts.append(f"{truth}: {comparison.join_titles(pairs, 2)} (τ = {best['tau'].iloc[0]:.3f})")
    if not parts:
        return []
    dependence = "" if has_same_leader else "The best metric depends on the definition of the ground truth. "
    return [f"{dependence}Highest τ with other definitions: {'; '.join(parts)}."]


def _agreement_notes(metrics: pd.DataFrame, record: RunRecord, truth: str) -> list[str]:
    """Return the agreement of each explainer with the ground truth."""
    agreement = record.settings.agreement
    lines = metrics[
        (metrics["metric"] == agreement) & (metrics["variant"] == truth)
        & metrics["quality_level"].isna() & metrics["value"].notna()
    ].sort_values("value", ascending=False, kind="stable")  # fmt: skip
    if lines.empty:
        return []
    displayed = lines.iloc[:_MAX_NAMED_EXPLAINERS]
    values = ", ".join(
        f"{record.explainers[name]} {value:.3f}"
        for name, value in zip(displayed["explainer"], displayed["value"], strict=True)
    )
    count, total = int(lines["n"].max()), record.instances
    part = f", on {count:,} of {total:,} instances" * (count < total)
    return [
        f"Agreement with the ground truth ({agreement}, {truth}{part}): {values}"
        f"{' …' * (len(lines) > _MAX_NAMED_EXPLAINERS)}."
    ]


def _graded_notes(correlations: pd.DataFrame, record: RunRecord) -> list[str]:
    """Return how many metrics rank graded control explainers in the right order."""
    is_judged = ~correlations["metric"].isin(list_truth_metrics(record)) & correlations["tau"].notna()
    lines = correlations[(correlations["family"] == GRADED) & is_judged]
    if lines.empty:
        return []
    lines = lines.sort_values("tau", ascending=False, kind="stable")
    titles = [make_metric_title(*pair, record).plain for pair in _list_pairs(lines)]
    n_high = int((lines["tau"] >= _HIGH_TAU).sum())
    return [
        f"On {int(lines['explainers'].max())} graded control explainers {n_high} of {len(lines)} metrics reach "
        f"τ ≥ {_HIGH_TAU}; highest: {titles[0]} ({lines['tau'].iloc[0]:.3f}), lowest: {titles[-1]} "
        f"({lines['tau'].iloc[-1]:.3f}). Graded controls are easier to rank than real explainers: they select "
        "reference features or random ones."
    ]
