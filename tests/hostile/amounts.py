"""How many inputs are generated of each kind: in `make test`, and in `make test-slow`; how much work one may make."""

import contextlib
import sys

import pytest

AMOUNTS = {
    "tables (CSV)": (150, 2000),
    "tables (parquet)": (40, 600),
    "sentences (CSV and lines)": (100, 1000),
    "archives (tar)": (100, 1200),
    "wheels (zip)": (100, 1200),
    "answers of a server": (25, 150),
    "vectors (text)": (100, 1000),
    "vectors (npy and parquet)": (100, 1500),
    "model files (npz)": (150, 2000),
    "model files (skops)": (20, 400),
    "model files (onnx)": (40, 800),
    "explanations (CSV and parquet)": (60, 1500),
    "files to describe (CSV and parquet)": (45, 600),
    "cache (SQLite)": (40, 600),
    "run folders": (60, 1000),
    "names with markup": (100, 1500),
    "command lines": (20, 400),
}


def inputs(kind):
    """The numbers that the inputs of a kind are made from, few of them and many."""
    fast, slow = AMOUNTS[kind]
    return pytest.mark.parametrize(
        "numbers",
        [
            pytest.param(range(fast), id="fast"),
            pytest.param(range(fast, slow + fast), id="slow", marks=pytest.mark.slow),
        ],
    )


@contextlib.contextmanager
def few_calls(most=1_000_000):
    """What is done soon, on any machine: in so many calls of Python functions."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"
        if calls > most:
            raise AssertionError(f"not done after {most:,} calls")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
