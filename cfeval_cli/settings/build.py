"""Make a Plan from a composed config: the only place that instantiates components."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from inspect import Parameter, signature
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cfeval_cli.core import Access, Distance, Explainer, Metric, Removal, Search, Trainable, Truth
from cfeval_cli.core.imports import make_importable
from cfeval_cli.errors import UserError, check_option, did_you_mean, excerpt_error, refuse_exit
from cfeval_cli.judge.judge import Judge
from cfeval_cli.settings.compose import format_value, list_default_options, list_top_level_keys
from cfeval_cli.settings.plan import Absences, Plan
from cfeval_cli.settings.renamed import describe_renamed_class, describe_renamed_setting
from cfeval_cli.settings.run_settings import RunSettings, validate_settings

_T = TypeVar("_T")

_ACCESS = {level.name.lower(): level for level in (Access.LABEL, Access.PROBABILITY, Access.GRADIENT)}
_GROUP_SETTINGS = {("truth", "budget")}  # settings of a whole group, which are not components
_NAME = re.compile(r"\w[\w-]*")  # of a component; it occurs in names of files, tables and settings


def build_plan(cfg: DictConfig, components: Mapping[str, object] | None = None) -> Plan:
    """Check the settings and instantiate its components; `components` replace those of the config, by key."""
    components = components or {}
    _check_keys(cfg)
    settings = validate_settings(read_plain_settings(cfg))
    access = _ACCESS[settings.access]
    chosen_metrics = _make_group(cfg, "metric", Metric, components)
    facts = _make_group(cfg, "fact", Metric, {}) if cfg.get("fact") else {}
    metrics = _select_permitted(chosen_metrics, access) | facts
    _check_metric_names(settings, metrics)
    search = make_component(cfg, "search", Search, components)
    levels = tuple(level for level in search.levels if level <= access)
    if not levels:
        required = min(search.levels).name.lower()
        raise UserError(f"access={settings.access} is not enough for this search, which needs access={required}.")
    return Plan(
        settings=settings,
        dataset=make_component(cfg, "dataset", components=components),
        model=make_component(cfg, "model", Trainable, components),
        truths=_make_group(cfg, "truth", Truth, components),
        removals=_make_group(cfg, "removal", Removal, components),
        explainers=_list_members(_make_group(cfg, "explainer", Explainer, components)),
        search=search,
        distance=make_component(cfg, "distance", Distance, components),
        metrics=metrics,
        access=access,
        levels=levels,
        executor=make_component(cfg, "executor"),
        cache=make_component(cfg, "cache"),
        absent=Absences(
            metrics={
                name: f"needs {metric.access.name.lower()} access"
                for name, metric in chosen_metrics.items()
                if name not in metrics
            }
        ),
        judges=_make_group(cfg, "judge", Judge, components) if cfg.get("judge") else {},
    )


def read_plain_settings(cfg: DictConfig) -> dict[str, Any]:
    """Return the settings that are not components, as plain values."""
    values = {name: _get_plain(cfg, name) for name in RunSettings.model_fields if name in cfg}
    return values | {"budget": _get_plain(cfg, "truth.budget")}


def _get_plain(cfg: DictConfig, key: str) -> Any:
    value = _select(cfg, key)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _select(cfg: DictConfig, key: str) -> Any:
    try:
        return OmegaConf.select(cfg, key)
    except OmegaConfBaseException as error:
        raise UserError(f"{key}: {_describe_cause(error)}") from error


def _check_metric_names(settings: RunSettings, metrics: Mapping[str, Metric]) -> None:
    """Raise UserError if a setting names a metric that the run does not have."""
    truth_metrics = [name for name, metric in metrics.items() if metric.role == "truth"]
    if truth_metrics and settings.agreement not in truth_metrics:
        raise UserError(
            f"agreement must be one of the ground-truth metrics of metric=[…], not {settings.agreement!r}. "
            f"Use {' or '.join(f'agreement={name}' for name in truth_metrics)}, or add {settings.agreement} to "
            "metric=[…]."
        )
    judged = [name for name, metric in metrics.items() if metric.role == "judged"]
    for name in settings.tables.metrics or ():
        try:
            check_option("tables.metrics", name, judged)
        except ValueError as error:
            raise UserError(str(error)) from error


def _select_permitted(metrics: dict[str, Metric], access: Access) -> dict[str, Metric]:
    """Return the metrics that the access level allows; ground-truth metrics do not use the model."""
    permitted = {name: metric for name, metric in metrics.items() if metric.access <= access or metric.role == "truth"}
    excluded = [name for name in metrics if name not in permitted]
    if excluded and not any(metric.role == "judged" for metric in permitted.values()):
        level, verb = access.name.lower(), "needs" if len(excluded) == 1 else "need"
        raise UserError(
            f"access={level} leaves no metric to be judged: {', '.join(excluded)} {verb} more. Raise access, or choose "
            f"metrics that need no more than {level} access."
        )
    return permitted


def _make_group(cfg: DictConfig, group: str, kind: type[_T], components: Mapping[str, object]) -> dict[str, _T]:
    """Instantiate the components of a group that allows several, in the order of the tables."""
    names_of_components = [key.removeprefix(f"{group}.") for key in components if key.startswith(f"{group}.")]
    chosen_names = [str(key) for key in cfg.get(group) or () if (group, key) not in _GROUP_SETTINGS]
    names = list(dict.fromkeys([*chosen_names, *names_of_components]))
    if not names:
        example = ",".join(list_default_options(group)[:2])
        raise UserError(f"{group}=[] chooses nothing. Name at least one, for example {group}=[{example}].")
    for name in names:
        if not _NAME.fullmatch(name):
            raise UserError(f"{group}.{name}: a name has letters, digits, _ and -, and does not begin with -.")
    members = {name: make_component(cfg, f"{group}.{name}", kind, components) for name in names}
    if kind is Truth:  # in the order of the command line: the first leads the tables and determines the controls
        return members
    # independent of the order of the command line: the same choice must give the same bytes
    return dict(sorted(members.items(), key=lambda item: (_get_display_order(item[1]), item[0])))


def _get_display_order(component: object) -> int:
    """Return the position of a component in the tables."""
    return component.display_order if isinstance(component, Explainer | Metric | Removal) else 0


def _list_members(explainers: dict[str, Explainer]) -> dict[str, Explainer]:
    """Return all explainers, with the members of those that stand for several; graded controls from best to worst."""
    all_members: dict[str, Explainer] = {}
    for key, explainer in explainers.items():
        try:
            members = explainer.expand(key)
        except ValueError as error:
            raise UserError(f"explainer.{key}: {error}.") from error
        repeated = [name for name in members if name in all_members]
        if repeated:
            raise UserError(
                f"explainer.{key}: {repeated[0]} is also the name of another explainer. Rename one, or remove it."
            )
        all_members |= members

    def get_sort_key(item: tuple[str, Explainer]) -> tuple[int, float, str]:
        name, explainer = item
        return explainer.display_order, -explainer.quality_level if explainer.quality_level >= 0 else 0.0, name

    return dict(sorted(all_members.items(), key=get_sort_key))


def make_component(
    cfg: DictConfig,
    key: str,
    kind: type[_T] = object,  # type: ignore[assignment]
    components: Mapping[str, object] | None = None,
) -> _T:
    """Instantiate one node of the config, unless `components` has its key; UserError names a wrong setting."""
    if components and key in components:
        return _check_kind(components[key], key, kind, type(components[key]).__qualname__)
    node = _select(cfg, key)
    if not isinstance(node, DictConfig) or "_target_" not in node:
        for name in map(str, node) if isinstance(node, DictConfig) else ():
            if message := describe_renamed_setting(f"{key}.{name}", format_value(_get_plain(node, name))):
                raise UserError(message)
        raise UserError(f"{key} has no _target_: it must name the class of the component.")
    try:
        with refuse_exit():
            component = instantiate_node(node)
    except (InstantiationException, OmegaConfBaseException) as error:
        raise UserError(_find_signature_problem(key, node) or f"{key}: {_describe_cause(error)}") from error
    return _check_kind(component, key, kind, str(node["_target_"]))


def instantiate_node(node: DictConfig) -> Any:
    """Instantiate a node as Hydra does, after making its classes importable."""
    for target in find_targets(OmegaConf.to_container(node, resolve=True)):
        if message := describe_renamed_class(target):
            raise UserError(message)
        make_importable(target)
    return instantiate(node, _convert_="all")


def find_targets(value: Any) -> Iterator[str]:
    """Yield every `_target_` of a config, at any depth."""
    if isinstance(value, dict):
        if "_target_" in value:
            yield str(value["_target_"])
        value = list(value.values())
    for child in value if isinstance(value, list) else ():
        yield from find_targets(child)


def _check_kind(component: object, key: str, kind: type[_T], name: str) -> _T:
    if not isinstance(component, kind):
        raise UserError(f"{key}: {name} is not a {kind.__name__}: {_REQUIREMENTS[kind.__name__]}.")
    return component


_REQUIREMENTS = {
    "Judge": "it must be cfeval_cli.judge.judge.Judge, with a model",
} | {
    name: f"derive it from cfeval_cli.core.{name}"
    for name in ("Truth", "Removal", "Explainer", "Search", "Distance", "Metric", "Trainable")
}


def _check_keys(cfg: DictConfig) -> None:
    """Raise UserError for a setting that nothing reads, which most often is misspelt."""
    known_keys = list_top_level_keys()
    for key in [str(key) for key in cfg if key not in known_keys]:
        if message := describe_renamed_setting(key, format_value(_get_plain(cfg, key))):
            raise UserError(message)
        # other settings may refer to a key of the user's own
        if not re.search(rf"\$\{{{re.escape(key)}[.}}]", OmegaConf.to_yaml(cfg, resolve=False)):
            raise UserError(f"there is no setting {key!r}, and nothing refers to it.{did_you_mean(key, known_keys)}")


def _find_signature_problem(key: str, node: Any) -> str | None:
    """Return the first setting of a component, or of a component in it, that its class does not have or lacks."""
    children = node.items() if OmegaConf.is_dict(node) else enumerate(node) if OmegaConf.is_list(node) else ()
    problems = (
        _find_signature_problem(f"{key}.{name}", child) for name, child in children if OmegaConf.is_config(child)
    )
    return next((problem for problem in problems if problem), None) or _compare_with_signature(key, node)


def _compare_with_signature(key: str, node: Any) -> str | None:
    """Return which setting of a node its class does not have, or lacks; None if the settings fit."""
    if not OmegaConf.is_dict(node) or "_target_" not in node or "_args_" in node or "_partial_" in node:
        return None
    target = str(node["_target_"])
    try:
        parameters = signature(get_object(target)).parameters
    except Exception:  # not found, or without a signature
        return None
    settings = [str(name) for name in node if name not in ("_target_", "_partial_", "_recursive_", "_convert_")]
    unknown = sorted(set(settings) - set(parameters))
    accepts_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters.values())
    if unknown and not accepts_any:
        if message := describe_renamed_setting(f"{key}.{unknown[0]}", format_value(_get_plain(node, unknown[0]))):
            return message
        options = f"There is: {', '.join(parameters)}." if parameters else "It has none."
        close = did_you_mean(unknown[0], parameters)
        return f"{key}{_describe_file(key)} has no setting {unknown[0]!r}.{close} {options}"
    plain = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    missing = [
        name
        for name, parameter in parameters.items()
        if parameter.kind in plain and parameter.default is Parameter.empty and name not in settings
    ]
    return f"{key}{_describe_file(key)} lacks the setting {missing[0]!r}, which {target} needs." if missing else None


def _describe_file(key: str) -> str:
    """Return the file of a node; empty if Hydra has no record of it."""
    if not HydraConfig.initialized():
        return ""
    group, _, path = key.partition(".")
    choice = HydraConfig.get().runtime.choices.get(group)
    name = path.partition(".")[0] if isinstance(choice, list | ListConfig) or "[" in str(choice) else choice
    return f" ({group}/{name}.yaml)" if name else ""


def _describe_cause(error: BaseException) -> str:
    """Return why a component refuses its settings, or cannot be found."""
    root = error
    while root.__cause__ is not None:
        root = root.__cause__
    if isinstance(root, ValueError | TypeError):
        return str(root)
    return str(root).splitlines()[0] if root is error else excerpt_error(root)
