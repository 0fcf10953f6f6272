"""Random streams of (seed, component, instance), independent of the order of computation."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray


def make_stream(seed: int, component: str, instance: int | None = None) -> np.random.Generator:
    """Return the generator of a component for an instance, the same in every run with this seed."""
    key = blake2b(f"{seed}\0{component}\0{instance}".encode(), digest_size=16).digest()
    return np.random.Generator(np.random.Philox(key=int.from_bytes(key, "big")))


def draw_uniforms(seed: int, component: str, instances: NDArray[np.int64], size: int) -> NDArray[np.float64]:
    """Return up to 8 uniform numbers (n, size) for each instance, faster than one generator each."""
    keys = (blake2b(f"{seed}\0{component}\0{i}".encode(), digest_size=8 * size) for i in instances.tolist())
    words = np.frombuffer(b"".join(key.digest() for key in keys), dtype="<u8").reshape(-1, size)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def hash_uniforms(uniforms: NDArray[np.float64], numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return a uniform number (n,) for each pair of a uniform number and a whole number."""
    # The output function of SplitMix64 (Steele, Lea, Flood 2014), whose state follows from the pair.
    words = (uniforms * 2.0**64).astype(np.uint64) + numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return np.asarray((words >> np.uint64(11)) * 2.0**-53, dtype=np.float64)


def draw_seed(rng: np.random.Generator) -> int:
    """Return a 32-bit seed for libraries."""
    return int(rng.integers(2**32))


@contextmanager
def use_one_thread() -> Iterator[None]:
    """Restrict torch to one thread, so that sums have the same bits on any number of cores."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
