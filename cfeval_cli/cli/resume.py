"""`cfeval run --resume FOLDER`: the arguments that the folder's run, or sweep, was started with.

A folder may come from anybody. Only an allow-list of its overrides is accepted: choices of packaged configs, and
settings of these configs with plain values. Everything else, a path for example, must be repeated on the command line.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cfeval_cli.cli.own_configs import find_conf_folder, get_config_dir
from cfeval_cli.core.files import refuse_links
from cfeval_cli.errors import UserError
from cfeval_cli.results.record import RunRecord
from cfeval_cli.settings import compose
from cfeval_cli.settings.compose import quote

QUIET = "hydra/hydra_logging=disabled"  # what --quiet adds: no lines of Hydra about the jobs of a sweep

_CONFIG_NAME = re.compile(r"\w[\w\-]*(?:/\w[\w\-]*)*")
# Settings of packaged configs that name a file, a folder, a server or a trusted type, or replace complete results.
_UNSAFE_SETTINGS = {"data_dir", "path", "depends", "trusted", "scheduler", "folder", "redo"}
# Job folders are named by these only, none of which holds a path.
_SUBDIR = re.compile(
    r"(?:[\w\-./]|\$\{(?:hydra[:.]job\.num|hydra:job\.override_dirname|hydra:runtime\.choices\.\w+"
    r"|dataset\.name|seed|k|gold)\})+"
)


def arguments(folder: Path, own: Sequence[str]) -> list[str] | None:
    """Hydra's arguments, the user's own ones last; None if nothing is left to do."""
    if not folder.is_dir():
        raise UserError(f"--resume {folder}: there is no such folder.")
    refuse_links(folder)
    if (folder / "run.json").exists():
        return _of_run(folder, own)
    if (folder / "multirun.yaml").exists():
        return _of_sweep(folder, own)
    raise UserError(f"--resume {folder}: it has no run.json, so that nothing had begun. Start the run again.")


def _of_run(folder: Path, own: Sequence[str]) -> list[str] | None:
    from cfeval_cli.results.validation import read, read_record

    again = "redo=true" in own
    record = read_record(folder) if again else read(folder)
    if record.status == "complete" and not again:
        return None
    if record.command and (call := re.match(r"(evaluate|run)\(", record.command[0])):
        raise UserError(f"--resume {folder}: {call[1]}(…) made it. Call that again, with into={str(folder)!r}.")
    overrides = _texts(record.overrides, folder / "run.json")
    _require_repeated([*_config_dir_words(_configs_of(record), own), *words_to_repeat(overrides, own)], own, folder)
    return [*_merged(overrides, own), f"hydra.run.dir={quote(folder)}"]


def _of_sweep(folder: Path, own: Sequence[str]) -> list[str]:
    task, hydra = _sweep_overrides(folder)
    accepted, refused = list[str](), list[str]()
    for override in hydra:
        key, _, value = override.partition("=")
        if key in ("hydra.mode", "hydra.sweep.dir") or override == QUIET:
            continue  # said again below, or by the user
        if key == "hydra.sweep.subdir" and _SUBDIR.fullmatch(value) and ".." not in value and value[:1] != "/":
            accepted.append(override)
        elif override not in own:
            refused.append(override)
    needed = [*_config_dir_words(_sources(folder), own), *refused, *words_to_repeat(task, own)]
    _require_repeated(needed, own, folder)
    first = [] if {"-m", "--multirun"} & set(own) else ["--multirun"]
    return [*first, *_merged(task, own), *accepted, f"hydra.sweep.dir={quote(folder)}"]


def sweep_task_overrides(folder: Path) -> list[str]:
    """Return the overrides that a sweep was started with, without those of Hydra."""
    return _sweep_overrides(folder)[0]


def _sweep_overrides(folder: Path) -> tuple[list[str], list[str]]:
    import yaml  # type: ignore[import-untyped]

    file = folder / "multirun.yaml"
    try:
        overrides = yaml.safe_load(file.read_text(encoding="utf-8"))["hydra"]["overrides"]
        return _texts(overrides["task"], file), _texts(overrides["hydra"], file)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{file} does not tell how the sweep was started. Start it again, into this folder.") from error


def _merged(overrides: Sequence[str], own: Sequence[str]) -> list[str]:
    """The user's options, and the overrides of both; a key keeps its place, by which a sweep numbers its jobs."""
    mine = {_key(word): word for word in own if _is_override(word)}
    options = [word for word in own if not _is_override(word)]
    placed = [mine.pop(_key(text)) if _key(text) in mine else text for text in overrides]
    return [*options, *(text for text in placed if text in own or not _is_replaced(text, own)), *mine.values()]


def words_to_repeat(overrides: Sequence[str], own: Sequence[str] = ()) -> list[str]:
    """Return the overrides of a folder that are not accepted from it and that the user has not repeated."""
    return [text for text in overrides if not _is_replaced(text, own) and not _is_accepted(text)]


def _is_replaced(text: str, own: Sequence[str]) -> bool:
    """Whether the user has given another value; another executor replaces all settings of the first."""
    given = {_key(word) for word in own if _is_override(word)}
    return _key(text) in given or ("executor" in given and _key(text).startswith("executor."))


def _is_accepted(text: str) -> bool:
    """Whether an override chooses packaged configs, or gives one of their settings a plain value."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep, RangeSweep
    from hydra.errors import HydraException

    # Without a dollar sign there is no interpolation, and without a backslash no escaped one.
    if set("$\\") & set(text) or set("/@") & set(text.partition("=")[0]):
        return False
    try:
        override = OverridesParser.create().parse_override(text)
        value = override.value()
    except HydraException:
        return False
    key = override.key_or_group
    is_group = key in compose.list_packaged_groups()
    if override.is_delete():
        return is_group or bool(_defaults(key))
    if isinstance(value, RangeSweep):
        return not is_group and bool(_defaults(key))
    values = value.list if isinstance(value, ChoiceSweep) else [value]
    return all(_is_packaged_choice(key, one) if is_group else _is_plain_setting(key, one) for one in values)


def _defaults(key: str) -> list[Any]:
    """Return the defaults that the packaged configs have for a setting; nothing if it names a file or a server."""
    if key.rpartition(".")[2] in _UNSAFE_SETTINGS:
        return []
    return compose.get_packaged_defaults(key.partition(".")[0]).get(key, [])


def _is_packaged_choice(group: str, value: Any) -> bool:
    """Whether a value names configs of a group that are part of cfeval."""
    if isinstance(value, list):
        return all(_is_packaged_choice(group, one) for one in value)
    if value is None:
        return True
    name = str(_text(value))
    return bool(_CONFIG_NAME.fullmatch(name)) and (compose.get_package_folder() / group / f"{name}.yaml").is_file()


def _is_plain_setting(key: str, value: Any) -> bool:
    """Whether a key is a setting of a packaged config and a value is of a type that its default allows."""
    defaults = _defaults(key)
    if isinstance(value, dict) and any(defaults):
        return all(_is_plain_setting(f"{key}.{_text(name)}", one) for name, one in value.items())
    if isinstance(value, dict):
        return {} in defaults and all(_is_plain(one) for pair in value.items() for one in pair)
    if all(isinstance(default, int | float) for default in defaults):
        return bool(defaults) and _is_number(value)
    return _is_plain(value)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _is_plain(value: Any) -> bool:
    """Whether a value is a number, a word that is not a path, or a list of these."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    word = _text(value)
    if not isinstance(word, str):
        return _is_number(word)
    return not word.startswith(("_", "~", ".")) and "/" not in word and not Path(word).is_file()


def _text(value: Any) -> Any:
    """Return the text of a word in quotation marks, and any other value as it is."""
    from hydra.core.override_parser.types import QuotedString

    return value.text if isinstance(value, QuotedString) else value


def _configs_of(record: RunRecord) -> str | None:
    """The folder of configs that a run was started with."""
    return get_config_dir(record.command)


def _sources(folder: Path) -> str | None:
    """The folder of configs that a sweep was started with, as one of its jobs tells."""
    from cfeval_cli.results.validation import read_record

    for file in sorted(folder.rglob("run.json")):
        with suppress(UserError):
            return _configs_of(read_record(file.parent))
    return None


def _config_dir_words(place: str | None, own: Sequence[str]) -> list[str]:
    """Return the option for the folder of configs of a run, unless the user has given it or is beside it."""
    if place is None or get_config_dir(own) is not None:
        return []
    beside = find_conf_folder()
    if beside is not None and Path(place).absolute() == Path(beside):
        return []
    return ["--config-dir", place]


def _require_repeated(words: Sequence[str], own: Sequence[str], folder: Path) -> None:
    """Raise UserError, with the full command, if words of a folder must be repeated by the user."""
    if words:
        raise UserError(
            f"{folder} was started with {shlex.join(words)}. This is not accepted from a folder, because it could "
            "load code or files, or replace results. If you trust it, repeat it: "
            + shlex.join(["cfeval", "run", "--resume", str(folder), *own, *words])
        )


def _is_override(word: str) -> bool:
    return word.startswith("~") or ("=" in word and not word.startswith("-"))


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _texts(told: Any, file: Path) -> list[str]:
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
        raise UserError(f"{file} does not tell how it was started. Start it again.")
    return told
