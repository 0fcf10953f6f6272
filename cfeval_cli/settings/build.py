"""From a composed config to a Plan: the only place that instantiates, and the last that knows of Hydra."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial
from importlib import resources
from inspect import Parameter, signature
from typing import Any, TypeVar

from hydra.core.hydra_config import HydraConfig
from hydra.errors import InstantiationException
from hydra.utils import get_object, instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cfeval_cli.core import Access, Distance, Explainer, Metric, Removal, Search, Trainable, Truth
from cfeval_cli.core.imports import make_importable
from cfeval_cli.errors import UserError, check_option, did_you_mean, refuse_exit
from cfeval_cli.judge.judge import Judge
from cfeval_cli.settings.compose import format_value, list_default_options
from cfeval_cli.settings.plan import Absences, Plan
from cfeval_cli.settings.renamed import describe_renamed_setting
from cfeval_cli.settings.run_settings import RunSettings, validate_settings

_ACCESS = {level.name.lower(): level for level in (Access.LABEL, Access.PROBABILITY, Access.GRADIENT)}


def build_plan(cfg: DictConfig, given: Mapping[str, object] | None = None) -> Plan:
    """Check the settings and instantiate the components, but those that are given, by key: model, metric.mine."""
    given = given or {}
    _check_keys(cfg)
    settings = validate_settings(_plain_settings(cfg))
    truths = _several(cfg, "truth", Truth, given)
    access = _ACCESS[settings.access]
    chosen = _several(cfg, "metric", Metric, given)
    facts = _several(cfg, "fact", Metric, {}) if cfg.get("fact") else {}
    metrics = _permitted(chosen, access) | facts
    agreements = [name for name, metric in metrics.items() if metric.role == "truth"]
    if agreements and settings.agreement not in agreements:
        raise UserError(
            f"agreement must be one of the ground-truth metrics of metric=[…], not {settings.agreement!r}. "
            f"Use {' or '.join(f'agreement={name}' for name in agreements)}, or add {settings.agreement} to metric=[…]."
        )
    judged = [name for name, metric in metrics.items() if metric.role == "judged"]
    for name in settings.tables.metrics or ():
        _check("tables.metrics", partial(check_option, "tables.metrics", name, judged))
    search = make(cfg, "search", Search, given)
    levels = tuple(level for level in search.levels if level <= access)
    if not levels:
        needed = min(search.levels).name.lower()
        raise UserError(f"access={settings.access} is not enough for this search, which needs access={needed}.")
    dropped = {
        name: f"needs {metric.access.name.lower()} access" for name, metric in chosen.items() if name not in metrics
    }
    return Plan(
        settings=settings,
        dataset=make(cfg, "dataset", given=given),
        model=make(cfg, "model", Trainable, given),
        truths=truths,
        removals=_several(cfg, "removal", Removal, given),
        explainers=_members(_several(cfg, "explainer", Explainer, given)),
        search=search,
        distance=make(cfg, "distance", Distance, given),
        metrics=metrics,
        access=access,
        levels=levels,
        executor=make(cfg, "executor"),
        cache=make(cfg, "cache"),
        absent=Absences(metrics=dropped),
        judges=_several(cfg, "judge", Judge, given) if cfg.get("judge") else {},
    )


def _plain_settings(cfg: DictConfig) -> dict[str, Any]:
    """Return the settings that are not components, as plain values."""
    values = {name: _plain(cfg, name) for name in RunSettings.model_fields if name in cfg}
    return values | {"budget": _plain(cfg, "truth.budget")}


def _plain(cfg: DictConfig, key: str) -> Any:
    try:
        value = OmegaConf.select(cfg, key)
    except OmegaConfBaseException as error:
        raise UserError(f"{key}: {_reason(error)}") from error
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def _permitted(metrics: dict[str, Metric], access: Access) -> dict[str, Metric]:
    """The metrics that the access allows; the ground truth is not asked of the model and always stays."""
    kept = {name: m for name, m in metrics.items() if m.access <= access or m.role == "truth"}
    dropped = [name for name in metrics if name not in kept]
    if dropped and not any(m.role == "judged" for m in kept.values()):
        level, verb = access.name.lower(), "needs" if len(dropped) == 1 else "need"
        raise UserError(
            f"access={level} leaves no metric to be judged: {', '.join(dropped)} {verb} more. Raise access, or choose "
            f"metrics that need no more than {level} access."
        )
    return kept


def _several(cfg: DictConfig, group: str, kind: type[_T], given: Mapping[str, object]) -> dict[str, _T]:
    """The components of a group that is chosen several at a time, in the order of the tables."""
    own = [key.removeprefix(f"{group}.") for key in given if key.startswith(f"{group}.")]
    named = [key for key in cfg.get(group) or () if (group, key) not in _OF_ALL]
    chosen = dict.fromkeys([*named, *own])
    if not chosen:
        example = ",".join(list_default_options(group)[:2])
        raise UserError(f"{group}=[] chooses nothing. Name at least one, for example {group}=[{example}].")
    made: dict[str, _T] = {}
    for key in chosen:
        if not re.fullmatch(r"\w[\w-]*", str(key)):  # names go into files, tables and the keys of settings
            raise UserError(f"{group}.{key}: a name is of letters, digits, _ and -, and does not begin with -.")
        made[str(key)] = make(cfg, f"{group}.{key}", kind, given)
    if kind is Truth:  # the first is the one that the tables show first and the controls are made from
        return made
    if kind is Truth:  # the first is the one that the tables show first and the controls are made from
        return made
    # not the order of the command line: the same choice must give the same bytes
    return dict(sorted(made.items(), key=lambda item: (_place(item[1]), item[0])))


def _place(component: object) -> int:
    """Where it stands in the tables; what has no place keeps the order of its name."""
    return component.display_order if isinstance(component, Explainer | Metric | Removal) else 0


def _members(explainers: dict[str, Explainer]) -> dict[str, Explainer]:
    """The explainers that those stand for, of a ladder the best rung first."""
    made: dict[str, Explainer] = {}
    for key, explainer in explainers.items():
        try:
            members = explainer.expand(key)
        except ValueError as error:
            raise UserError(f"explainer.{key}: {error}.") from error
        if twice := [name for name in members if name in made]:
            raise UserError(
                f"explainer.{key}: {twice[0]} is the name of another explainer too. Rename one, or leave it out."
            )
        made |= members
    best_first = {name: -one.quality_level if one.quality_level >= 0 else 0.0 for name, one in made.items()}
    return dict(sorted(made.items(), key=lambda item: (item[1].display_order, best_first[item[0]], item[0])))


_OF_ALL = {("truth", "budget")}  # settings of a whole group, which are no components
_T = TypeVar("_T")


def make(
    cfg: DictConfig,
    path: str,
    kind: type[_T] = object,  # type: ignore[assignment]
    given: Mapping[str, object] | None = None,
) -> _T:
    """Instantiate one node of the config, unless it is given; what its settings object to is told with its key."""
    if given and path in given:
        return _checked(given[path], path, kind, type(given[path]).__qualname__)
    try:
        node = OmegaConf.select(cfg, path)
    except OmegaConfBaseException as error:
        raise UserError(f"{path}: {_reason(error)}") from error
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise UserError(f"{path} has no _target_: it must name the class of the component.")
    try:
        with refuse_exit():
            component = instantiate_node(node)
    except (InstantiationException, OmegaConfBaseException) as error:
        raise UserError(_misfit(node, path) or f"{path}: {_reason(error)}") from error
    return _checked(component, path, kind, str(node["_target_"]))


def instantiate_node(node: DictConfig) -> Any:
    """Instantiate a node as Hydra does, after making its classes importable."""
    for target in find_targets(OmegaConf.to_container(node, resolve=True)):
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


def _checked(made: object, path: str, kind: type[_T], name: str) -> _T:
    if not isinstance(made, kind):
        raise UserError(f"{path}: {name} is no {kind.__name__}: {_BECOME[kind.__name__]}.")
    return made


_BECOME = {
    "Trainable": "a model's settings have fit(dataset, seed)",
    "Judge": "it is cfeval_cli.judge.judge.Judge, with a model",
} | {
    name: f"derive it from cfeval_cli.core.{name}"
    for name in ("Truth", "Removal", "Explainer", "Search", "Distance", "Metric")
}


@cache
def _known_keys() -> set[str]:
    text = resources.files("cfeval_cli.conf").joinpath("run.yaml").read_text(encoding="utf-8")
    told: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    groups = (group for one in told["defaults"] if isinstance(one, dict) for group in one)
    return {*told, *(group.rpartition("@")[2] for group in groups)} - {"defaults"}


def _check_keys(cfg: DictConfig) -> None:
    """Refuse a setting that nothing reads, which is most often one that is misspelt."""
    known = _known_keys()
    for key in [str(key) for key in cfg if key not in known]:
        if renamed := describe_renamed_setting(key, format_value(_plain(cfg, key))):
            raise UserError(renamed)
        # one that others refer to is a user's own abbreviation
        if not re.search(rf"\$\{{{re.escape(key)}[.}}]", OmegaConf.to_yaml(cfg, resolve=False)):
            raise UserError(f"there is no setting {key!r}, and nothing refers to it.{did_you_mean(key, known)}")


def _misfit(node: DictConfig, path: str) -> str | None:
    """Which setting a class, of this node or of one within, does not have, or needs; None if it is something else."""
    for key in (key for key in node if isinstance(key, str)):
        if OmegaConf.is_missing(node, key) or OmegaConf.is_interpolation(node, key):  # the target may not exist
            continue
        child = node[key]
        if isinstance(child, DictConfig) and (found := _misfit(child, f"{path}.{key}")):
            return found
    target = node.get("_target_")
    try:
        wanted = signature(get_object(str(target))).parameters if target and "_args_" not in node else None
    except Exception:  # not there, or of a kind that does not tell what it is called with
        return None
    if wanted is None:
        return None
    kinds = {parameter.kind for parameter in wanted.values()}
    given = {str(key) for key in node} - {"_target_", "_partial_", "_recursive_", "_convert_"}
    strange = sorted(given - set(wanted))
    if strange and Parameter.VAR_KEYWORD not in kinds:
        there = f"There is: {', '.join(wanted)}." if wanted else "It has none."
        return f"{path}{_of_file(path)} has no setting {strange[0]!r}.{did_you_mean(strange[0], wanted)} {there}"
    plain = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    needed = [name for name, one in wanted.items() if one.kind in plain and one.default is Parameter.empty]
    lacking = [name for name in needed if name not in given]
    if lacking and "_partial_" not in node:
        return f"{path}{_of_file(path)} lacks the setting {lacking[0]!r}, which {target} needs."
    return None


def _of_file(path: str) -> str:
    """The file that a node comes from, where Hydra knows it."""
    if not HydraConfig.initialized():
        return ""
    group, _, rest = path.partition(".")
    chosen = HydraConfig.get().runtime.choices.get(group)
    name = rest.partition(".")[0] if isinstance(chosen, list | ListConfig) or "[" in str(chosen) else chosen
    return f" ({group}/{name}.yaml)" if name else ""


def _reason(error: BaseException) -> str:
    """What a component objects to, or what kept it from being found."""
    chain = [error]
    while chain[-1].__cause__ is not None:
        chain.append(chain[-1].__cause__)
    if isinstance(chain[-1], ValueError | TypeError):
        return str(chain[-1])
    first = str(error).splitlines()[0].partition(", set env var")[0]
    return first if len(chain) == 1 else f"{first}: {str(chain[-1]).splitlines()[0]}"


def _check(key: str, test: Callable[[], None]) -> None:
    """Tell what a test objects to, with the key of the config."""
    try:
        test()
    except ValueError as error:
        raise UserError(str(error) if str(error).startswith(key) else f"{key}: {error}") from error
