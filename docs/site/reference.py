"""The reference: every component with its settings, from conf/ and docstrings, and what Python users call."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf

_FIRST = ("dataset", "model", "explainer", "metric", "truth", "removal", "search", "distance", "executor", "cache")


def components(conf: Path) -> str:
    """A page with every yaml of every group."""
    lines = ["# Components", "", "Every choice of every group, with its settings as its yaml has them."]
    there = [path.name for path in conf.iterdir() if path.is_dir() and any(path.glob("*.yaml"))]
    for group in sorted(there, key=lambda name: (_FIRST.index(name) if name in _FIRST else len(_FIRST), name)):
        lines += ["", f"## {group}"]
        for path in sorted((conf / group).glob("*.yaml")):
            lines += ["", f"### {group}: {path.stem}", "", *_component(path)]
    return "\n".join(lines) + "\n"


def _component(path: Path) -> Iterator[str]:
    """What the yaml says in its first lines, what the class says of itself, and the settings."""
    text = path.read_text(encoding="utf-8")
    told = re.match(r"(?:# .*\n)+", text)
    if told:
        yield " ".join(line.removeprefix("# ") for line in told[0].splitlines())
        yield ""
    node: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    own = {key: value for key, value in node.items() if key != "defaults"}
    only = next(iter(own.values())) if len(own) == 1 else None
    if isinstance(only, dict) and "_target_" in only:
        own = only  # of a group that is chosen several at a time
    comments = _comments(text)
    if "_target_" in own:
        target = own.pop("_target_")
        comments = _comments(inspect.getsource(get_class(target))) | comments
        yield f"`{target}`: {summary(get_class(target))}"
        yield ""
    names = [one if isinstance(one, str) else next(iter(one)) for one in node.get("defaults", [])]
    if names:
        yield f"Made of: {', '.join(f'`{name}`' for name in names)}."
        yield ""
    if own:
        yield from ("| setting | default | |", "| --- | --- | --- |")
        for key, value in own.items():
            shown = OmegaConf.to_yaml(OmegaConf.create([value])).strip().removeprefix("- ")
            shown = " ".join(shown.split()) if len(shown) <= 120 else "see the yaml"
            yield f"| `{key}` | `{_cell(shown)}` | {_cell(comments.get(key, ''))} |"


def _comments(text: str) -> dict[str, str]:
    """What stands behind a setting in its yaml, or in its class."""
    return dict(re.findall(r"^\s*(\w+):[^#\n]*#\s*(.+)$", text, re.M))


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def summary(thing: Any) -> str:
    """The first paragraph of a docstring."""
    return " ".join((inspect.getdoc(thing) or "").partition("\n\n")[0].split())


def api() -> str:
    """Return a page on `evaluate`, `run`, `load` and `Results`, and on the classes that components derive from."""
    from cfeval_cli import core
    from cfeval_cli.api import Results, evaluate, load, run
    from cfeval_cli.results.read import StoredRun

    lines = ["# Python", "", "[From Python](python.md) tells how these are used."]
    for function in (evaluate, run, load):
        lines += ["", f"## {function.__name__}", "", "```python", *_signature(function), "```", ""]
        lines += (inspect.getdoc(function) or "").splitlines()
    lines += ["", "## Results", "", summary(Results), "", "| attribute | |", "| --- | --- |"]
    attributes = {name: one for name, one in {**vars(StoredRun), **vars(Results)}.items() if inspect.getdoc(one)}
    lines += [f"| `{name}` | {_cell(summary(one))} |" for name, one in attributes.items() if not name.startswith("_")]
    lines += ["", "## Classes to derive from", "", "In `cfeval_cli.core`."]
    for kind in (core.Explainer, core.Metric, core.Truth, core.Removal, core.Search, core.Distance):
        lines += ["", f"### {kind.__name__}", "", summary(kind), "", "| method | |", "| --- | --- |"]
        methods = [(name, one) for name, one in vars(kind).items() if callable(one) and not name.startswith("_")]
        lines += [f"| `{name}` | {_cell(summary(one))} |" for name, one in methods]
    return "\n".join(lines) + "\n"


def _signature(function: Any) -> list[str]:
    """One argument a line."""
    told = inspect.signature(function)
    lines, starred = [f"{function.__name__}("], False
    for one in told.parameters.values():
        if one.kind is one.KEYWORD_ONLY and not starred:
            starred = True
            lines.append("    *,")
        default = "" if one.default is one.empty else f" = {one.default!r}"
        lines.append(f"    {one.name}: {one.annotation}{default},")
    return [*lines, f") -> {told.return_annotation}"]
