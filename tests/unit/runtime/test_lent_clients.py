"""Clients lent to libraries: the named host may be private, others may not; errors are noted."""

import pytest

from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.errors import ForbiddenAddress
from alipes.runtime.http.lent_clients import HttpError, open_lent_client
from tests.world.mcp_http import open_mcp_http


async def test_other_hosts_than_the_named_one_must_be_public():
    async with open_mcp_http() as server, ClientScope() as scope:
        async with open_lent_client(scope, "x", server.url, headers={"X-Team": "blue"}) as lent:
            assert (await lent.client.get(server.url)).status_code == 405
            assert lent.last_status == 405
            with pytest.raises(ForbiddenAddress):
                await lent.client.get(f"http://localhost:{server.port}/mcp")
    assert [headers["x-team"] for _, headers, _ in server.requests] == ["blue"]


async def test_a_lent_client_is_closed_with_its_block():
    async with open_mcp_http() as server, ClientScope() as scope:
        async with open_lent_client(scope, "x", server.url, headers={}) as lent:
            await lent.client.get(server.url)
            assert len(scope.open_clients()) == 1
        assert scope.open_clients() == ()
        assert lent.client.is_closed


async def test_an_unreachable_host_is_an_http_error():
    async with open_mcp_http() as server:
        url = server.url
    async with ClientScope() as scope, open_lent_client(scope, "x", url, headers={}) as lent:
        with pytest.raises(HttpError):
            await lent.client.get(url)


@pytest.mark.parametrize(("error", "after"), [(401, 0), (403, 0), (405, 405), (502, 502)])
async def test_only_a_refusal_is_forgotten_after_an_accepted_request(error, after):
    answers = [error, 202]

    async def answer(verb, headers, message):
        return answers.pop(0), {}, b""

    async with open_mcp_http() as server, ClientScope() as scope:
        server.override = answer
        async with open_lent_client(scope, "x", server.url, headers={}) as lent:
            await lent.client.post(server.url)
            assert lent.last_status == error
            await lent.client.post(server.url)
            assert lent.last_status == after
