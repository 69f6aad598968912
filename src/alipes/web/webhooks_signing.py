"""Who wrote what a webhook brings? Signatures, made and checked in constant time. It reads no body.

`standard` signs id, time and body (Standard Webhooks: `webhook-id`, `webhook-timestamp`,
`webhook-signature`); `github` signs the body alone (`x-hub-signature-256`): there neither time nor id can be
trusted, so that the same body is the same delivery.
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from collections.abc import Mapping

from alipes.kernel.endpoints import Secret
from alipes.store.webhooks import Style
from alipes.web.endpoints import Problem

WINDOW = 300.0
"""Seconds that a signed time may be off, either way."""
LONGEST = 200
"""Characters of an id."""
_PREFIX = "whsec_"


def make_secret(style: Style) -> str:
    if style == "github":
        return secrets.token_hex(32)
    return _PREFIX + base64.b64encode(secrets.token_bytes(32)).decode()


def is_secret(style: Style, secret: str) -> bool:
    """Can it be one of this style, and is it long enough?"""
    return len(secret) >= 16 if style == "github" else len(_key(secret) or b"") >= 16


def delivery(style: Style, secret: Secret, headers: Mapping[str, str], body: bytes, *, now: float) -> str:
    """The id of what was brought, as far as it can be trusted; `Problem` where who has the secret did not."""
    return (_github if style == "github" else _standard)(secret, headers, body, now)


def signed(style: Style, secret: Secret, id: str, body: bytes, *, now: float) -> dict[str, str]:
    """The headers that go with `body`."""
    if style == "github":
        return {"x-hub-signature-256": _github_signature(secret, body), "x-github-delivery": id}
    at = str(int(now))
    return {
        "webhook-id": id,
        "webhook-timestamp": at,
        "webhook-signature": _standard_signature(secret, id, at, body),
    }


def _standard(secret: Secret, headers: Mapping[str, str], body: bytes, now: float) -> str:
    id, at = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "")
    shown = headers.get("webhook-signature", "")
    if not (id and at and shown) or len(id) > LONGEST:
        raise _unsigned("sign it: webhook-id, webhook-timestamp and webhook-signature are needed")
    ours = _standard_signature(secret, id, at, body).encode()
    # All are compared, so that the time it takes does not tell which was near.
    matches = [hmac.compare_digest(each.encode(), ours) for each in shown.split(" ")[:10]]
    if not any(matches):
        raise _unsigned("the signature is not by who has the secret, or not of what arrived")
    if not at.isdecimal() or abs(now - int(at[:15])) > WINDOW:
        raise _unsigned(f"it was signed at another time: more than {WINDOW:g} s from now")
    return id


def _github(secret: Secret, headers: Mapping[str, str], body: bytes, _now: float) -> str:
    shown = headers.get("x-hub-signature-256", "")
    if not shown:
        raise _unsigned("sign it: x-hub-signature-256 is needed")
    if not hmac.compare_digest(shown.encode(), _github_signature(secret, body).encode()):
        raise _unsigned("the signature is not by who has the secret, or not of what arrived")
    return hashlib.sha256(body).hexdigest()


def _standard_signature(secret: Secret, id: str, at: str, body: bytes) -> str:
    key = _key(secret.reveal()) or b""
    content = f"{id}.{at}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(key, content, "sha256")).decode()


def _github_signature(secret: Secret, body: bytes) -> str:
    return "sha256=" + hmac.digest(secret.reveal().encode(), body, "sha256").hex()


def _key(secret: str) -> bytes | None:
    try:
        return base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except (binascii.Error, ValueError):
        return None


def _unsigned(why: str) -> Problem:
    return Problem(401, why, code="signature")
