"""Signatures of requests to AWS and its imitations (Signature Version 4)."""

import hashlib
import hmac
import time
from collections.abc import Mapping
from urllib.parse import quote, urlsplit

from msgspec import Struct

from alipes.kernel.models import Secret


class SigningKey(Struct, frozen=True):
    key: Secret
    secret: Secret
    region: str
    service: str
    token: Secret = Secret()
    """Belongs to a key that is valid for some hours only."""


def sign(
    signer: SigningKey, method: str, url: str, headers: Mapping[str, str], content: bytes, *, now: float
) -> dict[str, str]:
    """The headers of the request with its signature. `url` must be encoded as it is sent."""
    parts, moment = urlsplit(url), time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(now))
    digest = hashlib.sha256(content).hexdigest()
    given = {name.lower(): " ".join(value.split()) for name, value in headers.items()}
    given |= {"host": parts.netloc, "x-amz-date": moment}
    path = parts.path or "/"
    if signer.service == "s3":
        given["x-amz-content-sha256"] = digest
    else:  # only the bucket service signs the path as it is sent
        path = quote(path, safe="/-_.~")
    if signer.token:
        given["x-amz-security-token"] = signer.token.reveal()
    names = ";".join(sorted(given))
    lines = "".join(f"{name}:{given[name]}\n" for name in sorted(given))
    query = "&".join(sorted(parts.query.split("&"))) if parts.query else ""
    canonical = "\n".join((method, path, query, lines, names, digest))
    scope = f"{moment[:8]}/{signer.region}/{signer.service}/aws4_request"
    text = "\n".join(("AWS4-HMAC-SHA256", moment, scope, hashlib.sha256(canonical.encode()).hexdigest()))
    key = f"AWS4{signer.secret.reveal()}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    signature = hmac.digest(key, text.encode(), "sha256").hex()
    credential = f"{signer.key.reveal()}/{scope}"
    given["authorization"] = f"AWS4-HMAC-SHA256 Credential={credential},SignedHeaders={names},Signature={signature}"
    return given
