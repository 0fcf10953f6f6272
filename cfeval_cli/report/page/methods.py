"""A methods paragraph and a citation for a paper, from the record of a run alone."""

from __future__ import annotations

from collections.abc import Sequence

from cfeval_cli.report.notes import describe_fidelity, describe_method
from cfeval_cli.report.wording import join_names
from cfeval_cli.results.record import RunRecord

_PAPER = """\
@article{ge2021counterfactual,
  title   = {Counterfactual Evaluation for Explainable AI},
  author  = {Ge, Yingqiang and Liu, Shuchang and Li, Zelong and Xu, Shuyuan and Geng, Shijie and Li, Yunqi and Tan, Juntao and Sun, Fei and Zhang, Yongfeng},
  journal = {arXiv preprint arXiv:2109.01962},
  year    = {2021},
  doi     = {10.48550/arXiv.2109.01962}
}"""  # noqa: E501  one line in the paper's own BibTeX


def write_methods(record: RunRecord) -> str:
    """Write how the run was made, in sentences that a paper can contain."""
    settings, data, count = record.settings, record.data, record.instances
    k, explainers = settings.k, list(record.explainers.values())
    n_train = record.splits.get("train")
    trained = f", trained on {n_train:,} rows," if n_train else ""
    instances = f"{count:,} test instance{'s' * (count != 1)} of {data.name}"
    scored = _list_metrics(record)
    sentences = [
        f"A {_describe_model(record)} with a test accuracy of {record.accuracy['test']:.1%}{trained} was explained on "
        f"{instances} by {_join_some(explainers)}; each explainer selected k = {k} feature{'s' * (k != 1)}."
        f"{describe_fidelity(record)}",
        f"Counterfactuals that change only the selected features were found by {record.setup}.",
        *([f"The explanations were scored by {_join_some(scored)}."] if scored else []),
        _describe_ground_truth(record),
        *_describe_intervals(record),
        f"Everything was computed by cfeval {record.cfeval} (Ge et al., 2021), seed {settings.seed}.",
    ]
    return " ".join(sentences)


def _describe_model(record: RunRecord) -> str:
    return f"model ({record.model.name})" if record.model.name else "model"


def _join_some(names: Sequence[str], max_count: int = 25) -> str:
    return join_names(names if len(names) <= max_count else [*names[:max_count], f"{len(names) - max_count} more"])


def _list_metrics(record: RunRecord) -> list[str]:
    """Return the titles of the metrics that are judged, without their variants."""
    return list(dict.fromkeys(entry.title for entry in record.metrics.values() if entry.role == "judged"))


def _describe_ground_truth(record: RunRecord) -> str:
    """Write how the ground truth was defined and computed, and how metrics are judged by it."""
    settings, truths = record.settings, record.truths
    described = [
        f"{name} ({truths[name].question}; {describe_method(truths[name], record)})"
        for name in settings.truth
        if name in truths
    ]
    if not described:
        return "There is no ground truth for the model, so no metric was judged."
    return (
        f"The ground truth is defined by {join_names(described)}. The agreement of an explainer with it is the "
        f"{settings.agreement} of the k most important features, and a metric is judged by Kendall's τ between its "
        "ranking of the explainers and that of the ground truth, over all explainers and without controls."
    )


def _describe_intervals(record: RunRecord) -> list[str]:
    """Return how intervals were computed, if the run has any."""
    if not record.resampled:
        return []
    level = f"{100 * record.settings.confidence:.4g} %"
    support = {
        "common": "explainers are compared on the instances that all of them cover",
        "own": "each explainer is scored on the instances that it covers",
    }.get(record.settings.support, "")
    return [
        f"Intervals are {level} bootstrap intervals over {record.resampled:,} resamples of the instances, the same "
        f"for all values; differences between metrics are Holm-adjusted{'; ' * bool(support)}{support}."
    ]


def write_citation(version: str) -> str:
    """Write what to cite as BibTeX: the software, and the paper whose method it implements."""
    software = (
        "@software{cfeval,\n  title   = {cfeval: counterfactual evaluation of explanations},\n"
        f"  author  = {{{{The cfeval authors}}}},\n  version = {{{version}}}\n}}"
    )
    return f"{_PAPER}\n\n{software}"
