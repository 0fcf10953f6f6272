"""What workers are asked to do: in a module that imports little, since every worker imports it."""

import importlib
import os
import sys
import time
from pathlib import Path

from cfeval_cli.errors import UserError


def add(shared, item):
    return shared["base"] + item


def leave(shared, item):
    """Ends the process at all items but the first, which is done by whoever asks."""
    if item:
        sys.exit(0)


def where(shared, item):
    return os.getpid(), id(shared), type(shared["table"]).__name__, shared["table"].sum()


def meet(shared, item):
    """As above; a worker waits in its first item until another has one too, so that neither does all."""
    Path(shared["folder"], str(os.getpid())).touch()
    deadline = time.monotonic() + 300  # which is for when there is no other
    while item and len(list(Path(shared["folder"]).iterdir())) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    return where(shared, item)


def threads(torch_at, item):
    """As a library is told, as libraries have them, and as torch has them: at one item, to import it takes long."""
    from threadpoolctl import threadpool_info

    if item == torch_at:
        import torch
    libraries = [library["num_threads"] for library in threadpool_info()]
    return os.environ.get("OMP_NUM_THREADS"), libraries, torch.get_num_threads() if item == torch_at else None


def write(shared, item):
    """What arrays hold, which process this is, and which one wrote to the large array before."""
    large, small, none = shared
    before, large[0, 0] = int(large[0, 0]), os.getpid()
    return (large[1:].sum(), tuple(small.tolist()), none.shape, large.flags.aligned), os.getpid(), before


def mark(shared, item):
    (shared / str(item)).touch()
    return item


def is_shared(shared, item):
    return shared[0] is shared[1]


def called(function, item):
    return function(item)


class Odd(Exception):
    def __init__(self, one, two):
        super().__init__(f"{one} and {two}")


def raise_odd(shared, item):
    if item:
        raise Odd("this", "that")


def fail(shared, item):
    raise (UserError if item == 1 else ValueError)(f"no {item}")


def fail_second(shared, item):
    return fail(shared, item) if item == 1 else None


def import_nowhere(shared, item):
    return importlib.import_module("nowhere_at_all") if item else None


def die(shared, item):
    if os.getpid() != shared:
        os._exit(9)
    return item


def die_once(shared, item):
    """End the worker that gets item 5, the first time."""
    folder = Path(shared)
    (folder / f"{item}-{os.getpid()}").touch()
    if item == 5 and len(list(folder.glob("5-*"))) == 1:
        os.kill(os.getpid(), 9)
    return item


def stay(shared, item):
    """Waits, but for the first item, until it may go."""
    while item and not Path(shared).exists():
        time.sleep(0.01)
    return item


def alone(folder, item):
    """Whether another was at work at the same time."""
    here = Path(folder, str(item))
    here.touch()
    time.sleep(0.001)
    met = len(list(Path(folder).iterdir())) > 1
    here.unlink()
    return met
