"""What `cfeval run --resume FOLDER` stands for: the arguments that the folder's run, or sweep, was started with.

A folder may come from anybody. Its overrides are taken as values and choices among installed configs; whatever could
name code, or a place where code is looked for, must stand on the user's own command line.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from cfeval_cli.commands import configs
from cfeval_cli.errors import UserError

QUIET = "hydra/hydra_logging=disabled"  # what --quiet adds: no lines of Hydra about the jobs of a sweep

_PLAIN = re.compile(r"[\w\-+.*, \[\]()']*")  # numbers and names of configs, not paths to them
# what names a class, a file of Python, types that are made though nobody vouches for them, or who is believed
_CODE = re.compile(r"_target_|\.py\b|^[+~]*[\w.]*\b(?:trusted|scheduler)\b")
_SUBDIR = re.compile(r"[\w\-./]|\$\{(?:hydra:)?[\w.]+\}")


def arguments(folder: Path, own: Sequence[str]) -> list[str] | None:
    """Hydra's arguments, the user's own ones last; None if nothing is left to do."""
    if not folder.is_dir():
        raise UserError(f"--resume {folder}: there is no such folder.")
    for place, folders, files in os.walk(folder):  # which follows none
        for name in (*folders, *files):
            if (Path(place) / name).is_symlink():
                raise UserError(f"--resume {folder}: {Path(place) / name} is a link, which no run makes. Remove it.")
    if (folder / "run.json").exists():
        return _of_run(folder, own)
    if (folder / "multirun.yaml").exists():
        return _of_sweep(folder, own)
    raise UserError(f"--resume {folder}: it has no run.json, so that nothing had begun. Start the run again.")


def _of_run(folder: Path, own: Sequence[str]) -> list[str] | None:
    from cfeval_cli.folder.checked import read, read_record

    again = "redo=true" in own
    record = read_record(folder) if again else read(folder)
    if record["status"] == "complete" and not again:
        return None
    command = record.get("command")
    if isinstance(command, list) and command and str(command[0]).startswith("evaluate("):
        raise UserError(f"--resume {folder}: evaluate(…) made it. Call that again, with into={str(folder)!r}.")
    overrides = _texts(record.get("overrides"), folder / "run.json")
    _check_places(folder, _configs_of(record), own)
    return [*_merged(overrides, own, folder), f"hydra.run.dir={quoted(folder)}"]


def _of_sweep(folder: Path, own: Sequence[str]) -> list[str]:
    import yaml  # type: ignore[import-untyped]

    file = folder / "multirun.yaml"
    try:
        told = yaml.safe_load(file.read_text(encoding="utf-8"))["hydra"]["overrides"]
        task, hydra = _texts(told["task"], file), _texts(told["hydra"], file)
        sources = _sources(folder)
    except (OSError, ValueError, TypeError, KeyError, RecursionError, yaml.YAMLError) as error:
        raise UserError(f"{file} does not tell how the sweep was started. Start it again, into this folder.") from error
    _check_places(folder, sources, own)
    kept = []
    for override in hydra:
        key, _, value = override.partition("=")
        if key in ("hydra.mode", "hydra.sweep.dir") or override == QUIET:
            continue  # said again below, or by the user
        if key == "hydra.sweep.subdir" and not _SUBDIR.sub("", value) and ".." not in value and value[:1] != "/":
            kept.append(override)
        elif override not in own:
            raise _not_taken(override, folder)
    first = [] if {"-m", "--multirun"} & set(own) else ["--multirun"]
    return [*first, *_merged(task, own, folder), *kept, f"hydra.sweep.dir={quoted(folder)}"]


def untaken(overrides: Sequence[str]) -> list[str]:
    """The overrides that the user must say again, since they are not taken from a folder."""
    return [text for text in overrides if _CODE.search(text)]


def _merged(overrides: Sequence[str], own: Sequence[str], folder: Path) -> list[str]:
    """The user's options, and the overrides of both; a key keeps its place, by which a sweep numbers its jobs."""
    taken = allowed(overrides, own, folder)
    mine = {_key(word): word for word in own if _is_override(word)}
    options = [word for word in own if not _is_override(word)]
    placed = [mine.pop(_key(text)) if _key(text) in mine else text for text in overrides]
    return [*options, *(text for text in placed if text in taken or text in own), *mine.values()]


def allowed(overrides: Sequence[str], own: Sequence[str], folder: Path) -> list[str]:
    """The folder's overrides but those that the user gives anew; one that could bring in code is refused."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    given = {_key(word) for word in own if _is_override(word)}
    parser, kept = OverridesParser.create(), []
    for text in overrides:
        if text in own or _key(text) in given:
            continue
        # without a dollar there is no interpolation, and without a backslash none that is hidden
        if _CODE.search(text) or set("$\\") & set(text):
            raise _not_taken(text, folder)
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            raise UserError(f"{folder} was started with {text!r}, which is not an override.") from error
        key, value = override.key_or_group, text.partition("=")[2]
        # what may choose a config must not lead to a file elsewhere, nor put one where Hydra looks for its own
        place = "." not in key and key != "data_dir" and not _PLAIN.fullmatch(value)
        # nothing is made, or fetched, in places that a folder chooses
        place = place or ("/" in value and not Path(value.strip("'\"")).exists())
        moved = key.startswith("hydra") or bool(set("/@") & set(text.partition("=")[0]))
        if place or moved or "_target_" in repr(override.value()):
            raise _not_taken(text, folder)
        kept.append(text)
    return kept


def _configs_of(record: Mapping[str, Any]) -> str | None:
    """The folder of configs that a run was started with."""
    command = record.get("command")
    return configs.config_dir([str(word) for word in command]) if isinstance(command, list) else None


def _sources(folder: Path) -> str | None:
    """The folder of configs that a sweep was started with, as one of its jobs tells."""
    from cfeval_cli.folder.checked import read_record

    for file in sorted(folder.rglob("run.json")):
        with suppress(UserError):
            return _configs_of(read_record(file.parent))
    return None


def _check_places(folder: Path, place: str | None, own: Sequence[str]) -> None:
    """Refuse to go on without the user's own configs: code may be looked for there, so that she must say it herself."""
    if place is None or configs.config_dir(own) is not None:
        return
    beside = configs.beside()
    if beside is not None and Path(place).absolute() == Path(beside):
        return  # which is where she is
    raise UserError(
        f"{folder} was started with --config-dir {place}, which is not taken from a folder: code could be looked for "
        f"there. If you trust it: {shlex.join(['cfeval', 'run', '--resume', str(folder), '--config-dir', place])}"
    )


def _not_taken(override: str, folder: Path) -> UserError:
    return UserError(
        f"{folder} was started with {override!r}, which could bring in code, or files elsewhere: that is not "
        "taken from a folder. "
        "If you trust it, say it again after --resume."
    )


def _is_override(word: str) -> bool:
    return word.startswith("~") or ("=" in word and not word.startswith("-"))


def _key(override: str) -> str:
    return override.partition("=")[0].lstrip("+~")


def _texts(told: Any, file: Path) -> list[str]:
    if not isinstance(told, list) or not all(isinstance(one, str) for one in told):
        raise UserError(f"{file} does not tell how it was started. Start it again.")
    return told


def quoted(folder: Path | str) -> str:
    """As a value of Hydra's command line, whatever characters a path has."""
    # a backslash counts before a quote, the end or an interpolation, and nowhere else
    text = re.sub(r"(\\*)\$\{", r"\1\1\\${", str(folder))
    text = re.sub(r"(\\*)'", r"\1\1\\'", text)
    return "'" + re.sub(r"(\\+)$", r"\1\1", text) + "'"
