"""Format of log lines, on the screen and in run.log."""

from __future__ import annotations

import logging
import traceback
from typing import Any

from cfeval_cli.errors import Failure, UserError, escape_controls, excerpt_error


class SafeFormatter(logging.Formatter):
    """Escape control characters of external texts, and print no data with errors."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line, or the lines of a traceback."""
        return escape_controls(super().format(record), keep="\n\t")

    def formatException(self, ei: Any) -> str:  # noqa: N802  logging's
        """Return a traceback; messages of other libraries are shortened, since they may hold rows of data."""
        error: BaseException | None = ei[1]
        parts = list[str]()
        while error is not None:
            is_own = isinstance(error, UserError | Failure)
            message = f"{type(error).__name__}: {error}" if is_own else excerpt_error(error)
            places = traceback.format_tb(error.__traceback__)
            parts.append("".join(["Traceback (most recent call last):\n", *places, message]))
            error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        return "\n\n".join(reversed(parts))
