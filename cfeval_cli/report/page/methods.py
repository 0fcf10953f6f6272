"""What a paper says of how a run was made, and what it cites: from the run's record alone."""

from __future__ import annotations

from collections.abc import Sequence

from cfeval_cli.report.notes import describe_fidelity, describe_method
from cfeval_cli.report.wording import join_names
from cfeval_cli.results.record import RunRecord

METHOD = """\
@article{ge2021counterfactual,
  title   = {Counterfactual Evaluation for Explainable AI},
  author  = {Ge, Yingqiang and Liu, Shuchang and Li, Zelong and Xu, Shuyuan and Geng, Shijie and Li, Yunqi and Tan, Juntao and Sun, Fei and Zhang, Yongfeng},
  journal = {arXiv preprint arXiv:2109.01962},
  year    = {2021},
  doi     = {10.48550/arXiv.2109.01962}
}"""  # noqa: E501  as it is copied


def write_methods(record: RunRecord) -> str:
    """How it was done, in sentences that can stand in a paper."""
    settings, data, count = record.settings, record.data, record.instances
    k, names = settings.k, list(record.explainers.values())
    train = record.splits.get("train")
    trained = f" (trained on {train:,} rows)" if train else ""
    many = f"{count:,} test instance{'s' * (count != 1)} of {data.name}"
    told = [
        f"A {_model(record)}{trained} with a test accuracy of {record.accuracy['test']:.1%} was explained on {many} "
        f"by {_some(names)}, each of which had to name k = {k} feature{'s' * (k != 1)}.{describe_fidelity(record)}",
        f"Counterfactuals that change nothing but the named features were found by {record.setup}.",
        *([f"The explanations were scored by {_some(scored)}."] if (scored := _metrics(record)) else []),
        *_truth(record),
        *_sure(record),
        f"Everything was computed by cfeval {record.cfeval} (Ge et al., 2021), seed {settings.seed}.",
    ]
    return " ".join(told)


def _model(record: RunRecord) -> str:
    return f"model ({record.model.name})" if record.model.name else "model"


def _some(names: Sequence[str], most: int = 25) -> str:
    return join_names(names) if len(names) <= most else join_names([*names[:most], f"{len(names) - most} more"])


def _metrics(record: RunRecord) -> list[str]:
    """The metrics that are judged, without their variants."""
    judged = [name for name, facts in record.metrics.items() if facts.role == "judged"]
    return list(dict.fromkeys(record.metrics[name].title for name in judged))


def _truth(record: RunRecord) -> list[str]:
    """What counted as truth, and how it was known."""
    settings, truths = record.settings, record.truths
    lead = [truth for truth in settings.truth if truth in truths]
    if not lead:
        return ["No truth is known of the model, so that no metric could be judged."]
    told = []
    for truth in lead:
        facts = truths[truth]
        told.append(f"{truth} ({facts.question}; {describe_method(facts, record)})")
    return [
        f"What truly matters is defined by {join_names(told)}; an explainer's truth is its {settings.agreement} of the "
        f"k features that matter most, and a metric is judged by Kendall's τ between its ranking of the explainers and "
        "that of the truth, over all explainers and without controls."
    ]


def _sure(record: RunRecord) -> list[str]:
    """How the intervals were made."""
    if not record.resampled:
        return []
    level = f"{100 * record.settings.confidence:.4g} %"
    shared = {
        "common": "explainers are compared on the instances that all of them cover",
        "own": "each explainer is scored on the instances that it covers",
    }.get(record.settings.support, "")
    return [
        f"Intervals are {level} bootstrap intervals over {record.resampled:,} resamples of the instances, the same "
        f"for all; differences between metrics are corrected by Holm's method{'; ' * bool(shared)}{shared}."
    ]


def write_citation(version: str) -> str:
    """What to cite, as BibTeX: the software, and the paper whose method it implements."""
    software = (
        "@software{cfeval,\n  title   = {cfeval: counterfactual evaluation of explanations},\n"
        f"  author  = {{{{The cfeval authors}}}},\n  version = {{{version}}}\n}}"
    )
    return f"{METHOD}\n\n{software}"
