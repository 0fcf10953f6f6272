"""A model in an ONNX file, which contains no code; onnxruntime evaluates it."""

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
from cfeval_cli.core.fingerprint import hash_component
from cfeval_cli.errors import UserError, check_int, import_extra
from cfeval_cli.model.encoding import convert_to_numbers
from cfeval_cli.model.external import (
    InvalidOutput,
    LabelModel,
    Predictor,
    PretrainedModel,
    ProbabilityModel,
    describe_missing_columns,
    encode_classes,
    find_model_file,
)

_NUMPY_TYPES: Mapping[str, Any] = {
    "tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(int64)": np.int64, "tensor(int32)": np.int32,
    "tensor(bool)": np.bool_, "tensor(string)": object,
}  # fmt: skip
_FLOAT_TYPES = ("tensor(float)", "tensor(double)", "tensor(float16)")


@dataclass(frozen=True)
class Onnx(PretrainedModel, Fingerprinted):
    """A model file with one input for each feature, by name, or one input for all features, in their order."""

    path: str
    output: str | None = None  # name of the output; None: probabilities if the file has them, else classes
    batch_size: int = 10_000

    def __post_init__(self) -> None:
        if not isinstance(self.path, str) or not self.path:
            raise ValueError("path must be given: model.path=model.onnx")
        check_int("batch_size", self.batch_size, 1)

    def fingerprint(self) -> str:
        """Hash the files of external tensors; the file itself is hashed as the value of a setting."""
        files = find_external_files(_get_absolute_path(self.path))
        return sha256(b"".join(sha256(file.read_bytes()).digest() for file in files)).hexdigest()

    def output_type(self, dataset: Dataset) -> type:
        """Return ProbabilityModel if the output is of probabilities, else LabelModel."""
        source = self.make_predictor(dataset)
        source.check()
        return ProbabilityModel if source.output.is_probability else LabelModel

    def make_predictor(self, dataset: Dataset) -> _OnnxPredictor:
        """Return the file with the selected output."""
        file, mark = _get_absolute_path(self.path), hash_component(self)
        output = _select_output(open_session(file, mark).get_outputs(), self.output, self.path)
        return _OnnxPredictor(dataset, f"model.path={self.path}", mark, self.batch_size, file=file, output=output)


def _get_absolute_path(path: str) -> Path:
    return find_model_file(path, "a model in ONNX format").absolute()


@dataclass(frozen=True)
class _Output:
    """An output of the file."""

    name: str
    is_probability: bool
    is_mapping: bool  # whether it is a mapping from class to probability for each row


def _select_output(outputs: Sequence[Any], name: str | None, path: str) -> _Output:
    """Return the output with a name, or the first of probabilities, or the first of all."""
    by_name = {
        output.name: _Output(output.name, _has_probabilities(output), output.type.startswith("seq(map"))
        for output in outputs
    }
    if name is not None:
        if name not in by_name:
            raise UserError(f"model.output={name}: {path} has the outputs {', '.join(by_name)}.")
        return by_name[name]
    return next((output for output in by_name.values() if output.is_probability), next(iter(by_name.values())))


def _has_probabilities(output: Any) -> bool:
    """Return whether an output has fractions; a column of them is P(1)."""
    return bool(output.type.startswith("seq(map") or output.type in _FLOAT_TYPES)


# The message fields of the protobuf schema onnx.proto that lead from a model to its tensors.
_MESSAGE_FIELDS: Mapping[str, Mapping[int, str]] = {
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
        entries = set(_read_external_entries(memoryview(file.read_bytes()), "model"))
    except (IndexError, ValueError) as error:
        raise UserError(f"model.path={file}: onnxruntime cannot open it: it is not a valid ONNX file.") from error
    files = []
    for location in sorted(value for key, value in entries if key == "location"):
        external = (file.parent / location).resolve()
        if not external.is_relative_to(file.parent.resolve()):
            raise UserError(
                f"model.path={file} takes tensors from {location}, which is outside its folder. Copy them beside it."
            )
        if not external.is_file():
            raise UserError(f"model.path={file} takes tensors from {location}, and there is no such file beside it.")
        files.append(external)
    return files


def _read_external_entries(message: memoryview, kind: str) -> Iterator[tuple[str, str]]:
    """Yield the (key, value) pairs of `external_data` in a serialised message and in the messages within it."""
    if kind == "external":
        pair = {number: str(value, "utf-8") for number, value in _read_length_delimited(message)}
        yield pair.get(1, ""), pair.get(2, "")
        return
    for number, value in _read_length_delimited(message):
        if number in _MESSAGE_FIELDS[kind]:
            yield from _read_external_entries(value, _MESSAGE_FIELDS[kind][number])


def _read_length_delimited(message: memoryview) -> Iterator[tuple[int, memoryview]]:
    """Yield the number and the bytes of each field of a protobuf message that is a message, a text or bytes."""
    position = 0
    while position < len(message):
        tag, position = _read_varint(message, position)
        wire_type = tag & 7
        if wire_type == 0:
            _, position = _read_varint(message, position)
        elif wire_type in (1, 5):
            position += 8 if wire_type == 1 else 4
        elif wire_type == 2:
            size, position = _read_varint(message, position)
            if position + size > len(message):
                raise ValueError("a field ends after its message")
            yield tag >> 3, message[position : position + size]
            position += size
        else:
            raise ValueError(f"unknown wire type {wire_type}")


def _read_varint(message: memoryview, position: int) -> tuple[int, int]:
    """Return the integer that begins at a position, and the position after it."""
    number = shift = 0
    while True:
        byte = message[position]
        number |= (byte & 127) << shift
        position, shift = position + 1, shift + 7
        if byte < 128:
            return number, position


@cache
def open_session(file: Path, mark: str | None) -> Any:
    """Open a session of one thread, once in each process for each content of the file."""
    find_external_files(file)  # raises if one is outside the folder of the model
    runtime = import_extra("onnxruntime", "model=onnx", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1  # the same bits on any number of cores
    options.log_severity_level = 4
    try:
        with redirect_stdout(StringIO()):  # the package also prints its errors
            # by path, so that external tensors are searched beside the file, not in the current folder
            return runtime.InferenceSession(str(file), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # the errors of the package have no common type
        message = " ".join(str(error).split())[:200]
        raise UserError(f"model.path={file}: onnxruntime cannot open it: {message}") from error


@dataclass(frozen=True)
class _OnnxPredictor(Predictor):
    """Predictions of the file, which each process opens for itself."""

    file: Path
    output: _Output

    def check(self) -> None:
        """Raise UserError if the inputs do not fit the dataset."""
        inputs = open_session(self.file, self.mark).get_inputs()
        unsupported = [f"{model_input.name} ({model_input.type})" for model_input in inputs
                       if model_input.type not in _NUMPY_TYPES]  # fmt: skip
        if unsupported:
            raise UserError(f"{self.title}: unsupported types of inputs: {', '.join(unsupported)}.")
        width = self.dataset.n_features
        if self.dataset.kind == "text":
            if len(inputs) != 1 or _NUMPY_TYPES[inputs[0].type] is not object:
                raise UserError(f"{self.title}: a model of texts must have exactly one input, of strings.")
        elif len(inputs) == 1 and width > 1:
            shape = inputs[0].shape
            if len(shape) == 2 and isinstance(shape[1], int) and shape[1] != width:
                raise UserError(f"{self.title} needs {shape[1]} columns, but {self.dataset.name} has {width} features.")
        elif reason := describe_missing_columns([model_input.name for model_input in inputs], self.dataset):
            raise UserError(f"{self.title} {reason}")

    def predict_raw(self, codes: Codes) -> Any:
        """Return the output; mappings become a table in the order of the classes."""
        (output,) = open_session(self.file, self.mark).run([self.output.name], self._make_inputs(codes))
        return self._tabulate(output) if self.output.is_mapping else output

    def _make_inputs(self, codes: Codes) -> dict[str, Any]:
        inputs, rows = open_session(self.file, self.mark).get_inputs(), self.dataset.decode(codes)
        if isinstance(rows, list):
            texts = np.array(rows, dtype=object)
            return {inputs[0].name: texts if len(inputs[0].shape) == 1 else texts[:, None]}
        if len(inputs) == 1 and self.dataset.n_features > 1:
            columns = [self._convert_column(rows[name], inputs[0]) for name in rows.columns]
            return {inputs[0].name: np.stack(columns, axis=1)}
        return {
            model_input.name: self._convert_column(rows[model_input.name], model_input).reshape(
                -1, *[1] * (len(model_input.shape) - 1)
            )
            for model_input in inputs
        }

    def _convert_column(self, column: Any, model_input: Any) -> Any:
        """Return a column with the type of an input."""
        kind = _NUMPY_TYPES[model_input.type]
        if kind is object:
            return column.astype(str).to_numpy(dtype=object)
        numbers = convert_to_numbers(column)
        if numbers is None:
            raise UserError(
                f"{self.title}: its input {model_input.name} is of numbers, but {column.name} is of categories "
                f"such as {column.iloc[0]!r}. Export the model together with its encoder, one input for each column."
            )
        if not np.issubdtype(kind, np.floating) and np.isnan(numbers).any():
            raise UserError(
                f"{self.title}: its input {model_input.name} is of whole numbers, but {column.name} has missing values."
            )
        return numbers.astype(kind)

    def _tabulate(self, rows: Sequence[Mapping[Any, float]]) -> Any:
        if not rows:
            return np.zeros((0, len(self.dataset.classes)))
        names = list(rows[0])
        class_numbers = encode_classes(np.array(names), self.dataset.classes)
        if len(set(class_numbers.tolist())) != len(self.dataset.classes):
            raise InvalidOutput(
                f"has the classes {names}, but {self.dataset.name} has {', '.join(self.dataset.classes)}"
            )
        table = np.array([[row[name] for name in names] for row in rows], dtype=np.float64)
        return table[:, np.argsort(class_numbers)]
