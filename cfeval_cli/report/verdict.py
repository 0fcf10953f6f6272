"""What a run says, in words: no more than its figures bear."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import factorial
from typing import Any

import pandas as pd

from cfeval_cli.report.build_scores import compute_mean_ranks
from cfeval_cli.report.notes import describe_controls
from cfeval_cli.report.numbers import P_VALUE
from cfeval_cli.report.titles import (
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
from cfeval_cli.statistics.findings import Findings
from cfeval_cli.statistics.hypothesis_tests import SIGNIFICANCE_LEVEL, is_underpowered
from cfeval_cli.statistics.subsets import WITHOUT_CONTROLS, select_subset

_NAMED = 4  # metrics whose intervals are told
_ALL_ORDERS = 8  # explainers up to which p is exact
_Pair = tuple[str, str]  # metric and variant
_Names = tuple[str, ...]  # of explainers


@dataclass(frozen=True)
class Verdict:
    """A headline and what is to be said below it."""

    headline: str
    sure: bool  # whether something in it is significant
    points: Sequence[str]


@dataclass(frozen=True)
class _Judged:
    """The metrics that were judged by a truth that the run leads with."""

    lines: pd.DataFrame  # of correlations.csv, best τ first; τ is that without controls, over the same explainers
    differences: pd.DataFrame
    record: RunRecord
    truth: str = ""
    left: Sequence[str] = ()  # the explainers that are no controls
    controls: Sequence[str] = ()
    fewer: Mapping[_Names, pd.DataFrame] = field(default_factory=dict)  # lines of metrics that ranked others, by whom

    @staticmethod
    def of(findings: Findings, record: RunRecord, truth: str) -> _Judged:
        """The largest τ without controls first; equal ones by their p and in the order of the tables.

        A τ over other explainers is another figure: those over the most explainers are compared.
        """
        correlations = _by(findings.correlations, record, truth)
        pair = ["metric", "variant"]
        tau_of_all = select_subset(correlations)[[*pair, "tau"]].rename(columns={"tau": "tau_of_all"})
        lines = select_subset(correlations, WITHOUT_CONTROLS).merge(tau_of_all, on=pair)
        lines = lines[~lines["metric"].isin(list_truth_metrics(record)) & lines["tau"].notna()]
        lines = lines.sort_values(["tau", "p_tau"], ascending=[False, True], kind="stable")
        differences = _by(select_subset(findings.differences, WITHOUT_CONTROLS), record, truth)
        left, controls = (list_contenders(findings.metrics, record, controls=controls) for controls in (False, True))
        compared, *fewer = _alike(lines, findings.metrics, record, truth) or [((), lines)]
        differences = differences[differences["difference"].notna()]
        return _Judged(compared[1], differences, record, truth, left, controls, dict(fewer))

    @cached_property
    def pairs(self) -> list[_Pair]:
        """Metrics and variants."""
        return _pairs(self.lines)

    def name(self, pair: _Pair) -> str:
        """A metric as the tables call it, without its arrow."""
        return make_metric_title(*pair, self.record).plain

    def names(self, pairs: Sequence[_Pair], most: int = 4) -> str:
        """Several metrics, in words."""
        shown = [self.name(pair) for pair in pairs[:most]]
        more = len(pairs) - len(shown)
        return join_names([*shown, f"{more} more"] if more else shown)

    def between(self, one: _Pair, other: _Pair) -> Mapping[Any, Any] | None:
        """How much the τ of two metrics differ, if that is known."""
        return self._known.get((*one, *other)) or self._known.get((*other, *one))

    @cached_property
    def _known(self) -> dict[tuple[str, ...], Mapping[Any, Any]]:
        pairs = ("metric", "variant", "than_metric", "than_variant")
        lines = self.differences.to_dict("records")
        return {tuple(line[name] for name in pairs): line for line in reversed(lines)}  # the first of equals stays

    @property
    def best(self) -> Any:
        """The line of the largest τ."""
        return self.lines.iloc[0]

    @property
    def alike(self) -> list[_Pair]:
        """The metrics that have it."""
        taus = zip(self.pairs, self.lines["tau"], strict=True)
        return [pair for pair, tau in taus if abs(tau - self.best["tau"]) < 1e-9]

    @property
    def ranked(self) -> int:
        """How many explainers were ranked."""
        return int(self.best["explainers"])

    @property
    def able(self) -> bool:
        """Whether so many explainers have enough orders for a perfect one to be significant among the metrics."""
        return self.ranked > _ALL_ORDERS or self.hypotheses / factorial(self.ranked) < SIGNIFICANCE_LEVEL

    @property
    def corrected(self) -> float:
        """p of the largest τ, as that of the best of several."""
        return min(1.0, float(self.best["p_tau"]) * self.hypotheses)

    @property
    def sure(self) -> bool:
        """Whether the best is better than chance."""
        return bool(self.best["tau"] > 0 and self.able and self.corrected < SIGNIFICANCE_LEVEL)

    @cached_property
    def hypotheses(self) -> int:
        """How many metrics can differ: those with the same τ in every resample count once."""
        return self._different(self.pairs)

    def _different(self, pairs: Sequence[_Pair]) -> int:
        """How many of some metrics have not the same τ as another one in every resample."""
        twins = self.differences[self.differences["same"].astype(bool)] if len(self.differences) else self.differences
        return len(pairs) - len(set(zip(twins["than_metric"], twins["than_variant"], strict=True)) & set(pairs))

    @property
    def blunt(self) -> str:
        """Why no difference between metrics could be sure, if that is so."""
        resamples = self.record.resampled
        many = [self.hypotheses, *(self._different(_pairs(lines)) for lines in self.fewer.values())]
        tested = sum(one * (one - 1) // 2 for one in many)  # all are corrected together
        if not is_underpowered(resamples, tested):
            return ""
        return f"{resamples:,} resamples are too few to be sure of any of {tested} differences between metrics."


def write_verdict(findings: Findings, record: RunRecord) -> Verdict:
    """The verdict on a run; of a handful of instances nothing is claimed."""
    found = _verdict(findings, record)
    few = record.instances
    if few >= MIN_INSTANCES:
        return found
    many = "One instance is" if few == 1 else f"{few} instances are"
    return Verdict(f"{many} too few to tell which explainer or which metric is right", False, found.points)


def _verdict(findings: Findings, record: RunRecord) -> Verdict:
    """On each of the truths that the run leads with, by what they ask."""
    record = mark_low_coverage(findings.metrics, record)
    if not record.truths and len(record.explainers) > 1:
        return _without_truth(findings, record)
    everyone = [_Judged.of(findings, record, truth) for truth in record.settings.truth]
    judged = [one for one in everyone if len(one.lines)]
    ladder = _ladder(findings.correlations, record)
    if not judged:
        reason = record.correlations_absent or _nobody(everyone)
        if ladder:
            return Verdict("On a ladder of explainers of known order", False, ladder)
        found = [point for truth in record.settings.truth for point in _found(findings.metrics, record, truth)]
        return Verdict(
            "This run cannot tell which metric agrees with the truth", False, [f"No correlations: {reason}.", *found]
        )
    sure = any(one.sure for one in judged)
    if len(judged) == 1:
        points = [*_points(findings, judged[0]), *_fewer({"": judged[0]})]
        points += [*_truths(findings.correlations, judged[0]), *ladder]
        return Verdict(f"For this one trained model: {_headline(judged[0])}", sure, points)
    names = name_truths((one.truth for one in judged), record)
    questions = {names[one.truth]: one for one in judged}
    points = [f"{name.capitalize()}: {point}" for name, one in questions.items() for point in _brief(findings, one)]
    return Verdict(_headlines(questions), sure, [*points, *_fewer(questions), _shared(judged), *ladder])


def _headline(judged: _Judged) -> str:
    """Which metric is closest to one of the truths, and how sure that is."""
    many, who = len(judged.alike) > 1, judged.names(judged.alike)
    if judged.best["tau"] <= 0:
        return "no metric ranks the explainers as the truth does"
    if not judged.able:
        told = f"which metric agrees with the truth cannot be told with {_words(judged.ranked)} explainers"
        return f"{told}; {who} {'come' if many else 'comes'} closest"
    if judged.sure:
        return f"{who} {'agree' if many else 'agrees'} best with the truth, and better than chance"
    if judged.best["p_tau"] < SIGNIFICANCE_LEVEL:
        more = "but one of so many metrics may do so by chance"
        return f"{who} {'agree' if many else 'agrees'} best with the truth, {more}"
    return f"no metric can be told from chance; {who} {'come' if many else 'comes'} closest to the truth"


def _headlines(questions: Mapping[str, _Judged]) -> str:
    """The same of several truths; what holds of all of them is said once."""
    if all(judged.best["tau"] > 0 and not judged.able for judged in questions.values()):
        few = {judged.ranked for judged in questions.values()}
        closest = "; ".join(f"about {name} {judged.names(judged.alike)}" for name, judged in questions.items())
        return (
            f"For this one trained model {_words(max(few))} explainers cannot tell which metric agrees with the truth. "
            f"Closest: {closest}"
        )
    return "For this one trained model. " + ". ".join(
        f"{name.capitalize()}: {_headline(judged)}" for name, judged in questions.items()
    )


def _points(findings: Findings, judged: _Judged) -> list[str]:
    """All that is to be said of one truth."""
    points = [_strength(judged), *_moving(findings, judged), *_apart(judged), *_families(judged)]
    return [*points, *_found(findings.metrics, judged.record, judged.truth)]


def _brief(findings: Findings, judged: _Judged) -> list[str]:
    """What is to be said of one of several truths: the figures, and what one can act on."""
    lines = judged.lines.iloc[: len(judged.alike)]  # the leaders come first
    ends = [_interval(low, high) for low, high in zip(lines["tau_low"], lines["tau_high"], strict=True)]
    text = f"{judged.names(judged.alike, _NAMED)}: τ = {judged.best['tau']:.3f}{ends[0]}"
    if len(set(ends)) > 1:  # the same τ, and not the same certainty
        named = zip(judged.alike[:_NAMED], ends, strict=False)
        told = ", ".join(f"{judged.name(pair)}{end}" for pair, end in named)
        text = f"τ = {judged.best['tau']:.3f}: {told}{' …' * (len(ends) > _NAMED)}"
    if judged.controls:
        text += f", with the controls {_of_all(lines)}"
    text += f"; {format_p_value(judged.best['p_tau'])}"
    if judged.hypotheses > 1:
        text += f", {format_p_value(judged.corrected)} as the best of {judged.hypotheses} metrics"
    first = [f"{text}.", *_moving(findings, judged), *_apart(judged, brief=True)]
    found = _found(findings.metrics, judged.record, judged.truth)
    return [" ".join(first), " ".join([*_families(judged), *found])]


def _shared(everyone: Sequence[_Judged]) -> str:
    """What the figures of several truths have in common: who was ranked, and what so few can show."""
    judged = max(everyone, key=lambda one: one.ranked)
    level = f"{100 * judged.record.settings.confidence:g} %"
    exact = "exact" if judged.ranked <= _ALL_ORDERS else "from 20,000 random orders"
    return (
        f"τ is Kendall's over {_who(judged, judged.ranked)}, in brackets its {level} interval over instances; p is "
        f"{exact} and one-sided.{_orders(judged)}"
    )


def _fewer(questions: Mapping[str, _Judged]) -> list[str]:
    """Which metrics ranked fewer explainers than those that are compared, and their τ with each truth."""
    told = []
    for who in dict.fromkeys(who for judged in questions.values() for who in judged.fewer):
        lines = {name: judged.fewer[who] for name, judged in questions.items() if who in judged.fewer}
        judged = next(iter(questions.values()))
        pairs = list(dict.fromkeys(pair for of in lines.values() for pair in _pairs(of)))
        absent = [title for title in judged.left if title not in who]
        ends = [f"{name} {_from_to(list(of['tau']))}".strip() for name, of in lines.items()]
        without = f", without {join_names(absent)}" if absent else ""
        told.append(f"{judged.names(pairs)} ({len(who)} explainers{without}): τ {', '.join(ends)}")
    if not told:
        return []
    return [f"Ranked fewer explainers, and not compared with the others: {'; '.join(told)}."]


def _nobody(everyone: Sequence[_Judged]) -> str:
    """Why no metric can be judged."""
    judged = next(iter(everyone), None)
    if judged is not None and judged.controls and len(judged.left) < 2:
        left = f"{judged.left[0]} alone" if judged.left else "nobody"
        what = describe_controls(judged.controls, judged.record)
        return (
            f"without the controls ({join_names(judged.controls)}), {what}, {left} is left, and a ranking needs two "
            "explainers"
        )
    return "no metric has values for two explainers that the truth could rank"


def _words(number: int) -> str:
    return {2: "two", 3: "three", 4: "four", 5: "five", 6: "six"}.get(number, str(number))


def _without_truth(findings: Findings, record: RunRecord) -> Verdict:
    """Who comes first by the metrics of each kind, and how far the metrics agree with each other."""
    found = compute_mean_ranks(findings.metrics, record)
    if not found:
        return Verdict("No truth is known of this model, and no metric tells the explainers apart", False, [])
    firsts: dict[str, list[str]] = {}  # who comes first, and by metrics of which kinds
    for block, mean in found.items():
        best = [name for name in mean.index if mean["mean"][name] == mean["mean"].min()]
        many = "comes" if len(best) == 1 else "come"
        who = f"{join_names([record.explainers[name] for name in best])} {many} first"
        firsts.setdefault(who, []).append(f"by {block} metrics")
    points = [f"No correlations: {record.correlations_absent}."]
    for block, mean in found.items():
        ranks = ", ".join(f"{record.explainers[name]} {mean['mean'][name]:.2f}" for name in mean.index)
        points.append(f"Mean rank over {mean['count'].max()} {block} metrics: {ranks}.")
    return Verdict(
        "No truth is known of this model: " + ", ".join(f"{who} {join_names(kinds)}" for who, kinds in firsts.items()),
        False,
        [*points, *_each_other(findings, record)],
    )


def _each_other(findings: Findings, record: RunRecord) -> list[str]:
    """How far metrics agree, within a kind and across kinds."""
    pairs = findings.metric_agreement
    if pairs.empty:
        return []
    block = {name: facts.block for name, facts in record.metrics.items()}
    same = pairs["metric"].map(block) == pairs["other_metric"].map(block)
    told = []
    for kind, lines in (("of the same kind", pairs[same]), ("of different kinds", pairs[~same])):
        if len(lines):
            lowest = lines.sort_values("tau", kind="stable").to_dict("records")[0]
            names = [
                make_metric_title(lowest[f"{which}metric"], lowest[f"{which}variant"], record).plain
                for which in ("", "other_")
            ]
            told.append(
                f"Two metrics {kind} rank the explainers alike with τ = {lines['tau'].mean():.2f} on average, at "
                f"worst {lowest['tau']:.2f} ({names[0]} and {names[1]})."
            )
    return [*told, "Metrics that agree need not be right: only a model whose truth is known can tell."]


def _alike(
    lines: pd.DataFrame, metrics: pd.DataFrame, record: RunRecord, truth: str
) -> list[tuple[_Names, pd.DataFrame]]:
    """Lines of correlations.csv by the explainers that their metrics rank: first the most explainers, then metrics."""
    there = metrics[metrics["rung"].isna() & ~metrics["control"].astype(bool) & metrics["value"].notna()]
    names: dict[_Pair, set[str]] = {}
    for metric, variant, explainer in zip(there["metric"], there["variant"], there["explainer"], strict=True):
        names.setdefault((metric, variant), set()).add(explainer)
    true = names.get((record.settings.agreement, truth), set())
    who = [
        tuple(title for name, title in record.explainers.items() if name in names.get(pair, set()) & true)
        for pair in _pairs(lines)
    ]
    groups = {one: lines[[other == one for other in who]] for one in dict.fromkeys(who)}
    return sorted(groups.items(), key=lambda group: (-len(group[0]), -len(group[1])))


def _pairs(lines: pd.DataFrame) -> list[_Pair]:
    """Metrics and variants of lines."""
    return list(zip(lines["metric"], lines["variant"], strict=True))


def _from_to(values: Sequence[float]) -> str:
    """One value, or the smallest and the largest of several."""
    told = [f"{value:.3f}" for value in (min(values), max(values))]
    return told[0] if told[0] == told[1] else f"{told[0]} to {told[1]}"


def _by(frame: pd.DataFrame, record: RunRecord, truth: str) -> pd.DataFrame:
    """The lines that judge by one truth."""
    return pd.DataFrame(frame[(frame["truth"] == truth) & (frame["agreement"] == record.settings.agreement)])


def _strength(judged: _Judged) -> str:
    """τ with its interval and its p, and how many orders there are."""
    settings, best, alike = judged.record.settings, judged.best, judged.alike
    lines = judged.lines.iloc[: len(alike)]  # the leaders come first
    ends = {(low, high) for low, high in zip(lines["tau_low"], lines["tau_high"], strict=True) if not pd.isna(low)}
    interval = _interval(best["tau_low"], best["tau_high"], settings.confidence) or " (no interval)"
    if len(ends) > 1:  # the same τ, and not the same certainty
        told = ", ".join(
            f"{judged.name(p)}{_interval(low, high)}"
            for p, low, high in zip(alike[:_NAMED], lines["tau_low"], lines["tau_high"], strict=False)
        )
        interval = f" ({100 * settings.confidence:g} % intervals: {told}{' …' * (len(alike) > _NAMED)})"
    exact = "exact test" if judged.ranked <= _ALL_ORDERS else "test by 20,000 random orders"
    whose = f"{judged.name(alike[0])} has" if len(alike) == 1 else "They have"
    text = (
        f"{whose} Kendall's τ = {best['tau']:.3f}{interval} with the ground truth ({settings.agreement}, truth: "
        f"{judged.truth}) over {_who(judged, judged.ranked)}; {exact}: {format_p_value(best['p_tau'])}, one-sided."
    )
    if judged.hypotheses > 1:
        text += f" Corrected for being the best of {judged.hypotheses} different metrics: "
        text += f"{format_p_value(judged.corrected)}."
    text += _orders(judged)
    if judged.controls:
        text += f" With the controls ({join_names(judged.controls)}) τ is {_of_all(lines)}."
    return text


def _orders(judged: _Judged) -> str:
    """What so few explainers can show at most."""
    many = judged.ranked
    if many > _ALL_ORDERS:
        return ""
    least = 1 / factorial(many)
    text = f" {many} explainers have only {factorial(many):,} orders"
    if least >= SIGNIFICANCE_LEVEL:
        return f"{text}: no p can be below {P_VALUE.write(least)}, and nothing can be significant."
    if not judged.able:
        return (
            f"{text}: the smallest p is {P_VALUE.write(least)}, too large to be significant among {judged.hypotheses} "
            "metrics. More explainers would help, more instances would not."
        )
    return f"{text}, so that the smallest p is {P_VALUE.write(least)}."


def _of_all(lines: pd.DataFrame) -> str:
    """τ with the controls, of one metric or of several."""
    return _from_to(list(lines["tau_of_all"]))


def _moving(findings: Findings, judged: _Judged) -> list[str]:
    """Which of the leaders owe their τ to parameters that no prediction depends on."""
    if findings.invariance is None:
        return []
    ranges = select_subset(findings.invariance, WITHOUT_CONTROLS)
    alike, lines = judged.alike, _by(ranges, judged.record, judged.truth)
    lines = lines[lines["moves"].isin([True])]
    told = [
        f"{judged.name(pair)} from {one['tau_lowest']:.3f} to {one['tau_highest']:.3f}"
        for pair in alike[:_NAMED]
        for one in lines[(lines["metric"] == pair[0]) & (lines["variant"] == pair[1])].to_dict("records")
    ]
    if not told:
        return []
    return [
        "This depends on an arbitrary constant of the model, not on its predictions: written in other parameters that "
        f"change no prediction, with the same explanations, τ goes: {'; '.join(told)}{' …' * (len(alike) > _NAMED)}."
    ]


def _who(judged: _Judged, many: int) -> str:
    """Which explainers were ranked."""
    named = f" ({join_names(judged.left)})" if many == len(judged.left) else ""
    return f"{many} explainers{' that are no controls' * bool(judged.controls)}{named}"


def _apart(judged: _Judged, *, brief: bool = False) -> list[str]:
    """Which of the other metrics are further from the truth for sure."""
    pair, alike = judged.pairs[0], judged.alike
    others = [other for other in judged.pairs if other not in alike]
    if not others:
        return []
    known = {other: line for other in others if (line := judged.between(pair, other)) is not None}
    if not known:
        return ["How sure the differences between metrics are is not known: too few instances, or resamples=0."]
    if judged.blunt:
        return [judged.blunt]
    worse = [other for other, line in known.items() if line["p_holm"] < SIGNIFICANCE_LEVEL]
    close = [other for other in others if other not in worse]
    if brief:
        text = f"{len(worse)} of {len(others)} other metrics are further from the truth whichever instances are drawn"
        return [f"{text}; not told apart: {judged.names(close)}." if close else f"{text}."]
    text = (
        f"With these very explainers, {len(worse)} of {len(others)} other metrics are further from the truth "
        f"whichever instances are drawn (p < {SIGNIFICANCE_LEVEL} after Holm's correction); other explainers may give "
        "another order."
    )
    if close:
        text += f" Not told apart: {judged.names(close)}."
    return [text]


def _families(judged: _Judged) -> list[str]:
    """Counterfactual metrics against erasure metrics, by the best of each."""
    blocks = {name: facts.block for name, facts in judged.record.metrics.items()}
    erasure = [pair for pair in judged.pairs if blocks[pair[0]] == "erasure"]
    edits = [pair for pair in judged.pairs if blocks[pair[0]] == "counterfactual"]
    if not erasure or not edits:
        return []
    tau = dict(zip(judged.pairs, judged.lines["tau"], strict=True))
    a, b = edits[0], erasure[0]
    text = (
        f"Counterfactual metrics reach τ = {tau[a]:.3f} ({judged.name(a)}), erasure metrics {tau[b]:.3f} "
        f"({judged.name(b)})"
    )
    line = judged.between(a, b)
    if line is None:
        return [f"{text}."]
    told = f"{format_p_value(line['p_holm'])} after Holm's correction"
    if abs(tau[a] - tau[b]) < 1e-9:
        return [f"{text}: no difference."]
    if judged.blunt:
        return [f"{text}."]
    sure = (
        "a difference that other instances would hardly undo"
        if line["p_holm"] < SIGNIFICANCE_LEVEL
        else "not a sure difference"
    )
    return [f"{text}: {sure} ({told})."]


def _truths(correlations: pd.DataFrame, judged: _Judged) -> list[str]:
    """Who is best under the truths that do not lead."""
    settings, correlations = judged.record.settings, select_subset(correlations, WITHOUT_CONTROLS)
    mine = correlations[
        (correlations["agreement"] == settings.agreement)
        & ~correlations["metric"].isin(list_truth_metrics(judged.record)) & correlations["tau"].notna()
    ]  # fmt: skip
    told, same = [], True
    leaders = {p for p, tau in zip(judged.pairs, judged.lines["tau"], strict=True) if tau == judged.lines["tau"].max()}
    for truth in dict.fromkeys(mine["truth"]):
        if truth in settings.truth:
            continue
        lines = mine[mine["truth"] == truth]
        lines = lines[[pair in judged.pairs for pair in _pairs(lines)]]  # over the same explainers
        if lines.empty:
            continue
        top = lines[lines["tau"] == lines["tau"].max()]
        pairs = list(zip(top["metric"], top["variant"], strict=True))
        same &= bool(leaders & set(pairs))
        told.append(f"{truth}: {judged.names(pairs, 2)} (τ = {top['tau'].iloc[0]:.3f})")
    if not told:
        return []
    depends = "Best under" if same else "What is best depends on what counts as true. Under"
    return [f"{depends} other definitions: {'; '.join(told)}."]


def _found(metrics: pd.DataFrame, record: RunRecord, truth: str) -> list[str]:
    """How much of the truth each explainer finds."""
    settings = record.settings
    mine = metrics[
        (metrics["metric"] == settings.agreement) & (metrics["variant"] == truth)
        & metrics["rung"].isna() & metrics["value"].notna()
    ].sort_values("value", ascending=False, kind="stable")  # fmt: skip
    if mine.empty:
        return []
    some = mine if len(mine) <= 8 else mine.iloc[:8]
    told = ", ".join(
        f"{record.explainers[name]} {value:.3f}" for name, value in zip(some["explainer"], some["value"], strict=True)
    )
    n, total = int(mine["n"].max()), record.instances
    on = f", on {n:,} of {total:,} instances" * (n < total)
    return [f"The truth itself ({settings.agreement}, truth: {truth}{on}): {told}{' …' * (len(mine) > 8)}."]


def _ladder(correlations: pd.DataFrame, record: RunRecord) -> list[str]:
    """Which metrics order a ladder rightly."""
    mine = correlations[(correlations["family"] == GRADED) & ~correlations["metric"].isin(list_truth_metrics(record))]
    mine = mine[mine["tau"].notna()]
    if mine.empty:
        return []
    judged = _Judged(mine.sort_values("tau", ascending=False, kind="stable"), mine.iloc[:0], record)
    many, right = int(mine["explainers"].max()), int((judged.lines["tau"] >= 0.9).sum())
    text = (
        f"On a ladder of {many} explainers of known order, {right} of {len(mine)} metrics reach τ ≥ 0.9; the highest "
        f"is {judged.name(judged.pairs[0])} ({judged.lines['tau'].iloc[0]:.3f}), the lowest "
        f"{judged.name(judged.pairs[-1])} ({judged.lines['tau'].iloc[-1]:.3f}). A ladder asks less than real "
        "explainers do: true or random, not true or almost."
    )
    return [text]


def _interval(low: float, high: float, confidence: float | None = None) -> str:
    level = f" ({100 * confidence:g} % interval)" if confidence else ""
    return "" if pd.isna(low) else f" [{low:.3f}, {high:.3f}]{level}"
