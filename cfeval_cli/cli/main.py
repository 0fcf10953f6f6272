"""The `cfeval` command: picks the sub-command, hands the rest to it, and turns errors into one message."""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import re
import signal
import sys
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
    "run": "train, explain, search, score: one run, or a sweep with --multirun",
    "gather": "several runs in one table: means over seeds, stability of rankings",
    "report": "report.html of a run or a sweep, made anew from its folder",
    "judge": "what each way to choose an explainer loses, where truth is known",
    "atlas": "which metric may be believed, over many data sets and judges",
    "paper": "the paper's printed figures: audited, and compared with runs",
    "data": "describe data of your own; list, fetch, verify, export; the cache",
}

_USAGE = """\
cfeval {version}: which explanation method tells the truth about a model, and which
metric can be trusted to say so?

usage: cfeval COMMAND [ARGUMENTS]

{commands}

  cfeval run dataset=adults search=discrete
  cfeval COMMAND --help tells more; --quiet prints the answer, --full all tables
  HYDRA_FULL_ERROR=1 shows the traceback of an error
"""


def print_any_character() -> None:
    """Write characters that the terminal's encoding lacks as escapes, so that printing cannot fail for them."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Entry point of the console script."""
    print_any_character()
    screen.protect_streams()
    arguments = sys.argv[1:]
    if arguments[:1] in (["-sc"], ["--shell-completion"]):
        arguments = _completion(arguments)
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        commands = "\n".join(f"  {name:<6} {what}" for name, what in COMMANDS.items())
        sys.stdout.write(_USAGE.format(version=__version__, commands=commands))
        return
    if arguments[0] == "--version":
        sys.stdout.write(f"cfeval {__version__}\n")
        return
    command, *rest = arguments
    if problem := describe_encoding_problem(*rest):
        sys.exit(complain(UserError(problem)))
    if command not in COMMANDS:
        sys.exit(
            complain(UserError(f"there is no command {command!r}.{did_you_mean(command, COMMANDS)} See cfeval --help."))
        )
    if any(argument.startswith("--experimental-rerun") for argument in rest):
        sys.exit(
            complain(UserError("--experimental-rerun unpickles a file, which could run anything in it: not supported."))
        )
    if odd := [argument for argument in rest if argument.startswith("-") and escape_controls(argument) != argument]:
        sys.exit(complain(UserError(f"there is no option {odd[0]}. See cfeval {command} --help.")))
    wants_traceback = os.environ.get("HYDRA_FULL_ERROR") == "1"
    screen.set_options(screen.Options("--quiet" in rest, "--full" in rest, wants_traceback))
    rest = [word for word in rest if word not in ("--quiet", "--full")]
    sys.argv = [sys.argv[0], *_overrides_last(rest)]  # Hydra and argparse read it
    # Worker processes would import from the working directory first, and it may be someone else's.
    os.environ["PYTHONSAFEPATH"] = "1"
    for library in ("OMP", "OPENBLAS", "MKL"):
        # one thread a process: the same bits on any number of cores, and no fight over them between workers
        os.environ[f"{library}_NUM_THREADS"] = "1"
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that Hydra passes errors on instead of printing them
    signal.signal(signal.SIGTERM, _terminate)
    logging.raiseExceptions = False  # a log that cannot be written, on a full disk, is not what to tell the user
    try:
        importlib.import_module(f"cfeval_cli.cli.{command}").main()
        if command != "run" and screen.is_output_lost():  # the product of a run is its folder
            sys.exit(1)
    except KeyboardInterrupt as error:
        sys.stderr.write("cfeval: stopped\n")
        sys.exit(stopped(error))
    except Exception as error:
        if wants_traceback:
            raise
        sys.exit(complain(error))


class Parser(argparse.ArgumentParser):
    """Escapes control characters of the command line in messages about it."""

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        """End the process, with a message to standard error if there is one."""
        super().exit(status, message and escape_controls(message, keep="\n"))


def _terminate(*_: object) -> None:
    """What `kill` sends ends a run as Ctrl-C does, so that no worker and no temporary folder stays behind."""
    raise KeyboardInterrupt("terminated")


def stopped(error: KeyboardInterrupt) -> int:
    """The exit code that a shell would give: 128 and the number of the signal."""
    return 143 if str(error) == "terminated" else 130


def _overrides_last(arguments: list[str]) -> list[str]:
    """Let options stand between overrides, where Hydra's parser would not take what follows them."""
    takes_value = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--package", "-p", "--into",
                   "--resume", "--csv", "--md", "--label", "--text", "--name", "--scale")  # fmt: skip
    before = ["", *arguments]
    overrides = [
        i
        for i, word in enumerate(arguments)
        if (("=" in word and word[0] != "-") or word.startswith("~")) and before[i] not in takes_value
    ]
    kept = [word for i, word in enumerate(arguments) if i not in overrides]
    return [*kept, *(arguments[i] for i in overrides)]


def complain(error: Exception, kept: str = "", job: str = "") -> int:
    """Write one message to standard error; returns the exit code. `kept` says what a failure has left intact."""
    from omegaconf.errors import OmegaConfBaseException

    from cfeval_cli.cli import own_configs
    from cfeval_cli.settings.compose import explain_hydra_error

    if not isinstance(error, UserError | Failure) and isinstance(error.__cause__, OSError):
        error = error.__cause__  # Hydra could not write its own files
    message, code = str(error).strip(), 1
    if isinstance(error, UserError):
        code, kept = 2, ""
    elif type(error).__module__.startswith("hydra") or isinstance(error, OmegaConfBaseException) or _of_hydra(error):
        message, code, kept = (
            explain_hydra_error(error, own_configs.get_overrides(), own_configs.find_own_folder()),
            2,
            "",
        )
    elif isinstance(error, OSError) and error.filename:
        message = f"{error.filename}: {error.strerror or error}."
        if "hydra.core.hydra_config" in sys.modules:
            message += " Results go to hydra.run.dir, by default below the current folder."
    elif not isinstance(error, Failure):
        message = f"{describe_error(error)}. HYDRA_FULL_ERROR=1 shows the traceback."
    told = "cfeval: " + " ".join(part for part in (job, message, kept) if part)
    sys.stderr.write(escape_controls(told, keep="\n") + "\n")  # names and cells from outside are in it
    return code


def _of_hydra(error: Exception) -> bool:
    """Whether Hydra objects to something with an error that is not one of its own."""
    place = error.__traceback__
    while place is not None and place.tb_next is not None:
        place = place.tb_next
    where = "" if place is None else str(place.tb_frame.f_globals.get("__name__"))
    return isinstance(error, ValueError) and where.startswith(("hydra.", "omegaconf."))


def _completion(arguments: list[str]) -> list[str]:
    """Hydra's shell hook leaves the sub-command in COMP_LINE: take it from there."""
    line = os.environ.get("COMP_LINE", "")
    words = line.split()
    command = words[1] if len(words) > 1 else ""
    if command == "run" and (len(words) > 2 or line.endswith(" ")):
        os.environ["COMP_LINE"] = re.sub(rf"^(\s*\S+)\s+{command}", r"\1", line, count=1)
        return ["run", *arguments]
    sys.stdout.write(" ".join(name for name in COMMANDS if name.startswith(command)) + "\n")
    sys.exit(0)
