"""A process that writes to a cache: in a module that imports little, since each process imports it."""

import numpy as np

from cfeval_cli.cache.disk import Disk
from cfeval_cli.core import Section

SHARED = Section("shared", "shared")


def make_entry(seed=0, size=5):
    rng = np.random.default_rng(seed)
    return {"features": rng.integers(0, 99, size), "scores": rng.normal(size=size)}


def make_key(i):
    return b"%016d" % i


def write(folder, number):
    cache = Disk(folder)
    for turn in range(10):
        cache.get(SHARED, [])
        cache.put(SHARED, {make_key(1000 * number + 10 * turn + i): make_entry(i) for i in range(10)})
