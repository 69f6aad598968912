"""Settings of the store of chat files."""

import re
from typing import Annotated, Literal

from msgspec import Struct

from alipes.config.urls import InvalidValue
from alipes.config.value_types import ENDPOINT, VARIABLE, ValueType, seconds, whole
from alipes.kernel.models import Secret


def _plain(pattern: str, rule: str) -> ValueType:
    def check(value: object) -> str:
        text = value.strip() if isinstance(value, str) else "?"
        if text and not re.fullmatch(pattern, text, re.ASCII):
            raise InvalidValue(rule)
        return text

    return ValueType("text", check)


_BUCKET = _plain(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]", "must be the name of a bucket, such as alipes-files")
_PREFIX = _plain(r"(?:[A-Za-z0-9_-][A-Za-z0-9._-]*/)+", "must be folders such as alipes/ or team/alipes/")
_REGION = _plain(r"[A-Za-z0-9-]{1,40}", "must be a region such as eu-central-1")


class FilesConfig(Struct, frozen=True):
    store: Annotated[
        Literal["folder", "s3"],
        "Where files of chats are kept. `folder`: in the home, or in `files.folder`. `s3`: in a bucket of an "
        "S3-compatible server, with copies in the home.",
    ] = "folder"
    folder: Annotated[
        str,
        "An absolute path on a file system that all workers of a cluster share, for files of chats. Empty: the home.",
    ] = ""
    endpoint: Annotated[
        str, ENDPOINT, "Address of the S3 server, such as https://minio.example.com. Empty: Amazon's, by region."
    ] = ""
    bucket: Annotated[str, _BUCKET, "Name of the bucket; it must exist."] = ""
    region: Annotated[str, _REGION, "Region of the bucket. Most servers other than Amazon's accept any."] = "us-east-1"
    prefix: Annotated[str, _PREFIX, "Folders in the bucket under which files are kept, such as alipes/."] = ""
    key_env: Annotated[str, VARIABLE, "Variable with the access key of the S3 server."] = "ALIPES_S3_KEY"
    secret_env: Annotated[str, VARIABLE, "Variable with its secret key."] = "ALIPES_S3_SECRET"
    path_style: Annotated[
        bool, "Whether the bucket is in the path (https://HOST/BUCKET) or in the host (https://BUCKET.HOST)."
    ] = True
    max_mb: Annotated[int, whole(1, 5000), "Largest file in the store, in MB."] = 100
    cache_mb: Annotated[
        int, whole(10, 1_000_000), "Size of the copies in the home, in MB; the oldest are deleted first."
    ] = 2000
    timeout: Annotated[float, seconds(1, 600), "Seconds without a byte after which a request to the server fails."] = (
        30.0
    )
    key: Secret = Secret()
    secret: Secret = Secret()
