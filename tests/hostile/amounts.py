"""The number of generated inputs of each kind in `make test` and `make test-slow`, and a limit on work."""

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


def parametrize_seeds(kind):
    """Parametrise a test with the seeds of its inputs: few of them, and many in a slow variant."""
    fast, slow = AMOUNTS[kind]
    return pytest.mark.parametrize(
        "seeds",
        [
            pytest.param(range(fast), id="fast"),
            pytest.param(range(fast, slow + fast), id="slow", marks=pytest.mark.slow),
        ],
    )


@contextlib.contextmanager
def limit_calls(max_calls=1_000_000):
    """Fail if the block makes more calls of Python functions, a time limit that does not depend on the machine."""
    calls = 0

    def count(frame, event, argument):
        nonlocal calls
        calls += event == "call"
        if calls > max_calls:
            raise AssertionError(f"not done after {max_calls:,} calls")

    sys.setprofile(count)
    try:
        yield
    finally:
        sys.setprofile(None)
