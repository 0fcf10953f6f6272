"""What the metrics say of the same explanations if the model is written in other parameters that change no prediction.

Searches, distances, removals, truths and metrics are computed anew, on a sample of the instances. A result that moves
is no property of the model: it depends on something that training left open.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from cfeval_cli.core import (
    ABSENT,
    NO_FEATURE,
    Access,
    Bools,
    Counterfactuals,
    ExplainerResult,
    Explanation,
    FittedDistance,
    Floats,
    InspectionDepth,
    Ints,
    Ledger,
    ParameterChange,
    Reparametrisable,
    Rows,
    Score,
    SearchTask,
)
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.without import compute_removal_effect
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.context import RunContext, fit_removal
from cfeval_cli.pipeline.score import create_metric_input, evaluate_metric
from cfeval_cli.pipeline.search import Edits
from cfeval_cli.pipeline.search_job import get_stream_name
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.bootstrap import divide_or_nan
from cfeval_cli.statistics.invariance import TOGETHER, ReparametrisedValues
from cfeval_cli.statistics.scores import MetricKey, Scores

_MOST = 500  # instances
_FEW = 100  # instances where every edit has to be searched again
_SEARCHES = 10  # draws of each change there
_PREPARING = 1 << 33  # multiplications that all distances together may take to be prepared
_FEWEST = 2  # draws, however much that is
_PROBE = 16  # explanations by which one sees how deep a part looks into the model
_CLOSE = 1e-9  # logits that differ by no more are the same


def compute_reparametrised_scores(
    context: RunContext,
    explanations: Mapping[str, ExplainerResult],
    chosen: Mapping[str, Ints],
    edits: Mapping[str, Edits],
    scores: Scores,
    advance: Callable[[int], None],
) -> ReparametrisedValues | None:
    """The metrics' values under each change alone and under all together; None for a model without such changes."""
    model = context.model
    if not context.plan.settings.reparametrisations or not isinstance(model, Reparametrisable):
        return None
    context = replace(context, ledger=Ledger())  # an account of its own
    short = context.dataset.padded or bool((context.rows.codes == ABSENT).any())
    changes = model.list_changes(padded=short)
    everyone = _compared(context, chosen)
    told = {name: done.explanation for name, done in explanations.items()}
    trial = _Trial.of(context, _sample(context, everyone, _MOST), told, chosen, edits)
    if trial.repeats:
        trial = _Trial.of(context, _sample(context, everyone, _FEW), told, chosen, edits)
    # effects of single values, and what is left without them, depend on the constant alone
    embeddings = trial.parts(InspectionDepth.EMBEDDINGS)
    effects = trial.parts(InspectionDepth.EFFECTS) if "constant" in changes else embeddings
    base = trial.told(scores)
    for rows in (effects.said, embeddings.said):  # a search that is repeated in another way is compared with itself
        base.write(rows)
    draws = trial.draws(len(changes) + 1)
    changed: dict[str, Floats] = {}

    def under(wanted: Collection[ParameterChange], parts: _Parts, start: Floats) -> Floats:
        """The values (draws, R, E) under some changes; what none of the parts can move is as at the start."""
        tables = np.broadcast_to(start, (draws, *base.values.shape)).copy()
        for i in range(draws if parts.metrics else 0):
            rng = make_stream(context.plan.settings.seed, "reparametrisation", i)
            other = replace(context, model=model.reparametrise(context.dataset, wanted, rng), ledger=Ledger())
            trial.check(other)
            replace(base, values=tables[i]).write(dict(trial.values(other, parts)))
            advance(1)
        return tables

    for change in changes:
        changed[change] = under([change], effects if change == "constant" else embeddings, base.values)
    if len(changes) > 1:
        changed[TOGETHER] = under(changes, embeddings, changed.get("constant", base.values))
    return ReparametrisedValues(base.rows, base.explainers, base.values, changed, len(trial.sample))


def _compared(context: RunContext, chosen: Mapping[str, Ints]) -> Ints:
    """The instances that all explainers cover, if these are compared; a rung or who covers none limits nobody."""
    covers = [
        (features != NO_FEATURE).any(axis=1)
        for name, features in chosen.items()
        if np.isnan(context.plan.explainers[name].quality_level) and (features != NO_FEATURE).any()
    ]
    common = np.logical_and.reduce(covers) if covers else np.ones(len(context.instances), dtype=bool)
    return np.flatnonzero(
        common if context.plan.settings.support == "common" and common.any() else np.ones_like(common)
    )


def _sample(context: RunContext, everyone: Ints, most: int) -> Ints:
    """Of some instances all, or a seeded sample."""
    if len(everyone) <= most:
        return everyone
    return np.sort(
        make_stream(context.plan.settings.seed, "reparametrisation.instances").choice(everyone, most, replace=False)
    )


@dataclass(frozen=True)
class _Values:
    """A table of values by row and explainer."""

    rows: list[MetricKey]
    explainers: list[str]
    values: Floats  # (R, E)

    def write(self, found: Mapping[MetricKey, Floats]) -> None:
        """Put rows (E,) into their places; one that nobody has a score of has none."""
        for row in set(self.rows) & set(found):
            self.values[self.rows.index(row)] = found[row]


@dataclass(frozen=True)
class _Parts:
    """What metrics are given that depends on more than predictions of whole inputs, and who is to be asked about it."""

    levels: tuple[Access, ...]  # of the search
    removals: tuple[str, ...]
    truths: tuple[str, ...]
    metrics: tuple[str, ...]
    said: Mapping[MetricKey, Floats] = field(default_factory=dict)  # what those say (E,) with the model as it is


@dataclass(frozen=True)
class _Trial:
    """The explanations of a sample of the instances, those of all explainers one below the other."""

    context: RunContext
    sample: Ints  # (n,) places among all instances, ascending
    names: list[str]
    owner: Ints  # (m,) the explainer of each explanation
    place: Ints  # (m,) its instance among the sample
    features: Ints  # (m, k)
    explanation: Explanation  # (m, K)
    edits: Edits  # (m,) as the run found them

    @staticmethod
    def of(
        context: RunContext,
        sample: Ints,
        explanations: Mapping[str, Explanation],
        chosen: Mapping[str, Ints],
        edits: Mapping[str, Edits],
    ) -> _Trial:
        """The sample's part of what a run has."""
        owner, place, features, told = [], [], [], []
        found: dict[Access, list[Counterfactuals]] = {level: [] for level in context.distances}
        for number, (name, explained) in enumerate(chosen.items()):
            usable = (explained != NO_FEATURE).any(axis=1)
            here = np.flatnonzero(usable[sample])
            owner.append(np.full(len(here), number))
            place.append(here)
            features.append(explained[sample[here]])
            told.append(explanations[name].take(sample[here]))
            counted = np.cumsum(usable) - 1  # edits are of usable explanations only
            for level, parts in found.items():
                context.scratch.release()  # scattered rows bring all that lies near them into memory
                parts.append(edits[name][level].take(counted[sample[here]]))
            context.scratch.release()
        stacked = {level: Counterfactuals.concatenate(parts) for level, parts in found.items()}
        return _Trial(
            context, sample, list(chosen), np.concatenate(owner), np.concatenate(place), np.concatenate(features),
            Explanation.concatenate(told), stacked,
        )  # fmt: skip

    @cached_property
    def rows(self) -> Rows:
        """The instance (m,) of each explanation."""
        return self.context.rows.take(self.sample[self.place])

    def draws(self, kinds: int) -> int:
        """How often each change is drawn: as often as wanted, unless distances or searches take too long for that."""
        plan, dataset, model = self.context.plan, self.context.dataset, self.context.model
        levels = [level for level in self.context.distances if plan.distance.embeds(model, level)]
        each = kinds * sum(plan.distance.preparing(dataset, model, level) for level in levels)
        most = _SEARCHES if self.repeats else plan.settings.reparametrisations
        return min(plan.settings.reparametrisations, most, max(_FEWEST, _PREPARING // max(1, each)))

    def told(self, scores: Scores) -> _Values:
        """The run's own values on the sample."""
        rows = list(dict.fromkeys(row for (row, _), part in scores.series.items() if len(part)))
        values = np.full((len(rows), len(self.names)), np.nan)
        for (row, name), part in scores.series.items():
            mine = np.flatnonzero(np.isin(part.positions, self.sample))
            scores.scratch.release()  # what was read of the part before
            below = part.denominator[mine].sum()
            if below:
                values[rows.index(row), self.names.index(name)] = part.numerator[mine].sum() / below
        scores.scratch.release()
        return _Values(rows, self.names, values)

    def values(self, context: RunContext, parts: _Parts) -> Iterator[tuple[MetricKey, Floats]]:
        """What the metrics say of each explainer (E,) from these parts alone, made for the study's model."""
        plan, dataset, model = context.plan, context.dataset, context.model
        made = replace(
            context,
            rows=context.rows.take(self.sample),
            distances={level: plan.distance.fit(dataset, model, level) for level in parts.levels},
            removals={name: fit_removal(plan, dataset, model, name, Ledger()) for name in parts.removals},
        )
        truth = {name: made.truth(name)[self.place] for name in parts.truths}
        edits = {level: self._edited(made, level, measure) for level, measure in made.distances.items()}
        complete = np.ones(len(self.sample), dtype=bool)
        case = create_metric_input(made, self.rows, self.features, complete, edits, truth, self.explanation)
        for name in parts.metrics:
            ordered = self._ordered if plan.metrics[name].needs in ("order", "scores") else np.ones_like(self._ordered)
            for score in evaluate_metric(made, case, plan.metrics[name], f"metric.{name}"):
                if isinstance(score, Score):
                    some = np.arange(len(self.owner)) if score.positions is None else score.positions
                    above, below = (
                        np.bincount(self.owner[some], of * ordered[some], len(self.names)).astype(float)
                        for of in (score.numerator, score.denominator)
                    )
                    yield (plan.metrics[name].name, score.variant), divide_or_nan(above, below)

    @cached_property
    def _ordered(self) -> Bools:
        """Which explanations (m,) are of explainers that put features in an order."""
        gives = [self.context.plan.explainers[name].output == "scores" for name in self.names]
        return np.array(gives, dtype=bool)[self.owner]

    def _edited(self, context: RunContext, level: Access, measure: FittedDistance) -> Counterfactuals:
        """The run's own edits, measured anew; searched anew where the search could have found others."""
        found, search = self.edits[level], context.plan.search
        if found.codes is not None and level not in self._searched:
            return replace(found, distance=measure.between(self.rows.codes, found.codes))
        task = self._task(context, level, measure)
        return search.limit(task) or search.find(task)

    def _task(
        self, context: RunContext, level: Access, measure: FittedDistance, some: slice = slice(None)
    ) -> SearchTask:
        """The search as a run has it, with the same random numbers."""
        plan, dataset, rows = context.plan, context.dataset, self.rows.take(some)
        component = get_stream_name(level)
        return SearchTask(
            rows.ids, rows.codes, rows.labels, seed=plan.settings.seed, component=component,
            features=self.features[some], dataset=dataset, model=context.open_client(level, component), measure=measure,
        )  # fmt: skip

    def check(self, context: RunContext) -> None:
        """Refuse parameters that change a prediction of the sample, or whose embeddings give other effects."""
        codes = self.context.rows.codes[self.sample]
        client = context.open_client(Access.GRADIENT, "reparametrisation")
        logits, slopes = client.compute_linear_logits(codes)
        sums = np.sum([client.embed_values(j, codes[:, j]) @ slope for j, slope in enumerate(slopes)], axis=0)
        bias = logits - sums  # of every input the same
        apart = max(np.abs(logits - self._logits).max(initial=0.0), np.abs(bias - bias[:1]).max(initial=0.0))
        if not apart <= _CLOSE * max(1.0, np.abs(self._logits).max(initial=0.0)):
            raise Failure(
                f"a reparametrisation of the model changes a logit by {apart:.2g}, and may change no prediction. "
                "reparametrisations=0 leaves them out."
            )

    @cached_property
    def _logits(self) -> Floats:
        """Of the sample, by the model as it is."""
        client = Ledger().open_client(self.context.model, Access.GRADIENT, "reparametrisation")
        return client.compute_linear_logits(self.context.rows.codes[self.sample])[0]

    def parts(self, least: InspectionDepth) -> _Parts:
        """The parts that look so deep into the model, and the metrics that those or their own questions may move."""
        context, plan, looked = self.context, self.context.plan, self._looked
        embeds = [level for level in context.distances if plan.distance.embeds(context.model, level)]
        parts = _Parts(
            tuple(
                one
                for one in context.distances
                if one in embeds or looked.get_depth(f"search.{one.name.lower()}") >= least
            ),
            tuple(name for name in context.removals if looked.get_depth(f"removal.{name}") >= least),
            tuple(name for name in plan.truths if looked.get_depth(f"truth.{name}") >= least),
            tuple(name for name, metric in plan.metrics.items() if metric.role != "fact"),
        )
        given = bool(parts.levels or parts.removals or parts.truths)
        ledger = Ledger(records_depth=True)
        said = dict(self.values(replace(context, ledger=ledger), parts))
        # what is said without any of these parts does not depend on them
        alone = dict(self.values(context, _Parts((), (), (), parts.metrics))) if given else {}
        deep = {plan.metrics[key].name for key in parts.metrics if ledger.get_depth(f"metric.{key}") >= least}
        searched = any(level in self._searched for level in parts.levels)
        keys = {
            plan.metrics[key].name: key for key in parts.metrics
            if (given and (plan.metrics[key].uses_distances or searched)) or plan.metrics[key].name in deep
        }  # fmt: skip
        said = {
            row: values for row, values in said.items() if row[0] in keys and (row not in alone or row[0] in deep)
        }  # fmt: skip
        return replace(parts, metrics=tuple(dict.fromkeys(keys[name] for name, _ in said)), said=said)

    @cached_property
    def repeats(self) -> bool:
        """Whether edits have to be searched again, their end not being known."""
        context, few = self.context, slice(0, _PROBE)
        searched = [(level, context.distances[level]) for level in self._searched]
        return any(context.plan.search.limit(self._task(context, *one, few)) is None for one in searched)

    @cached_property
    def _searched(self) -> set[Access]:
        """The levels at which another edit may be found in other parameters."""
        context, search = self.context, self.context.plan.search
        return {
            level for level in context.distances
            if self._looked.get_depth(f"search.{level.name.lower()}") > InspectionDepth.PREDICTIONS
            or (search.by_distance and context.plan.distance.embeds(context.model, level))
        }  # fmt: skip

    @cached_property
    def _looked(self) -> Ledger:
        """How deep searches, removals and truths look, by trying each."""
        plan, dataset, model = self.context.plan, self.context.dataset, self.context.model
        ledger = Ledger(records_depth=True)
        watched = replace(self.context, ledger=ledger)
        few = self.rows.take(slice(0, _PROBE))
        gone = mark_selected(few.codes, self.features[:_PROBE])
        for name in plan.removals:
            way = fit_removal(plan, dataset, model, name, ledger)
            if way.replacement is not None:
                compute_removal_effect(
                    watched.open_client(Access.GRADIENT, f"removal.{name}"), few, gone, way.replacement
                )
        for name, truth in plan.truths.items():
            truth.compute_masked_importance(dataset, watched.open_client(truth.access, f"truth.{name}"), few)
        for level, measure in self.context.distances.items():
            plan.search.find(self._task(watched, level, measure, slice(0, _PROBE)))
        return ledger
