"""`cfeval run --help`: a screen of it, and a page for each group of components and for the settings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from cfeval_cli.cli.own_configs import find_own_folder
from cfeval_cli.errors import UserError, did_you_mean, escape_controls
from cfeval_cli.settings import compose

SETTINGS = "settings"
_LONG = 6  # values of a list that are shown
_MOST = 100  # columns, beyond which lines are tiresome to read

_PAGE = """\
cfeval run: train a model, explain its predictions, search for counterfactuals,
score the explainers, and report which of them to use and which metric to trust.

  cfeval run dataset=adults search=discrete
  cfeval run explainer=[lr,lime] explainer.lime.n_samples=1000 n_explain=200 k=2
  cfeval run --multirun seed=1,2,3
  cfeval run --resume FOLDER     # a run or sweep that was killed or failed

What can be chosen, GROUP=NAME or GROUP=[NAME,NAME]; to list the names with what
they are and their settings: cfeval run --help GROUP
{groups}

All other settings, KEY=VALUE: cfeval run --help settings

  --full           all tables on the screen; the files have them in any case
  --quiet          the answer and nothing else
  --config-dir D   configs of your own, besides those in ./conf
  --cfg job        show the composed config; --hydra-help: Hydra's own options
Tab completion: eval "$(cfeval run -sc install=bash)"
"""


def asked(words: Sequence[str]) -> str | None:
    """What a command line wants to know, a group or an empty word; None if it wants no help."""
    for place, word in enumerate(words):
        if word in ("--help", "-h"):
            return next((one for one in words[place + 1 :] if not one.startswith("-")), "")
    return None


def show(topic: str) -> None:
    """Print what there is to choose, of one group or in all."""
    width = min(_MOST, shutil.get_terminal_size().columns)
    sys.stdout.write(escape_controls("\n".join(page(topic, width, find_own_folder())), keep="\n").rstrip() + "\n")


def page(topic: str, width: int, own: str | None) -> list[str]:
    """The lines of a page."""
    groups = _groups()
    if not topic:
        listed = _indented(" ".join(groups), width, "  ")
        return _PAGE.format(groups="\n".join(listed)).splitlines()
    if topic == SETTINGS:
        return list(_settings(width))
    group = topic.partition("=")[0]
    if group not in groups:
        there = [*groups, SETTINGS]
        raise UserError(f"there is no help on {topic!r}.{did_you_mean(topic, there)} There is: {', '.join(there)}.")
    return list(_group(group, width, own))


def _groups() -> list[str]:
    """In the order of run.yaml."""
    defaults = _read(compose.get_package_folder() / "run.yaml")["defaults"]
    return [name for one in defaults if isinstance(one, dict) for name in one]


def _group(group: str, width: int, own: str | None) -> Iterator[str]:
    """Each option: its name, the first comment of its yaml, its settings with their defaults."""
    chosen = next(one[group] for one in _read(compose.get_package_folder() / "run.yaml")["defaults"] if group in one)
    yield from _indented(f"{group}=NAME; by default {'none' if chosen is None else _value(chosen)}", width, "", "  ")
    for place in dict.fromkeys([compose.get_package_folder(), *([Path(own)] if own else [])]):
        for file in sorted((place / group).glob("*.yaml")):
            yield ""
            yield from _indented(f"{file.stem}: {_comment(file)}", width, "", "  ")
            told = [f"{key}={_value(value)}" for key, value in _fields(group, file.stem, _read(file))]
            yield from _indented("  ".join(told), width, "    ")


def _indented(text: str, width: int, first: str, then: str | None = None) -> list[str]:
    return wrap(
        text, width, initial_indent=first, subsequent_indent=first if then is None else then, break_long_words=False,
        break_on_hyphens=False,
    )  # fmt: skip


def _comment(file: Path) -> str:
    """The first comment of a yaml that is no directive."""
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("#") and not line.startswith("# @package"):
            return line.lstrip("# ").strip()
    return ""


def _read(file: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    told = yaml.safe_load(file.read_text(encoding="utf-8"))
    return told if isinstance(told, dict) else {}


def _fields(group: str, name: str, told: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """What can be set of an option: its keys that are values, as they stand on the command line."""
    inner = told.get(name)
    prefix, node = (
        (f"{group}.{name}.", inner) if isinstance(inner, dict) and "_target_" in inner else (f"{group}.", told)
    )
    if group == "experiment" or "_target_" not in node:
        return []  # it chooses others
    return [
        (f"{prefix}{key}", value)
        for key, value in node.items()
        if key != "_target_" and not isinstance(value, dict) and "${" not in str(value) and "{" not in str(value)
    ]


def _value(value: Any) -> str:
    """As one would type it, without blanks, so that no line is broken in it."""
    if isinstance(value, list):
        some = value if len(value) <= _LONG else [*value[:2], "…"]
        return f"[{','.join(map(_value, some))}]"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text}'".replace(" ", "\u00a0") if " " in text else text


def _settings(width: int) -> Iterator[str]:
    """The settings of run.yaml that belong to no group, with their defaults and what they mean."""
    file = compose.get_package_folder() / "run.yaml"
    descriptions = _descriptions(file)
    yield "KEY=VALUE; the defaults are shown"
    yield ""
    for name, setting in _read(file).items():
        if name in ("defaults", "hydra"):
            continue
        defaults = {f"{name}.{key}": value for key, value in setting.items()} if isinstance(setting, dict) else None
        for key, value in (defaults or {name: setting}).items():
            description = descriptions[key.rpartition(".")[2]]
            yield from _indented(f"{key}={_value(value)}  {description}".rstrip(), width, "", "    ")


def _descriptions(file: Path) -> dict[str, str]:
    """Return the comment behind each key of a yaml."""
    lines = (line.partition("#") for line in file.read_text(encoding="utf-8").splitlines())
    return {setting.partition(":")[0].strip(): comment.strip() for setting, _, comment in lines}
