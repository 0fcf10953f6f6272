"""Damage valid files, and detect whether anything was executed."""

import contextlib
import pickle
import sys
from pathlib import Path

import numpy as np
import pytest

SNIPPETS = [
    b"", b"\0", b"\0" * 300, b"\xff" * 8, b"\xfe\xff", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n", b"\r\n", b'"',
    b"'", b",",
    b"\\", b"%s%n", b"../../x", b"\x1b[2J", b"\x1b]0;x\x07", b"\xc2\x9b", b"\xe2\x80\xae", b"NaN", b"nan", b"inf",
    b"-1",
    b"1e400", b"1_000", b"99999999999999999999", b"=cmd|' /C calc'!A0", b"[" * 2000, b"{" * 50, b"(" * 2000,
    b"A" * 5000,
    b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff\xff\xff\xff\x7f", b"PK\x01\x02", b"PK\x03\x04", b"PK\x05\x06", b"PAR1",
    b"\x1f\x8b\x08", b"\x93NUMPY", b"ustar\x0000", b"!!python/object/apply:os.system ['true']",
    b"cos\nsystem\n(S'true'\ntR.",
]  # fmt: skip


def mutate(body: bytes, rng: np.random.Generator, max_changes: int = 6) -> bytes:
    """Return a copy with a few bytes flipped, removed, inserted, doubled, replaced or cut off."""
    mutated = bytearray(body)
    for _ in range(int(rng.integers(1, max_changes + 1))):
        size = len(mutated)
        at = int(rng.integers(0, size + 1))
        length = int(min(rng.integers(1, 2 ** rng.integers(1, 9)), size))
        match int(rng.integers(0, 7)):
            case 0 if at < size:
                mutated[at] ^= 1 << int(rng.integers(0, 8))
            case 1 if at < size:
                mutated[at] = int(rng.integers(0, 256))
            case 2:
                del mutated[at : at + length]
            case 3:
                mutated[at:at] = SNIPPETS[int(rng.integers(len(SNIPPETS)))]
            case 4:
                mutated[at:at] = mutated[at : at + length]
            case 5:
                snippet = SNIPPETS[int(rng.integers(len(SNIPPETS)))]
                mutated[at : at + len(snippet)] = snippet
            case 6 if rng.random() < 0.3:
                del mutated[at:]
            case _:
                mutated += rng.bytes(length)
    return bytes(mutated)


class Canary:
    """Return an object whose unpickling creates a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)

    def pickled(self) -> bytes:
        """Return the pickled object, after checking that unpickling creates the file."""
        body = pickle.dumps(self)
        pickle.loads(body)
        assert self.path.exists()
        self.path.unlink()
        return body


def list_names(folder: Path) -> set[str]:
    """Return the paths of everything in a folder."""
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def parametrize_seeds(fast: int, slow: int) -> pytest.MarkDecorator:
    """Parametrise a test with the seeds of its inputs: few of them, and many in a slow variant."""
    slow_seeds = pytest.param(range(fast, fast + slow), id="slow", marks=pytest.mark.slow)
    return pytest.mark.parametrize("seeds", [pytest.param(range(fast), id="fast"), slow_seeds])


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
