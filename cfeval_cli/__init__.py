"""Counterfactual evaluation of explanation methods: the command `cfeval`, and `evaluate` and `load` for Python."""

import importlib

__version__ = "0.1.0"
__all__ = ["evaluate", "load"]


def __getattr__(name: str) -> object:
    """What Python users call, imported when it is asked for: it takes seconds, and the command has no need of it."""
    if name in __all__:
        return getattr(importlib.import_module("cfeval_cli.api"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
