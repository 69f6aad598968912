"""Every shell line of docs/api.md is run as it stands, against a real `alipes serve`."""

import asyncio
import re
import sys

import pytest

from tests.e2e.program import ROOT, Home, finished
from tests.e2e.service import serving, settle
from tests.world.environment import require
from tests.world.model_replies import Say
from tests.world.model_server import ModelServer

PAGE = (ROOT / "docs" / "api.md").read_text()
LINES = "\n".join(re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S))


@pytest.mark.deadline(90)
async def test_every_line_does_what_it_says(tmp_path):
    for program in ("curl", "jq", "openssl"):
        require(program)
    home = Home(tmp_path / "home")
    async with ModelServer(lambda _body: Say("It is a fine day.")) as model:
        settle(home, model)
        async with serving(home) as served:
            lines = LINES.replace("http://127.0.0.1:8742", served.address)
            head = f'set -euo pipefail\nalipes() {{ "{sys.executable}" -m alipes "$@"; }}\n'
            process = await asyncio.create_subprocess_exec(
                *("bash", "-c", head + lines),
                env=home.environ(),
                cwd=tmp_path,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            done = await finished(process)
            assert done.status == 0, done.out + done.err
            paths = (await served.get("/openapi.json")).json()["paths"]
            told = re.findall(r"`(GET|POST|DELETE) (/v1/[^`]+)`", PAGE)
            assert [each for each in told if each[0].lower() not in paths.get(each[1], {})] == []
    assert '"name":"operator"' in done.out
    assert "event: turn_ended" in done.out and "answered\nIt is a fine day." in done.out
    assert "user\nassistant" in done.out
    assert done.out.count('"status":"accepted"') == 2, "one by the command, one signed by hand"
    assert "404\nno_run\n" in done.out
