"""Counterfactual evaluation of explanation methods: the command `cfeval`, and its interface for Python."""

import importlib

__version__ = "0.1.0"
__all__ = ["Results", "evaluate", "load", "run"]


def __getattr__(name: str) -> object:
    """Import the Python interface when it is used: it takes seconds, and the command does not need it."""
    if name in __all__:
        return getattr(importlib.import_module("cfeval_cli.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
