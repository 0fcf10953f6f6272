"""Lists and p-values as sentences have them."""

from __future__ import annotations

from collections.abc import Sequence

from cfeval_cli.report.numbers import P_VALUE


def join_names(names: Sequence[str]) -> str:
    """Write several names as `a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def format_p_value(p: float | None) -> str:
    """Write `p = 0.042`, or `p < 0.001`."""
    if p is None:
        return "p not known"
    text = P_VALUE.write(p)
    return f"p {text[0]} {text[1:]}" if text.startswith("<") else f"p = {text}"
