"""A model in an ONNX file, which holds no code: run by onnxruntime."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from cfeval_cli.core import Codes, Dataset, Fingerprinted
from cfeval_cli.core.fingerprint import of_component
from cfeval_cli.errors import UserError, check_int, import_extra
from cfeval_cli.model.encoding import as_numbers
from cfeval_cli.model.outside import (
    BadAnswer,
    Given,
    LabelModel,
    ProbabilityModel,
    Source,
    class_numbers,
    missing_columns,
    model_file,
)

_TYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_, "tensor(string)": object,
}  # fmt: skip
_FRACTIONS = ("tensor(float)", "tensor(double)", "tensor(float16)")


@dataclass(frozen=True)
class Onnx(Given, Fingerprinted):
    """Where the file is; it has one input for each feature, by name, or one for all, in their order."""

    path: str
    output: str | None = None  # which of its outputs; None: the probabilities if there are any, else the classes
    batch_size: int = 10_000

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise ValueError("path must be given: model.path=model.onnx")
        check_int("batch_size", self.batch_size, 1)

    def fingerprint(self) -> str:
        """Hash the files that the model's external tensors are in; the file itself counts as a setting's does."""
        files = find_external_files(_absolute(self.path))
        return sha256(b"".join(sha256(file.read_bytes()).digest() for file in files)).hexdigest()

    def output_type(self, dataset: Dataset) -> type:
        """Probabilities, if the file has such an output."""
        source = self.source(dataset)
        source.check()
        return ProbabilityModel if source.output.likely else LabelModel

    def source(self, dataset: Dataset) -> _Session:
        """The file, and which of its outputs."""
        file, mark = _absolute(self.path), of_component(self)
        output = _output(opened(file, mark).get_outputs(), self.output, self.path)
        return _Session(dataset, f"model.path={self.path}", mark, self.batch_size, file=file, output=output)


def _absolute(path: str) -> Path:
    return model_file(path, "a model in ONNX's format").absolute()


@dataclass(frozen=True)
class _Output:
    """One of a file's outputs."""

    name: str
    likely: bool  # whether it is of probabilities
    mapped: bool  # one mapping from class to probability a row


def _output(there: Sequence[Any], wanted: str | None, path: str) -> _Output:
    """The output that is asked for."""
    known = {one.name: _Output(one.name, _is_likely(one), one.type.startswith("seq(map")) for one in there}
    if wanted is not None:
        if wanted not in known:
            raise UserError(f"model.output={wanted}: {path} has the outputs {', '.join(known)}.")
        return known[wanted]
    return next((one for one in known.values() if one.likely), next(iter(known.values())))


def _is_likely(output: Any) -> bool:
    """Fractions; a column of them is P(1)."""
    return bool(output.type.startswith("seq(map") or output.type in _FRACTIONS)


# The message fields of ONNX's protobuf schema (onnx.proto) that lead from a model to its tensors.
_FIELDS: Mapping[str, Mapping[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {13: "external"},
}


def find_external_files(file: Path) -> list[Path]:
    """Return the files beside an ONNX file that hold its external tensors, in the order of their names."""
    try:
        entries = set(_external_entries(memoryview(file.read_bytes()), "model"))
    except (IndexError, ValueError) as error:
        raise UserError(f"model.path={file}: onnxruntime cannot open it: it is not a valid ONNX file.") from error
    found = []
    for location in sorted(value for key, value in entries if key == "location"):
        external = (file.parent / location).resolve()
        if not external.is_relative_to(file.parent.resolve()):
            raise UserError(
                f"model.path={file} takes tensors from {location}, which is outside its folder. Copy them beside it."
            )
        if not external.is_file():
            raise UserError(f"model.path={file} takes tensors from {location}, and there is no such file beside it.")
        found.append(external)
    return found


def _external_entries(message: memoryview, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the (key, value) pairs of `external_data` in a serialised message and in the messages within it."""
    if kind == "external":
        pair = {number: str(value, "utf-8") for number, value in _length_delimited(message)}
        yield pair.get(1, ""), pair.get(2, "")
        return
    for number, value in _length_delimited(message):
        if number in _FIELDS[kind]:
            yield from _external_entries(value, _FIELDS[kind][number])


def _length_delimited(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the number and the bytes of each field of a protobuf message that is a message, a text or bytes."""
    place = 0
    while place < len(message):
        tag, place = _varint(message, place)
        wire_type = tag & 7
        if wire_type == 0:
            _, place = _varint(message, place)
        elif wire_type in (1, 5):
            place += 8 if wire_type == 1 else 4
        elif wire_type == 2:
            size, place = _varint(message, place)
            if place + size > len(message):
                raise ValueError("a field ends behind its message")
            yield tag >> 3, message[place : place + size]
            place += size
        else:
            raise ValueError(f"unknown wire type {wire_type}")


def _varint(message: memoryview, place: int) -> tuple[int, int]:
    """Return the whole number that begins at a place, and the place behind it."""
    number = shift = 0
    while True:
        byte = message[place]
        number |= (byte & 127) << shift
        place, shift = place + 1, shift + 7
        if byte < 128:
            return number, place


@cache
def opened(file: Path, mark: str | None) -> Any:
    """A session of one thread, once in each process for each content of the file."""
    find_external_files(file)  # which refuses files outside the model's folder
    runtime = import_extra("onnxruntime", "model=onnx", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the same bits on any number of cores
    options.log_severity_level = 4
    try:
        with redirect_stdout(StringIO()):  # which the package prints of its own troubles to, too
            # by its path: external tensors are looked for beside the file, not in the current folder
            return runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of the package's own, which have no common kind
        told = " ".join(str(error).split())[:200]
        raise UserError(f"model.path={file}: onnxruntime cannot open it: {told}") from error


@dataclass(frozen=True)
class _Session(Source):
    """The file, which each process opens for itself."""

    file: Path
    output: _Output

    def check(self) -> None:
        """Refuse a file that does not go with the data."""
        inputs = opened(self.file, self.mark).get_inputs()
        odd = [f"{one.name} ({one.type})" for one in inputs if one.type not in _TYPES]
        if odd:
            raise UserError(f"{self.title}: inputs of kinds that cfeval cannot give: {', '.join(odd)}.")
        width = self.dataset.width
        if self.dataset.kind == "text":
            if len(inputs) != 1 or _TYPES[inputs[0].type] is not object:
                raise UserError(f"{self.title}: a model of texts has one input of strings.")
        elif len(inputs) == 1 and width > 1:
            shape = inputs[0].shape
            if len(shape) == 2 and isinstance(shape[1], int) and shape[1] != width:
                raise UserError(f"{self.title} wants {shape[1]} columns, and {self.dataset.name} has {width} features.")
        elif reason := missing_columns([one.name for one in inputs], self.dataset):
            raise UserError(f"{self.title} {reason}")

    def answer(self, codes: Codes) -> Any:
        """What the output says; mappings are put in the order of the classes."""
        (told,) = opened(self.file, self.mark).run([self.output.name], self._inputs(codes))
        return self._ordered(told) if self.output.mapped else told

    def _inputs(self, codes: Codes) -> dict[str, Any]:
        inputs, rows = opened(self.file, self.mark).get_inputs(), self.dataset.decode(codes)
        if isinstance(rows, list):
            texts = np.array(rows, dtype=object)
            return {inputs[0].name: texts if len(inputs[0].shape) == 1 else texts[:, None]}
        if len(inputs) == 1 and self.dataset.width > 1:
            columns = [self._cells(rows[name], inputs[0]) for name in rows.columns]
            return {inputs[0].name: np.stack(columns, axis=1)}
        return {one.name: self._cells(rows[one.name], one).reshape(-1, *[1] * (len(one.shape) - 1)) for one in inputs}

    def _cells(self, column: Any, wanted: Any) -> Any:
        """A column as an input wants it."""
        kind = _TYPES[wanted.type]
        if kind is object:
            return column.astype(str).to_numpy(dtype=object)
        numbers = as_numbers(column)
        if numbers is None:
            raise UserError(
                f"{self.title}: its input {wanted.name} is of numbers, and {column.name} is of categories "
                f"such as {column.iloc[0]!r}. Export the model together with its encoder, one input for each column."
            )
        if not np.issubdtype(kind, np.floating) and np.isnan(numbers).any():
            raise UserError(
                f"{self.title}: its input {wanted.name} is of whole numbers, and {column.name} has missing ones."
            )
        return numbers.astype(kind)

    def _ordered(self, told: Sequence[Mapping[Any, float]]) -> Any:
        if not told:
            return np.zeros((0, len(self.dataset.classes)))
        names = list(told[0])
        places = class_numbers(np.array(names), self.dataset.classes)
        if len(set(places.tolist())) != len(self.dataset.classes):
            raise BadAnswer(f"knows the classes {names}, and {self.dataset.name} has {', '.join(self.dataset.classes)}")
        table = np.array([[row[name] for name in names] for row in told], dtype=np.float64)
        return table[:, np.argsort(places)]
