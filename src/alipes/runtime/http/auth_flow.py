"""Runs the authentication flow of a library (an `httpx2.Auth`) with clients of ours, outside of its connections."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping
from functools import lru_cache
from typing import TypeAlias

import httpx2

from alipes.runtime.http.clients import HttpClient
from alipes.runtime.http.messages import HttpResponse
from alipes.runtime.http.public_fetch import is_public
from alipes.runtime.http.sockets import MayConnect

AuthRequest: TypeAlias = httpx2.Request
AuthResponse: TypeAlias = httpx2.Response
AuthFlow: TypeAlias = AsyncGenerator[AuthRequest, AuthResponse]
"""Yields requests and is sent their responses; the last request is the one to be authenticated."""


class AuthFlowError(Exception):
    """A request of the flow could not be sent."""


@lru_cache(maxsize=256)
def permit_host(url: str) -> MayConnect:
    """The host of `url` may be private, because the operator named it; others, such as login servers, may not.

    Cached, because a scope has one client for each function that it is given.
    """
    host = httpx2.URL(url).host.lower().strip("[]")

    def permits(name: str, _port: int, address: str) -> bool:
        return name.lower().strip("[]") == host or is_public(address)

    return permits


def make_post(url: str, content: object, headers: Mapping[str, str]) -> AuthRequest:
    """A request with JSON."""
    return httpx2.Request("POST", url, json=content, headers=dict(headers))


def make_form(url: str, fields: Mapping[str, str]) -> AuthRequest:
    """A request with the fields of a form."""
    return httpx2.Request("POST", url, data=dict(fields))


async def send_request(http: HttpClient, request: AuthRequest, timeout_s: float) -> AuthResponse:
    """Send a request that a library has prepared and read the response. Raises `AuthFlowError`."""
    headers, content = dict(request.headers), await request.aread()
    try:
        response = await http.request(
            request.method, str(request.url), headers=headers, content=content, timeout=timeout_s
        )
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise AuthFlowError(str(error) or type(error).__name__) from error
    return _make_httpx_response(response, request)


def _make_httpx_response(response: HttpResponse, request: AuthRequest) -> AuthResponse:
    """What was read of a response, for a library."""
    headers = [
        each for each in response.head.headers if each[0].lower() not in (b"content-encoding", b"content-length")
    ]
    return httpx2.Response(response.status_code, headers=headers, content=response.content, request=request)


async def run_auth_flow(
    flow: AuthFlow, http: HttpClient, message: AuthRequest, *, check: Callable[[str], None], timeout_s: float
) -> None:
    """Send all requests of the flow of `message`. The response to `message` itself is not read, because it may be an
    endless stream. `check(url)` is called before each request and may raise. Raises `AuthFlowError` too."""
    outgoing: AuthRequest | None = await anext(flow)
    try:
        while outgoing is not None:
            check(str(outgoing.url))
            outgoing = await _take_step(flow, http, outgoing, timeout_s if outgoing is not message else None)
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise AuthFlowError(str(error) or type(error).__name__) from error
    finally:
        await flow.aclose()


async def _take_step(
    flow: AuthFlow, http: HttpClient, request: AuthRequest, read_for_s: float | None
) -> AuthRequest | None:
    """Send a request; returns the next one, or None after the last. `read_for_s`: seconds to read the response."""
    sent = http.stream(request.method, str(request.url), headers=dict(request.headers), content=await request.aread())
    async with sent as response:
        if read_for_s is not None:
            async with asyncio.timeout(read_for_s):
                await response.aread()
        try:
            return await flow.asend(_make_httpx_response(response, request))
        except StopAsyncIteration:
            return None
