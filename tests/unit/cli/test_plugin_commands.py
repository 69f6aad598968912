"""Plugins in the whole app: commands, reloads and their requests."""

import asyncio
import os
import subprocess
import sys
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec import structs

from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.config.paths import Paths
from alipes.kernel.messages import ToolCall
from alipes.kernel.turns import Notice, TurnEnded
from alipes.sessions.commands import registry as commands
from alipes.testing import no_leaks
from alipes.testing.scripted_provider import ScriptedProvider
from tests.world.plugin_harness import write_plugin
from tests.world.session_harness import inbound
from tests.world.wait import until

ROOT = Path(__file__).parents[3]


class Table:
    """A person in front of an app."""

    def __init__(self, app, provider):
        self.app, self.provider, self.count = app, provider, 0
        self.events = []

    def message(self, text):
        self.count += 1
        return inbound(f"{os.urandom(3).hex()}-{self.count}", text, workdir=os.getcwd())

    async def say(self, text):
        async with self.app.sessions.ask(self.message(text)) as following:
            async for event in following:
                self.events.append(event)
        assert isinstance(event, TurnEnded)
        return event

    async def type(self, text, **more):
        parsed = commands.parse(text, self.app.contributions)
        assert parsed is not None, text
        context = structs.replace(self.app.context(self.message(text)), **more)
        return await commands.run(context, parsed)

    def results(self):
        """Tool results in the last request to the model."""
        parts = (part for message in self.provider.asked[-1].messages for part in message.parts)
        return [part.text for part in parts if hasattr(part, "outcome")]


@asynccontextmanager
async def at_table(home, *script, enabled=(), more=""):
    home.mkdir(exist_ok=True)
    names = ", ".join(f'"{name}"' for name in enabled)
    Paths(home).config.write_text(f'model = "scripted"\n[plugins]\nenabled = [{names}]\n{more}\n')
    settings, provider = load_settings(home, {}), ScriptedProvider(script)
    settings.paths.make()
    async with open_app(settings, lent={"scripted": provider}) as app:
        yield Table(app, provider)


def version(home, number):
    """A plugin that tells by tool, by hook and by command which version of it is asked."""
    write_plugin(
        home,
        "one",
        f"""
        import asyncio
        from alipes.plugin import tool
        from .number import NUMBER

        reached, go_on = asyncio.Event(), asyncio.Event()

        @tool(effect="read")
        async def which() -> str:
            "A tool."
            return f"tool {{NUMBER}}"

        @tool()
        async def wait() -> str:
            "A tool."
            reached.set()
            await go_on.wait()
            return f"waited {{NUMBER}}"

        async def turn_context(context):
            return f"hook {{NUMBER}}"

        async def setup(ctx):
            async def say(args, inbound):
                return f"command {{NUMBER}} {{args}} {{inbound.sender}}"
            async def free(args, inbound):
                go_on.set()
            ctx.command("which", say, help="tell which", hint="WORD")
            ctx.command("free", free)
            (ctx.folder / "s.md").write_text("text {number}")
            ctx.skill("s", ctx.folder / "s.md", "how {number}")
            ctx.stack.callback((ctx.folder / "closed-{number}").touch)
        """,
        number_py=f"NUMBER = {number}",
    )


@pytest.mark.deadline(30)
async def test_a_running_turn_finishes_with_the_old_code_and_the_next_has_the_new(tmp_path):
    home = tmp_path / "home"
    version(home, 1)
    wait, which, view = (
        ToolCall("a", "wait", {}),
        ToolCall("b", "which", {}),
        ToolCall("c", "skill_view", {"name": "s"}),
    )
    script = (wait, which, "done", which, view, "done")
    closed = home / "plugin-data" / "one"
    async with at_table(home, *script, enabled=["one"]) as table:
        running = asyncio.create_task(table.say("first"))
        await until(lambda: "alipes_plugins.one" in sys.modules)
        await sys.modules["alipes_plugins.one"].reached.wait()
        version(home, 2)  # in the same second, and of the same size
        reply = await table.type("/plugins reload one")
        assert not reply.failed and "was reloaded" in reply.text
        assert (await table.type("/which x")).text == "command 2 x me"
        assert not (closed / "closed-1").exists()
        sys.modules["alipes_plugins.one"].go_on.set()
        assert (await running).ending == "answered"
        assert table.results() == ["waited 1", "tool 1"]
        assert "hook 1" in table.provider.asked[2].messages[0].text
        assert "how 1" in table.provider.asked[0].system
        await until((closed / "closed-1").exists)
        assert "alipes_plugins.one" not in sys.modules
        await table.say("second")
        assert table.results()[-2] == "tool 2" and "text 2" in table.results()[-1]
        assert table.provider.asked[-1].system == table.provider.asked[0].system  # the same for the whole conversation
        assert not (closed / "closed-2").exists()
    assert (closed / "closed-2").exists()


@pytest.mark.deadline(30)
async def test_a_new_version_that_fails_leaves_the_old_one_as_it_was(tmp_path):
    home = tmp_path / "home"
    version(home, 1)
    async with at_table(home, ToolCall("b", "which", {}), "done", enabled=["one"]) as table:
        for broken, why in (
            ("from .nowhere import x", "alipes_plugins.one_2.nowhere"),
            ("async def befor_tool(): ...", "Did you mean before_tool?"),
            ("async def setup(ctx):\n    ctx.command('stop', None)", "this command name is built in"),
        ):
            write_plugin(home, "one", broken)
            reply = await table.type("/plugins reload one")
            assert reply.failed and "the previous version stays active" in reply.text and why in reply.text
        assert (await table.type("/which x")).text == "command 1 x me"
        await table.say("hello")
        assert table.results() == ["tool 1"]


@pytest.mark.deadline(30)
async def test_plugins_are_enabled_and_disabled_at_run_time_and_for_the_next_start(tmp_path):
    home = tmp_path / "home"
    version(home, 1)
    async with at_table(home, "hi", "hi") as table:
        assert "one" in (listed := (await table.type("/plugins")).text) and "disabled: not in" in listed
        await table.say("before")
        assert "which" not in [spec.name for spec in table.provider.asked[-1].tools]
        assert isinstance(commands.parse("/which", table.app.contributions), commands.UnknownCommand)
        assert "is enabled and loaded" in (await table.type("/plugins enable one")).text
        assert "2 tools" in (await table.type("/plugins")).text
        await table.say("after")
        assert "which" in [spec.name for spec in table.provider.asked[-1].tools]
        assert "/which WORD" in (await table.type("/help")).text
        assert (await table.type("/help which")).text == "/which WORD: tell which"
        assert load_settings(home, {}).plugins.enabled == ("one",)
        assert not (await table.type("/plugins disable one")).failed
        assert commands.parse("/which", table.app.contributions).command.help == "from plugin one, which is off"
        await until((home / "plugin-data" / "one" / "closed-1").exists)
        assert load_settings(home, {}).plugins.enabled == ()


async def test_wrong_plugin_commands_are_reported(tmp_path):
    home = tmp_path / "home"
    version(home, 1)
    async with at_table(home, enabled=["one"]) as table:
        for text, said in (
            ("/plugins relod one", "Did you mean reload?"),
            ("/plugins reload", "Usage: /plugins reload NAME"),
            ("/plugins reload on", "Did you mean one?"),
            ("/plugins disable other", "it is not loaded"),
        ):
            reply = await table.type(text)
            assert reply.failed and said in reply.text, reply.text


async def test_a_new_setting_is_seen_by_a_reload(tmp_path):
    home = tmp_path / "home"
    write_plugin(
        home,
        "one",
        """
        import msgspec
        class Config(msgspec.Struct):
            word: str = "none"
        async def setup(ctx):
            async def say(args, inbound): return ctx.config.word
            ctx.command("word", say)
        """,
    )
    async with at_table(home, enabled=["one"]) as table:
        assert (await table.type("/word")).text == "none"
        config = Paths(home).config
        config.write_text(config.read_text() + '[plugins.entries.one]\nword = "new"\n')
        await table.type("/plugins reload one")
        assert (await table.type("/word")).text == "new"
        config.write_text(config.read_text().replace('"new"', "3"))
        reply = await table.type("/plugins reload one")
        assert reply.failed and f"{config}:6: word of [plugins.entries.one]" in reply.text
        assert (await table.type("/word")).text == "new"


async def test_a_command_that_fails_or_hangs_is_reported_and_counted(tmp_path):
    home = tmp_path / "home"
    write_plugin(
        home,
        "one",
        """
        import asyncio
        async def setup(ctx):
            async def bad(args, inbound): raise ValueError("no luck")
            async def slow(args, inbound): await asyncio.Event().wait()
            async def silent(args, inbound): return None
            def plain(args, inbound): return "not awaitable"
            for act in (bad, slow, silent, plain):
                ctx.command(act.__name__, act)
        """,
    )
    async with at_table(home, enabled=["one"]) as table:
        assert (await table.type("/silent")).text == ""
        reply = await table.type("/bad")
        assert reply.failed and "plugin one: /bad: ValueError: no luck" in reply.text
        reply = await table.type("/slow and more", deadline=0.1)
        assert reply.failed and "took longer than 0.1 s" in reply.text
        reply = await table.type("/plain")
        assert reply.failed
        (status,) = table.app.plugins.statuses()
        assert (status.state, status.strikes, status.silenced) == ("on", 3, {})
        assert (await table.type("/silent")).text == "", "other commands still work"


async def test_plugins_see_every_command_and_a_slow_one_delays_no_stop(tmp_path):
    home = tmp_path / "home"
    write_plugin(
        home,
        "one",
        """
        import asyncio
        calls, go_on = [], asyncio.Event()
        async def command_given(name, args, inbound):
            calls.append((name, args, inbound.sender))
            await go_on.wait()
        async def setup(ctx):
            async def mine(args, inbound): return "done"
            ctx.command("mine", mine)
        """,
    )
    async with at_table(home, (asyncio.Event(),), enabled=["one"]) as table:
        one = sys.modules["alipes_plugins.one"]
        turn = asyncio.create_task(table.say("stall"))
        await until(lambda: table.provider.living)
        stop = asyncio.create_task(table.type("/stop"))
        assert (await turn).ending == "stopped" and not stop.done()
        one.go_on.set()
        assert (await stop).text.startswith("Stopped")
        await table.type("/mine x y")
        await table.type("/help mine")
        assert one.calls == [("stop", "", "me"), ("mine", "x y", "me"), ("help", "mine", "me")]


@pytest.mark.deadline(30)
async def test_requests_of_a_plugin_take_the_normal_path(tmp_path):
    home = tmp_path / "home"
    write_plugin(
        home,
        "one",
        """
        import asyncio
        from alipes.plugin import Inbound, Address, user, tool, Verdict
        from alipes.plugins.interruption.attribution import tasks_of
        seen = {}

        async def before_tool(call, turn):
            if call.args.get("command") == "forbidden":
                return Verdict("deny", "never that")

        async def setup(ctx):
            async def try_all(args, inbound):
                seen["reply"] = await ctx.host.ask((user("what?"),), system="S", max_tokens=5)
                seen["read"] = await ctx.host.run_tool("read_file", {"path": __file__})
                seen["denied"] = await ctx.host.run_tool("terminal", {"command": "forbidden"})
                seen["wrong"] = await ctx.host.run_tool("terminl", {})
                seen["risky"] = await ctx.host.run_tool("terminal", {"command": "rm -rf /"})
                seen["turn"] = await ctx.host.submit(Inbound("x1", Address("test", "side"), "one", "hello"))
                seen["settings"] = [ctx.host.setting(key) for key in
                    ("model", "serve.port", "plugins.enabled", "serve.key", "nothing", "providers.openai.headers")]
                seen["mine"] = len(tasks_of(ctx.owner))
                seen["living"] = ctx.host.current_turn()
                return "tried"
            ctx.command("try", try_all)

            @tool()
            async def living() -> str:
                "A tool."
                return ctx.host.current_turn().id
            ctx.tool(living)
        """,
    )
    script = ("answer", "side answer", ToolCall("a", "living", {}), "done")
    async with at_table(home, *script, enabled=["one"]) as table:
        seen = sys.modules["alipes_plugins.one"].seen
        assert (await table.type("/try")).text == "tried"
        assert seen["reply"].message.text == "answer"
        request = table.provider.asked[0]
        assert (request.system, request.max_tokens, request.tools) == ("S", 5, ())
        assert "tried" in seen["read"].text and seen["read"].outcome == "ok"
        assert (seen["denied"].outcome, seen["denied"].text) == ("denied", "never that")
        assert seen["wrong"].outcome == "failed" and "terminal" in seen["wrong"].text
        assert seen["risky"].outcome == "denied"
        assert seen["settings"] == ["scripted", 8742, ("one",), None, None, None]
        assert seen["mine"] == 0 and seen["living"] is None
        await table.app.sessions.wait_idle()
        assert (await table.app.store.archive.turn(seen["turn"])).ending == "answered"
        ended = await table.say("who?")
        assert table.results()[-1] == ended.turn


async def test_errors_of_a_plugin_are_shown_in_the_turn(tmp_path):
    home = tmp_path / "home"
    write_plugin(home, "one", "async def turn_context(context): raise ValueError('no luck')")
    async with at_table(home, "hi", enabled=["one"]) as table:
        assert (await table.say("hello")).ending == "answered"
        notes = [event.text for event in table.events if isinstance(event, Notice)]
        assert any("plugin one failed in turn_context" in note and "no luck" in note for note in notes)


async def test_toolsets_decide_what_a_platform_may_use(tmp_path):
    home = tmp_path / "home"
    version(home, 1)
    more = '[toolsets]\ntest = ["one", "read_file"]'
    async with at_table(home, "hi", enabled=["one"], more=more) as table:
        await table.say("hello")
        assert {spec.name for spec in table.provider.asked[0].tools} == {"which", "wait", "read_file"}


async def test_plugins_that_fail_to_load_are_noted_at_the_start(tmp_path):
    home = tmp_path / "home"
    write_plugin(home, "one", "import not_there_at_all")
    async with at_table(home, enabled=["one", "oone"]) as table:
        assert (await table.app.notes())[-2:] == (
            "plugin one is not loaded: it needs the module not_there_at_all, which is not installed: "
            "pip install not_there_at_all",
            "plugin oone is not loaded: there is no plugin oone. Did you mean one?",
        )


@pytest.mark.deadline(30)
async def test_a_plugin_leaves_nothing_behind(tmp_path):
    """A background task, tasks that were just begun, an HTTP client in the midst of a request, an open file."""
    home = tmp_path / "home"
    asked = asyncio.Event()

    async def silent(reader, writer):
        asked.set()
        await reader.read()  # until the client is gone
        writer.close()

    stuck = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = stuck.sockets[0].getsockname()[1]
    write_plugin(
        home,
        "one",
        f"""
        import asyncio
        begun = asyncio.Event()
        async def setup(ctx):
            file = ctx.stack.enter_context((ctx.folder / "file").open("w"))
            async def work():
                asyncio.get_running_loop().create_task(asyncio.sleep(60))
                begun.set()
                await ctx.clients.http("x").request("GET", "http://127.0.0.1:{port}/")
            ctx.run(work())
        """,
    )
    async with stuck:
        async with no_leaks():
            async with at_table(home, enabled=["one"]) as table:
                await sys.modules["alipes_plugins.one"].begun.wait()
                assert table.app.plugins.statuses()[0].state == "on"
                await asked.wait()
    assert not [name for name in sys.modules if name.startswith("alipes_plugins.")]


CHILD = """
import asyncio, sys
from pathlib import Path
from alipes.app import open_app
from alipes.config.loader import load_settings
from alipes.testing.scripted_provider import ScriptedProvider

async def main(home):
    settings = load_settings(Path(home), {"ALIPES_MODEL": "scripted", **dict(a.split("=") for a in sys.argv[2:])})
    settings.paths.make()
    async with open_app(settings) as app:
        print([each.state for each in app.plugins.statuses()])
    print([name for name in sys.modules if name.startswith(("alipes.compat", "yaml", "tomlkit"))])

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.deadline(60)
@pytest.mark.parametrize(
    ("variables", "state"), [((), "[]"), (("ALIPES_SAFE=1", "ALIPES_PLUGINS_ENABLED=old,one"), "[]")]
)
def test_a_start_without_plugins_loads_nothing_for_them(tmp_path, variables, state):
    write_plugin(tmp_path, "old", "def register(ctx): ...", plugin_yaml="name: old")
    write_plugin(tmp_path, "one", "async def on_event(event): ...")
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(tmp_path), *variables],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == [state, "[]"]


LOOK = """
import sys
from pathlib import Path
from alipes.config.loader import load_settings
from alipes.plugins.discovery import enabled_plugins, has_plugins

settings = load_settings(Path(sys.argv[1]), {"ALIPES_PLUGINS_ENABLED": sys.argv[2]})
found = [each.name for each in enabled_plugins(settings)[0]] if has_plugins(settings) else []
print(*found, "importlib.metadata" in sys.modules)
"""


@pytest.mark.deadline(60)
@pytest.mark.parametrize(("enabled", "said"), [("", "False"), ("one", "one False"), ("one,other", "one True")])
def test_installed_packages_are_searched_only_for_names_without_a_folder(tmp_path, enabled, said):
    write_plugin(tmp_path, "one", "async def on_event(event): ...")
    done = subprocess.run(
        [sys.executable, "-c", LOOK, str(tmp_path), enabled],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == said
