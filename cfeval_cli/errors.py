"""The two ways in which a command ends badly."""

import math
from collections.abc import Iterable
from difflib import get_close_matches


class UserError(Exception):
    """Something the user can mend; exit code 2."""


class Failure(Exception):
    """Something that went wrong on the way; exit code 1."""


def did_you_mean(word: str, options: Iterable[str]) -> str:
    """A sentence that offers the options closest to a mistyped word, or nothing."""
    close = get_close_matches(word, list(options), n=3, cutoff=0.6)
    return f" Did you mean {' or '.join(close)}?" if close else ""


def whole(name: str, value: object, low: int) -> None:
    """Refuse a setting that is not a whole number of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, int) or value < low:
        raise ValueError(f"{name} must be a whole number of at least {low}, not {value!r}")


def number(name: str, value: object, low: float, high: float = float("inf"), *, open_low: bool = False) -> None:
    """Refuse a setting that is not a number between `low` and `high`."""
    ok = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if not ok or not low <= float(value) <= high or (open_low and value == low):  # type: ignore[arg-type]
        bounds = f"{'over' if open_low else 'at least'} {low:g}" + (
            "" if high == float("inf") else f" and at most {high:g}"
        )
        raise ValueError(f"{name} must be a number {bounds}, not {value!r}")


def one_of(name: str, value: object, options: Iterable[str]) -> None:
    """Refuse a setting that is none of the options."""
    options = tuple(options)
    if value not in options:
        raise ValueError(
            f"{name} must be one of {', '.join(options)}, not {value!r}.{did_you_mean(str(value), options)}"
        )
