"""From a composed config to a Plan: the only place that instantiates, and the last that knows of Hydra."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from cfeval_cli import gold
from cfeval_cli.errors import UserError, number, one_of, whole
from cfeval_cli.metric.converged import Converged
from cfeval_cli.metric.coverage import Coverage
from cfeval_cli.statistics.summary import TRUTHS
from cfeval_cli.types import Access, Cache, Dataset, Distance, Executor, Explainer, Loadable, Metric, Search, Trainable

_ACCESS = {level.name.lower(): level for level in (Access.LABEL, Access.PROBABILITY, Access.GRADIENT)}

_LEAST_RESAMPLES = 100  # the ends of an interval are rare among fewer


@dataclass(frozen=True)
class Plan:
    """Everything that a run is made of."""

    dataset: Loadable
    model: Trainable
    explainers: Mapping[str, Explainer]  # by config key, in the order of the tables
    search: Search
    distance: Distance
    metrics: Mapping[str, Metric]  # by name, in the order of the tables
    dropped: Mapping[str, str]  # metrics that were chosen and cannot be computed, with the reason
    access: Access
    levels: tuple[Access, ...]  # at which the search is to run
    seed: int
    k: int
    n_explain: int | None
    gold: str
    agreement: str
    incomplete: str
    bounds: int  # instances at most on which every explanation is tried; 0: none
    resamples: int  # of the bootstrap over instances
    confidence: float  # of its intervals
    figures: tuple[str, ...]  # formats
    report: bool  # write report.html
    redo: bool  # compute again what the folder has
    data_dir: Path
    executor: Executor
    cache: Cache
    strict: bool  # an instance that an explainer fails on ends the run
    timeout: float | None  # seconds that an explainer has for one instance

    @property
    def ladder_gold(self) -> str:
        """The definition of gold that a ladder is made from."""
        return next((str(e.gold) for e in self.explainers.values() if hasattr(e, "rung")), "")  # type: ignore[attr-defined]

    @property
    def components(self) -> dict[str, Any]:
        """What the results come from, by config key."""
        one = {"dataset": self.dataset, "model": self.model, "search": self.search, "distance": self.distance}
        explainers = {f"explainer.{name}": explainer for name, explainer in self.explainers.items()}
        return one | explainers | {f"metric.{name}": metric for name, metric in self.metrics.items()}

    def check(self, dataset: Dataset) -> None:
        """Refuse what the data cannot give, before anything is computed."""
        if self.k > dataset.width:
            raise UserError(f"k={self.k} is more than the {dataset.width} features of {dataset.name}.")
        if self.n_explain is not None and self.n_explain > len(dataset.test):
            raise UserError(
                f"n_explain={self.n_explain} is more than the {len(dataset.test)} test instances of {dataset.name}. "
                "Use n_explain=null for all of them."
            )
        self.search.check(dataset, self.k)
        for name, explainer in self.explainers.items():
            if hasattr(explainer, "check"):
                _check(f"explainer.{name}", partial(explainer.check, dataset))


def plan(cfg: DictConfig) -> Plan:
    """Check the settings and instantiate the components."""
    _check("seed", lambda: whole("seed", cfg.seed, 0))
    _check("k", lambda: whole("k", cfg.k, 1))
    if cfg.n_explain is not None:
        _check("n_explain", lambda: whole("n_explain", cfg.n_explain, 1))
    _check("access", lambda: one_of("access", cfg.access, _ACCESS))
    _check("gold", lambda: one_of("gold", cfg.gold, gold.DEFINITIONS))
    _check("agreement", lambda: one_of("agreement", cfg.agreement, ("recall", "hit")))
    _check("incomplete", lambda: one_of("incomplete", cfg.incomplete, ("skip", "random", "keep")))
    _check("bounds", lambda: whole("bounds", cfg.bounds, 0))
    _check("resamples", lambda: whole("resamples", cfg.resamples, 0))
    if 0 < cfg.resamples < _LEAST_RESAMPLES:
        raise UserError(f"resamples must be 0 or at least {_LEAST_RESAMPLES}, not {cfg.resamples}.")
    _check("confidence", lambda: number("confidence", cfg.confidence, 0.5, 0.9999))
    if not isinstance(cfg.figures, ListConfig | None):
        raise UserError(f"figures must be a list such as [png,pdf], or [] for none, not {cfg.figures!r}.")
    for kind in cfg.figures or ():
        _check("figures", partial(one_of, "figures", kind, ("png", "svg", "pdf")))
    for key in ("report", "redo", "strict"):
        if not isinstance(cfg[key], bool):
            raise UserError(f"{key} must be true or false, not {cfg[key]!r}.")
    if cfg.timeout_per_instance is not None:
        _check("timeout_per_instance", lambda: number("timeout_per_instance", cfg.timeout_per_instance, 0.001))
    access = _ACCESS[cfg.access]
    chosen = _several(cfg, "metric")
    metrics = _permitted(chosen, access) | {"converged": Converged(), "coverage": Coverage()}  # always told
    truths = [name for name in TRUTHS if name in metrics]
    if truths and cfg.agreement not in truths:
        raise UserError(
            f"agreement={cfg.agreement} needs the metric {cfg.agreement}, and metric=[…] has {truths[0]} only."
        )
    search: Search = make(cfg, "search")
    levels = tuple(level for level in search.levels if level <= access)
    if not levels:
        needed = min(search.levels).name.lower()
        raise UserError(f"access={cfg.access} is not enough for this search, which needs access={needed}.")
    distance: Distance = make(cfg, "distance")
    if getattr(search, "moves", False) and getattr(distance, "space", None) == "onehot":
        raise UserError("distance.space=onehot cannot measure moved embeddings. Use distance.space=auto or embedding.")
    explainers = _several(cfg, "explainer")
    return Plan(
        dataset=make(cfg, "dataset"),
        model=make(cfg, "model"),
        explainers=explainers,
        search=search,
        distance=distance,
        metrics=metrics,
        dropped={
            name: f"needs {metric.access.name.lower()} access" for name, metric in chosen.items() if name not in metrics
        },
        access=access,
        levels=levels,
        seed=cfg.seed,
        k=cfg.k,
        n_explain=cfg.n_explain,
        gold=cfg.gold,
        agreement=cfg.agreement,
        incomplete=cfg.incomplete,
        bounds=cfg.bounds,
        resamples=cfg.resamples,
        confidence=cfg.confidence,
        figures=tuple(cfg.figures or ()),
        report=cfg.report,
        redo=cfg.redo,
        data_dir=Path(str(cfg.data_dir)).expanduser(),
        executor=make(cfg, "executor"),
        cache=make(cfg, "cache"),
        strict=cfg.strict,
        timeout=cfg.timeout_per_instance,
    )


def _permitted(metrics: dict[str, Any], access: Access) -> dict[str, Any]:
    """The metrics that the access allows; the ground truth is not asked of the model and always stays."""
    kept = {name: m for name, m in metrics.items() if m.access <= access or m.access == Access.WHITE_BOX}
    dropped = [name for name in metrics if name not in kept]
    if dropped and not any(m.better != "none" and m.access != Access.WHITE_BOX for m in kept.values()):
        raise UserError(
            f"access={access.name.lower()} leaves no metric to be judged: {', '.join(dropped)} "
            f"need{'s' if len(dropped) == 1 else ''} more. Raise access, or choose validity, proximity, c or dfr."
        )
    return kept


def _several(cfg: DictConfig, group: str) -> dict[str, Any]:
    """The components of a group that is chosen several at a time, in the order of the tables."""
    chosen = cfg.get(group)
    if not chosen:
        raise UserError(f"{group}=[] chooses nothing. Name at least one, for example {group}=[{_EXAMPLE[group]}].")
    made: dict[str, Any] = {}
    for key in chosen:
        if not re.fullmatch(r"\w[\w-]*", str(key)):  # names go into files, tables and the keys of settings
            raise UserError(f"{group}.{key}: a name is of letters, digits, _ and -, and does not begin with -.")
        component = make(cfg, f"{group}.{key}")
        # one that stands for several, as a ladder does for its rungs
        members = component.members() if hasattr(component, "members") else None
        made |= {str(key): component} if members is None else {f"{key}_{name}": one for name, one in members.items()}
    # not the order of the command line: the same choice must give the same bytes
    return dict(sorted(made.items(), key=lambda item: (*_place(item[1]), item[0])))


def _place(component: Any) -> tuple[float, float]:
    """Where it stands in the tables; of a ladder the best rung first."""
    return getattr(component, "place", 55), -getattr(component, "rung", 0.0)


_EXAMPLE = {"explainer": "lr,lime", "metric": "c,recall"}


def make(cfg: DictConfig, path: str) -> Any:
    """Instantiate one node of the config; what its settings object to is told with the node's key."""
    node = OmegaConf.select(cfg, path)
    if not isinstance(node, DictConfig) or "_target_" not in node:
        raise UserError(f"{path} has no _target_: it must name the class of the component.")
    try:
        return instantiate(node, _convert_="all")
    except (InstantiationException, OmegaConfBaseException) as error:
        raise UserError(f"{path}: {_reason(error)}") from error


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
