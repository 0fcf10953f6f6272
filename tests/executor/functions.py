"""Work for executors: in a module that imports little, since every worker imports it."""

import importlib
import os
import sys
import time
from pathlib import Path

from cfeval_cli.errors import UserError


def add(shared, item):
    return shared["base"] + item


def exit_process(shared, item):
    """End the process at all items but the first, which the caller's process computes."""
    if item:
        sys.exit(0)


def describe_process(shared, item):
    """Return the process and its copy of the shared value; a worker waits until another one has an item too."""
    Path(shared["folder"], str(os.getpid())).touch()
    deadline = time.monotonic() + 300  # in case there is no other worker
    while item and len(list(Path(shared["folder"]).iterdir())) < 3 and time.monotonic() < deadline:
        time.sleep(0.01)
    return os.getpid(), id(shared), shared["table"].sum()


def get_process(shared, item):
    return os.getpid()


def count_threads(torch_item, item):
    """Return the number of threads by the environment, in all libraries, and in torch at one item."""
    from threadpoolctl import threadpool_info

    if item == torch_item:
        import torch
    libraries = [library["num_threads"] for library in threadpool_info()]
    return os.environ.get("OMP_NUM_THREADS"), libraries, torch.get_num_threads() if item == torch_item else None


def write_to_array(shared, item):
    """Return what arrays hold, the process, and which process wrote to the large array before."""
    large, small, empty = shared
    previous, large[0, 0] = int(large[0, 0]), os.getpid()
    return (large[1:].sum(), tuple(small.tolist()), empty.shape, large.flags.aligned), os.getpid(), previous


def is_same_array(shared, item):
    return shared[0] is shared[1]


def call_function(function, item):
    return function(item)


class UnpicklableError(Exception):
    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def raise_unpicklable_error(shared, item):
    if item:
        raise UnpicklableError("this", "that")


def fail(shared, item):
    raise (UserError if item == 1 else ValueError)(f"no {item}")


def fail_at_second_item(shared, item):
    return fail(shared, item) if item == 1 else None


def time_out(shared, item):
    if item:
        raise TimeoutError(f"item {item} took too long")


def import_missing_module(shared, item):
    return importlib.import_module("no_such_module") if item else None


def kill_worker(main_process, item):
    if os.getpid() != main_process:
        os._exit(9)
    return item


def kill_worker_once(folder, item):
    """End the worker that gets item 5, the first time."""
    (Path(folder) / f"{item}-{os.getpid()}").touch()
    if item == 5 and len(list(Path(folder).glob("5-*"))) == 1:
        os.kill(os.getpid(), 9)
    return item


def wait_for_file(path, item):
    """Wait, except at the first item, until a file exists."""
    while item and not Path(path).exists():
        time.sleep(0.01)
    return item


def meets_other_item(folder, item):
    """Return whether another item is computed at the same time."""
    marker = Path(folder, str(item))
    marker.touch()
    time.sleep(0.001)
    is_met = len(list(Path(folder).iterdir())) > 1
    marker.unlink()
    return is_met
