"""The files of a run folder, with name, columns, kinds and meaning of each table.

Readers validate with it, and docs/run-folder.md is generated from it:
`python -m cfeval_cli.results.schema docs/run-folder.md`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["text", "integer", "number", "flag", "texts", "integers", "numbers"]


@dataclass(frozen=True)
class ColumnSchema:
    """One column, or with `<truth>` in its name one column for each truth."""

    name: str
    kind: Kind
    meaning: str
    optional: bool = False  # whether some runs do not have it

    def matches(self, name: str) -> bool:
        """Return whether a column of a table has this name, or is that of one truth."""
        pattern = re.escape(self.name).replace("<truth>", r"[\w-]+?")
        return re.fullmatch(pattern, name) is not None


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

    def find_problem(self, names: Iterable[str]) -> str | None:
        """Return a message if a key is missing, or a column is unknown; None if the columns are valid."""
        present = list(names)
        missing = [key for key in self.keys if key not in present]
        if missing:
            return f"{self.name} has no column {missing[0]}"
        unknown = [name for name in present if not any(column.matches(name) for column in self.columns)]
        return f"{self.name} has an unknown column {unknown[0]}" if unknown else None


_INSTANCE = ColumnSchema("instance", "integer", "number of the instance, as in instances.parquet")
_EXPLAINER = ColumnSchema("explainer", "text", "config key of the explainer")
_METRIC = (
    ColumnSchema("metric", "text", "name of the metric"),
    ColumnSchema("variant", "text", "variant of the metric, listed below"),
)
_TRUTH = (
    ColumnSchema("truth", "text", "the truth that the metric is compared with"),
    ColumnSchema(
        "agreement",
        "text",
        "how explanations are scored by it: `recall` or `hit`; `order` for a ladder, whose order is known",
    ),
)
_SUBSET = ColumnSchema(
    "subset",
    "text",
    "the explainers that count: `all`, or `without_controls` those that are not controls (see metrics.csv)",
)


_EXPLANATIONS_COLUMNS = (
    _INSTANCE,
    _EXPLAINER,
    ColumnSchema(
        "features",
        "integers",
        "selected features, most important first; all that the explainer returned, so possibly more or fewer than k",
    ),
    ColumnSchema(
        "scores",
        "numbers",
        "their scores in the explainer's own units: probability drop (omission, decision_boundary), coefficient (lime), precision of the rule up to this feature (anchor), effect (lr), a random number (random), the file's scores (file)",
    ),
    ColumnSchema("fault", "text", "why there is no explanation, if the explainer failed; else null"),
)
_COUNTERFACTUALS_COLUMNS = (
    _INSTANCE,
    _EXPLAINER,
    ColumnSchema("access", "text", "what the search could use: `label`, `probability` or `gradient`"),
    ColumnSchema("features", "integers", "features that could be edited: those that were selected and may change"),
    ColumnSchema("codes", "integers", "their new codes, for a search that exchanges values"),
    ColumnSchema("vectors", "numbers", "their new embeddings, for a search that moves those"),
    ColumnSchema("label", "integer", "predicted class after the edit"),
    ColumnSchema("flipped", "flag", "whether that differs from ŷ"),
    ColumnSchema("probability", "number", "P(ŷ|x_cf); empty with label access"),
    ColumnSchema("distance", "number", "distance of x and x_cf"),
    ColumnSchema("converged", "flag", "whether an iterative search converged; else empty"),
    ColumnSchema(
        "steps",
        "integer",
        "steps of the continuous search from the best of its starts; empty for a search that does not iterate",
    ),
)

TABLES = {
    schema.name: schema
    for schema in (
        TableSchema(
            "instances.parquet",
            "The explained instances, and what the model predicts for them.",
            keys=("instance",),
            columns=(
                ColumnSchema(
                    "instance",
                    "integer",
                    "row of the original file, from 0, without the header; of several files the rows of the first come first (training, validation, test); for text the number of the sentence among those used, negative ones first",
                ),
                ColumnSchema("label", "integer", "true class"),
                ColumnSchema("predicted", "integer", "predicted class ŷ"),
                ColumnSchema("probability", "number", "P(1|x) of two classes; else empty"),
                ColumnSchema("predicted_probability", "number", "P(ŷ|x); empty for a model that returns labels only"),
                ColumnSchema("codes", "integers", "codes of the M features"),
                ColumnSchema("values", "texts", "the same as text"),
                ColumnSchema(
                    "text",
                    "text",
                    "the original string, for text; with `max_tokens` also what is behind the last word used",
                    optional=True,
                ),
                ColumnSchema("words", "texts", "the original words, one for each position, for text", optional=True),
            ),
        ),
        TableSchema(
            "training.parquet",
            "The training rows, in the order in which they are drawn from; absent with `training=0` and for more than `training` rows.",
            keys=("instance",),
            columns=(
                _INSTANCE,
                ColumnSchema("label", "integer", "true class"),
                ColumnSchema("codes", "integers", "codes of the M features"),
            ),
            optional=True,
        ),
        TableSchema(
            "truth.parquet",
            "How much each feature matters, one row for each instance and truth; absent if the model has no truth.",
            keys=("instance", "truth"),
            columns=(
                _INSTANCE,
                ColumnSchema("truth", "text", "name of the truth"),
                ColumnSchema(
                    "importance",
                    "numbers",
                    "importance of the M features for ŷ; NaN where a feature is absent, and everywhere for an instance for which this truth was not computed (`reference`)",
                ),
                ColumnSchema(
                    "error", "number", "largest standard error among them: 0 if they are exact, NaN if it is not known"
                ),
            ),
            optional=True,
        ),
        TableSchema(
            "explanations.parquet",
            "One row for each instance and explainer, with or without an explanation.",
            keys=("instance", "explainer"),
            columns=_EXPLANATIONS_COLUMNS,
        ),
        TableSchema(
            "counterfactuals.parquet",
            "One row for each instance with a usable explanation, explainer and level of access.",
            keys=("instance", "explainer", "access"),
            columns=_COUNTERFACTUALS_COLUMNS,
        ),
        TableSchema(
            "explanations_again.parquet",
            "The explanations of a sample of the instances with another explainer seed; absent with `explainer_stability=0`. Columns as in explanations.parquet.",
            keys=("instance", "explainer"),
            columns=_EXPLANATIONS_COLUMNS,
            optional=True,
        ),
        TableSchema(
            "counterfactuals_again.parquet",
            "The counterfactuals of these explanations. Columns as in counterfactuals.parquet.",
            keys=("instance", "explainer", "access"),
            columns=_COUNTERFACTUALS_COLUMNS,
            optional=True,
        ),
        TableSchema(
            "scores.parquet",
            "One row for each instance, explainer, metric and variant. The value of a metric is Σ `numerator` / Σ `denominator`.",
            keys=("instance", "explainer", "metric", "variant"),
            columns=(
                _INSTANCE,
                _EXPLAINER,
                *_METRIC,
                ColumnSchema("numerator", "number", "the score of the instance"),
                ColumnSchema(
                    "denominator", "number", "1 for means; the distance for C and C_soft, which are ratios of sums"
                ),
                ColumnSchema(
                    "common",
                    "flag",
                    "whether every explainer that has a value of this metric covers the instance; true in all rows of a ladder. With `support=common` only these rows count, with `support=own` all",
                ),
            ),
        ),
        TableSchema(
            "metrics.csv",
            "The value of each metric for each explainer.",
            keys=("metric", "variant", "explainer"),
            columns=(
                *_METRIC,
                _EXPLAINER,
                ColumnSchema(
                    "rung",
                    "number",
                    "of a ladder: the probability with which this explainer selects a ground-truth feature; empty for other explainers",
                ),
                ColumnSchema(
                    "control", "flag", "whether the explainer is a control: chance or the truth itself (`random`, `lr`)"
                ),
                ColumnSchema("value", "number", "the value; empty if there is none, with the reason in `note`"),
                ColumnSchema("value_low", "number", "lower end of its bootstrap interval over instances"),
                ColumnSchema("value_high", "number", "upper end of it"),
                ColumnSchema("value_se", "number", "its bootstrap standard error"),
                ColumnSchema(
                    "place",
                    "number",
                    "position of the value between the worst (0) and the best (1) score that any explanation could get on the same instances; only with `bounds`",
                ),
                ColumnSchema(
                    "rank",
                    "number",
                    "rank among the explainers (in a ladder: among its rungs), 1 is best; ties share their mean rank, values within 1e-12 of their size are tied",
                ),
                ColumnSchema("n", "integer", "number of instances"),
                ColumnSchema(
                    "own_value",
                    "number",
                    "the value on all instances that this explainer covers; with `support=own` the same as `value`",
                ),
                ColumnSchema("own_n", "integer", "number of these instances"),
                ColumnSchema("coverage", "number", "share of instances for which the explainer selected k features"),
                ColumnSchema("better", "text", "`higher`, `lower` or `none`"),
                ColumnSchema("role", "text", "`judged` by a truth, the `truth` itself, or a `fact` about the scores"),
                ColumnSchema("access", "text", "access that the metric needs"),
                ColumnSchema("low", "number", "smallest possible value"),
                ColumnSchema("high", "number", "largest possible value"),
                ColumnSchema(
                    "circular", "flag", "whether the explainer is optimal by construction for this metric or truth"
                ),
                ColumnSchema(
                    "moves",
                    "flag",
                    "whether a reparametrisation that changes no prediction changes the value; empty where that was not tried",
                ),
                ColumnSchema("note", "text", "why there is no value"),
                ColumnSchema(
                    "method",
                    "text",
                    "how the value was computed, such as by beam search; empty if the metric has one way only",
                ),
                ColumnSchema(
                    "remark", "text", "what to note about the value, such as on how many instances it exceeds 1"
                ),
            ),
        ),
        TableSchema(
            "correlations.csv",
            "How well each metric ranks the explainers, compared with each truth. A ladder has no controls, so only rows of the subset `all`.",
            keys=("metric", "variant", "family", "truth", "agreement", "subset"),
            columns=(
                *_METRIC,
                ColumnSchema("better", "text", "`higher` or `lower`"),
                ColumnSchema("family", "text", "what is ranked: the `explainers`, or the `graded` control explainers"),
                *_TRUTH,
                _SUBSET,
                ColumnSchema("explainers", "integer", "how many were ranked"),
                ColumnSchema(
                    "tau", "number", "Kendall's τ: (concordant − discordant) / all pairs, where a tied pair is neither"
                ),
                ColumnSchema("tau_low", "number", "lower end of its bootstrap interval over instances"),
                ColumnSchema("tau_high", "number", "upper end of it"),
                ColumnSchema("tau_se", "number", "its bootstrap standard error"),
                ColumnSchema("p_tau", "number", "one-sided p of the permutation test of τ"),
                ColumnSchema(
                    "rho",
                    "number",
                    "Spearman's ρ on average ranks; empty if all values of one side are tied, and in the subset `without_controls`",
                ),
                ColumnSchema("rho_low", "number", "lower end of its interval"),
                ColumnSchema("rho_high", "number", "upper end of it"),
                ColumnSchema("rho_se", "number", "its standard error"),
                ColumnSchema("p_rho", "number", "one-sided p of its permutation test"),
                ColumnSchema(
                    "circular",
                    "flag",
                    "whether the metric is optimal by construction at this truth; with `circular=drop` there is then no value",
                ),
                ColumnSchema(
                    "moves",
                    "flag",
                    "whether a reparametrisation that changes no prediction changes `tau`; empty where that was not tried",
                ),
                ColumnSchema("note", "text", "which explainers are left out, and why a value is absent"),
            ),
        ),
        TableSchema(
            "tau_resamples.parquet",
            "τ in each of the first 500 resamples of the instances, by which several seeds are combined; absent with `resamples=0`, without a truth, or with fewer than two explainers.",
            keys=("draw", "metric", "variant", "truth", "agreement", "subset"),
            columns=(
                ColumnSchema("draw", "integer", "number of the resample"),
                *_METRIC,
                *_TRUTH,
                _SUBSET,
                ColumnSchema(
                    "tau", "number", "τ in this resample; no row where τ over all explainers is undefined in it"
                ),
            ),
            optional=True,
        ),
        TableSchema(
            "differences.csv",
            "For each truth, subset of explainers and each two metrics: the difference of their τ.",
            keys=("family", "truth", "agreement", "subset", "metric", "variant", "than_metric", "than_variant"),
            columns=(
                ColumnSchema("family", "text", "as in correlations.csv"),
                *_TRUTH,
                _SUBSET,
                ColumnSchema("metric", "text", "the metric with the larger τ over all explainers"),
                ColumnSchema("variant", "text", "its variant"),
                ColumnSchema("than_metric", "text", "the other metric"),
                ColumnSchema("than_variant", "text", "its variant"),
                ColumnSchema(
                    "difference",
                    "number",
                    "τ of `metric` less τ of `than_metric`, which can be negative without controls; empty, as all that follows, where the two metrics rank different explainers, where a ranked explainer has fewer than 30 instances, and where fewer than two explainers are left",
                ),
                ColumnSchema("low", "number", "lower end of its interval"),
                ColumnSchema("high", "number", "upper end of it"),
                ColumnSchema("p", "number", "two-sided p, from the same resamples for both"),
                ColumnSchema("p_holm", "number", "p after Holm's correction over all pairs of this truth and subset"),
                ColumnSchema(
                    "same",
                    "flag",
                    "whether the two have the same τ in every resample, and count as one in Holm's correction",
                ),
            ),
        ),
        TableSchema(
            "instance_agreement.csv",
            "Agreement of each metric with each truth, instance by instance. No row for a subset with fewer than two explainers.",
            keys=("metric", "variant", "truth", "agreement", "subset"),
            columns=(
                *_METRIC,
                ColumnSchema("better", "text", "`higher` or `lower`"),
                *_TRUTH,
                _SUBSET,
                ColumnSchema("instances", "integer", "instances for which at least two explainers have a score"),
                ColumnSchema(
                    "tau",
                    "number",
                    "mean over instances of τ between the metric's order of the explainers and that of their true scores",
                ),
                ColumnSchema("tau_low", "number", "lower end of its interval"),
                ColumnSchema("tau_high", "number", "upper end of it"),
                ColumnSchema(
                    "ordered", "integer", "instances in which at least two explainers have different true scores"
                ),
                ColumnSchema(
                    "d",
                    "number",
                    "(concordant − discordant) / all pairs of explainers of one instance with different true scores",
                ),
                ColumnSchema("d_low", "number", "lower end of its interval"),
                ColumnSchema("d_high", "number", "upper end of it"),
            ),
        ),
        TableSchema(
            "metric_agreement.csv",
            "Agreement of each two metrics with each other, whether or not a truth is known.",
            keys=("metric", "variant", "other_metric", "other_variant"),
            columns=(
                *_METRIC,
                ColumnSchema("other_metric", "text", "the other metric"),
                ColumnSchema("other_variant", "text", "its variant"),
                ColumnSchema("explainers", "integer", "how many both ranked"),
                ColumnSchema("tau", "number", "Kendall's τ between their rankings"),
                ColumnSchema("tau_low", "number", "lower end of its interval over instances"),
                ColumnSchema("tau_high", "number", "upper end of it"),
            ),
        ),
        TableSchema(
            "bounds.csv",
            "The best and the worst score that an explanation of k features could get; absent with `bounds=0`.",
            keys=("metric", "variant"),
            columns=(
                *_METRIC,
                ColumnSchema("better", "text", "`higher` or `lower`"),
                ColumnSchema(
                    "method",
                    "text",
                    "`enumerated`: every set of k features was scored; `greedy`: sets were grown, and better or worse ones may exist",
                ),
                ColumnSchema("instances", "integer", "number of instances"),
                ColumnSchema("sets", "integer", "number of sets that were scored, over all instances"),
                ColumnSchema("worst", "number", "the worst score"),
                ColumnSchema("best", "number", "the best score"),
                ColumnSchema("optima", "number", "mean number of sets that are equally good for an instance"),
                ColumnSchema("telling", "integer", "instances whose sets are not all equally good"),
                ColumnSchema(
                    "truth_<truth>",
                    "number",
                    "share of the true top k features in the best sets; their mean where several sets are best",
                ),
                ColumnSchema(
                    "truth_<truth>_telling", "number", "the same over the `telling` instances; empty if there are none"
                ),
            ),
            optional=True,
        ),
        TableSchema(
            "explainer_stability.csv",
            "How often another seed of an explainer selects the same features; absent with `explainer_stability=0`.",
            keys=("explainer",),
            columns=(
                _EXPLAINER,
                ColumnSchema("asked", "integer", "instances that were explained a second time"),
                ColumnSchema(
                    "instances",
                    "integer",
                    "those of them for which both explanations succeeded and one of them is not empty",
                ),
                ColumnSchema(
                    "same_features",
                    "number",
                    "share of `instances` with the same set of k features (fewer, if the explainer selects fewer)",
                ),
                ColumnSchema("low", "number", "lower end of its exact (Clopper-Pearson) interval"),
                ColumnSchema("high", "number", "upper end of it"),
                ColumnSchema("overlap", "number", "mean share of the larger of the two sets that is in both"),
                ColumnSchema("same_order", "number", "share of `instances` with the same features in the same order"),
                ColumnSchema(
                    "deterministic",
                    "text",
                    "`yes` if all features and scores are the same, `no` if not; empty if nothing could be compared",
                ),
            ),
            optional=True,
        ),
        TableSchema(
            "explainer_stability_metrics.csv",
            "What another seed of an explainer changes in the values of the metrics, on the instances that have a score with both; absent with `explainer_stability=0`.",
            keys=("explainer", "metric", "variant"),
            columns=(
                _EXPLAINER,
                *_METRIC,
                ColumnSchema("instances", "integer", "number of instances"),
                ColumnSchema("value", "number", "value with the run's seed"),
                ColumnSchema("value_again", "number", "value with the other seed"),
                ColumnSchema("difference", "number", "the second less the first"),
                ColumnSchema("se", "number", "standard error of `value` over these instances; none from fewer than 30"),
                ColumnSchema("explainer_se", "number", "the part of it that is due to the explainer's seed"),
            ),
            optional=True,
        ),
        TableSchema(
            "invariance.csv",
            "How far τ changes if the model is written in other parameters that change no prediction; absent with `reparametrisations=0`, and for models that cannot be written so. No row for a subset with fewer than two explainers.",
            keys=("metric", "variant", "truth", "agreement", "subset"),
            columns=(
                *_METRIC,
                *_TRUTH,
                _SUBSET,
                ColumnSchema("tau", "number", "τ of the model as it is, on the same instances"),
                ColumnSchema("tau_lowest", "number", "smallest τ over all draws"),
                ColumnSchema("tau_highest", "number", "largest τ over all draws"),
                ColumnSchema("moves", "flag", "whether these differ", optional=True),
                ColumnSchema(
                    "moved_by",
                    "text",
                    "the changes that alone change τ of all explainers, of `constant`, `orthogonal` and `scale`; `together` if only all at once do",
                ),
                ColumnSchema("reparametrisations", "integer", "number of draws of each change"),
                ColumnSchema("instances", "integer", "number of instances"),
            ),
            optional=True,
        ),
        TableSchema(
            "costs.csv",
            "What each part of the run cost. No two runs take the same time.",
            keys=("part", "name", "access"),
            columns=(
                ColumnSchema("part", "text", "`explainer`, `search`, `metric`, `explainer_stability` or `bounds`"),
                ColumnSchema(
                    "name", "text", "the explainer whose explanations are computed or searched, or the metric"
                ),
                ColumnSchema("access", "text", "level of access of a search"),
                ColumnSchema(
                    "known",
                    "integer",
                    "explanations taken from earlier runs, which count with the cost that they had then",
                ),
                ColumnSchema("seconds", "number", "seconds of one core"),
                ColumnSchema("model_rows", "integer", "rows that the model evaluated"),
                ColumnSchema("model_seconds", "number", "those of the `seconds` that the model took"),
                ColumnSchema(
                    "model_calls",
                    "integer",
                    "calls of the model. Instances that wait for it at the same time share a call, and equal rows are evaluated once in a call: calls depend on how many instances were left to explain, rows do not",
                ),
            ),
        ),
    )
}

OTHER_FILES = (
    "costs.md", "dataset.json", "model.npz", "recommendation.json", "report.html", "tables.md", "tables.tex",
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


def render_page(page: str) -> str:
    """Return docs/run-folder.md with the text between the markers of each table replaced."""
    end = "<!-- end -->"
    for name, schema in TABLES.items():
        before, marker, after = page.partition(f"<!-- columns of {name} -->\n")
        if marker:
            page = f"{before}{marker}{render_columns(schema)}\n{end}{after.partition(end)[2]}"
    return page


if __name__ == "__main__":
    file = Path(sys.argv[1])
    file.write_text(render_page(file.read_text(encoding="utf-8")), encoding="utf-8")
