"""Programs that want data: openai's parse helpers, instructor and pydantic-ai, unchanged, with forty schemas."""

import asyncio
from contextlib import asynccontextmanager

import msgspec
import pytest

from tests.clients import find_python
from tests.clients.schema_shapes import SHAPES
from tests.e2e.program import ROOT, Home
from tests.e2e.service import open_serve, write_settings
from tests.world.environment import environment
from tests.world.model_server import Call, Calls, ModelServer, Say

pytestmark = pytest.mark.deadline(240)
KEY = "an-operators-key-that-is-long-enough"
FAMILIES = (
    *("openai chat", "openai chat stream", "openai responses", "openai responses stream"),
    *("instructor", "instructor tools", "pydantic-ai", "pydantic-ai tools"),
)


def answer(body):
    """What the scripted model says to `NUMBER MODE`, the text of a case."""
    texts = [text_of(message["content"]) for message in body["messages"] if message["role"] == "user"]
    number, mode = texts[0].splitlines()[0].split(" ", 1)
    _, good, bad = SHAPES[int(number)]
    good, bad = (msgspec.json.encode(each).decode() for each in (good, bad))
    corrected = len(body["messages"]) > 2
    if mode.startswith("tool"):
        names = [tool["function"]["name"] for tool in body.get("tools", ())]
        name = next(name for name in names if name in ("Answer", "final_result") or name[:1].isupper())
        wrong = mode == "tool corrected" and not corrected
        return Calls((Call(name, msgspec.json.decode(bad if wrong else good)),))
    if mode == "well":
        return Say((good, f"```json\n{good}\n```", f"Here it is: {good}")[int(number) % 3])
    if mode == "corrected" and corrected:
        return Say(good)
    return Say((bad, good[:-1], "I am sorry, but no.")[int(number) % 3])


def text_of(content):
    return content if isinstance(content, str) else "".join(part.get("text", "") for part in content)


@asynccontextmanager
async def served(tmp_path):
    home = Home(tmp_path / "home")
    async with ModelServer(answer) as model:
        write_settings(home, model)
        async with open_serve(home, ALIPES_API_KEY=KEY) as service:
            yield f"{service.address}/v1"


async def outcomes(family, url):
    """By number and mode, what a client of this family got: empty if it is the right value."""
    argv = (find_python(family), "tests/clients/schema_clients.py", family, url, KEY)
    process = await asyncio.create_subprocess_exec(*argv, cwd=ROOT, env=environment(ROOT), stdout=-1, stderr=-1)
    out, errors = await process.communicate()
    assert process.returncode == 0, errors.decode()
    found = [msgspec.json.decode(line) for line in out.splitlines()]
    return {(each["number"], each["mode"]): each["outcome"] for each in found}


@pytest.mark.parametrize("family", FAMILIES)
async def test_forty_schemas(tmp_path, family):
    async with served(tmp_path) as url:
        found = await outcomes(family, url)
    if family.endswith("tools"):  # the client checks what its tool is called with, and asks again
        assert {each for each in found.items() if each[1]} == set()
        assert len(found) >= len(SHAPES)
        return
    assert len(found) == 3 * len(SHAPES)
    assert {case: said for case, said in found.items() if case[1] != "never" and said} == {}
    for number in range(len(SHAPES)):
        assert "The model gave up: the answer does not match its schema at $" in found[number, "never"]
