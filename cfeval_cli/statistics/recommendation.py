"""Which explainer is most faithful to a model: scores against reference attributions, and what follows from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from cfeval_cli.core import NO_FEATURE, Bools, Floats, Ints
from cfeval_cli.core.ranking import count_shared_features
from cfeval_cli.core.scratch import iterate_slabs
from cfeval_cli.statistics.best_explainer import PairedMeans
from cfeval_cli.statistics.bootstrap import MIN_INSTANCES

MAX_K = 5  # scores are computed for k = 1 to 5
MIN_STABILITY = 0.7  # a lower agreement between two seeds of an explainer is pointed out
MAX_COST_SHARE = 0.5  # a cheaper explainer uses at most this share of the evaluations
MAX_SHOWN_DISAGREEMENTS = 3

Question = Literal["contribution", "change"]
QUESTIONS: tuple[Question, ...] = ("contribution", "change")


@dataclass(frozen=True)
class ExplainerFacts:
    """What is known of an explainer besides its scores."""

    title: str
    is_control: bool = False
    evaluations: float | None = None  # of the model, per instance; None: unknown
    stability: float | None = None  # mean share of equal top-k features under another explainer seed
    n_repeated: int = 0  # instances that were explained with that seed
    coverage: float | None = None  # share of instances with at least k features

    @property
    def is_unstable(self) -> bool:
        """Whether another explainer seed selects too many other features; not if that was not computed."""
        return self.stability is not None and self.stability < MIN_STABILITY


@dataclass(frozen=True)
class ReferenceScore:
    """How well an explainer selects the features that the reference attributions rank highest."""

    explainer: str
    recall: tuple[float, ...]  # for k = 1, 2, …
    mass: tuple[float | None, ...]  # captured share of the positive reference attributions, for k = 1, 2, …
    low: float | None = None  # interval of the recall at the run's k
    high: float | None = None
    is_circular: bool = False  # whether the explainer approximates the reference attributions by construction


@dataclass(frozen=True)
class Difference:
    """The recall of one explainer less that of another, with a simultaneous interval and its p."""

    explainer: str
    other: str
    difference: float
    low: float
    high: float
    p: float


@dataclass(frozen=True)
class Alternative:
    """A cheaper explainer, and whether it is non-inferior to every other explainer."""

    explainer: str
    cost_share: float  # its evaluations relative to those of the best
    is_non_inferior: bool
    n_required: int | None = None  # instances that would show it, if it is not shown


@dataclass(frozen=True)
class GroupScores:
    """The recall of the explainers on the instances with one value of a column."""

    column: str
    value: str
    n_instances: int
    recall: Mapping[str, float]
    low: Mapping[str, float]  # empty for small groups
    high: Mapping[str, float]


@dataclass(frozen=True)
class Check:
    """Other evidence on the same question, which does not replace the answer."""

    source: Literal["metric", "judge"]
    name: str
    variant: str = ""  # of a metric
    first: Sequence[str] = ()  # the explainers that it ranks first
    agrees: bool = True  # whether one of them may be the best by the reference attributions
    fidelity: float | None = None  # of a judge: agreement with the predictions of the model


@dataclass(frozen=True)
class Answer:
    """Which explainer is most faithful, for one question."""

    truth: str | None = None
    reason: str = ""  # why there is no answer
    n_instances: int = 0
    is_reweighted: bool = False  # whether small classes have more instances than their share, and less weight
    n_without_mass: int = 0  # instances without positive reference attributions
    scores: Sequence[ReferenceScore] = ()  # the best first, controls last
    confidence_set: Sequence[str] = ()  # the explainers that may be the best, the best first
    n_to_separate: int | None = None  # instances that would separate the first two of the confidence set
    alternative: Alternative | None = None
    differences: Sequence[Difference] = ()  # of all pairs of explainers that are not controls
    smallest_p: float | None = None  # that the number of resamples allows
    groups: Sequence[GroupScores] = ()
    checks: Sequence[Check] = ()

    @property
    def best(self) -> str | None:
        """The explainer with the highest score."""
        return self.confidence_set[0] if self.confidence_set else None

    def add_checks(self, checks: Sequence[Check]) -> Answer:
        """Return the answer with checks, each of which agrees if it ranks a member of the confidence set first."""
        members = set(self.confidence_set)
        checked = [replace(check, agrees=bool(members & set(check.first))) for check in checks]
        return replace(self, checks=checked if members else ())

    @property
    def is_conclusive(self) -> bool:
        """Whether a single explainer may be the best."""
        return len(self.confidence_set) == 1 and self.n_instances >= MIN_INSTANCES


@dataclass(frozen=True)
class Disagreement:
    """An instance for which explainers select different features."""

    instance: int
    selected: Mapping[str, Sequence[int]]  # features by number


@dataclass(frozen=True)
class Recommendation:
    """Everything in recommendation.json."""

    k: int
    margin: float
    confidence: float
    explainers: Mapping[str, ExplainerFacts]
    answers: Mapping[Question, Answer]
    disagreements: Sequence[Disagreement] = ()

    @property
    def is_computed(self) -> bool:
        """Whether any question has reference attributions."""
        return any(answer.truth is not None for answer in self.answers.values())

    def check(self) -> None:
        """Raise a ValueError if the entries do not fit together."""
        for question, answer in self.answers.items():
            names = {score.explainer for score in answer.scores} | set(answer.confidence_set)
            if unknown := sorted(names - set(self.explainers)):
                raise ValueError(f"answers.{question} names {unknown[0]!r}, which is not among the explainers")
            if any(len(score.recall) < self.k or len(score.mass) < self.k for score in answer.scores):
                raise ValueError(f"answers.{question} has no scores for k = {self.k}")
            if answer.confidence_set and not answer.scores:
                raise ValueError(f"answers.{question} has no scores")


@dataclass(frozen=True)
class ReferenceSample:
    """The instances with reference attributions, and the rankings of the explainers there."""

    importance: Floats  # (n, M), -inf where a feature is absent
    ranks: Mapping[str, Ints]  # for each explainer the rank (n, M) of each feature, M for features not selected
    weights: Floats  # (n,) so that the sample represents the test set
    strata: Ints  # (n,)
    columns: Mapping[str, Sequence[str]] = field(default_factory=dict)  # by which scores are broken down

    def compute_scores(self, name: str, k: int) -> tuple[Floats, Floats]:
        """Return the recall (n,), and the captured mass (n,), NaN where there is none to capture."""
        is_selected = self.ranks[name] < k
        recall = count_shared_features(self.importance, is_selected, k) / k
        return recall, compute_captured_mass(self.importance, is_selected, k)

    def take(self, rows: Ints) -> ReferenceSample:
        """Return some of the instances."""
        return ReferenceSample(
            self.importance[rows],
            {name: ranks[rows] for name, ranks in self.ranks.items()},
            self.weights[rows],
            self.strata[rows],
            {column: [texts[row] for row in rows.tolist()] for column, texts in self.columns.items()},
        )


def compute_captured_mass(importance: Floats, is_selected: Bools, k: int) -> Floats:
    """Return the positive importance of the selected features over that of the best k; NaN where it is zero."""
    positive = np.maximum(np.where(np.isfinite(importance), importance, 0.0), 0.0)
    best = -np.sort(-positive, axis=1)[:, :k].sum(axis=1)
    captured = np.where(is_selected, positive, 0.0).sum(axis=1)
    return np.asarray(np.divide(captured, best, out=np.full(len(best), np.nan), where=best > 0))


def answer_question(
    truth: str,
    sample: ReferenceSample,
    facts: Mapping[str, ExplainerFacts],
    circular: Sequence[str],
    *,
    k: int,
    margin: float,
    confidence: float,
    seed: int,
) -> Answer:
    """Return which explainers may be the best at selecting the reference top k, and what a cheaper one would cost."""
    size = len(sample.importance)
    names = [name for name in sample.ranks if not facts[name].is_control]
    controls = [name for name in sample.ranks if facts[name].is_control]
    ks = range(1, min(max(MAX_K, k), sample.importance.shape[1]) + 1)
    by_k = {name: [sample.compute_scores(name, number) for number in ks] for name in [*names, *controls]}
    recall = {name: np.stack([scores[k - 1][0]], axis=1) for name, scores in by_k.items()}
    paired = PairedMeans.compute(
        np.concatenate([recall[name] for name in [*names, *controls]], axis=1), seed, sample.weights, sample.strata
    )
    low, high = paired.compute_interval(confidence)
    has_interval = size >= MIN_INSTANCES
    scores = {
        name: ReferenceScore(
            name,
            recall=tuple(float(np.average(of_k[0], weights=sample.weights)) for of_k in by_k[name]),
            mass=tuple(_average_defined(of_k[1], sample.weights) for of_k in by_k[name]),
            low=float(low[i]) if has_interval else None,
            high=float(high[i]) if has_interval else None,
            is_circular=name in circular,
        )
        for i, name in enumerate([*names, *controls])
    }
    ranking = sorted(names, key=lambda name: _get_rank_key(scores[name], facts[name], k))
    ordered = [scores[name] for name in [*ranking, *controls]]
    n_without_mass = int(np.isnan(by_k[next(iter(by_k))][k - 1][1]).sum()) if by_k else 0
    groups = _score_groups(sample, recall, confidence, seed)
    answer = Answer(truth, n_instances=size, n_without_mass=n_without_mass, scores=ordered, groups=groups)
    if not names:
        return replace(answer, reason="every explainer is a control")
    ranked_means = paired.select([names.index(name) for name in ranking])
    may_be_best = ranked_means.find_confidence_set() if has_interval else np.ones(len(ranking), dtype=bool)
    confidence_set = [name for name, is_member in zip(ranking, may_be_best, strict=True) if is_member]
    # The observed best is always named: it is never the explainer that is most clearly below another.
    return replace(
        answer,
        confidence_set=confidence_set,
        n_to_separate=_compute_size_to_separate(ranking, ranked_means, confidence_set),
        alternative=_find_alternative(ranking, ranked_means, facts, margin) if has_interval else None,
        differences=_list_differences(ranking, ranked_means, confidence) if has_interval else (),
        smallest_p=1 / (1 + len(ranked_means.resampled)) if has_interval else None,
    )


def _compute_size_to_separate(
    ranking: Sequence[str], ranked_means: PairedMeans, confidence_set: Sequence[str]
) -> int | None:
    """Return the instances needed to separate the first two of a confidence set; None if it has one, or if they tie."""
    if len(confidence_set) < 2:
        return None
    return ranked_means.compute_size_to_separate(*map(ranking.index, confidence_set[:2]))


def _average_defined(values: Floats, weights: Floats) -> float | None:
    """Return the weighted mean of the defined values; None if there are none."""
    is_defined = ~np.isnan(values)
    return float(np.average(values[is_defined], weights=weights[is_defined])) if is_defined.any() else None


def _get_rank_key(score: ReferenceScore, facts: ExplainerFacts, k: int) -> tuple[float, float, float, str]:
    """Return the key that sorts the best explainer first: ties by captured mass, evaluations, and name."""
    mass = score.mass[k - 1]
    evaluations = np.inf if facts.evaluations is None else facts.evaluations
    return -round(score.recall[k - 1], 12), -round(mass or 0.0, 12), evaluations, score.explainer


def _find_alternative(
    ranking: Sequence[str], ranked_means: PairedMeans, facts: Mapping[str, ExplainerFacts], margin: float
) -> Alternative | None:
    """Return the cheapest non-inferior explainer; if there is none, that with the smallest required sample size."""
    best = facts[ranking[0]].evaluations
    if not best:
        return None
    shares = {name: cost / best for name in ranking[1:] if (cost := facts[name].evaluations) is not None}
    cheaper = [
        i for i, name in enumerate(ranking) if shares.get(name, 1.0) <= MAX_COST_SHARE and not facts[name].is_unstable
    ]
    is_non_inferior = ranked_means.find_non_inferior(margin)
    if non_inferior := [i for i in cheaper if is_non_inferior[i]]:
        name = min((ranking[i] for i in non_inferior), key=lambda name: shares[name])
        return Alternative(name, shares[name], is_non_inferior=True)
    required = {ranking[i]: size for i in cheaper if (size := ranked_means.compute_size_for_non_inferiority(i, margin))}
    if not required:
        return None
    name = min(required, key=lambda name: required[name])
    return Alternative(name, shares[name], is_non_inferior=False, n_required=required[name])


def _list_differences(ranking: Sequence[str], ranked_means: PairedMeans, confidence: float) -> list[Difference]:
    """Return the difference of each pair, the better explainer first."""
    half_width, p = ranked_means.compare_pairs(confidence)
    return [
        Difference(
            ranking[i], ranking[j], difference := float(ranked_means.differences[i, j]),
            difference - float(half_width[i, j]), difference + float(half_width[i, j]), float(p[i, j]),
        )
        for i in range(len(ranking))
        for j in range(i + 1, len(ranking))
    ]  # fmt: skip


def _score_groups(
    sample: ReferenceSample, recall: Mapping[str, Floats], confidence: float, seed: int
) -> list[GroupScores]:
    """Return the recall by each value of each column; a group below the minimum size has no intervals."""
    groups, names = [], list(recall)
    for column, texts in sample.columns.items():
        values = np.asarray(texts, dtype=object)
        for value in sorted(set(texts)):
            rows = np.flatnonzero(values == value)
            scores = np.concatenate([recall[name][rows] for name in names], axis=1)
            means = PairedMeans.compute(scores, seed, sample.weights[rows])
            low: dict[str, float] = {}
            high: dict[str, float] = {}
            if len(rows) >= MIN_INSTANCES:
                low, high = (dict(zip(names, end.tolist(), strict=True)) for end in means.compute_interval(confidence))
            by_name = dict(zip(names, means.means.tolist(), strict=True))
            groups.append(GroupScores(column, value, len(rows), by_name, low, high))
    return groups


def find_disagreements(selected: Mapping[str, Ints], ids: Ints, n_features: int) -> list[Disagreement]:
    """Return the instances for which explainers select the most different features (n, k).

    By the mean over pairs of explainers of 1 - |intersection| / |union|; explainers without features do not count.
    """
    if len(selected) < 2 or not len(ids):
        return []
    parts = [[features[slab] for features in selected.values()] for slab in iterate_slabs(len(ids))]
    distances = np.concatenate([_compute_mean_distance(part, n_features) for part in parts])
    order = np.lexsort((ids, -np.round(distances, 9)))[:MAX_SHOWN_DISAGREEMENTS]
    return [
        Disagreement(
            int(ids[i]),
            {name: [int(j) for j in features[i] if j != NO_FEATURE] for name, features in selected.items()},
        )
        for i in order.tolist()
        if distances[i] > 0
    ]


def _compute_mean_distance(selected: Sequence[Ints], n_features: int) -> Floats:
    """Return the mean Jaccard distance (n,) between the features (n, k) that explainers select."""
    is_selected = np.zeros((len(selected[0]), len(selected), n_features + 1))
    for i, features in enumerate(selected):
        np.put_along_axis(is_selected[:, i], features, 1.0, axis=1)  # NO_FEATURE = -1 is written to the spare column
    is_selected = is_selected[:, :, :-1]
    sizes = is_selected.sum(axis=2)
    shared = is_selected @ is_selected.transpose(0, 2, 1)
    union = sizes[:, :, None] + sizes[:, None, :] - shared
    distance: Floats = 1.0 - shared / np.maximum(union, 1.0)
    has_features = (sizes[:, :, None] > 0) & (sizes[:, None, :] > 0)
    first, second = np.triu_indices(len(selected), 1)
    counts = has_features[:, first, second].sum(axis=1)
    return np.asarray(np.where(has_features, distance, 0.0)[:, first, second].sum(axis=1) / np.maximum(counts, 1))
