"""Log lines."""

import logging
import sys

from cfeval_cli.core.logs import SafeFormatter
from cfeval_cli.errors import UserError


def test_control_characters_are_escaped():
    line = logging.makeLogRecord({"msg": "fetching %s", "args": ("\x1b]0;x\x07",)})
    assert SafeFormatter("%(message)s").format(line) == "fetching \\x1b]0;x\\x07"


def test_tracebacks_print_messages_of_cfeval_in_full_and_an_excerpt_of_others():
    try:
        try:
            raise ValueError("row: " + "7 " * 500)
        except ValueError as error:
            raise UserError("label: " + "x" * 500) from error
    except UserError:
        record = logging.makeLogRecord({"msg": "failed", "exc_info": sys.exc_info()})
    text = SafeFormatter("%(message)s").format(record)
    assert text.startswith("failed\nTraceback") and text.endswith("UserError: label: " + "x" * 500)
    assert "ValueError: row: 7 7" in text and "7 " * 200 not in text
