"""`cfeval run --resume FOLDER`: the arguments that the run or sweep in a folder was started with.

The folder may come from anyone. Of its overrides, only choices of packaged configs and their settings with plain values
are accepted. Everything else, such as a path, must be repeated on the command line.
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
from cfeval_cli.results.locations import RECORD, SWEEP_FILE, find_records, has_record
from cfeval_cli.results.record import RunRecord
from cfeval_cli.settings import compose
from cfeval_cli.settings.compose import quote

QUIET_OVERRIDE = "hydra/hydra_logging=disabled"  # what --quiet adds: no lines of Hydra about the jobs of a sweep

_CONFIG_NAME = re.compile(r"\w[\w\-]*(?:/\w[\w\-]*)*")
# Settings of packaged configs that name a file, a folder, a server or a trusted type, or replace complete results.
_UNSAFE_SETTINGS = {"data_dir", "path", "depends", "trusted", "scheduler", "folder", "redo"}
# Job folders are named by these only, none of which holds a path.
_SUBDIR = re.compile(
    r"(?:[\w\-./]|\$\{(?:hydra[:.]job\.num|hydra:job\.override_dirname|hydra:runtime\.choices\.\w+"
    r"|dataset\.name|seed|k|first_component:\$\{truth\})\})+"
)


def read_resume_arguments(folder: Path, user_words: Sequence[str]) -> list[str] | None:
    """Return Hydra's arguments, those of the user (`user_words`) last; None if the run is complete."""
    if not folder.is_dir():
        raise UserError(f"--resume {folder}: there is no such folder.")
    refuse_links(folder)
    if has_record(folder):
        return _read_run_arguments(folder, user_words)
    if (folder / SWEEP_FILE).exists():
        return _read_sweep_arguments(folder, user_words)
    raise UserError(f"--resume {folder}: it has no run.json, so no run was started in it. Start the run again.")


def _read_run_arguments(folder: Path, user_words: Sequence[str]) -> list[str] | None:
    from cfeval_cli.results.validation import read_record, read_verified_record

    is_redone = "redo=true" in user_words
    record = read_record(folder) if is_redone else read_verified_record(folder)
    if record.status == "complete" and not is_redone:
        return None
    if record.command and record.command[0] != "cfeval":
        raise UserError(
            f"--resume {folder}: it was written from Python. Make the same call again with into={str(folder)!r}."
        )
    overrides = _check_texts(record.overrides, folder / RECORD)
    _require_repeated(
        [
            *_build_config_dir_option(_find_run_config_dir(record), user_words),
            *list_overrides_to_repeat(overrides, user_words),
        ],
        user_words,
        folder,
    )
    return [*_merge_overrides(overrides, user_words), f"hydra.run.dir={quote(folder)}"]


def _read_sweep_arguments(folder: Path, user_words: Sequence[str]) -> list[str]:
    task, hydra = _read_sweep_overrides(folder)
    accepted, refused = list[str](), list[str]()
    for override in hydra:
        key, _, value = override.partition("=")
        if key in ("hydra.mode", "hydra.sweep.dir") or override == QUIET_OVERRIDE:
            continue  # given again below, or by the user
        if key == "hydra.sweep.subdir" and _SUBDIR.fullmatch(value) and ".." not in value and value[:1] != "/":
            accepted.append(override)
        elif override not in user_words:
            refused.append(override)
    needed = [
        *_build_config_dir_option(_find_sweep_config_dir(folder), user_words),
        *refused,
        *list_overrides_to_repeat(task, user_words),
    ]
    _require_repeated(needed, user_words, folder)
    first = [] if {"-m", "--multirun"} & set(user_words) else ["--multirun"]
    return [*first, *_merge_overrides(task, user_words), *accepted, f"hydra.sweep.dir={quote(folder)}"]


def read_task_overrides(folder: Path) -> list[str]:
    """Return the overrides that a sweep was started with, without those of Hydra."""
    return _read_sweep_overrides(folder)[0]


def _read_sweep_overrides(folder: Path) -> tuple[list[str], list[str]]:
    import yaml  # type: ignore[import-untyped]

    file = folder / SWEEP_FILE
    try:
        overrides = yaml.safe_load(file.read_text(encoding="utf-8"))["hydra"]["overrides"]
        return _check_texts(overrides["task"], file), _check_texts(overrides["hydra"], file)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, yaml.YAMLError) as error:
        raise UserError(
            f"{file} has no valid list of the sweep's overrides. Start it again with hydra.sweep.dir={folder}."
        ) from error


def _merge_overrides(overrides: Sequence[str], user_words: Sequence[str]) -> list[str]:
    """Return the user's options and the overrides of both; keys keep their order, by which a sweep numbers its jobs."""
    user_words_by_key = {_get_key(word): word for word in user_words if _is_override(word)}
    options = [word for word in user_words if not _is_override(word)]
    merged = [user_words_by_key.pop(_get_key(text), text) for text in overrides]
    return [
        *options,
        *(text for text in merged if text in user_words or not _is_replaced(text, user_words)),
        *user_words_by_key.values(),
    ]


def list_overrides_to_repeat(overrides: Sequence[str], user_words: Sequence[str] = ()) -> list[str]:
    """Return the overrides of a folder that are not accepted from it and that the user has not repeated."""
    return [text for text in overrides if not _is_replaced(text, user_words) and not _is_accepted(text)]


def _is_replaced(text: str, user_words: Sequence[str]) -> bool:
    """Return whether the user has given another value; another executor replaces all settings of the first."""
    user_keys = {_get_key(word) for word in user_words if _is_override(word)}
    return _get_key(text) in user_keys or ("executor" in user_keys and _get_key(text).startswith("executor."))


def _is_accepted(text: str) -> bool:
    """Return whether an override chooses packaged configs, or gives one of their settings a plain value."""
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
        return is_group or bool(_get_defaults(key))
    if isinstance(value, RangeSweep):
        return not is_group and bool(_get_defaults(key))
    values = value.list if isinstance(value, ChoiceSweep) else [value]
    return all(_is_packaged_choice(key, item) if is_group else _is_plain_setting(key, item) for item in values)


def _get_defaults(key: str) -> list[Any]:
    """Return the packaged defaults of a setting; an empty list if the setting names a file or a server."""
    if key.rpartition(".")[2] in _UNSAFE_SETTINGS:
        return []
    return compose.get_packaged_defaults(key.partition(".")[0]).get(key, [])


def _is_packaged_choice(group: str, value: Any) -> bool:
    """Return whether a value names packaged configs of a group."""
    if isinstance(value, list):
        return all(_is_packaged_choice(group, item) for item in value)
    if value is None:
        return True
    name = str(_unquote(value))
    return bool(_CONFIG_NAME.fullmatch(name)) and (compose.get_package_folder() / group / f"{name}.yaml").is_file()


def _is_plain_setting(key: str, value: Any) -> bool:
    """Return whether a key is a setting of a packaged config and its default allows the type of the value."""
    defaults = _get_defaults(key)
    if isinstance(value, dict) and any(defaults):
        return all(_is_plain_setting(f"{key}.{_unquote(name)}", item) for name, item in value.items())
    if isinstance(value, dict):
        return {} in defaults and all(_is_plain(item) for pair in value.items() for item in pair)
    if all(isinstance(default, int | float) for default in defaults):
        return bool(defaults) and _is_number(value)
    return _is_plain(value)


def _is_number(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float)


def _is_plain(value: Any) -> bool:
    """Return whether a value is a number, a word that is not a path, or a list of these."""
    if isinstance(value, list):
        return all(map(_is_plain, value))
    word = _unquote(value)
    if not isinstance(word, str):
        return _is_number(word)
    return not word.startswith(("_", "~", ".")) and "/" not in word and not Path(word).is_file()


def _unquote(value: Any) -> Any:
    """Return the text of a word in quotation marks, and any other value as it is."""
    from hydra.core.override_parser.types import QuotedString

    return value.text if isinstance(value, QuotedString) else value


def _find_run_config_dir(record: RunRecord) -> str | None:
    """Return the folder of configs that a run was started with."""
    return get_config_dir(record.command)


def _find_sweep_config_dir(folder: Path) -> str | None:
    """Return the folder of configs that a sweep was started with, from the record of one of its jobs."""
    from cfeval_cli.results.validation import read_record

    for file in find_records(folder):
        with suppress(UserError):
            return _find_run_config_dir(read_record(file.parent))
    return None


def _build_config_dir_option(config_dir: str | None, user_words: Sequence[str]) -> list[str]:
    """Return the option for a run's folder of configs, unless the user gives it or it is ./conf."""
    if config_dir is None or get_config_dir(user_words) is not None:
        return []
    conf_folder = find_conf_folder()
    if conf_folder is not None and Path(config_dir).absolute() == Path(conf_folder):
        return []
    return ["--config-dir", config_dir]


def _require_repeated(words: Sequence[str], user_words: Sequence[str], folder: Path) -> None:
    """Raise UserError, with the full command, if words of a folder must be repeated by the user."""
    if words:
        raise UserError(
            f"{folder} was started with {shlex.join(words)}. These words are not accepted from a folder, because they "
            "could load code or files, or replace results. If you trust them, repeat them: "
            + shlex.join(["cfeval", "run", "--resume", str(folder), *user_words, *words])
        )


def _is_override(word: str) -> bool:
    return word.startswith("~") or ("=" in word and not word.startswith("-"))


def _get_key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _check_texts(overrides: Any, file: Path) -> list[str]:
    if not isinstance(overrides, list) or not all(isinstance(text, str) for text in overrides):
        raise UserError(f"{file} has no valid list of overrides. Start the run again.")
    return overrides
