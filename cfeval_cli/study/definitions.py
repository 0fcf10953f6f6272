"""Definitions that come with cfeval as JSON: claims, identities, durations."""

from __future__ import annotations

from importlib import resources
from typing import TypeVar

from pydantic import TypeAdapter

T = TypeVar("T")


def load_definitions(package: str, name: str, schema: type[T]) -> T:
    """Read and validate a JSON file of a package."""
    return TypeAdapter(schema).validate_json(resources.files(package).joinpath(name).read_bytes())
