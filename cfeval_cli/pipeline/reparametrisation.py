"""The metrics' values for the same explanations when a model is written in other parameters with the same predictions.

Searches, distances, removals, truths and metrics are computed again on a sample of the instances. A value that changes
is not a property of the model's predictions: it depends on parameters that training leaves undetermined.
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
    LedgerKey,
    ParameterChange,
    Reparametrisable,
    Rows,
    Score,
    SearchTask,
)
from cfeval_cli.core.explanation import mark_selected
from cfeval_cli.core.removal_effect import compute_removal_effect
from cfeval_cli.errors import Failure
from cfeval_cli.pipeline.context import RunContext, fit_removal
from cfeval_cli.pipeline.score import create_metric_input, evaluate_metric
from cfeval_cli.pipeline.search import Edits
from cfeval_cli.pipeline.search_job import get_stream_name
from cfeval_cli.seeding import make_stream
from cfeval_cli.statistics.bootstrap import divide_or_nan
from cfeval_cli.statistics.invariance import ALL_CHANGES, ReparametrisedValues
from cfeval_cli.statistics.scores import MetricKey, Scores

_MAX_INSTANCES = 500
_MAX_SEARCHED_INSTANCES = 100  # where each counterfactual has to be searched again
_MAX_SEARCHED_DRAWS = 10  # of each change, in that case
_MIN_DRAWS = 2  # however long they take
_MAX_MULTIPLICATIONS = 1 << 33  # to fit the distances of all draws
_N_PROBED = 16  # explanations on which the inspection depth of each component is determined
_TOLERANCE = 1e-9  # for rounding of logits


def compute_reparametrised_scores(
    context: RunContext,
    explanations: Mapping[str, ExplainerResult],
    selected: Mapping[str, Ints],
    edits: Mapping[str, Edits],
    scores: Scores,
    advance: Callable[[int], None],
) -> ReparametrisedValues | None:
    """Return the metrics' values under each change alone and under all together; None for models without changes."""
    model, settings = context.model, context.plan.settings
    if not settings.reparametrisations or not isinstance(model, Reparametrisable):
        return None
    context = replace(context, ledger=Ledger())  # these evaluations belong to no component's cost
    has_absent = context.dataset.padded or bool((context.rows.codes == ABSENT).any())
    changes = model.list_changes(padded=has_absent)
    sample = _Sample.draw(context, _MAX_INSTANCES, explanations, selected, edits)
    if sample.must_search:
        sample = _Sample.draw(context, _MAX_SEARCHED_INSTANCES, explanations, selected, edits)
    # The constant changes effects of single values and deletions of features; all else needs changed embeddings.
    embeddings = sample.find_dependents(InspectionDepth.EMBEDDINGS)
    effects = sample.find_dependents(InspectionDepth.EFFECTS) if "constant" in changes else embeddings
    table = sample.tabulate(scores)
    for dependents in (effects, embeddings):  # a search that is repeated differently is compared with itself
        table.update(dependents.values)
    n_draws = sample.choose_n_draws(len(changes) + 1)

    def recompute(parameter_changes: Collection[ParameterChange], dependents: _Dependents, start: Floats) -> Floats:
        """Return the values (B, R, E) under some changes; those that are not dependents stay as at the start."""
        values = np.broadcast_to(start, (n_draws, *table.values.shape)).copy()
        for i in range(n_draws if dependents.metrics else 0):
            stream = make_stream(settings.seed, "reparametrisation", i)
            other = replace(
                context, model=model.reparametrise(context.dataset, parameter_changes, stream), ledger=Ledger()
            )
            sample.check_predictions(other)
            replace(table, values=values[i]).update(dict(sample.compute_values(other, dependents)))
            advance(1)
        return values

    values_by_change: dict[str, Floats] = {
        change: recompute([change], effects if change == "constant" else embeddings, table.values) for change in changes
    }
    if len(changes) > 1:
        start = values_by_change.get("constant", table.values)
        values_by_change[ALL_CHANGES] = recompute(changes, embeddings, start)
    return ReparametrisedValues(table.metrics, table.explainers, table.values, values_by_change, len(sample.positions))


def _sample_instances(context: RunContext, selected: Mapping[str, Ints], limit: int) -> Ints:
    """Return the positions of the instances that are compared, or of a seeded sample of them.

    These are the instances that all explainers cover, if explainers are compared on common instances. Graded controls,
    and explainers that cover no instance, do not limit them.
    """
    has_sample = [
        (features != NO_FEATURE).any(axis=1)
        for name, features in selected.items()
        if np.isnan(context.plan.explainers[name].quality_level) and (features != NO_FEATURE).any()
    ]
    positions = np.arange(len(context.instances))
    if (
        context.plan.settings.support == "common"
        and has_sample
        and (is_common := np.logical_and.reduce(has_sample)).any()
    ):
        positions = np.flatnonzero(is_common)
    if len(positions) <= limit:
        return positions
    stream = make_stream(context.plan.settings.seed, "reparametrisation.instances")
    return np.sort(stream.choice(positions, limit, replace=False))


@dataclass(frozen=True)
class _ValueTable:
    """Values by metric (with its variant) and explainer."""

    metrics: list[MetricKey]
    explainers: list[str]
    values: Floats  # (R, E)

    def update(self, rows: Mapping[MetricKey, Floats]) -> None:
        """Replace the rows (E,) of some metrics; metrics without any score in the run are left out."""
        for i, metric in enumerate(self.metrics):
            if metric in rows:
                self.values[i] = rows[metric]


@dataclass(frozen=True)
class _Dependents:
    """Components with results that can change with the parameters, and the metrics that use them."""

    levels: tuple[Access, ...]  # of the search
    removals: tuple[str, ...]
    truths: tuple[str, ...]
    metrics: tuple[str, ...]
    values: Mapping[MetricKey, Floats] = field(default_factory=dict)  # (E,) with the original parameters


@dataclass(frozen=True)
class _Sample:
    """The explanations of a sample of the instances, those of all explainers in one array."""

    context: RunContext
    positions: Ints  # (n,) of the sampled instances among all, ascending
    explainers: list[str]
    owner: Ints  # (m,) the explainer of each explanation
    member: Ints  # (m,) its instance in the sample
    features: Ints  # (m, k)
    explanation: Explanation  # (m, K)
    edits: Edits  # (m,) of the run

    @staticmethod
    def draw(
        context: RunContext,
        limit: int,
        explanations: Mapping[str, ExplainerResult],
        selected: Mapping[str, Ints],
        edits: Mapping[str, Edits],
    ) -> _Sample:
        """Return the explanations, and their counterfactuals, of at most so many instances."""
        positions = _sample_instances(context, selected, limit)
        owners, members, features, explained = [], [], [], []
        level_edits: dict[Access, list[Counterfactuals]] = {level: [] for level in context.distances}
        for number, (name, explainer_features) in enumerate(selected.items()):
            is_explained = (explainer_features != NO_FEATURE).any(axis=1)
            member = np.flatnonzero(is_explained[positions])
            explained_positions = positions[member]
            owners.append(np.full(len(member), number))
            members.append(member)
            features.append(explainer_features[explained_positions])
            explained.append(explanations[name].explanation.take(explained_positions))
            index = np.cumsum(is_explained) - 1  # the run has counterfactuals of explained instances only
            for level, parts in level_edits.items():
                context.scratch.release()  # scattered rows bring all that lies near them into memory
                parts.append(edits[name][level].take(index[explained_positions]))
            context.scratch.release()
        return _Sample(
            context, positions, list(selected), np.concatenate(owners), np.concatenate(members),
            np.concatenate(features), Explanation.concatenate(explained),
            {level: Counterfactuals.concatenate(parts) for level, parts in level_edits.items()},
        )  # fmt: skip

    @cached_property
    def rows(self) -> Rows:
        """The instance (m,) of each explanation."""
        return self.context.rows.take(self.positions[self.member])

    @cached_property
    def must_search(self) -> bool:
        """Whether counterfactuals have to be searched again, because their optimum is not known in closed form."""
        probe_rows = slice(0, _N_PROBED)
        tasks = [
            self._create_task(self.context, level, self.context.distances[level], probe_rows)
            for level in self._searched_levels
        ]
        return any(self.context.plan.search.find_limit(task) is None for task in tasks)

    def choose_n_draws(self, n_kinds: int) -> int:
        """Return how often each change is drawn: as the settings say, or less if distances or searches take long."""
        plan, dataset, model = self.context.plan, self.context.dataset, self.context.model
        levels = [level for level in self.context.distances if plan.distance.uses_embeddings(model, level)]
        multiplications = n_kinds * sum(plan.distance.estimate_fit_cost(dataset, model, level) for level in levels)
        requested = plan.settings.reparametrisations
        affordable = max(_MIN_DRAWS, _MAX_MULTIPLICATIONS // max(1, multiplications))
        return min(requested, affordable, _MAX_SEARCHED_DRAWS if self.must_search else requested)

    def tabulate(self, scores: Scores) -> _ValueTable:
        """Return the run's values on the sample."""
        metrics = list(dict.fromkeys(metric for (metric, _), series in scores.series.items() if len(series)))
        values = np.full((len(metrics), len(self.explainers)), np.nan)
        for (metric, explainer), series in scores.series.items():
            sampled = np.flatnonzero(np.isin(series.positions, self.positions))
            scores.scratch.release()
            denominator = series.denominator[sampled].sum()
            if denominator:
                cell = metrics.index(metric), self.explainers.index(explainer)
                values[cell] = series.numerator[sampled].sum() / denominator
        scores.scratch.release()
        return _ValueTable(metrics, self.explainers, values)

    def compute_values(self, context: RunContext, dependents: _Dependents) -> Iterator[tuple[MetricKey, Floats]]:
        """Yield the values (E,) of the dependent metrics, with the model of a context."""
        plan, dataset, model = context.plan, context.dataset, context.model
        context = replace(
            context,
            rows=context.rows.take(self.positions),
            distances={level: plan.distance.fit(dataset, model, level) for level in dependents.levels},
            removals={name: fit_removal(plan, dataset, model, name, Ledger()) for name in dependents.removals},
        )
        truth = {name: context.compute_importance(name)[self.member] for name in dependents.truths}
        edits = {level: self._update_edits(context, level, distance) for level, distance in context.distances.items()}
        complete = np.ones(len(self.positions), dtype=bool)
        inputs = create_metric_input(context, self.rows, self.features, complete, edits, truth, self.explanation)
        for name in dependents.metrics:
            metric = plan.metrics[name]
            is_counted = self._has_order if metric.needs in ("order", "scores") else np.ones_like(self._has_order)
            for score in evaluate_metric(context, inputs, metric):
                if isinstance(score, Score):
                    scored = np.arange(len(self.owner)) if score.positions is None else score.positions
                    numerator, denominator = (
                        np.bincount(self.owner[scored], part * is_counted[scored], len(self.explainers)).astype(float)
                        for part in (score.numerator, score.denominator)
                    )
                    yield (metric.name, score.variant), divide_or_nan(numerator, denominator)

    def check_predictions(self, context: RunContext) -> None:
        """Raise a Failure if other parameters change a logit of the sample, or embeddings do not sum to the logits."""
        codes = self.context.rows.codes[self.positions]
        client = context.open_client(Access.GRADIENT, LedgerKey("reparametrisation"))
        logits, gradients = client.compute_linear_logits(codes)
        sums = np.sum([client.embed_values(j, codes[:, j]) @ gradient for j, gradient in enumerate(gradients)], axis=0)
        bias = logits - sums  # equal for all inputs
        difference = max(np.abs(logits - self._logits).max(initial=0.0), np.abs(bias - bias[:1]).max(initial=0.0))
        if not difference <= _TOLERANCE * max(1.0, np.abs(self._logits).max(initial=0.0)):
            raise Failure(
                f"a reparametrisation of the model changes a logit by {difference:.2g}, and may change no prediction. "
                "reparametrisations=0 leaves them out."
            )

    def find_dependents(self, depth: InspectionDepth) -> _Dependents:
        """Return the components that inspect the model at least so deep, and the metrics that they can change."""
        context, plan, ledger = self.context, self.context.plan, self._inspections
        levels = tuple(
            level for level in context.distances
            if plan.distance.uses_embeddings(context.model, level)
            or ledger.get_depth(LedgerKey("search", access=level)) >= depth
        )  # fmt: skip
        removals = tuple(name for name in context.removals if ledger.get_depth(LedgerKey("removal", name)) >= depth)
        truths = tuple(name for name in plan.truths if ledger.get_depth(LedgerKey("truth", name)) >= depth)
        judged = tuple(name for name, metric in plan.metrics.items() if metric.role != "fact")
        all_metrics = _Dependents(levels, removals, truths, judged)
        has_dependents, is_searched = bool(levels or removals or truths), not self._searched_levels.isdisjoint(levels)
        ledger = Ledger(records_depth=True)
        values = dict(self.compute_values(replace(context, ledger=ledger), all_metrics))
        # Metrics that have values without any of these components do not depend on them.
        no_components = _Dependents((), (), (), judged)
        independent = dict(self.compute_values(context, no_components)) if has_dependents else {}
        inspecting = {
            plan.metrics[key].name
            for key in judged
            if ledger.get_depth(LedgerKey("metric", plan.metrics[key].name)) >= depth
        }
        keys = {}
        for key in judged:
            uses_components = has_dependents and (plan.metrics[key].uses_distances or is_searched)
            if uses_components or plan.metrics[key].name in inspecting:
                keys[plan.metrics[key].name] = key
        values = {
            metric: row for metric, row in values.items()
            if metric[0] in keys and (metric not in independent or metric[0] in inspecting)
        }  # fmt: skip
        return replace(all_metrics, metrics=tuple(dict.fromkeys(keys[name] for name, _ in values)), values=values)

    def _update_edits(self, context: RunContext, level: Access, distance: FittedDistance) -> Counterfactuals:
        """Return the run's counterfactuals with their new distances; others where the search could find others."""
        edits, search = self.edits[level], context.plan.search
        if edits.codes is not None and level not in self._searched_levels:
            return replace(edits, distance=distance.compute_distances(self.rows.codes, edits.codes))
        task = self._create_task(context, level, distance)
        return search.find_limit(task) or search.find(task)

    def _create_task(
        self, context: RunContext, level: Access, distance: FittedDistance, part: slice = slice(None)
    ) -> SearchTask:
        """Return the search task of the run, with the same random numbers."""
        rows, component, key = self.rows.take(part), get_stream_name(level), LedgerKey("search", access=level)
        return SearchTask(
            rows.ids, rows.codes, rows.predicted_classes, seed=context.plan.settings.seed, component=component,
            features=self.features[part], dataset=context.dataset, model=context.open_client(level, key),
            distance=distance,
        )  # fmt: skip

    @cached_property
    def _has_order(self) -> Bools:
        """Whether each explanation (m,) orders the features."""
        gives_scores = [self.context.plan.explainers[name].output == "scores" for name in self.explainers]
        return np.array(gives_scores, dtype=bool)[self.owner]

    @cached_property
    def _logits(self) -> Floats:
        """The logits of the sample with the original parameters."""
        client = Ledger().open_client(self.context.model, Access.GRADIENT, LedgerKey("reparametrisation"))
        return client.compute_linear_logits(self.context.rows.codes[self.positions])[0]

    @cached_property
    def _searched_levels(self) -> set[Access]:
        """The levels at which the search may find another counterfactual with other parameters."""
        context, search = self.context, self.context.plan.search
        return {
            level for level in context.distances
            if self._inspections.get_depth(LedgerKey("search", access=level)) > InspectionDepth.PREDICTIONS
            or (search.uses_distance and context.plan.distance.uses_embeddings(context.model, level))
        }  # fmt: skip

    @cached_property
    def _inspections(self) -> Ledger:
        """A ledger of how deep searches, removals and truths inspect the model, from running each on a few rows."""
        plan, dataset, model = self.context.plan, self.context.dataset, self.context.model
        ledger, probe_rows = Ledger(records_depth=True), slice(0, _N_PROBED)
        context, rows = replace(self.context, ledger=ledger), self.rows.take(probe_rows)
        is_removed = mark_selected(rows.codes, self.features[probe_rows])
        for name in plan.removals:
            removal = fit_removal(plan, dataset, model, name, ledger)
            if removal.replacement is not None:
                compute_removal_effect(
                    context.open_client(Access.GRADIENT, LedgerKey("removal", name)),
                    rows,
                    is_removed,
                    removal.replacement,
                )
        for name, truth in plan.truths.items():
            truth.compute_masked_importance(dataset, context.open_client(truth.access, LedgerKey("truth", name)), rows)
        for level, distance in self.context.distances.items():
            plan.search.find(self._create_task(context, level, distance, probe_rows))
        return ledger
