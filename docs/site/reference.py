"""The reference: every component with its settings, from conf/ and docstrings, and the Python interface."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf

from cfeval_cli.settings.descriptions import find_comments, read_header

_FIRST_GROUPS = (
    "dataset", "model", "explainer", "metric", "truth", "removal", "search", "distance", "executor", "cache",
)  # fmt: skip
_MAX_DEFAULT_CHARACTERS = 120


def write_components(conf: Path) -> str:
    """Return a page with every config of every group."""
    lines = ["# Components", "", "Every option of every group, with its settings and their defaults."]
    groups = [path.name for path in conf.iterdir() if path.is_dir() and any(path.glob("*.yaml"))]
    for group in sorted(groups, key=_get_sort_key):
        lines += ["", f"## {group}"]
        for path in sorted((conf / group).glob("*.yaml")):
            lines += ["", f"### {group}: {path.stem}", "", *_describe_component(path)]
    return "\n".join(lines) + "\n"


def _get_sort_key(group: str) -> tuple[int, str]:
    return (_FIRST_GROUPS.index(group) if group in _FIRST_GROUPS else len(_FIRST_GROUPS)), group


def _describe_component(path: Path) -> Iterator[str]:
    """Yield the first comment of a config, the docstring of its class, and its settings."""
    if header := read_header(path):
        yield " ".join(header)
        yield ""
    content: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    settings = {key: value for key, value in content.items() if key != "defaults"}
    component = next(iter(settings.values())) if len(settings) == 1 else None
    if isinstance(component, dict) and "_target_" in component:
        settings = component  # of a group that is chosen several at a time
    comments = find_comments(path.read_text(encoding="utf-8"))
    if "_target_" in settings:
        target = settings.pop("_target_")
        comments = find_comments(inspect.getsource(get_class(target))) | comments
        yield f"`{target}`: {summarize(get_class(target))}"
        yield ""
    included = [entry if isinstance(entry, str) else next(iter(entry)) for entry in content.get("defaults", [])]
    if included:
        yield f"Made of: {', '.join(f'`{name}`' for name in included)}."
        yield ""
    if settings:
        yield from ("| setting | default | |", "| --- | --- | --- |")
        for key, value in settings.items():
            yield f"| `{key}` | `{_escape_cell(_format_default(value))}` | {_escape_cell(comments.get(key, ''))} |"


def _format_default(value: Any) -> str:
    text = " ".join(OmegaConf.to_yaml(OmegaConf.create([value])).strip().removeprefix("- ").split())
    return text if len(text) <= _MAX_DEFAULT_CHARACTERS else "see the yaml"


def _escape_cell(text: str) -> str:
    return text.replace("|", r"\|")


def summarize(definition: Any) -> str:
    """Return the first paragraph of a docstring."""
    return " ".join((inspect.getdoc(definition) or "").partition("\n\n")[0].split())


def write_api() -> str:
    """Return a page on `evaluate`, `run`, `load` and `Results`, and on the classes that components derive from."""
    from cfeval_cli import core
    from cfeval_cli.api import Results, evaluate, load, run
    from cfeval_cli.results.read import StoredRun

    lines = ["# Python", "", "[From Python](python.md) shows how to use these."]
    for function in (evaluate, run, load):
        lines += ["", f"## {function.__name__}", "", "```python", *_format_signature(function), "```", ""]
        lines += (inspect.getdoc(function) or "").splitlines()
    attributes = {name: value for name, value in {**vars(StoredRun), **vars(Results)}.items() if inspect.getdoc(value)}
    lines += ["", "## Results", "", summarize(Results), "", "| attribute | |", "| --- | --- |"]
    lines += _list_members(attributes)
    lines += ["", "## Classes to derive from", "", "In `cfeval_cli.core`."]
    for kind in (core.Explainer, core.Metric, core.Truth, core.Removal, core.Search, core.Distance):
        lines += ["", f"### {kind.__name__}", "", summarize(kind), "", "| method | |", "| --- | --- |"]
        lines += _list_members({name: method for name, method in vars(kind).items() if callable(method)})
    return "\n".join(lines) + "\n"


def _list_members(members: dict[str, Any]) -> list[str]:
    """Return a row of a table for each public member."""
    return [
        f"| `{name}` | {_escape_cell(summarize(member))} |"
        for name, member in members.items()
        if not name.startswith("_")
    ]


def _format_signature(function: Callable[..., Any]) -> list[str]:
    """Return the signature of a function with a line for each parameter."""
    signature = inspect.signature(function)
    lines, has_star = [f"{function.__name__}("], False
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and not has_star:
            has_star = True
            lines.append("    *,")
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        lines.append(f"    {parameter.name}: {parameter.annotation}{default},")
    return [*lines, f") -> {signature.return_annotation}"]
