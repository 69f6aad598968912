"""The beginning of a plugin: a folder with a tool, a hook, a command, and tests that pass."""

import re
from pathlib import Path

from alipes.kernel.errors import ConfigError

_NAME = r"[a-z][a-z0-9_-]{0,30}"

_NATIVE = '''\
"""__NAME__: counts words, and how turns ended. Replace all of it but the shape."""

from collections import Counter

from msgspec import Struct

from alipes.plugin import Context, Inbound, tool


class Config(Struct, kw_only=True, frozen=True):
    """`[plugins.entries.__NAME__]` of config.toml; a wrong value is told with its line."""

    title: str = "Turns so far"


@tool(effect="read")
async def __SLUG___count(text: str) -> str:
    """Count the words of a text."""
    # The model reads the sentence above. When the turn is stopped, this is cancelled where it awaits.
    return f"{len(text.split())} words"


async def setup(ctx: Context) -> None:
    """Called once. What is entered into `ctx.stack` or begun with `ctx.run` ends with the plugin."""
    endings: Counter[str] = Counter()

    async def turn_ended(ending: str) -> None:
        """A hook: its name says when it is called, its parameters what it wants to know."""
        endings[ending] += 1

    async def show(args: str, inbound: Inbound) -> str:
        told = ", ".join(f"{count} {ending}" for ending, count in endings.items())
        return f"{ctx.config.title}: {told or 'none'}"

    ctx.hook(turn_ended)
    ctx.command("__NAME__", show, help="how turns ended so far")
'''
_MANIFEST = """\
name = "__NAME__"
version = "0.1.0"
description = "Counts words, and how turns ended."
author = ""
requires_env = []   # variables it cannot do without
"""
_HERMES = '''\
"""__NAME__: counts words, and how turns ended. Replace all of it but the shape."""

from collections import Counter

COUNT = {
    "name": "__SLUG___count",
    "description": "Count the words of a text.",
    "parameters": {
        "type": "object",
        "properties": {"text": {"type": "string"}},
        "required": ["text"],
    },
}


def count(args, **kwargs):
    return f"{len(args['text'].split())} words"


def register(ctx):
    endings = Counter()

    def on_session_end(completed=False, interrupted=False, **kwargs):
        endings["stopped" if interrupted else "answered" if completed else "failed"] += 1

    def show(raw_args):
        told = ", ".join(f"{count} {ending}" for ending, count in endings.items())
        return f"Turns so far: {told or 'none'}"

    ctx.register_tool(name="__SLUG___count", toolset="__NAME__", schema=COUNT, handler=count)
    ctx.register_hook("on_session_end", on_session_end)
    ctx.register_command("__NAME__", show, description="how turns ended so far")
'''
_YAML = """\
name: __NAME__
version: 0.1.0
description: Counts words, and how turns ended.
author: ""
requires_env: []   # variables it cannot do without
provides_tools: [__SLUG___count]
provides_hooks: [on_session_end]
"""
_TESTS = '''\
"""What __NAME__ promises. Every test has a whole agent with a scripted model, and needs no network."""

from pathlib import Path

from alipes.testing import call, stall

PLUGIN = Path(__file__).parents[1]


async def test_the_model_can_count_words(alipes):
    script = [call("__SLUG___count", text="one two"), "There are two."]
    async with alipes(plugins=[PLUGIN], model=script) as agent:
        reply = await agent.say("how many?")
    assert reply.result("__SLUG___count").text == "2 words"
    assert reply.text == "There are two."


async def test_the_command_tells_how_turns_ended(alipes):
    async with alipes(plugins=[PLUGIN], model=["Hello.", stall()]) as agent:
        await agent.say("hello")
        await agent.start("tell me everything")
        await agent.stop()
        told = await agent.command("/__NAME__")
    assert "1 answered" in told.text and "1 stopped" in told.text


async def test_nothing_is_left_open(alipes, leaks):
    async with alipes(plugins=[PLUGIN], model=["Hello."]) as agent:
        await agent.say("hello")
'''
_PYTEST = """\
[pytest]
addopts = -p alipes.testing.pytest_plugin
testpaths = tests
"""
_README = """\
# __NAME__

Counts words, and how turns ended.

- tool `__SLUG___count`: the model counts words with it
- command `/__NAME__`: how turns ended so far

```sh
python -m pytest                  # its tests; pip install pytest, once
alipes plugins install .          # shows what it can do, asks, and enables it
alipes plugins doctor __NAME__
```

While you work on it, link the folder into `plugins/` of your alipes home instead of installing it:
`/plugins reload __NAME__` then loads your changes into an alipes that runs.
"""


def scaffold(name: str, parent: Path, *, hermes: bool = False) -> list[Path]:
    """Begin the plugin `name` in a new folder of `parent`; the files made. Raises ConfigError."""
    if not re.fullmatch(_NAME, name):
        raise ConfigError(
            f"{name!r} cannot be the name of a new plugin: it is a command's too, so use small letters, "
            "digits, - and _, beginning with a letter."
        )
    folder = parent / name
    code, (manifest, about) = (
        (_HERMES, ("plugin.yaml", _YAML)) if hermes else (_NATIVE, ("plugin.toml", _MANIFEST))
    )
    texts = {
        "__init__.py": code,
        manifest: about,
        "README.md": _README,
        "pytest.ini": _PYTEST,
        f"tests/test_{_slug(name)}.py": _TESTS,
    }
    try:
        folder.mkdir()
        (folder / "tests").mkdir()
        for file, text in texts.items():
            (folder / file).write_text(text.replace("__NAME__", name).replace("__SLUG__", _slug(name)))
    except FileExistsError:
        raise ConfigError(f"{folder} is there already: choose another name, or another folder.") from None
    except OSError as error:
        raise ConfigError(f"{folder} cannot be written: {error.strerror}.") from error
    return [folder / file for file in texts]


def _slug(name: str) -> str:
    return name.replace("-", "_")
