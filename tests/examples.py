"""On how many random examples a property is tried: on some of them in `make test`, on all in `make test-slow`."""

from __future__ import annotations

import os

from hypothesis import settings

ALL = os.environ.get("CFEVAL_EXAMPLES") == "all"


def some(many: int) -> int:
    """An eighth of them, but not fewer than five; or all."""
    return many if ALL else min(many, max(5, many // 8))


def examples(many: int) -> settings:
    """For @given: the same ones each time, the first of those that the slow tests take."""
    return settings(max_examples=some(many))
