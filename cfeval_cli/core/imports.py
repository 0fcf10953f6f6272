"""Modules of the user in the working directory."""

from __future__ import annotations

import sys
from importlib.machinery import PathFinder
from importlib.util import find_spec
from pathlib import Path


def make_importable(name: str) -> None:
    """Add the working directory to the module search path if only there is the module of a class.

    Never without a class that the user names: libraries look for optional packages, and the directory may be someone
    else's.
    """
    module = name.partition(".")[0]
    if not module.isidentifier() or module in sys.modules or find_spec(module) is not None:
        return
    working_directory = str(Path.cwd())
    if PathFinder.find_spec(module, [working_directory]) is not None:
        sys.path.append(working_directory)
