"""The Python interface: `evaluate` for your own model and DataFrames, `run` for settings, `load` for results."""

from cfeval_cli.api.evaluate import evaluate, run
from cfeval_cli.api.load import Run, load
from cfeval_cli.results.read import Results

__all__ = ["Results", "Run", "evaluate", "load", "run"]
