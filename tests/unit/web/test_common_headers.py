"""Headers of all answers over real sockets: request ids, no guessing of content types; TCP_NODELAY; Host headers."""

import asyncio
import logging
import os
import re
import socket

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from alipes.runtime.log_file import open_log
from alipes.web.auth import Authenticator
from alipes.web.endpoint import HttpProblem, problem_response
from alipes.web.server import HostPolicy, bind_socket, open_server, server_url
from tests.unit.web.test_server import Room, serving
from tests.unit.web.test_web import Parts


def accepted_socket(client: socket.socket) -> socket.socket:
    """The server's end of a connection within this process."""
    for name in os.listdir("/proc/self/fd"):
        try:
            if not os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                continue
            found = socket.socket(fileno=os.dup(int(name)))
        except OSError:  # closed meanwhile
            continue
        try:
            if found.getpeername() == client.getsockname() and found.getsockname() == client.getpeername():
                return found
        except OSError:
            pass
        found.close()
    raise AssertionError("the server has no such connection")


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs /proc to find the accepted socket")
async def test_answers_on_a_kept_connection_are_sent_without_delay():
    with bind_socket("127.0.0.1", 0) as door:
        async with open_server(Parts().service().app(HostPolicy(), Authenticator("")), door):
            reader, writer = await asyncio.open_connection(*door.getsockname())
            writer.write(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            await reader.readuntil(b"alive")
            with accepted_socket(writer.get_extra_info("socket")) as accepted:
                assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            writer.close()
            await writer.wait_closed()


@pytest.mark.parametrize(
    ("path", "status"), [("/health", 200), ("/ready", 200), ("/metrics", 200), ("/none", 404), ("/v1/things", 200)]
)
async def test_no_answer_lets_a_browser_guess_its_content_type(path, status):
    async with serving(Room()) as client:
        answer = await client.get(path)
        assert (answer.status_code, answer.headers["x-content-type-options"]) == (status, "nosniff")


async def test_errors_of_every_layer_forbid_guessing_too():
    room = Room()
    room.raises = RuntimeError("broken")
    async with serving(room) as client:
        answers = [
            await client.get("/v1/things"),
            await client.get("/v1/things", headers={"authorization": ""}),
            await client.get("/v1/things", headers={"host": "rebound.example"}),
            await client.get("/v1/things", headers={"host": "[::1"}),
            await client.post("/v1/things", content=b"{"),
            await client.request("DELETE", "/v1/things"),
        ]
        assert [each.status_code for each in answers] == [500, 401, 421, 400, 415, 405]
        assert {each.headers.get("x-content-type-options") for each in answers} == {"nosniff"}


async def test_what_is_not_http_is_answered_with_the_same_header():
    with bind_socket("127.0.0.1", 0) as door:
        async with open_server(Parts().service().app(HostPolicy(), Authenticator("")), door):
            reader, writer = await asyncio.open_connection(*door.getsockname())
            writer.write(b"HELLO\r\n\r\n")
            answer = await reader.read()
            assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n") and b"x-content-type-options: nosniff" in answer
            writer.close()


@pytest.mark.parametrize("host", ["[::1", "[::1]x", "::1", "localhost:x", "a:b:c", "[localhost]"])
async def test_a_malformed_host_is_refused(host):
    async with serving(Room()) as client:
        answer = await client.get("/health", headers={"host": host})
        assert (answer.status_code, answer.json()["code"]) == (400, "host")


@pytest.mark.parametrize("host", ["[::1]", "[::1]:8742", "localhost", "127.0.0.1:1"])
async def test_a_valid_host_of_this_machine_is_served(host):
    async with serving(Room()) as client:
        assert (await client.get("/health", headers={"host": host})).status_code == 200


async def test_a_request_keeps_the_id_that_it_came_with():
    async with serving(Room()) as client:
        answer = await client.get("/v1/things", headers={"x-request-id": "trace-7.a:b"})
        assert answer.headers["x-request-id"] == "trace-7.a:b"


@pytest.mark.parametrize("given", ["", "a b", "<x>", "é".encode(), "x" * 129, "-x"])
async def test_a_request_without_a_valid_id_gets_a_new_one(given):
    async with serving(Room()) as client:
        seen = {(await client.get("/health", headers={"x-request-id": given})).headers["x-request-id"] for _ in "ab"}
        assert len(seen) == 2 and all(re.fullmatch("req_[0-9a-f]{24}", each) for each in seen)


async def test_a_problem_names_its_request():
    async with serving(Room()) as client:
        answer = await client.get("/v1/none", headers={"x-request-id": "trace-8"})
        assert (answer.status_code, answer.json()["request_id"]) == (404, "trace-8")


async def test_the_log_names_the_request_of_a_failure(tmp_path):
    room = Room()
    room.raises = RuntimeError("broken")
    with open_log(tmp_path / "log"):
        async with serving(room) as client:
            await client.get("/v1/things", headers={"x-request-id": "trace-9"})
    lines = (tmp_path / "log").read_text().splitlines()
    assert any('"request":"trace-9"' in line and "status 500" in line for line in lines)


async def test_texts_for_people_show_no_object_addresses(tmp_path):
    async def fail(_request: Request) -> PlainTextResponse:
        logging.getLogger("alipes").warning("cannot use %r", object())
        return problem_response(HttpProblem(400, f"cannot use {object()!r}"))

    with open_log(tmp_path / "log"), bind_socket("127.0.0.1", 0) as door:
        app = Parts().service().app(HostPolicy(), Authenticator(""), None, [Route("/fail", fail)])
        async with open_server(app, door):
            async with httpx2.AsyncClient(base_url=server_url(door), trust_env=False) as client:
                assert (await client.get("/fail")).json()["detail"] == "cannot use <object object>"
    assert "cannot use <object object>" in (tmp_path / "log").read_text()
