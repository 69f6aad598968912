"""Creates a plugin: a folder with a tool, a hook, a command and passing tests."""

import re
from pathlib import Path

from alipes.kernel.errors import ConfigError

_NAME = r"[a-z][a-z0-9_-]{0,30}"

_NATIVE = '''\
"""__NAME__: counts words and the endings of turns. Replace everything but the structure."""

from collections import Counter

from msgspec import Struct

from alipes.plugin import Context, Inbound, tool


class Config(Struct, kw_only=True, frozen=True):
    """`[plugins.entries.__NAME__]` of config.toml; a wrong value is reported with its line."""

    title: str = "Turns so far"


@tool(effect="read")
async def __SLUG___count(text: str) -> str:
    """Count the words of a text."""
    # The model reads the docstring. Stopping the turn cancels this at its next await.
    return f"{len(text.split())} words"


async def setup(ctx: Context) -> None:
    """Called once. Contexts in `ctx.stack` and tasks of `ctx.run` end with the plugin."""
    endings: Counter[str] = Counter()

    async def turn_ended(ending: str) -> None:
        """A hook: its name selects the event, its parameters the values it receives."""
        endings[ending] += 1

    async def show(args: str, inbound: Inbound) -> str:
        counts = ", ".join(f"{count} {ending}" for ending, count in endings.items())
        return f"{ctx.config.title}: {counts or 'none'}"

    ctx.hook(turn_ended)
    ctx.command("__NAME__", show, help="endings of the turns so far")
'''
_MANIFEST = """\
name = "__NAME__"
version = "0.1.0"
description = "Counts words and the endings of turns."
author = ""
requires_env = []   # required environment variables
"""
_HERMES = '''\
"""__NAME__: counts words and the endings of turns. Replace everything but the structure."""

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
        counts = ", ".join(f"{count} {ending}" for ending, count in endings.items())
        return f"Turns so far: {counts or 'none'}"

    ctx.register_tool(name="__SLUG___count", toolset="__NAME__", schema=COUNT, handler=count)
    ctx.register_hook("on_session_end", on_session_end)
    ctx.register_command("__NAME__", show, description="endings of the turns so far")
'''
_YAML = """\
name: __NAME__
version: 0.1.0
description: Counts words and the endings of turns.
author: ""
requires_env: []   # required environment variables
provides_tools: [__SLUG___count]
provides_hooks: [on_session_end]
"""
_TESTS = '''\
"""Tests of __NAME__. Each has a whole agent with a scripted model, and needs no network."""

from pathlib import Path

from alipes.testing import call, stall

PLUGIN = Path(__file__).parents[1]


async def test_the_model_can_count_words(alipes):
    script = [call("__SLUG___count", text="one two"), "There are two."]
    async with alipes(plugins=[PLUGIN], model=script) as agent:
        reply = await agent.say("how many?")
    assert reply.result("__SLUG___count").text == "2 words"
    assert reply.text == "There are two."


async def test_the_command_counts_the_endings_of_turns(alipes):
    async with alipes(plugins=[PLUGIN], model=["Hello.", stall()]) as agent:
        await agent.say("hello")
        await agent.start("tell me everything")
        await agent.stop()
        reply = await agent.command("/__NAME__")
    assert "1 answered" in reply.text and "1 stopped" in reply.text


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

Counts words and the endings of turns.

- tool `__SLUG___count`: the model counts words with it
- command `/__NAME__`: endings of the turns so far

```sh
python -m pytest                  # run its tests (needs pytest)
alipes plugins install .          # shows what it can do, asks, and enables it
alipes plugins doctor __NAME__
```

While you work on it, link the folder into `plugins/` of your alipes home instead of installing it.
Then `/plugins reload __NAME__` loads your changes into a running alipes.
"""


def create_plugin(name: str, parent: Path, *, hermes: bool = False) -> list[Path]:
    """Create the plugin `name` in a new folder of `parent`. Returns its files. Raises ConfigError."""
    if not re.fullmatch(_NAME, name):
        raise ConfigError(
            f"{name!r} is not a valid plugin name (it is also a command name): use lowercase letters, "
            "digits, - and _, starting with a letter."
        )
    folder = parent / name
    code, (manifest, about) = (_HERMES, ("plugin.yaml", _YAML)) if hermes else (_NATIVE, ("plugin.toml", _MANIFEST))
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
        raise ConfigError(f"{folder} already exists: choose another name or folder.") from None
    except OSError as error:
        raise ConfigError(f"cannot write {folder}: {error.strerror}.") from error
    return [folder / file for file in texts]


def _slug(name: str) -> str:
    return name.replace("-", "_")
