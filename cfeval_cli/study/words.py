"""Lists, counts and ranges in the sentences of the studies."""

from __future__ import annotations

from collections.abc import Sequence

from cfeval_cli.report.wording import join_names


def join_first_names(names: Sequence[str], max_shown: int) -> str:
    """Write "a, b and c", or "a, b, c and 4 more" if at least two names are beyond the maximum."""
    if len(names) <= max_shown + 1:
        return join_names(names)
    return join_names([*names[:max_shown], f"{len(names) - max_shown} more"])


def write_count(count: int, noun: str) -> str:
    """Write "1 run" or "2 runs"."""
    return f"{count:,} {noun}{'s' * (count != 1)}"


def write_range(values: Sequence[float], form: str) -> str:
    """Write "0.123 to 0.456", or one number if both ends are written alike."""
    low, high = form.format(min(values)), form.format(max(values))
    return low if low == high else f"{low} to {high}"
