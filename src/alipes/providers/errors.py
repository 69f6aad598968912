"""Translates provider and network errors into ours; the only place that knows vendors' error texts."""

import re
import time
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec
from msgspec import Struct

from alipes.config.known_providers import CLOUD_TITLES
from alipes.kernel.errors import ContextTooLong, NotAuthorised, OutOfCredit, ProviderError, Refused, Transient
from alipes.kernel.models import Endpoint
from alipes.runtime.http.lazy_httpx import httpx2

_CREDIT = (
    r"insufficient_quota|billing|spend_limit|spending limit|credit balance|out of credits|payment.required"
    r"|insufficient (?:credits|balance|funds)|exceeded your current quota"
)
_TOO_LONG = (
    r"context_length|context.size|context window|context limit|maximum context|greater than the context"
    r"|prompt is too long|input is too long|request_too_large|string_above_max_length|reduce the length"
    r"|too many (?:input )?tokens|(?:input|prompt) (?:tokens? )?exceeds?|maximum prompt length"
    r"|input token count"
)
_POLICY = (
    r"content_policy|content_filter|content management policy|invalid_prompt|bio_policy|cyber_policy"
    r"|policy_violation|moderation|flagged|safety system|responsibleaipolicy"
)
_KEY = (
    r"authentication_error|permission_error|(?:invalid|incorrect|wrong).(?:x-)?api.?key|api.key.not.valid"
    r"|unauthori[sz]ed"
)
_PASSING = (
    r"overloaded|rate.?limit|api_error|server_error|internal_error|internal server error|timeout|timed out"
    r"|unavailable|too many requests|try again|resource_exhausted|engine|conflict_error"
)
_UNKNOWN_MODEL = r"model_not_found|not_found|does not exist|no endpoints found"
_LOOKS_SECRET = r"\b(?:sk|gsk|xai|pk|key|AIza)[-_A-Za-z0-9*]{12,}"
_PRIVATE = r"auth|key|token|secret|cookie"
_SPAN = r"(\d+(?:\.\d+)?)(ms|h|m|s)"
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_WAIT_SPAN = r"(\d+(?:\.\d+)?)\s*(ms|milliseconds?|h|hours?|min|minutes?|m|sec|seconds?|s)(?![a-z])"
_WAIT_WORDS = r"(?:try again|retry|wait|available|resets?)\b[^\d.;]{0,20}"
_RATE_LIMIT = r"rate.?limit|too many requests|resource_exhausted"
_PASSING_STATUS = (408, 409, 424, 425, 429)


class ModelTarget(Struct, frozen=True):
    """Endpoint and model of a request, for error messages."""

    endpoint: Endpoint
    model: str = ""

    @property
    def name(self) -> str:
        """`provider/model`."""
        return f"{self.endpoint.name}/{self.model}"

    @property
    def who(self) -> str:
        return self.endpoint.name

    @property
    def where(self) -> str:
        """Host and path of the URL, without credentials."""
        return self.endpoint.base_url.partition("://")[2].rpartition("@")[2] or self.endpoint.name


class VendorError(Struct, frozen=True):
    """An error as the vendor sent it."""

    message: str
    kind: str = ""
    """Its `type` and `code`."""
    status: int = 0
    """0 for an error inside a stream."""
    retry_after: float | None = None


def parse_error(body: object, status: int = 0, retry_after: float | None = None) -> VendorError:
    """Find the error in the JSON or text of a response."""
    if isinstance(body, list) and body:
        body = body[0]
    if isinstance(body, dict):
        inner = body.get("error") or body.get("errors") or body
        if isinstance(inner, list) and inner:
            inner = inner[0]
        if isinstance(inner, dict):
            return _from_object(inner, status, retry_after)
        body = inner
    text = _sentence(body)
    return VendorError(text, "", status, _wait_in_text(text) if retry_after is None else retry_after)


def _from_object(error: dict[str, object], status: int, retry_after: float | None) -> VendorError:
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600 and not status:
        status = code
    words = [error.get("type"), code, error.get("status")]
    said = next((error[name] for name in ("message", "Message", "detail", "msg") if error.get(name)), error)
    message = _sentence(said)
    if isinstance(metadata := error.get("metadata"), dict):
        # Routers wrap the error of the provider behind them.
        if raw := metadata.get("raw"):
            message = f"{message} ({_sentence(raw)})"
        words += [metadata.get("error_type"), "flagged" if metadata.get("flagged_input") else None]
    if retry_after is None and isinstance(details := error.get("details"), list):
        delays = [d.get("retryDelay") for d in details if isinstance(d, dict)]
        retry_after = next((wait for d in delays if isinstance(d, str) and (wait := _parse_duration(d))), None)
    kind = " ".join(str(word) for word in words if word not in (None, "", "error"))
    return VendorError(message, kind, status, _wait_in_text(message) if retry_after is None else retry_after)


def _wait_in_text(message: str) -> float | None:
    """`Please try again in 1m30s`, as seconds; None if no time is named."""
    found = re.search(f"{_WAIT_WORDS}((?:{_WAIT_SPAN}[\\s,]*)+)", message, re.IGNORECASE)
    if found is None:
        return None
    spans = re.findall(_WAIT_SPAN, found[1], re.IGNORECASE)
    return sum(float(number) * _SECONDS["ms" if unit.lower().startswith(("ms", "mil")) else unit[0].lower()]
               for number, unit in spans)  # fmt: skip


def translate_error(place: ModelTarget, fault: VendorError) -> ProviderError:
    """The error that tells the loop what to do, with a message for the user."""
    error = _classify(place, fault)
    error.status, error.retry_after = fault.status or None, fault.retry_after
    if isinstance(error, Transient):
        if fault.status == 429 or (not fault.status and _matches(_RATE_LIMIT, f"{fault.kind} {fault.message}")):
            error.status, error.brief = 429, f"Rate limit of {place.who} reached"
        else:
            problem = f"is unavailable ({fault.status})" if fault.status else "aborted the answer"
            error.brief = f"{place.who} {problem}"
    return error


def _classify(place: ModelTarget, fault: VendorError) -> ProviderError:
    said = mask_secrets(place, fault.message)
    words = f"{fault.kind} {said}"
    number = f" ({fault.status})" if fault.status else ""
    # Some vendors call rate limits a quota; those with a retry time are transient.
    if fault.status == 402 or _matches(_CREDIT, fault.kind if fault.retry_after is not None else words):
        return OutOfCredit(f"{place.who} is out of credit{number}: {said}")
    if fault.status == 413 or (fault.status != 429 and _matches(_TOO_LONG, words)):
        return ContextTooLong(f"the conversation is too long for {place.name}{number}: {said}")
    if _matches(_POLICY, words) and fault.status not in (401, 429):
        return Refused(f"{place.who} declined this (content policy){number}: {said}")
    if fault.status in (401, 403) or (fault.status in (0, 400) and _matches(_KEY, words)):
        if cloud := CLOUD_TITLES.get(place.endpoint.credentials):
            return NotAuthorised(f"{place.who} refused these credentials of {cloud}{number}: {said}")
        source = place.endpoint.key_env or f"the key of provider {place.who!r}"
        problem = f"rejected the key in {source}" if place.endpoint.key else f"needs a key: set {source}"
        return NotAuthorised(f"{place.who} {problem}{number}: {said}")
    if fault.status == 404 or (fault.status in (0, 400) and _matches(_UNKNOWN_MODEL, fault.kind)):
        if _matches("model|deployment", words):
            return ProviderError(f"{place.who} has no model {place.model!r}{number}: {said}")
        return ProviderError(f"{place.who}: no API at {place.where}{number}; check base_url: {said}")
    if fault.status in _PASSING_STATUS or fault.status >= 500:
        return Transient(f"{place.who} is unavailable{number}: {said}", fault.retry_after)
    if not fault.status and (_matches(_PASSING, words) or not fault.kind):
        return Transient(f"{place.who} aborted the answer: {said}", fault.retry_after)
    return ProviderError(f"{place.who} rejected the request{number}: {said}")


def _matches(pattern: str, words: str) -> bool:
    # Compiled on first use: most processes see no error.
    return re.search(pattern, words, re.IGNORECASE) is not None


_CONNECTION = (
    (r"name or service not known|nodename nor servname|no address associated|name resolution|getaddrinfo", "the host "
     "name was not found. Check the address and your network"),
    (r"connection refused|connect call failed|all connection attempts failed", "connection refused"),
    (r"network is unreachable|no route to host|host is unreachable", "the network is unreachable"),
)  # fmt: skip


def explain_connection(said: str) -> str:
    """The reason why no connection was made, without error numbers of the system."""
    for pattern, text in _CONNECTION:
        if re.search(pattern, said, re.IGNORECASE):
            return text
    return re.sub(r"\[Errno -?\d+\] ", "", said)


def explain_proxy(said: str) -> str:
    """What the proxy, whose name is in front, did or did not do."""
    proxy, _, reason = said.partition(": ")
    return f"{proxy}: {explain_connection(reason)}. Check HTTPS_PROXY"


def translate_network_error(place: ModelTarget, error: Exception) -> ProviderError:
    endpoint, where = place.endpoint, place.where
    said = mask_secrets(place, str(error)) or type(error).__name__
    match error:
        case httpx2.ConnectTimeout():
            problem = f"{place.who}: no connection to {where} within {endpoint.connect:g} s"
            return Transient(problem, brief=f"No connection to {place.who}")
        case httpx2.TimeoutException():
            silent = f"{place.who} sent nothing for {endpoint.stall:g} s"
            return Transient(f"{silent}; closed the stream", brief=silent)
        case httpx2.ConnectError() if "certificate" in said.lower():
            return ProviderError(f"{place.who}: the certificate of {where} is not trusted: {said}")
        case httpx2.ConnectError():
            problem = f"{place.who}: no connection to {where}: {explain_connection(said)}"
            return Transient(problem, brief=f"No connection to {place.who}")
        case httpx2.ProxyError():
            return Transient(f"{place.who}: no connection to {where}: {explain_proxy(said)}")
        case httpx2.UnsupportedProtocol() | httpx2.InvalidURL() | httpx2.LocalProtocolError():
            return ProviderError(f"{place.who}: the request to {where} cannot be sent: {said}")
        case _:
            return Transient(f"{place.who}: connection to {where} lost: {said}", brief="Connection lost")


def retry_after_seconds(headers: Mapping[str, str]) -> float | None:
    """Seconds the server asks to wait, from any of the usual headers; None if it does not."""
    if (exact := _number(headers.get("retry-after-ms", ""))) is not None:
        return exact / 1000
    if wish := headers.get("retry-after", "").strip():
        return _number(wish) if _number(wish) is not None else _seconds_until(wish)
    resets = []
    for name, value in headers.items():
        # Only exhausted limits count: the others reset much later.
        stem = name.lower().partition("-reset")[0]
        if "ratelimit" in stem and "-reset" in name.lower():
            left = headers.get(name.lower().replace("-reset", "-remaining"))
            if left is not None and _number(left) == 0 and (span := _parse_duration(value)) is not None:
                resets.append(span)
    return max(resets, default=None)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if 0 <= value < 1e7 else None


def _parse_duration(text: str) -> float | None:
    """`6m0s`, `120ms`, `34`, an RFC 3339 time or epoch milliseconds, as seconds from now."""
    if text.isdecimal():
        return max(0.0, int(text) / 1000 - time.time()) if len(text) >= 13 else float(text)
    if (parts := re.findall(_SPAN, text)) and "".join(number + unit for number, unit in parts) == text:
        return sum(float(number) * _SECONDS[unit] for number, unit in parts)
    return _seconds_until(text)


def _seconds_until(text: str) -> float | None:
    from email.utils import parsedate_to_datetime  # noqa: PLC0415

    try:
        instant = parsedate_to_datetime(text) if text.endswith("GMT") else datetime.fromisoformat(text)
    except (ValueError, OverflowError):
        return None
    instant = instant if instant.tzinfo else instant.replace(tzinfo=UTC)
    return max(0.0, instant.timestamp() - time.time())


def _sentence(value: object) -> str:
    """Any value as one line of limited length."""
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    line = " ".join(text.split())
    return line if len(line) <= 400 else line[:400] + "…"


def mask_secrets(place: ModelTarget, text: str) -> str:
    """Mask keys: vendors often repeat a rejected key."""
    endpoint = place.endpoint
    private = (value for name, value in endpoint.headers.items() if _matches(_PRIVATE, name))
    for secret in (endpoint.key.reveal(), *(word for value in private for word in value.split())):
        if len(secret) >= 6:
            text = text.replace(secret, "***")
    return re.sub(_LOOKS_SECRET, "***", text)
