"""A process that writes to a cache: a module that imports little, since each of them imports it."""

import numpy as np

from cfeval_cli.cache.disk import Disk


def told(seed=0, size=5):
    return np.random.default_rng(seed).bytes(12 * size + 16)


def key(i):
    return b"%016d" % i


def write(folder, number):
    cache = Disk(folder)
    for turn in range(10):
        cache.known("shared", "shared", [])
        cache.keep("shared", "shared", {key(1000 * number + 10 * turn + i): told(i) for i in range(10)})
