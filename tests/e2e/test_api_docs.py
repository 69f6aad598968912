"""Runs every shell line of docs/api.md against a real `alipes serve`."""

import asyncio
import re
import sys

import pytest

from tests.e2e.program import ROOT, Home, wait_finished
from tests.e2e.service import open_serve, write_settings
from tests.world.environment import program_path, require
from tests.world.model_replies import Say
from tests.world.model_server import ModelServer

PAGE = (ROOT / "docs" / "api.md").read_text()
PROGRAMS = ("curl", "jq", "openssl")
PATH = program_path(*PROGRAMS)
LINES = "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S))


@pytest.mark.deadline(90)
async def test_every_shell_line_of_the_api_docs_works(tmp_path):
    for program in PROGRAMS:
        require(program)
    home = Home(tmp_path / "home")
    async with ModelServer(lambda _body: Say("It is a fine day.")) as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            lines = LINES.replace("http://127.0.0.1:8742", served.address)
            head = f'set -euo pipefail\nalipes() {{ "{sys.executable}" -m alipes "$@"; }}\n'
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", head + lines),
                env=home.environ(PATH=PATH),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            done = await wait_finished(process)
            assert done.status == 0, done.out + done.err
            paths = (await served.get("/openapi.json")).json()["paths"]
            routes = re.findall(r"`(GET|POST|DELETE) (/v1/[^`]+)`", PAGE)
            assert [each for each in routes if each[0].lower() not in paths.get(each[1], {})] == []
    assert '"name":"operator"' in done.out
    assert "event: turn_ended" in done.out and "answered\nIt is a fine day." in done.out
    assert "user\nassistant" in done.out
    assert done.out.count('"status":"accepted"') == 3, "one by the command, one signed by hand, one for a job"
    assert "404\nno_run\n" in done.out
