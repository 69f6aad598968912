"""Runs schemathesis with all checks against the API's OpenAPI document."""

import asyncio
import os
import re
import sys
from pathlib import Path

import pytest

from tests.e2e.program import Home
from tests.e2e.service import open_serve, write_settings
from tests.world.model_replies import Say
from tests.world.model_server import ModelServer

CASES = int(os.environ.get("ALIPES_FUZZ", "0"))
"""Minimum number of examples in the long pass; otherwise a few seconds' worth."""
CONFIG = """
# What messages say to one another no schema can tell: that the last is a user's, that a result has its call.
[[operations]]
include-path-regex = "^/v1/(chat/completions|responses)$"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 429]

# Times, settings, notes and codes have rules that no schema can tell.
[[operations]]
include-path-regex = "^/v1/(schedules|settings|memory|people|log)"
checks.positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422, 429]

# The server would be restarted; the checks take seconds; the stream of the log does not end.
[[operations]]
include-path-regex = "^/v1/(server/restart|doctor|log/stream)$"
enabled = false

# What no schema can tell: only one of three parameters, names of time zones, days of the calendar; 134.0 is no integer.
[[operations]]
include-path-regex = "^/v1/(sessions/[^/]+/(messages|fork)|usage)$"
checks.positive_data_acceptance.expected-statuses = ["2xx", 401, 403, 404, 409, 422, 429]

# `//` and `/tmp is full` are messages.
[[operations]]
include-path = "/v1/sessions/{id}/commands"
checks.positive_data_acceptance.expected-statuses = ["2xx", 400, 401, 403, 404, 409, 429]

# A stream that ends only when the client leaves.
[[operations]]
include-path = "/v1/events"
enabled = false

[checks.positive_data_acceptance]
expected-statuses = ["2xx", 401, 403, 404, 409, 429]
"""


@pytest.mark.deadline(1800 if CASES else 600)
async def test_the_api_conforms_to_its_openapi_document(tmp_path):
    home = Home(tmp_path / "home")
    (tmp_path / "schemathesis.toml").write_text(CONFIG)
    async with ModelServer(lambda _body: Say("noted")) as model:
        write_settings(home, model, **{"api.rate": 0})
        async with open_serve(home) as served:
            key = (await home.run("serve", "key")).out.strip()
            status, said = await tried(tmp_path, f"{served.address}/openapi.json", key)
            assert status == 0, said
            assert "not_a_server_error" not in said
            found = re.search(r"(\d+) generated", said)
            assert found and int(found[1]) >= (CASES or 100), said
            assert (await served.get("/ready")).status_code == 200
            assert await served.left() == 0
        assert b"Traceback" not in (home.path / "logs" / "alipes.log").read_bytes()


async def tried(folder: Path, document: str, key: str) -> tuple[int, str]:
    """Exit status and output of a schemathesis run."""
    effort = ["--max-examples", "30"] if CASES else ["--phases", "fuzzing", "--max-examples", "3", "--seed", "7"]
    process = await asyncio.create_subprocess_exec(
        str(Path(sys.executable).parent / "schemathesis"),
        *("run", document, "--header", f"Authorization: Bearer {key}", "--checks", "all"),
        *("--request-timeout", "30", "--no-color", "--generation-database", "none", *effort),
        env={name: os.environ[name] for name in ("PATH", "LANG") if name in os.environ},
        cwd=folder,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()
