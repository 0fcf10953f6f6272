"""Errors of commands, messages, and checks of settings."""

import importlib
import importlib.util
import math
import os
import re
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType


class UserError(Exception):
    """An error that the user can fix; exit code 2."""


class Failure(Exception):
    """An error during computation; exit code 1."""


@contextmanager
def refuse_exit() -> Iterator[None]:
    """Convert `sys.exit()`, and errors that are no Exceptions except Ctrl-C, into a Failure with their place."""
    try:
        with refuse_system_exit():
            yield
    except (Exception, KeyboardInterrupt, GeneratorExit):
        raise
    except BaseException as error:
        raise Failure(f"{describe_error(error)}: {_INCOMPLETE}") from error


@contextmanager
def refuse_system_exit() -> Iterator[None]:
    """Convert `sys.exit()` into a Failure; time limits, which are no Exceptions either, pass."""
    try:
        yield
    except SystemExit as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        problem = f"{place.filename}, line {place.lineno} ended the process by sys.exit({error.code!r})"
        raise Failure(f"{problem}: {_INCOMPLETE}") from error


_INCOMPLETE = "the command is not complete. Code that cfeval calls must return, or raise an Exception."
_MAX_EXCERPT_CHARACTERS = 80
# Several values in brackets, as rows are printed, and all behind: with commas, or as NumPy does with spaces.
_VALUES = re.compile(r"['\"\s]*(?:[(\[{].*,|[\[{][^\]}]*\s).*")
_STANDARD_LIBRARY = str(Path(traceback.__file__).parent)


def describe_error(error: BaseException) -> str:
    """Return type, short excerpt and place of an error: "KeyError: 'debt' (score.py:12)".

    The message itself may hold a whole row of data.
    """
    place = locate_error(error)
    return f"{excerpt_error(error)} ({place})" if place else excerpt_error(error)


def locate_error(error: BaseException) -> str:
    """Return file and line of an error, the last ones outside libraries; empty if it was not raised."""
    frames = traceback.extract_tb(error.__traceback__)
    user_frames = [frame for frame in frames if not _is_library_file(frame.filename)] or frames
    return f"{Path(user_frames[-1].filename).name}:{user_frames[-1].lineno}" if user_frames else ""


def _is_library_file(file: str) -> bool:
    installed = {"site-packages", "dist-packages"} & set(Path(file).parts)
    return bool(installed) or file.startswith((_STANDARD_LIBRARY, "<frozen"))


def excerpt_error(error: BaseException) -> str:
    """Return the type of an error and the beginning of its message, without lists of values."""
    # The system's message is no data, but its "[Errno 28]" looks like a list of values.
    message = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    line, _, remaining_lines = message.strip().partition("\n")
    text = _VALUES.sub(" …", " ".join(line.split())).strip()
    if remaining_lines or len(text) > _MAX_EXCERPT_CHARACTERS:
        text = f"{text[:_MAX_EXCERPT_CHARACTERS].rstrip(' …')}…"
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


# Control characters, changes of the direction of text, line breaks, and surrogates.
_HIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")


def escape_controls(text: object, keep: str = "") -> str:
    """Return text with visible control characters, such as \\x1b for an escape, except those in `keep`."""
    return _HIDDEN.sub(lambda m: m[0] if m[0] in keep else m[0].encode("unicode_escape").decode(), str(text))


def shorten(text: str, longest: int = 60) -> str:
    """Return text in quotes, shortened for a message."""
    return repr(text) if len(text) <= longest else f"{text[:longest]!r}… ({len(text):,} characters)"


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """Return a sentence with the options closest to a mistyped word; empty if none is close."""
    close = get_close_matches(word, list(options), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def check_int(name: str, value: object, low: int) -> None:
    """Raise a ValueError if a setting is not an integer of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, not {value!r}")


def check_float(name: str, value: object, low: float, high: float = float("inf"), *, open_low: bool = False) -> None:
    """Raise a ValueError if a setting is not a number between `low` and `high`."""
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or not low <= float(value) <= high or (open_low and value == low):  # type: ignore[arg-type]
        bounds = f"{'over' if open_low else 'at least'} {low:g}" + (
            "" if high == float("inf") else f" and at most {high:g}"
        )
        raise ValueError(f"{name} must be a number {bounds}, not {value!r}")


def check_option(name: str, value: object, options: Iterable[str]) -> None:
    """Raise a ValueError if a setting is not one of the options."""
    options = tuple(options)
    if value not in options:
        raise ValueError(
            f"{name} must be one of {', '.join(options)}, not {value!r}.{did_you_mean(str(value), options)}"
        )


def import_extra(name: str, key: str, extra: str) -> ModuleType:
    """Return an optional package, or raise a UserError that names the key which needs it."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UserError(f"{key} needs the package {name.partition('.')[0]}: pip install 'cfeval[{extra}]'") from error


def check_installed(name: str, extra: str) -> None:
    """Raise a ValueError if a package is not installed."""
    if importlib.util.find_spec(name) is None:
        raise ValueError(f"needs the package {name}: pip install 'cfeval[{extra}]'")


def describe_encoding_problem(*arguments: str) -> str | None:
    """Return why the working directory or some arguments are not valid UTF-8; None if they are."""
    try:
        folder = os.getcwd()  # noqa: PTH109
    except OSError:
        folder = ""
    names = {f"the working directory {folder!a}": folder, **{f"the argument {a!a}": a for a in arguments}}
    for subject, name in names.items():
        try:
            name.encode("utf-8")
        except UnicodeEncodeError:
            return f"{subject} is not valid UTF-8. Rename the file or folder, or use another one."
    return None
