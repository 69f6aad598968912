"""Every store of chat files keeps the same promises."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TypeAlias

import pytest

from alipes.kernel.blobs import BlobStore, content_id, is_blob_name, make_blob_name
from alipes.kernel.errors import FileStoreError
from alipes.kernel.models import Secret
from alipes.runtime.blobs.folder import FolderBlobs
from alipes.runtime.blobs.s3 import S3Blobs, S3Bucket, sign_request
from alipes.runtime.http.clients import ClientScope
from tests.world.s3_server import BUCKET, s3_server

A, B = "a" * 32 + "-one.pdf", "b" * 32
SECRET = "the-secret-of-the-bucket"
MAX_BYTES = 1000
OpenStore: TypeAlias = Callable[[Path], AbstractAsyncContextManager[BlobStore]]


def bucket_at(address: str, name: str = BUCKET, prefix: str = "") -> S3Bucket:
    return S3Bucket(address, name, "us-east-1", Secret("the-key"), Secret(SECRET), prefix)


@asynccontextmanager
async def open_folder(tmp_path: Path) -> AsyncIterator[BlobStore]:
    yield FolderBlobs(tmp_path / "files", max_bytes=MAX_BYTES)


@asynccontextmanager
async def open_bucket(_tmp_path: Path) -> AsyncIterator[BlobStore]:
    async with ClientScope() as scope:
        bucket = bucket_at(s3_server(), prefix=f"{os.urandom(8).hex()}/")
        yield S3Blobs(bucket, scope.http("files"), max_bytes=MAX_BYTES, timeout_s=10.0)


@pytest.fixture(scope="module")
def server() -> str:
    return s3_server()


@pytest.fixture(scope="module", params=["folder", "s3"])
def opened(request: pytest.FixtureRequest) -> OpenStore:
    """Of the module, so that the server starts outside of tests, which would take it for a leak."""
    if request.param == "folder":
        return open_folder
    s3_server()
    return open_bucket


async def test_what_is_put_can_be_read(opened: OpenStore, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(A, b"content\0\xff")
        assert await store.read(A) == b"content\0\xff"
        assert await store.exists(A)


async def test_an_empty_file_can_be_stored(opened: OpenStore, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(A, b"")
        assert await store.read(A) == b""


async def test_a_second_put_replaces_the_first(opened: OpenStore, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(A, b"old")
        await store.put(A, b"new")
        assert await store.read(A) == b"new"


async def test_a_file_that_does_not_exist_is_none(opened: OpenStore, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        assert await store.read(A) is None
        assert not await store.exists(A)
        await store.delete(A)


async def test_a_deleted_file_is_gone(opened: OpenStore, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(A, b"x")
        await store.delete(A)
        assert await store.read(A) is None
        assert await store.list() == ()


async def test_a_list_has_names_and_sizes_by_prefix(opened: OpenStore, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.put(A, b"12")
        await store.put(B, b"123")
        assert {(each.name, each.size) for each in await store.list()} == {(A, 2), (B, 3)}
        assert [each.name for each in await store.list("b" * 10)] == [B]
        assert all(each.modified > 0 for each in await store.list())


async def test_a_file_above_the_limit_is_refused(opened: OpenStore, tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        with pytest.raises(FileStoreError, match=r"files\.max_mb"):
            await store.put(A, b"x" * (MAX_BYTES + 1))
        assert not await store.exists(A)


@pytest.mark.parametrize(
    "name", ["../" + B, "/etc/passwd", "", ".", B + "/../x", B + "-../x", B + "-a\n", "b" * 31, B + "-.x"]
)
async def test_a_name_that_could_be_a_path_is_refused(opened: OpenStore, tmp_path: Path, name: str) -> None:
    async with opened(tmp_path) as store:
        for act in (store.read, store.exists, store.delete):
            with pytest.raises(FileStoreError, match="not the name"):
                await act(name)
        with pytest.raises(FileStoreError, match="not the name"):
            await store.put(name, b"x")


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "a/../b.pdf",
        "..",
        "...",
        "C:\\x\\y.doc",
        "ä ö.txt",
        "x" * 500 + ".pdf",
        "\0\n",
        "-rf",
        "a..b",
    ],
)
def test_any_name_of_a_stranger_becomes_a_plain_blob_name(name: str) -> None:
    assert is_blob_name(make_blob_name(content_id(b"x"), name))


async def test_a_symbolic_link_in_the_folder_is_not_followed(tmp_path: Path) -> None:
    store = FolderBlobs(tmp_path / "files", max_bytes=MAX_BYTES)
    await store.put(A, b"x")
    (tmp_path / "secret").write_text("secret")
    (tmp_path / "files" / B).symlink_to(tmp_path / "secret")
    assert await store.read(B) is None
    assert not await store.exists(B)
    await store.put(B, b"mine")
    assert (tmp_path / "secret").read_text() == "secret"


async def test_a_bucket_that_does_not_exist_is_named_without_the_secret(server: str) -> None:
    async with ClientScope() as scope:
        store = S3Blobs(bucket_at(server, "no-such-bucket"), scope.http("files"), max_bytes=9, timeout_s=10.0)
        for act in (store.read(A), store.put(A, b"x"), store.list()):
            with pytest.raises(FileStoreError, match="the bucket does not exist") as caught:
                await act
            assert SECRET not in f"{caught.value!r} {caught.value.__cause__!r}"


async def test_a_server_that_is_away_is_reported() -> None:
    async with ClientScope() as scope:
        store = S3Blobs(bucket_at("http://127.0.0.1:9"), scope.http("files"), max_bytes=9, timeout_s=10.0)
        with pytest.raises(FileStoreError, match=r"127\.0\.0\.1:9 is not reachable"):
            await store.read(A)


def test_the_bucket_does_not_show_its_secret() -> None:
    assert SECRET not in repr(bucket_at("http://127.0.0.1:9"))


def test_the_bucket_is_in_the_path_or_in_the_host() -> None:
    there = S3Bucket("https://s3.example.com", "files", "r", Secret("k"), Secret("s"), path_style=False)
    assert there.base_url == "https://files.s3.example.com"
    assert bucket_at("https://s3.example.com").base_url == "https://s3.example.com/chat-files"


@pytest.mark.parametrize(
    ("query", "headers", "signature"),
    [
        ("/test.txt", {"Range": "bytes=0-9"}, "f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41"),
        ("/?max-keys=2&prefix=J", {}, "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7"),
    ],
)
def test_signatures_are_those_of_amazons_documentation(query: str, headers: dict[str, str], signature: str) -> None:
    key, secret = Secret("AKIAIOSFODNN7EXAMPLE"), Secret("wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY")
    bucket = S3Bucket("https://s3.amazonaws.com", "examplebucket", "us-east-1", key, secret, path_style=False)
    signed = sign_request(bucket, "GET", bucket.base_url + query, headers, b"", now=1369353600.0)
    assert signed["authorization"].endswith(f"Signature={signature}")
