"""Runs every shell line of docs/api.md and docs/admin-api.md against a real `alipes serve`."""

import asyncio
import re
import sys
from pathlib import Path

import pytest

from tests.e2e.program import ROOT, Home, wait_finished
from tests.e2e.service import open_serve, write_settings
from tests.world.environment import program_path, require
from tests.world.model_replies import Say
from tests.world.model_server import ModelServer

PROGRAMS = ("curl", "jq", "openssl")
PATH = program_path(*PROGRAMS)


def list_lines(name: str) -> list[str]:
    """The blocks of shell lines on a page."""
    return re.findall(r"^```sh\n(.*?)^```$", (ROOT / "docs" / name).read_text(), re.M | re.S)


async def run_page(tmp_path: Path, name: str) -> str:
    """Run the shell lines of a page; returns their output. Every route in it must exist."""
    for program in PROGRAMS:
        require(program)
    page = (ROOT / "docs" / name).read_text()
    home = Home(tmp_path / "home")
    async with ModelServer(lambda _body: Say("It is a fine day.")) as model:
        write_settings(home, model)
        async with open_serve(home) as served:
            lines = "\n".join(list_lines(name)).replace("http://127.0.0.1:8742", served.address)
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
            routes = re.findall(r"`(GET|POST|PATCH|DELETE) (/v1/[^`]+)`", page)
            assert [each for each in routes if each[0].lower() not in paths.get(each[1], {})] == []
    return done.out


@pytest.mark.deadline(90)
async def test_every_shell_line_of_the_api_docs_works(tmp_path):
    out = await run_page(tmp_path, "api.md")
    assert '"name":"operator"' in out
    assert "event: turn_ended" in out and "answered\nIt is a fine day." in out
    assert "user\nassistant" in out
    assert out.count('"status":"accepted"') == 3, "one by the command, one signed by hand, one for a job"
    assert "404\nno_run\n" in out


@pytest.mark.deadline(90)
async def test_every_shell_line_of_the_administration_docs_works(tmp_path):
    out = (await run_page(tmp_path, "admin-api.md")).splitlines()
    assert "at 09:00, Monday to Friday" in out and "paused" in out
    assert "terminal.busy" in out and "DEMO_KEY" in out and "not-a-real-one" not in str(out)
    assert "prefers short answers" in out and "ok database" in out
    assert any(line.startswith("telegram: Not set up") for line in out)
