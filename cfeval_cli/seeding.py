"""Randomness that belongs to (seed, component, instance), whatever the order of the work."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np


def stream(seed: int, component: str, instance: int | None = None) -> np.random.Generator:
    """The generator of one component for one instance, the same in every run with this seed."""
    key = blake2b(f"{seed}\0{component}\0{instance}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))


def integer(rng: np.random.Generator) -> int:
    """A 32-bit seed for libraries that want one."""
    return int(rng.integers(2**32))


@contextmanager
def one_thread() -> Iterator[None]:
    """Let torch sum in a fixed order: the same bits on any number of cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
