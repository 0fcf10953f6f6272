"""The `cfeval` command: choose the sub-command, run it, and report an error in one message."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import re
import signal
import sys
from collections.abc import Sequence
from typing import NoReturn

from cfeval_cli import __version__
from cfeval_cli.cli import screen
from cfeval_cli.errors import (
    Failure,
    UserError,
    describe_encoding_problem,
    describe_error,
    did_you_mean,
    escape_controls,
)

COMMANDS = {
    "run": "evaluate explainers and metrics on a model; a sweep with --multirun",
    "gather": "aggregate runs: means over seeds, stability of rankings",
    "report": "remake report.html of a run or a sweep from its folder",
    "judge": "compare ways to choose an explainer, on models with ground truth",
    "atlas": "compare metrics over many datasets and models with ground truth",
    "paper": "check the paper's printed figures, and compare them with runs",
    "data": "describe your data; list, download, verify, export; the cache",
}

_USAGE = """\
cfeval {version}: evaluate explanation methods (SHAP, LIME, …) on a model, and
the metrics that score them.

usage: cfeval COMMAND [ARGUMENTS]

{commands}

  --quiet    print the answer only
  --full     print all tables

  cfeval run dataset=adults search=discrete
  cfeval COMMAND --help describes a command.
  HYDRA_FULL_ERROR=1 shows the traceback of an error.
"""


def escape_unencodable_characters() -> None:
    """Escape characters that the terminal's encoding lacks, so that printing never fails."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the sub-command of a command line, by default that of the process."""
    escape_unencodable_characters()
    screen.protect_streams()
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        arguments = _complete_command(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        commands = "\n".join(f"  {name:<6} {description}" for name, description in COMMANDS.items())
        sys.stdout.write(_USAGE.format(version=__version__, commands=commands))
        return
    if arguments[0] == "--version":
        sys.stdout.write(f"cfeval {__version__}\n")
        return
    command, *words = arguments
    if problem := _find_problem(command, words):
        sys.exit(print_error(UserError(problem)))
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    options = screen.Options("--quiet" in words, "--full" in words, wants_traceback)
    words = [word for word in words if word not in ("--quiet", "--full")]
    _prepare_process()
    try:
        importlib.import_module(f"cfeval_cli.cli.{command}").main(words, options)
        if command != "run" and screen.is_output_lost():  # the product of a run is its folder
            sys.exit(1)
    except KeyboardInterrupt as error:
        sys.stderr.write("cfeval: stopped\n")
        sys.exit(get_interrupt_exit_code(error))
    except Exception as error:
        if wants_traceback:
            raise
        from cfeval_cli.cli.own_configs import find_own_folder, list_overrides

        sys.exit(print_error(error, overrides=list_overrides(words), config_dir=find_own_folder(words)))


def _find_problem(command: str, arguments: list[str]) -> str | None:
    """Return why a command line is refused; None if it is not."""
    if problem := describe_encoding_problem(*arguments):
        return problem
    if command not in COMMANDS:
        return f"there is no command {command!r}.{did_you_mean(command, COMMANDS)} See cfeval --help."
    if any(word.startswith("--experimental-rerun") for word in arguments):
        return "--experimental-rerun is not supported: it unpickles a file, which could run any code."
    options = [word for word in arguments if word.startswith("-")]
    if unreadable := [option for option in options if escape_controls(option) != option]:
        return f"there is no option {unreadable[0]}. See cfeval {command} --help."
    return None


def _prepare_process() -> None:
    """Set what all commands and their worker processes share: imports, threads, signals and errors."""
    # Worker processes would import from the working directory first, and it may be someone else's.
    os.environ["PYTHONSAFEPATH"] = "1"
    for library in ("OMP", "OPENBLAS", "MKL"):
        # One thread in each process gives the same bits on any number of cores and keeps workers from competing.
        os.environ[f"{library}_NUM_THREADS"] = "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises errors instead of printing them.
    signal.signal(signal.SIGTERM, _raise_interrupt)
    logging.raiseExceptions = False  # A log that cannot be written, on a full disk, must not hide the message.


class Parser(argparse.ArgumentParser):
    """Argument parser whose messages escape control characters of the command line."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the process, with a message to standard error if there is one."""
        super().exit(status, message and escape_controls(message, keep="\n"))


def _raise_interrupt(*_: object) -> None:
    """End a run on SIGTERM as on Ctrl-C, so that no worker and no temporary folder stays behind."""
    raise KeyboardInterrupt("terminated")


def get_interrupt_exit_code(error: KeyboardInterrupt) -> int:
    """Return the exit code that a shell would give: 128 plus the number of the signal."""
    return 143 if str(error) == "terminated" else 130


def print_error(
    error: Exception, results: str = "", job: str = "", *, overrides: Sequence[str] = (), config_dir: str | None = None
) -> int:
    """Write one message to standard error and return the exit code.

    `results` describes those that a failure has left intact; `overrides` and `config_dir` are of the command.
    """
    if not isinstance(error, UserError | Failure) and isinstance(error.__cause__, OSError):
        error = error.__cause__  # Hydra could not write its own files.
    message, code = _describe(error, overrides, config_dir)
    parts = (job, message, results if code == 1 else "")
    # Names and cells from outside are in the message.
    sys.stderr.write(escape_controls("cfeval: " + " ".join(part for part in parts if part), keep="\n") + "\n")
    return code


def _describe(error: Exception, overrides: Sequence[str], config_dir: str | None) -> tuple[str, int]:
    """Return the message and the exit code for an error."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    from cfeval_cli.settings.compose import explain_hydra_error

    message = str(error).strip()
    if isinstance(error, UserError):
        return message, 2
    if isinstance(error, Failure):
        return message, 1
    if isinstance(error, HydraException | OmegaConfBaseException):
        return explain_hydra_error(error, overrides, config_dir), 2
    if isinstance(error, OSError) and error.filename:
        is_run = "hydra.core.hydra_config" in sys.modules
        hint = " Results go to hydra.run.dir, by default below the current folder." if is_run else ""
        return f"{error.filename}: {error.strerror or error}.{hint}", 1
    return f"{describe_error(error)}. HYDRA_FULL_ERROR=1 shows the traceback.", 1


def _complete_command(arguments: list[str]) -> list[str]:
    """Print the completions of a sub-command, or return the arguments with which Hydra completes `run`.

    Hydra's shell hook leaves the sub-command in COMP_LINE.
    """
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    command = words[1] if len(words) > 1 else ""
    if command == "run" and (len(words) > 2 or line.endswith(" ")):
        os.environ["COMP_LINE"] = re.sub(rf"^(\s*\S+)\s+{command}", r"\1", line, count=1)
        return ["run", *arguments]
    sys.stdout.write(" ".join(name for name in COMMANDS if name.startswith(command)) + "\n")
    sys.exit(0)
