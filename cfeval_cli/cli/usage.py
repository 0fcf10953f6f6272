"""`cfeval run --help`: an overview, and a page for each config group and for the settings."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import wrap
from typing import Any

from cfeval_cli.errors import UserError, did_you_mean, escape_controls
from cfeval_cli.settings import compose
from cfeval_cli.settings.descriptions import find_comments, read_header

SETTINGS = "settings"
_MAX_LIST_VALUES = 6
_MAX_COLUMNS = 100  # longer lines are hard to read

_PAGE = """\
cfeval run: train a model, explain its predictions, search for counterfactuals,
score the explainers, report which explainer to use and which metric to trust.

  cfeval run dataset=adults search=discrete
  cfeval run explainer=[lr,lime] explainer.lime.n_samples=1000 n_explain=200 k=2
  cfeval run --multirun seed=1,2,3
  cfeval run --resume FOLDER     # a run or sweep that was killed or failed

Config groups, GROUP=NAME or GROUP=[NAME,NAME]; the names of a group with their
descriptions and settings: cfeval run --help GROUP
{groups}

All other settings, KEY=VALUE: cfeval run --help settings

  --full           print all tables (they are in the run folder in any case)
  --quiet          print the answer only
  --config-dir D   your own configs, in addition to ./conf
  --cfg job        show the composed config; --hydra-help: Hydra's own options
Tab completion: eval "$(cfeval run -sc install=bash)"
"""


def find_help_topic(words: Sequence[str]) -> str | None:
    """Return the group whose help a command line requests, "" for all groups, None without --help."""
    for position, word in enumerate(words):
        if word in ("--help", "-h"):
            return next((topic for topic in words[position + 1 :] if not topic.startswith("-")), "")
    return None


def print_help(topic: str, config_dir: str | None) -> None:
    """Print the help page of one group, or the overview; `config_dir` is the folder of the user's configs."""
    width = min(_MAX_COLUMNS, shutil.get_terminal_size().columns)
    lines = build_help_page(topic, width, config_dir)
    sys.stdout.write(escape_controls("\n".join(lines), keep="\n").rstrip() + "\n")


def build_help_page(topic: str, width: int, config_dir: str | None) -> list[str]:
    """Return the lines of a help page; `config_dir` is the folder of the user's configs."""
    groups = _list_groups()
    if not topic:
        return _PAGE.format(groups="\n".join(_wrap_text(" ".join(groups), width, "  "))).splitlines()
    if topic == SETTINGS:
        return list(_format_run_settings(width))
    group = topic.partition("=")[0]
    if group not in groups:
        topics = [*groups, SETTINGS]
        raise UserError(f"there is no help on {topic!r}.{did_you_mean(topic, topics)} There is: {', '.join(topics)}.")
    return list(_format_group(group, width, config_dir))


def _list_groups() -> list[str]:
    """Return the config groups in the order of run.yaml."""
    return [name for entry in _read_defaults() for name in entry]


def _read_defaults() -> list[dict[str, Any]]:
    """Return the entries of run.yaml's defaults that choose from a group."""
    defaults = _read_yaml(compose.get_package_folder() / "run.yaml")["defaults"]
    return [entry for entry in defaults if isinstance(entry, dict)]


def _format_group(group: str, width: int, config_dir: str | None) -> Iterator[str]:
    """Yield the lines about each option of a group: name, description, settings with their defaults."""
    default = next(entry[group] for entry in _read_defaults() if group in entry)
    default_text = "none" if default is None else _format_default(default)
    yield from _wrap_text(f"{group}=NAME; by default {default_text}", width, "", "  ")
    for folder in dict.fromkeys([compose.get_package_folder(), *([Path(config_dir)] if config_dir else [])]):
        for file in sorted((folder / group).glob("*.yaml")):
            yield ""
            yield from _wrap_text(f"{file.stem}: {next(iter(read_header(file)), '')}", width, "", "  ")
            settings = _list_settings(group, file.stem, _read_yaml(file))
            yield from _wrap_text(
                "  ".join(f"{key}={_format_default(value)}" for key, value in settings), width, "    "
            )


def _wrap_text(text: str, width: int, indent: str, subsequent_indent: str | None = None) -> list[str]:
    return wrap(
        text, width, initial_indent=indent, break_long_words=False, break_on_hyphens=False,
        subsequent_indent=indent if subsequent_indent is None else subsequent_indent,
    )  # fmt: skip


def _read_yaml(file: Path) -> dict[str, Any]:
    import yaml  # type: ignore[import-untyped]

    content = yaml.safe_load(file.read_text(encoding="utf-8"))
    return content if isinstance(content, dict) else {}


def _list_settings(group: str, option: str, content: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the settings of an option with their defaults, by the key that the command line takes."""
    component = content.get(option)
    if isinstance(component, dict) and "_target_" in component:
        prefix, node = f"{group}.{option}.", component
    else:
        prefix, node = f"{group}.", {key: value for key, value in content.items() if key != "defaults"}
    if group == "experiment" or "_target_" not in node:
        return []  # a preset, which chooses other options
    return [
        (f"{prefix}{key}", value)
        for key, value in node.items()
        if key != "_target_" and not isinstance(value, dict) and "${" not in str(value) and "{" not in str(value)
    ]


def _format_default(value: Any) -> str:
    """Return a value as one types it; non-breaking spaces keep it on one line."""
    if isinstance(value, list):
        items = value if len(value) <= _MAX_LIST_VALUES else [*value[:2], "…"]
        return f"[{','.join(map(_format_default, items))}]"
    text = "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
    return f"'{text}'".replace(" ", "\u00a0") if " " in text else text


def _format_run_settings(width: int) -> Iterator[str]:
    """Yield the lines about the settings of run.yaml that belong to no group."""
    file = compose.get_package_folder() / "run.yaml"
    descriptions = find_comments(file.read_text(encoding="utf-8"))
    yield "KEY=VALUE; the defaults are shown"
    yield ""
    for name, setting in _read_yaml(file).items():
        if name in ("defaults", "hydra"):
            continue
        defaults = {f"{name}.{key}": value for key, value in setting.items()} if isinstance(setting, dict) else None
        for key, value in (defaults or {name: setting}).items():
            description = descriptions.get(key.rpartition(".")[2], "")
            yield from _wrap_text(f"{key}={_format_default(value)}  {description}".rstrip(), width, "", "    ")
