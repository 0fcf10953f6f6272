"""Modules of the user in the working directory."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path


def make_importable(name: str) -> None:
    """Add the working directory to the module search path if it has the module of a class, and no other folder does.

    Called only for a class that the user names. Otherwise libraries that look for optional packages could import files
    of this directory, which may belong to someone else.
    """
    module = name.partition(".")[0]
    if not module.isidentifier() or module in sys.modules or find_spec(module) is not None:
        return
    working_directory = str(Path.cwd())
    if PathFinder.find_spec(module, [working_directory]) is not None:
        sys.path.append(working_directory)
