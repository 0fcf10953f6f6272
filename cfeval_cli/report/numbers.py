"""Formats of numbers in tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

DASH = "–"  # of a missing value
_MIN_EXPONENTIAL = 1000.0  # larger numbers with fixed decimals are written with significant digits
_SMALLEST_P = 0.001


def is_missing(value: object) -> bool:
    """Return whether a value is None or NaN."""
    return value is None or value != value  # NaN differs from itself


@dataclass(frozen=True)
class NumberFormat:
    """A style, decimals of a value, and decimals of the ends of its interval (as many where None)."""

    style: Literal["fixed", "percent", "count", "whole", "p", "significant", "short"] = "fixed"
    decimals: int = 4
    end_decimals: int | None = None

    def write(self, value: float) -> str:
        """Write a number."""
        return self._write(value, self.decimals)

    def write_interval(self, low: float, high: float) -> str:
        """Write an interval in brackets."""
        between = "," if self.style == "short" else ", "
        return f"[{self.write_end(low)}{between}{self.write_end(high)}]"

    def write_end(self, value: float) -> str:
        """Write an end of an interval."""
        return self._write(value, self.decimals if self.end_decimals is None else self.end_decimals)

    def _write(self, value: float, decimals: int) -> str:
        match self.style:
            case "percent":
                return f"{_round(100 * value, decimals):.{decimals}f}%"
            case "count":
                return f"{_round(value, decimals):,.{decimals}f}"
            case "whole":
                return f"{value:.0f}"
            case "p":
                return f"<{_SMALLEST_P}" if value < _SMALLEST_P else f"{value:.3f}"
            case "significant":
                return write_three_digits(value)
            case "short":
                return write_short(value)
        return f"{_round(value, decimals):.{decimals}f}" if abs(value) < _MIN_EXPONENTIAL else f"{value:.{decimals}g}"


SCORE = NumberFormat(end_decimals=3)
COUNT = NumberFormat("count", 0)
WHOLE_NUMBER = NumberFormat("whole", 0)
PERCENT = NumberFormat("percent", 0)
TENTH_PERCENT = NumberFormat("percent", 1)
P_VALUE = NumberFormat("p")
THREE_DIGITS = NumberFormat("significant")
SHORT_DECIMAL = NumberFormat("short")


def write_ordinal(rank: float | None, *, tied: bool = False) -> str:
    """Write 1st, 2nd, 3rd …; a shared rank, the mean of several ranks, as in 2.5=."""
    if rank is None or is_missing(rank):
        return DASH
    if tied:
        return f"{rank:g}="
    position = int(rank)
    ending = "th" if 10 <= position % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(position % 10, "th")
    return f"{position}{ending}"


def write_three_digits(value: float) -> str:
    """Write three digits: 0.155, 2.84, 31.4, 314, 3.1e+03."""
    if abs(value) < 0.9995:
        return f"{_round(value, 3):.3f}"
    limits = ((9.995, 2), (99.95, 1), (999.5, 0))
    return next((f"{value:.{d}f}" for limit, d in limits if abs(value) < limit), f"{value:.1e}")


def write_short(value: float) -> str:
    """Write two decimals without a leading zero: .87; and 1, 0 and -1."""
    rounded = _round(value, 2)
    if rounded == int(rounded):
        return f"{rounded:.0f}"
    sign = "-" if rounded < 0 else ""
    units, hundredths = divmod(round(100 * abs(rounded)), 100)
    return f"{sign}{units or ''}.{hundredths:02d}"


def _round(value: float, decimals: int) -> float:
    """Round; a negative number that rounds to zero loses its sign."""
    return round(float(value), decimals) + 0.0
