"""Runs as the reports have them."""

from tests.report.conftest import made  # noqa: F401
