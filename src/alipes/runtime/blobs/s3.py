"""File store in a bucket of an S3-compatible server, with its own request signatures (AWS Signature Version 4)."""

import time
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TypeAlias
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree

from msgspec import Struct

from alipes.kernel.blobs import BlobInfo, is_blob_name
from alipes.kernel.errors import FileStoreError
from alipes.kernel.models import Secret
from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.lazy_httpx import httpx2
from alipes.runtime.http.sigv4 import SigningKey, sign

_Infos: TypeAlias = list[BlobInfo]
MAX_LIST_BYTES = 4_000_000
_ADVICE = {
    "NoSuchBucket": "the bucket does not exist: create it, or correct files.bucket",
    "AccessDenied": "access was denied: check the rights of the key in the bucket",
    "InvalidAccessKeyId": "the key is unknown: check the variable that files.key_env names",
    "SignatureDoesNotMatch": "the secret or files.region is wrong: check the variable that files.secret_env names",
    "RequestTimeTooSkewed": "the clock of this machine is wrong",
    "AuthorizationHeaderMalformed": "files.region is wrong",
    "PermanentRedirect": "the bucket is in another region: correct files.endpoint and files.region",
}


class S3Bucket(Struct, frozen=True):
    """Where a bucket is, and the key to it."""

    endpoint: str
    bucket: str
    region: str
    key: Secret
    secret: Secret
    prefix: str = ""
    """Start of all keys in the bucket, such as `alipes/`."""
    path_style: bool = True
    """`https://HOST/BUCKET/KEY`; otherwise `https://BUCKET.HOST/KEY`."""

    @property
    def base_url(self) -> str:
        parts = urlsplit(self.endpoint)
        root = parts.path.rstrip("/")
        if self.path_style:
            return f"{parts.scheme}://{parts.netloc}{root}/{self.bucket}"
        return f"{parts.scheme}://{self.bucket}.{parts.netloc}{root}"


class S3Blobs:
    """One object for each blob. Nothing is retried here."""

    def __init__(
        self,
        bucket: S3Bucket,
        client: HttpClient,
        *,
        max_bytes: int,
        timeout_s: float,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bucket, self._client, self._clock = bucket, client, clock
        self._max_bytes, self._timeout_s = max_bytes, timeout_s

    async def put(self, name: str, data: bytes) -> None:
        if len(data) > self._max_bytes:
            raise FileStoreError(f"{name[:100]} has {len(data):,} bytes; files.max_mb allows {self._max_bytes:,}")
        status, _, body = await self._request("PUT", self._key(name), content=data)
        self._check(status, body)

    async def read(self, name: str) -> bytes | None:
        status, _, body = await self._request("GET", self._key(name), max_bytes=self._max_bytes)
        if _is_missing(status, body):
            return None
        self._check(status, body)
        return body

    async def exists(self, name: str) -> bool:
        status, _, _ = await self._request("HEAD", self._key(name))
        if status == 404:
            return False
        self._check(status, b"")
        return True

    async def delete(self, name: str) -> None:
        status, _, body = await self._request("DELETE", self._key(name))
        if not _is_missing(status, body):
            self._check(status, body)

    async def list(self, prefix: str = "") -> tuple[BlobInfo, ...]:
        found: _Infos = []
        query = {"list-type": "2", "prefix": self._bucket.prefix + prefix}
        while True:
            status, _, body = await self._request("GET", "", query=query, max_bytes=MAX_LIST_BYTES)
            self._check(status, body)
            page, token = self._parse_list(body)
            found += page
            if not token:
                return tuple(sorted(found, key=lambda each: (each.modified, each.name)))
            query["continuation-token"] = token

    def _parse_list(self, body: bytes) -> tuple[_Infos, str]:
        """The files of one page of a list, and the token of the next."""
        try:
            root = ElementTree.fromstring(body)
            found: _Infos = []
            skipped = len(self._bucket.prefix)
            for each in root.iterfind("{*}Contents"):
                name = each.findtext("{*}Key", "")[skipped:]
                if is_blob_name(name):
                    modified = datetime.fromisoformat(each.findtext("{*}LastModified", "")).timestamp()
                    found.append(BlobInfo(name, int(each.findtext("{*}Size", "0")), modified))
            return found, root.findtext("{*}NextContinuationToken", "")
        except (ElementTree.ParseError, ValueError) as error:
            raise FileStoreError(f"the file store at {self._place} sent a list that cannot be read") from error

    def _key(self, name: str) -> str:
        if not is_blob_name(name):
            raise FileStoreError(f"{name[:100]!r} is not the name of a stored file")
        return self._bucket.prefix + name

    @property
    def _place(self) -> str:
        return urlsplit(self._bucket.endpoint).netloc.rpartition("@")[2]

    async def _request(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        content: bytes = b"",
        max_bytes: int = MAX_LIST_BYTES,
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Status, headers and body. Raises `FileStoreError` if there is no complete response."""
        url = f"{self._bucket.base_url}/{quote(key)}"
        if query:
            url += f"?{encode_query(query)}"
        signed = sign_request(self._bucket, method, url, {}, content, now=self._clock())
        try:
            return await self._read_response(method, url, signed, content, max_bytes)
        except httpx2.TimeoutException as error:
            raise FileStoreError(f"the file store at {self._place} did not answer in time") from error
        except httpx2.HTTPError as error:
            raise FileStoreError(f"the file store at {self._place} is not reachable: {error}") from error

    async def _read_response(
        self, method: str, url: str, headers: Mapping[str, str], content: bytes, max_bytes: int
    ) -> tuple[int, Mapping[str, str], bytes]:
        body = bytearray()
        async with self._client.stream(
            method, url, headers=headers, content=content, stall=self._timeout_s
        ) as response:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > (max_bytes if response.status_code < 300 else MAX_LIST_BYTES):
                    raise FileStoreError(f"the file store at {self._place} sent more than {max_bytes:,} bytes")
        return response.status_code, response.headers, bytes(body)

    def _check(self, status: int, body: bytes) -> None:
        if 200 <= status < 300:
            return
        code = _error_code(body)
        if not code:
            code = {401: "AccessDenied", 403: "AccessDenied", 404: "NoSuchBucket", 301: "PermanentRedirect"}.get(
                status, ""
            )
        why = _ADVICE.get(code) or f"it answered {status}{f' {code}' if code else ''}"
        raise FileStoreError(f"the file store at {self._place}, bucket {self._bucket.bucket}: {why}")


def sign_request(
    bucket: S3Bucket, method: str, url: str, headers: Mapping[str, str], content: bytes, *, now: float
) -> dict[str, str]:
    """The headers of the request with its signature. `url` must be encoded as it is sent."""
    signer = SigningKey(bucket.key, bucket.secret, bucket.region, "s3")
    return sign(signer, method, url, headers, content, now=now)


def encode_query(query: Mapping[str, str]) -> str:
    return "&".join(f"{quote(name, safe='-_.~')}={quote(query[name], safe='-_.~')}" for name in sorted(query))


def _error_code(body: bytes) -> str:
    if not body.lstrip().startswith(b"<"):
        return ""
    try:
        return ElementTree.fromstring(body).findtext("{*}Code", "")
    except ElementTree.ParseError:
        return ""


def _is_missing(status: int, body: bytes) -> bool:
    """True if there is no such object; a bucket that does not exist is an error."""
    return status == 404 and _error_code(body) != "NoSuchBucket"
