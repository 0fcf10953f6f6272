"""The files of a run folder, with name, columns, kinds and meaning of each table.

Readers validate with it, and docs/run-folder.md is generated from it:
`python -m cfeval_cli.results.schema docs/run-folder.md`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import pandas as pd

from cfeval_cli.results.locations import COSTS_TEXT_FILE, LATEX_FILE, MARKDOWN_FILE, PAGE_FILE
from cfeval_cli.statistics.subsets import SUBSETS

Kind = Literal["text", "integer", "number", "flag", "texts", "integers", "numbers"]


@dataclass(frozen=True)
class ColumnSchema:
    """One column of a table."""

    kind: Kind
    name: str
    meaning: str
    optional: bool = False  # whether some runs do not have it
    values: tuple[str, ...] = ()  # the only ones allowed; any if empty


@dataclass(frozen=True)
class TableSchema:
    """One file of a run folder."""

    name: str
    meaning: str
    keys: tuple[str, ...]  # the columns that identify a row
    columns: tuple[ColumnSchema, ...]
    optional: bool = False  # whether some runs do not have it

    @property
    def text_columns(self) -> list[str]:
        """The columns of text, which are never read as numbers."""
        return [column.name for column in self.columns if column.kind == "text"]

    def check_columns(self, names: Iterable[str]) -> None:
        """Raise ValueError if a key is missing, or a column is unknown."""
        present = list(names)
        missing = [key for key in self.keys if key not in present]
        if missing:
            raise ValueError(f"{self.name} has no column {missing[0]}")
        allowed = {column.name for column in self.columns}
        unknown = [name for name in present if name not in allowed]
        if unknown:
            raise ValueError(f"{self.name} has an unknown column {unknown[0]}")

    def check_rows(self, table: pd.DataFrame) -> None:
        """Raise ValueError if two rows have the same keys, or a value is not allowed."""
        if table.duplicated(list(self.keys)).any():
            raise ValueError(f"{self.name} has two lines of the same {', '.join(self.keys)}")
        for column in self.columns:
            if column.values and column.name in table and not table[column.name].isin(column.values).all():
                raise ValueError(f"{self.name}: {column.name} is one of {', '.join(column.values)}")


text = partial(ColumnSchema, "text")
integer = partial(ColumnSchema, "integer")
number = partial(ColumnSchema, "number")
flag = partial(ColumnSchema, "flag")
texts = partial(ColumnSchema, "texts")
integers = partial(ColumnSchema, "integers")
numbers = partial(ColumnSchema, "numbers")

# fmt: off
_INSTANCE = integer("instance", "number of the instance, as in instances.parquet")
_EXPLAINER = text("explainer", "config key of the explainer")
_METRIC = (
    text("metric", "name of the metric"),
    text("variant", "variant of the metric, listed below"),
)
_TRUTH = (
    text("truth", "the truth that the metric is compared with"),
    text("agreement", "how explanations are scored by it: `recall` or `hit`; `order` for graded controls, with a "
                      "known order"),
)
_SUBSET = text("subset", "the ranked explainers: `all`, or `without_controls` (see the column `control` of "
                         "metrics.csv)", values=SUBSETS)
_EXPLANATIONS_COLUMNS = (
    _INSTANCE,
    _EXPLAINER,
    integers("features", "selected features, most important first; all that the explainer returned, so possibly more "
                         "or fewer than k"),
    numbers("scores", "their scores in the explainer's own units: probability drop (omission, decision_boundary), "
                      "coefficient (lime), precision of the rule up to this feature (anchor), effect (lr), a random "
                      "number (random), the file's scores (file)"),
    text("fault", "why there is no explanation, if the explainer failed; else null"),
)
_COUNTERFACTUALS_COLUMNS = (
    _INSTANCE,
    _EXPLAINER,
    text("access", "what the search could use: `label`, `probability` or `gradient`"),
    integers("features", "selected features that may change"),
    integers("codes", "their new codes, for a search that exchanges values"),
    numbers("vectors", "their new embeddings, for a continuous search"),
    integer("label", "predicted class after the edit"),
    flag("flipped", "whether that differs from ŷ"),
    number("probability", "P(ŷ|x_cf); empty with label access"),
    number("distance", "distance of x and x_cf"),
    flag("converged", "whether an iterative search converged; else empty"),
    integer("steps", "steps of the continuous search from the best of its starts; empty for a search that does not "
                     "iterate"),
    flag("exhaustive", "whether all combinations of values were evaluated, not those of a beam search only; absent if "
                       "they were for all instances", optional=True),
)
_TABLES = (
    TableSchema("instances.parquet", "The explained instances, and what the model predicts for them.",
        keys=("instance",), columns=(
        integer("instance", "row of the original file, from 0, without the header; of several files the rows of the "
                            "first come first (training, validation, test); for text the number of the sentence "
                            "among those used, negative ones first"),
        integer("label", "true class"),
        integer("predicted", "predicted class ŷ"),
        number("probability", "P(1|x) of two classes; else empty"),
        number("predicted_probability", "P(ŷ|x); empty for a model that returns labels only"),
        integers("codes", "codes of the M features"),
        texts("values", "the same as text"),
        text("text", "the original string, for text; with `max_tokens` also what is behind the last "
                     "word used", optional=True),
        texts("words", "the original words, one for each position, for text", optional=True),
    )),
    TableSchema("training.parquet", "The training rows, in the order in which they are drawn from; absent with "
                                    "`training=0` and for more than `training` rows.",
        keys=("instance",), optional=True, columns=(
        _INSTANCE,
        integer("label", "true class"),
        integers("codes", "codes of the M features"),
    )),
    TableSchema("truth.parquet", "How much each feature matters, one row for each instance and truth; absent if the "
                                 "model has no truth.",
        keys=("instance", "truth"), optional=True, columns=(
        _INSTANCE,
        text("truth", "name of the truth"),
        numbers("importance", "importance of the M features for ŷ; NaN where a feature is absent, and everywhere for "
                              "an instance for which this truth was not computed (`reference`)"),
        number("error", "largest standard error among them: 0 if they are exact, NaN if unknown"),
    )),
    TableSchema("explanations.parquet", "One row for each instance and explainer, with or without an explanation.",
        keys=("instance", "explainer"), columns=_EXPLANATIONS_COLUMNS),
    TableSchema("counterfactuals.parquet", "One row for each instance with a usable explanation, explainer and level "
                                           "of access.",
        keys=("instance", "explainer", "access"), columns=_COUNTERFACTUALS_COLUMNS),
    TableSchema("explanations_again.parquet", "The explanations of a sample of the instances with another explainer "
                                              "seed; absent with `explainer_stability=0`. Columns as in "
                                              "explanations.parquet.",
        keys=("instance", "explainer"), optional=True, columns=_EXPLANATIONS_COLUMNS),
    TableSchema("counterfactuals_again.parquet", "The counterfactuals of these explanations. Columns as in "
                                                 "counterfactuals.parquet.",
        keys=("instance", "explainer", "access"), optional=True, columns=_COUNTERFACTUALS_COLUMNS),
    TableSchema("scores.parquet", "One row for each instance, explainer, metric and variant. The value of a metric is "
                                  "Σ `numerator` / Σ `denominator`.",
        keys=("instance", "explainer", "metric", "variant"), columns=(
        _INSTANCE,
        _EXPLAINER,
        *_METRIC,
        number("numerator", "the score of the instance"),
        number("denominator", "1 for means; the distance for C and C_soft, which are ratios of sums"),
        flag("common", "whether every explainer that has a value of this metric covers the instance; true in all "
                       "rows of graded controls. With `support=common` only these rows count, with `support=own` all"),
    )),
    TableSchema("metrics.csv", "The value of each metric for each explainer.",
        keys=("metric", "variant", "explainer"), columns=(
        *_METRIC,
        _EXPLAINER,
        number("quality_level", "of a graded control: the probability with which it selects a ground-truth feature; "
                                "else empty"),
        flag("control", "whether the explainer is a control: chance or the truth itself (`random`, `lr`)"),
        number("value", "the value; empty if there is none, with the reason in `note`"),
        number("value_low", "lower end of its bootstrap interval over instances"),
        number("value_high", "upper end of it"),
        number("value_se", "its bootstrap standard error"),
        number("normalised", "the value on a scale from the worst (0) to the best (1) score that any explanation "
                             "could get on the same instances; only with `bounds`"),
        number("rank", "rank among the explainers (of graded controls: among those), 1 is best; ties share their "
                       "mean rank, values within 1e-12 of their size are tied"),
        integer("n", "number of instances"),
        number("own_value", "the value on all instances that this explainer covers; with `support=own` the same as "
                            "`value`"),
        integer("own_n", "number of these instances"),
        number("coverage", "share of instances for which the explainer selected k features"),
        text("better", "`higher`, `lower` or `none`", values=("higher", "lower", "none")),
        text("role", "`judged` by a truth, the `truth` itself, or a `fact` about the scores"),
        text("access", "access that the metric needs"),
        number("low", "smallest possible value"),
        number("high", "largest possible value"),
        flag("circular", "whether the explainer is optimal by construction for this metric or truth"),
        flag("not_identifiable", "whether a reparametrisation that changes no prediction changes the value; empty "
                                 "where that was not tried"),
        text("note", "why there is no value"),
        text("method", "how the value was computed, such as by beam search; empty if the metric has one way only"),
        text("remark", "what to note about the value, such as on how many instances it exceeds 1"),
    )),
    TableSchema("correlations.csv", "How well each metric ranks the explainers, compared with each truth. Graded "
                                    "controls have rows of the subset `all` only. Reports show no τ and no ρ of a "
                                    "metric that ranks fewer than four explainers `without_controls`.",
        keys=("metric", "variant", "family", "truth", "agreement", "subset"), columns=(
        *_METRIC,
        text("better", "`higher` or `lower`"),
        text("family", "what is ranked: the `explainers`, or the `graded` control explainers"),
        *_TRUTH,
        _SUBSET,
        integer("explainers", "how many were ranked"),
        number("tau", "Kendall's τ: (concordant − discordant) / all pairs, where a tied pair is neither"),
        number("tau_low", "lower end of its bootstrap interval over instances"),
        number("tau_high", "upper end of it"),
        number("tau_se", "its bootstrap standard error"),
        number("p_tau", "one-sided p of the permutation test of τ"),
        number("rho", "Spearman's ρ on average ranks; empty if all values of one side are tied, and in the subset "
                      "`without_controls`"),
        number("rho_low", "lower end of its interval"),
        number("rho_high", "upper end of it"),
        number("rho_se", "its standard error"),
        number("p_rho", "one-sided p of its permutation test"),
        flag("circular", "whether the metric is optimal by construction at this truth; with `circular=drop` there is "
                         "then no value"),
        number("circular_share", "the measurement that decides this: `share_informative` of bounds_truth.csv is at "
                                 "least 0.95; empty where it was not measured, so that the metric's declaration "
                                 "decides", optional=True),
        flag("not_identifiable", "whether a reparametrisation that changes no prediction changes `tau`; empty where "
                                 "that was not tried"),
        text("note", "which explainers are left out, and why a value is absent"),
    )),
    TableSchema("tau_resamples.parquet", "τ in each of the first 500 resamples of the instances, by which several "
                                         "seeds are combined; absent with `resamples=0`, without a truth, or with "
                                         "fewer than two explainers.",
        keys=("draw", "metric", "variant", "truth", "agreement", "subset"), optional=True, columns=(
        integer("draw", "number of the resample"),
        *_METRIC,
        *_TRUTH,
        _SUBSET,
        number("tau", "τ in this resample; no row where τ over all explainers is undefined in it"),
    )),
    TableSchema("differences.csv", "For each truth, subset of explainers and each two metrics: the difference of "
                                   "their τ.",
        keys=("family", "truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant"), columns=(
        text("family", "as in correlations.csv"),
        *_TRUTH,
        _SUBSET,
        text("metric", "the metric with the larger τ over all explainers"),
        text("variant", "its variant"),
        text("than_metric", "the other metric"),
        text("than_variant", "its variant"),
        number("difference", "τ of `metric` less τ of `than_metric`, which can be negative without controls; empty, "
                             "as all that follows, where the two metrics rank different explainers, where a ranked "
                             "explainer has fewer than 30 instances, and where fewer than two explainers are left"),
        number("low", "lower end of its interval"),
        number("high", "upper end of it"),
        number("p", "two-sided p, from the same resamples for both"),
        number("p_holm", "p after Holm's correction over all pairs of this truth and subset"),
        flag("same", "whether the two have the same τ in every resample, and are one hypothesis in Holm's correction"),
    )),
    TableSchema("instance_agreement.csv", "Agreement of each metric with each truth, instance by instance. No row for "
                                          "a subset with fewer than two explainers.",
        keys=("metric", "variant", "truth", "agreement", "subset"), columns=(
        *_METRIC,
        text("better", "`higher` or `lower`"),
        *_TRUTH,
        _SUBSET,
        integer("instances", "instances for which at least two explainers have a score"),
        number("tau", "mean over instances of τ between the metric's order of the explainers and that of their true "
                      "scores"),
        number("tau_low", "lower end of its interval"),
        number("tau_high", "upper end of it"),
        integer("ordered", "instances in which at least two explainers have different true scores"),
        integer("pairs", "pairs of explainers of one instance with different true scores"),
        number("d", "(concordant − discordant) / all pairs of explainers of one instance with different true scores"),
        number("d_low", "lower end of its interval"),
        number("d_high", "upper end of it"),
    )),
    TableSchema("metric_agreement.csv", "Agreement of each two metrics with each other, with or without a "
                                        "truth.",
        keys=("metric", "variant", "other_metric", "other_variant"), columns=(
        *_METRIC,
        text("other_metric", "the other metric"),
        text("other_variant", "its variant"),
        integer("explainers", "how many both ranked"),
        number("tau", "Kendall's τ between their rankings"),
        number("tau_low", "lower end of its interval over instances"),
        number("tau_high", "upper end of it"),
    )),
    TableSchema("bounds.csv", "The best and the worst score that an explanation of k features could get; absent with "
                              "`bounds=0`.",
        keys=("metric", "variant"), optional=True, columns=(
        *_METRIC,
        text("better", "`higher` or `lower`"),
        text("method", "`enumerated`: every set of k features was scored; `greedy`: sets were grown, and better or "
                       "worse ones may exist"),
        integer("instances", "number of instances"),
        integer("sets", "number of sets that were scored, over all instances"),
        number("worst", "the worst score"),
        number("best", "the best score"),
        number("optima", "mean number of sets that are equally good for an instance"),
        integer("informative", "instances with sets of different scores"),
    )),
    TableSchema("bounds_truth.csv", "How far the best explanations of each metric agree with each truth; absent with "
                                    "`bounds=0`.",
        keys=("metric", "variant", "truth"), optional=True, columns=(
        *_METRIC,
        text("truth", "name of the truth"),
        number("share", "share of the reference top k features in the best sets; their mean where several sets are "
                        "best"),
        number("share_informative", "the same over the `informative` instances of bounds.csv; empty if there are "
                                    "none"),
    )),
    TableSchema("explainer_stability.csv", "How often another seed of an explainer selects the same features; absent "
                                           "with `explainer_stability=0`.",
        keys=("explainer",), optional=True, columns=(
        _EXPLAINER,
        integer("n_requested", "instances that are explained a second time"),
        integer("instances", "those of them for which both explanations succeeded and one of them is not empty"),
        number("same_features", "share of `instances` with the same set of k features (fewer, if the explainer "
                                "selects fewer)"),
        number("low", "lower end of its exact (Clopper-Pearson) interval"),
        number("high", "upper end of it"),
        number("overlap", "mean share of the larger of the two sets that is in both"),
        number("same_order", "share of `instances` with the same features in the same order"),
        text("deterministic", "`yes` if all features and scores are the same, `no` if not; empty if nothing could be "
                              "compared"),
    )),
    TableSchema("explainer_stability_metrics.csv", "Stability of the values of the metrics across explainer seeds, "
                                                   "on the instances that have a score with both seeds; absent "
                                                   "with `explainer_stability=0`.",
        keys=("explainer", "metric", "variant"), optional=True, columns=(
        _EXPLAINER,
        *_METRIC,
        integer("instances", "number of instances"),
        number("value", "value with the run's seed"),
        number("value_again", "value with the other seed"),
        number("difference", "the second less the first"),
        number("se", "standard error of `value` over these instances; none from fewer than 30"),
        number("explainer_se", "the part of it that is due to the explainer's seed"),
    )),
    TableSchema("invariance.csv", "The range of τ over reparametrisations of the model that change no "
                                  "prediction; absent with `reparametrisations=0`, and for models that cannot be "
                                  "reparametrised. No row for a subset with fewer than two explainers.",
        keys=("metric", "variant", "truth", "agreement", "subset"), optional=True, columns=(
        *_METRIC,
        *_TRUTH,
        _SUBSET,
        number("tau", "τ of the model as it is, on the same instances"),
        number("tau_lowest", "smallest τ over all draws"),
        number("tau_highest", "largest τ over all draws"),
        flag("not_identifiable", "whether these differ", optional=True),
        text("changed_by", "the reparametrisations that alone change τ of all explainers, of `constant`, `orthogonal` "
                           "and `scale`; `together` if only all at once do"),
        integer("reparametrisations", "number of draws of each change"),
        integer("instances", "number of instances"),
    )),
    TableSchema("costs.csv", "What each part of the run cost. No two runs take the same time.",
        keys=("part", "name", "access"), columns=(
        text("part", "`explainer`, `search`, `metric`, `explainer_stability` or `bounds`"),
        text("name", "the explainer whose explanations are computed or searched, or the metric"),
        text("access", "level of access of a search"),
        integer("n_cached", "explanations from the cache, which count with the cost that they had in their run"),
        number("seconds", "seconds of one core"),
        integer("model_rows", "rows that the model evaluated"),
        number("model_seconds", "those of the `seconds` that the model took"),
        integer("model_calls", "calls of the model. Instances that wait for it at the same time share a call, and "
                               "equal rows are evaluated once in a call: calls depend on how many instances were "
                               "left to explain, rows do not"),
    )),
)
TABLES = {schema.name: schema for schema in _TABLES}
# fmt: on

OTHER_FILES = (
    COSTS_TEXT_FILE, "dataset.json", "model.npz", "recommendation.json", PAGE_FILE, MARKDOWN_FILE, LATEX_FILE,
)  # fmt: skip
RESULT_FILES = tuple(sorted((*TABLES, *OTHER_FILES)))  # of a run folder, without its record, log and figures


def get_table_file(name: str) -> str:
    """Return the file of a table that is named without its suffix, such as metrics.csv."""
    return next(file for file in TABLES if Path(file).stem == name)


def render_columns(schema: TableSchema) -> str:
    """Return the columns of a table as a Markdown table."""
    lines = ["| column | kind | meaning |", "| --- | --- | --- |"]
    for column in schema.columns:
        meaning = column.meaning.replace("|", r"\|")
        key = " (key)" if column.name in schema.keys else ""
        lines.append(f"| `{column.name}` | {column.kind}{key} | {meaning} |")
    return "\n".join([schema.meaning, "", *lines])


def insert_columns(page: str) -> str:
    """Return docs/run-folder.md with the text between the markers of each table replaced."""
    end = "<!-- end -->"
    for name, schema in TABLES.items():
        before, marker, after = page.partition(f"<!-- columns of {name} -->\n")
        if marker:
            page = f"{before}{marker}{render_columns(schema)}\n{end}{after.partition(end)[2]}"
    return page


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(insert_columns(file.read_text(encoding="utf-8")), encoding="utf-8")
