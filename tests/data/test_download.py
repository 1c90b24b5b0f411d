"""Downloads against a real server on this machine."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from cgmvae.data import download as download_module
from cgmvae.data.download import CHECKSUMS, checksum_of, download, recorded_checksum
from cgmvae.errors import InputError

BODY = bytes(range(256)) * 4096
SHA256 = hashlib.sha256(BODY).hexdigest()


class Handler(BaseHTTPRequestHandler):
    """Answer each path in its own way."""

    def do_GET(self):
        body = self.server.bodies.get(self.path)
        if self.path == "/moved":
            self.send_response(302)
            self.send_header("Location", "/file")
            self.end_headers()
        elif body is None:
            self.send_error(404)
        else:
            self.send_response(200)
            if self.path != "/unstated":
                self.send_header("Content-Length", str(len(body) + (self.path == "/cut")))
            self.end_headers()
            self.wfile.write(body)

    def log_message(self, *args):
        """Keep the output of the tests clean."""


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.bodies = dict.fromkeys(("/file", "/cut", "/unstated"), BODY)
    server.address = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


def test_fetches_the_bytes_and_reports_progress(server, tmp_path):
    seen = []
    target = tmp_path / "file"
    result = download(
        f"{server.address}/file", target, progress=lambda done, total: seen.append((done, total))
    )
    assert result == target
    assert target.read_bytes() == BODY
    done = [done for done, _ in seen]
    assert done == sorted(set(done))
    assert done[-1] == len(BODY)
    assert {total for _, total in seen} == {len(BODY)}


def test_size_that_is_not_stated_is_reported_as_none(server, tmp_path):
    seen = []
    download(
        f"{server.address}/unstated",
        tmp_path / "file",
        progress=lambda done, total: seen.append((done, total)),
    )
    assert (tmp_path / "file").read_bytes() == BODY
    assert seen[-1] == (len(BODY), None)


def test_redirects_are_followed(server, tmp_path):
    download(f"{server.address}/moved", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == BODY


def test_file_addresses(tmp_path):
    source = tmp_path / "source"
    source.write_bytes(BODY)
    download(source.as_uri(), tmp_path / "copy", sha256=SHA256)
    assert (tmp_path / "copy").read_bytes() == BODY


def test_known_checksum_is_verified_and_not_recorded(server, tmp_path):
    download(f"{server.address}/file", tmp_path / "file", sha256=SHA256.upper())
    assert checksum_of(tmp_path / "file") == SHA256
    assert not (tmp_path / CHECKSUMS).exists()


def test_wrong_checksum_leaves_nothing(server, tmp_path):
    with pytest.raises(InputError, match=f"checksum {SHA256[:12]}… where 000000000000…"):
        download(f"{server.address}/file", tmp_path / "file", sha256="0" * 64)
    assert list(tmp_path.iterdir()) == []


def test_first_download_records_the_checksum(server, tmp_path):
    for name in ("b", "a"):
        download(f"{server.address}/file", tmp_path / name)
    lines = (tmp_path / CHECKSUMS).read_text(encoding="utf-8").splitlines()
    assert lines == [f"{SHA256}  a", f"{SHA256}  b"]
    assert recorded_checksum(tmp_path / "a") == SHA256
    assert recorded_checksum(tmp_path / "c") == ""


def test_a_list_of_checksums_in_another_encoding_is_read_as_far_as_it_goes(tmp_path):
    text = f"{SHA256}  caf\u00e9\n{SHA256}  file\n"
    (tmp_path / CHECKSUMS).write_text(text, encoding="latin-1")
    assert recorded_checksum(tmp_path / "file") == SHA256


def test_second_download_must_agree_with_the_first(server, tmp_path):
    target = tmp_path / "file"
    download(f"{server.address}/file", target)
    download(f"{server.address}/file", target)
    server.bodies["/file"] = BODY[:-1] + b"!"
    with pytest.raises(InputError, match="was expected"):
        download(f"{server.address}/file", target)
    assert target.read_bytes() == BODY
    assert sorted(path.name for path in tmp_path.iterdir()) == [CHECKSUMS, "file"]


def test_truncated_body_leaves_nothing(server, tmp_path):
    with pytest.raises(InputError, match="ended after 1,048,576 of 1,048,577 bytes"):
        download(f"{server.address}/cut", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_truncated_body_leaves_the_earlier_file(server, tmp_path):
    (tmp_path / "file").write_bytes(b"earlier")
    with pytest.raises(InputError, match="ended after"):
        download(f"{server.address}/cut", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == b"earlier"
    assert len(list(tmp_path.iterdir())) == 1


def test_missing_page_is_one_sentence(server, tmp_path):
    with pytest.raises(InputError, match=r"cannot be fetched \(HTTP Error 404: Not Found\); check"):
        download(f"{server.address}/nothing", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_server_that_is_not_there(server, tmp_path):
    address = server.address
    server.shutdown()
    server.server_close()
    with pytest.raises(InputError, match="cannot be fetched"):
        download(f"{address}/file", tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_interrupted_download_leaves_nothing(server, tmp_path):
    def interrupt(done: int, total: int | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        download(f"{server.address}/file", tmp_path / "file", progress=interrupt)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["/file", "/unstated"])
def test_too_large_is_refused(server, tmp_path, monkeypatch, path):
    monkeypatch.setattr(download_module, "SIZE_LIMIT", 1000)
    with pytest.raises(InputError, match="larger than 1,000 bytes"):
        download(server.address + path, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["ftp://host/file", "/etc/hostname", "data:,x", ""])
def test_other_schemes_are_refused(tmp_path, address):
    with pytest.raises(InputError, match="must begin with https: or http: or file:"):
        download(address, tmp_path / "file")
    assert list(tmp_path.iterdir()) == []


def test_folder_of_the_target_must_exist(server, tmp_path):
    with pytest.raises(InputError, match="does not exist"):
        download(f"{server.address}/file", Path(tmp_path / "no" / "file"))
