"""The Python interface: `evaluate` for your own model and DataFrames, `run` for settings, `load` for results."""

from cfeval_cli.api.evaluate import evaluate, run
from cfeval_cli.api.load import Results, load

__all__ = ["Results", "evaluate", "load", "run"]
