"""A process that the agent started cannot act as a person over HTTP, whatever key it found."""

import os
import sys
from pathlib import Path

import pytest

from alipes.features.webhooks.store import Webhook
from alipes.runtime.processes.child import open_child
from alipes.web.auth import OPERATOR, Authenticator, RequestLimits
from alipes.web.endpoint import ApiEndpoint
from alipes.web.router import ApiRouter
from alipes.web.server import HostPolicy, bind_socket, open_server, server_url
from tests.unit.features.webhooks.test_routes import open_way
from tests.unit.web.test_server import Room, find
from tests.unit.web.test_web import Parts

KEY = "k" * 40
POST = """
import sys, urllib.error, urllib.request
url, key = sys.argv[1:]
request = urllib.request.Request(url, data=b"", method="POST", headers={"authorization": f"Bearer {key}"})
try:
    print(urllib.request.urlopen(request).status)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""


async def post_as_child(path: str, key: str, run: Path) -> tuple[str, Room]:
    """What a child of this process, which also serves, is answered."""
    room, keys = Room(), Authenticator(KEY, find, run=run)
    endpoints = [
        ApiEndpoint(method="POST", path=f"/v1/runs/{{id}}/{name}", scope="run", handle=room.tell, summary="s")
        for name in ("approval", "stop")
    ]
    door = bind_socket("127.0.0.1", 0)
    app = Parts().service().app(HostPolicy(), keys, ApiRouter(endpoints, keys, RequestLimits()))
    said = b""
    async with open_server(app, door):
        command = [sys.executable, "-c", POST, server_url(door) + path, key]
        async with open_child(command, cwd="/", env={"PATH": os.defpath}) as child:
            while piece := await child.read():
                said += piece
    return said.decode(), room


@pytest.mark.parametrize("path", ["/v1/runs/1/approval", "/v1/runs/1/stop"])
async def test_a_child_with_the_key_of_the_operator_is_refused(tmp_path, path):
    said, room = await post_as_child(path, KEY, tmp_path)
    assert said.startswith("403") and "was started by alipes" in said and room.calls == []


async def test_a_child_with_a_key_of_its_own_cannot_approve(tmp_path):
    said, room = await post_as_child("/v1/runs/1/approval", "key-runner", tmp_path)
    assert said.startswith("403") and "may not act as a person" in said and room.calls == []


async def test_a_child_with_a_key_of_its_own_can_do_the_rest(tmp_path):
    said, room = await post_as_child("/v1/runs/1/stop", "key-runner", tmp_path)
    assert said == "200\n" and [call.caller.name for call in room.calls] == ["runner"] != [OPERATOR]


@pytest.mark.parametrize("text", ["/approve", "/approve always all", "/restart"])
async def test_a_webhook_cannot_give_commands(tmp_path, text):
    hook = Webhook("ci", "{body.text}", target="telegram", tools=())
    async with open_way(tmp_path, hook, answer="The model answered.") as way:
        await way.bring("ci", f'{{"text": "{text}"}}'.encode())
        await way.house.sessions.wait_idle()
        (sent,) = await way.house.store.outbox.list_deliveries()
        assert sent.outbound.text == "The model answered."
