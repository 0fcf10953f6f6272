"""The way in from Python: DataFrames and a function in, DataFrames out."""

from cfeval_cli.python.evaluate import evaluate
from cfeval_cli.python.stored import Run, load

__all__ = ["Run", "evaluate", "load"]
