"""Opening plugins: which are opened, in which order, and how failures are reported."""

import asyncio
import gc
import sys

import msgspec
import pytest

from alipes.config.loader import load_settings
from alipes.config.paths import Paths
from alipes.kernel.errors import ConfigError, PluginError
from alipes.kernel.messages import ToolCall
from alipes.plugins import specs
from alipes.plugins.discovery import find_plugins, read_status
from alipes.plugins.interruption.attribution import PluginActivity
from alipes.plugins.registry import (
    CliContribution,
    CommandContribution,
    ProviderContribution,
    SkillContribution,
    ToolContribution,
)
from alipes.plugins.specs import Verdict
from alipes.sessions.commands.registry import parse
from tests.world.plugin_harness import open_plugin_harness, settings_for, write_plugin
from tests.world.wait import until

CALL = ToolCall("1", "x", {})


async def rule(place):
    return await place.hooks.dispatcher.decide(
        specs.before_tool, lambda why: Verdict("deny", why), call=CALL, turn=None
    )


async def test_hooks_tools_and_setup_of_a_module_are_found_by_name(tmp_path):
    write_plugin(
        tmp_path,
        "weather",
        """
        import msgspec
        from alipes.plugin import Context, Verdict, tool
        from .deeper import helper

        class Config(msgspec.Struct, kw_only=True, frozen=True):
            city: str = "Lisbon"

        async def before_tool(call):
            return Verdict("deny", helper())

        @tool(effect="read")
        async def look(day: int) -> str:
            "See."
            return f"sun {day}"

        async def _private(): ...
        async def assistance(): ...

        async def setup(ctx: Context) -> None:
            async def greet(args, inbound):
                return f"hello {args} from {ctx.config.city}"
            ctx.command("/Greet", greet, help="greet", hint="WHO")
            ctx.skill("forecast", ctx.folder / "SKILL.md", "how")
            ctx.cli("weather", "the weather", lambda parser: None)
            ctx.provide("platform", "barometer", object())
        """,
        deeper_py="from . import __name__ as name\ndef helper(): return name",
        plugin_toml='version = "1.2"\ndescription = "Sun"',
    )
    async with open_plugin_harness(settings_for(tmp_path, "weather")) as place:
        fact = place.fact("weather")
        assert (fact.state, fact.why, fact.version, fact.description) == ("on", "", "1.2", "Sun")
        assert (fact.hooks, fact.tools, fact.commands) == (("before_tool",), ("look",), ("greet",))
        assert (fact.skills, fact.cli, fact.provides) == (("forecast",), ("weather",), ("platform:barometer",))
        assert (await rule(place)).reason == "alipes_plugins.weather"
        assert await place.contributions.tools()["look"].run({"day": 3}, None) == "sun 3"
        assert await place.contributions.find(CommandContribution, "greet").act("you", None) == "hello you from Lisbon"
        assert (tmp_path / "plugin-data" / "weather").is_dir()
        assert place.contributions.find(ToolContribution, "look").toolset == "weather"
        for kind in (CliContribution, SkillContribution, ProviderContribution):
            assert len(place.contributions.all(kind)) == 1
    assert not [name for name in sys.modules if name.startswith("alipes_plugins.weather")]
    assert (
        place.hooks.dispatcher.has_hooks(specs.before_tool) is False and place.contributions.all(ToolContribution) == ()
    )


async def test_nothing_is_opened_that_was_not_asked_for(tmp_path):
    write_plugin(tmp_path, "one", "raise SystemExit('imported')")
    write_plugin(tmp_path, "two", "raise SystemExit('imported')")
    async with open_plugin_harness(settings_for(tmp_path)) as place:
        assert place.plugins.statuses() == ()
        listed = {each.name: (each.state, each.why) for each in await place.plugins.list_all()}
    assert listed == dict.fromkeys(("one", "two"), ("disabled", "not in plugins.enabled"))
    assert not (tmp_path / "plugins" / ".state.json").exists()


async def test_disabled_wins_over_enabled_and_safe_mode_over_all(tmp_path):
    write_plugin(tmp_path, "one", "async def on_event(event): ...")
    async with open_plugin_harness(settings_for(tmp_path, "one", disabled=("one",))) as place:
        assert place.plugins.statuses() == ()
        assert [each.why for each in await place.plugins.list_all()] == ["in plugins.disabled"]
    async with open_plugin_harness(settings_for(tmp_path, "one", safe=True)) as place:
        assert place.plugins.statuses() == ()
        assert [each.why for each in await place.plugins.list_all()] == ["safe mode"]
        with pytest.raises(Exception, match="safe mode"):
            await place.plugins.enable("one")


BROKEN = {
    "raises": ("x = 1\nraise ValueError('no luck')", ["raises/__init__.py:2: ValueError: no luck"]),
    "syntax": ("x = 1\ndef f(:", ["syntax/__init__.py:2: invalid syntax"]),
    "missing": ("import not_there_at_all.deep", ["needs the module not_there_at_all", "pip install"]),
    "empty": ("x = 1", ["no hook, @tool or `async def setup(ctx)` found"]),
    "misspelt": ("async def befor_tool(call): ...", ["befor_tool", "Did you mean before_tool?"]),
    "parameter": ("async def before_tool(cal): ...", ["before_tool: unknown parameter cal. Did you mean call?"]),
    "sync": ("def before_tool(call): ...", ["before_tool: a hook must be `async def`"]),
    "setup": ("def setup(ctx): ...", ["`async def setup(ctx)`"]),
    "late": ("async def setup(ctx):\n    1 / 0", ["late/__init__.py:2: ZeroDivisionError"]),
    "exits": ("import sys\nsys.exit(3)", ["SystemExit: 3"]),
    "badtool": ("from alipes.plugin import tool\n@tool()\ndef f(): ...", ["the tool f must be `async def`"]),
    "badcommand": ("async def setup(ctx):\n    ctx.command('stop', None)", ["/stop", "is built in"]),
    "nohook": ("async def setup(ctx):\n    ctx.hook(print, name='on_evnt')", ["Did you mean on_event?"]),
}


async def test_what_is_broken_is_reported_and_disturbs_nobody(tmp_path):
    for name, (code, _) in BROKEN.items():
        write_plugin(tmp_path, name, code)
    write_plugin(tmp_path, "good", "async def on_event(event): ...")
    async with open_plugin_harness(settings_for(tmp_path, *BROKEN, "good"), reserved=("stop",)) as place:
        for name, (_, said) in BROKEN.items():
            fact = place.fact(name)
            assert fact.state == "failed", name
            for words in said:
                assert words in fact.why, (name, fact.why)
        assert place.fact("good").state == "on"
        assert not [m for m in sys.modules if m.startswith("alipes_plugins.") and not m.endswith(".good")]
        known = read_status(Paths(tmp_path))
        assert {each.name: each.state for each in known.plugins} == {**dict.fromkeys(BROKEN, "failed"), "good": "on"}


async def test_an_unknown_name_is_reported_with_the_nearest(tmp_path):
    write_plugin(tmp_path, "weather", "async def on_event(event): ...")
    async with open_plugin_harness(settings_for(tmp_path, "wether", "else")) as place:
        assert place.fact("wether").why == "there is no plugin wether. Did you mean weather?"
        assert "`alipes plugins list` shows which there are" in place.fact("else").why
        with pytest.raises(Exception, match="Did you mean weather"):
            await place.plugins.reload("weathr")


async def test_a_setup_that_hangs_is_given_up_and_its_scope_is_closed(tmp_path):
    write_plugin(
        tmp_path,
        "slow",
        """
        import asyncio
        from pathlib import Path
        async def setup(ctx):
            ctx.stack.callback((ctx.folder / "closed").touch)
            await asyncio.Event().wait()
        """,
    )
    async with open_plugin_harness(settings_for(tmp_path, "slow"), opening=0.2) as place:
        assert place.fact("slow").state == "failed" and "took longer than 0.2 s" in place.fact("slow").why
        await until(lambda: (tmp_path / "plugin-data" / "slow" / "closed").exists())


async def test_plugins_open_side_by_side_and_count_in_the_order_named(tmp_path):
    for name, pause in (("first", 0.2), ("second", 0.0)):
        write_plugin(
            tmp_path,
            name,
            f"""
            import asyncio
            async def turn_context(context):
                return context + "{name} "
            async def setup(ctx):
                await asyncio.sleep({pause})
            """,
        )
    async with open_plugin_harness(settings_for(tmp_path, "first", "second")) as place:
        assert await place.hooks.dispatcher.filter(specs.turn_context, "", turn=None) == "first second "


async def test_of_two_with_the_same_tool_the_first_named_has_it(tmp_path):
    for name in ("one", "two"):
        write_plugin(tmp_path, name, "from alipes.plugin import tool\n@tool()\nasync def look() -> str: 'Look.'")
    async with open_plugin_harness(settings_for(tmp_path, "two", "one")) as place:
        assert place.fact("two").state == "on"
        assert place.fact("one").state == "failed" and "plugin two has this tool" in place.fact("one").why


async def test_a_plugin_with_unset_variables_is_loaded_and_they_are_named_with_what_to_do(tmp_path, caplog):
    write_plugin(tmp_path, "one", "async def on_event(event): ...", plugin_toml='requires_env = ["SOME_TOKEN"]')
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        assert place.fact("one").state == "on"
    assert "plugin one needs SOME_TOKEN, which is not set: run `alipes config set SOME_TOKEN -`" in caplog.text
    caplog.clear()
    (tmp_path / ".env").write_text("SOME_TOKEN=abc\n")
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        assert place.fact("one").state == "on"
    assert "SOME_TOKEN" not in caplog.text


CONFIG = """
import msgspec

class Config(msgspec.Struct, kw_only=True, frozen=True):
    host: str
    port: int = 80
    many: list[int] = []

    def __post_init__(self):
        if self.host == "bad":
            raise ValueError("host must not be bad")

async def setup(ctx):
    (ctx.folder / "seen").write_text(f"{ctx.config.host}:{ctx.config.port}:{ctx.secret('TOKEN')}")
"""


@pytest.mark.parametrize(
    ("table", "line", "said"),
    [
        ('host = "a"\nport = "x"', 6, "port of [plugins.entries.one] is wrong: Expected `int`, got `str`"),
        (
            'host = "a"\nprot = 1',
            6,
            "prot of [plugins.entries.one] is not a setting of this plugin. Did you mean port?",
        ),
        ('host = "a"\nmany = [\n1,\n"x"]', 8, "many[1] of [plugins.entries.one] is wrong"),
        ("port = 1", 4, "host of [plugins.entries.one] is missing"),
        ('host = "bad"', 4, "host must not be bad"),
        ('host = "${NOT_SET_HERE}"', 4, "needs the variable NOT_SET_HERE, which is not set"),
    ],
)
async def test_a_wrong_setting_is_reported_with_file_and_line(tmp_path, table, line, said):
    write_plugin(tmp_path, "one", CONFIG)
    Paths(tmp_path).config.write_text(f'[plugins]\nenabled = ["one"]\n\n[plugins.entries.one]\n{table}\n')
    async with open_plugin_harness(load_settings(tmp_path, {})) as place:
        assert place.fact("one").why.startswith(f"{tmp_path}/config.toml:{line}: ")
        assert said in place.fact("one").why


async def test_right_settings_reach_the_plugin_with_variables_filled_in(tmp_path):
    write_plugin(tmp_path, "one", CONFIG)
    (tmp_path / ".env").write_text("TOKEN=abc\nHOST_NAME=there\n")
    Paths(tmp_path).config.write_text(
        '[plugins]\nenabled = ["one"]\n[plugins.entries.one]\nhost = "${HOST_NAME}"\nport = 1\n'
    )
    async with open_plugin_harness(load_settings(tmp_path, {})) as place:
        assert place.fact("one").state == "on"
    assert (tmp_path / "plugin-data" / "one" / "seen").read_text() == "there:1:abc"


async def test_a_built_in_tool_is_replaced_only_where_the_operator_allows_it(tmp_path):
    code = """
    async def read_file() -> str:
        "Read."
        return "mine"
    async def setup(ctx):
        ctx.tool(read_file, override=True)
    """
    write_plugin(tmp_path, "one", code)
    from tests.unit.plugins.test_registry import a_tool

    async with open_plugin_harness(settings_for(tmp_path)) as place:
        place.contributions.add_builtin(a_tool("read_file", "house"))
        with pytest.raises(Exception, match="allow_tool_override"):
            await place.plugins.enable("one")
    entries = {"one": {"allow_tool_override": True}}
    async with open_plugin_harness(settings_for(tmp_path, entries=entries)) as place:
        place.contributions.add_builtin(a_tool("read_file", "house"))
        await place.plugins.enable("one")
        assert await place.contributions.tools()["read_file"].run({}, None) == "mine"


async def test_what_is_registered_later_is_seen_by_the_next_turn(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        from alipes.plugin import tool
        async def late() -> str:
            "Come late."
            return "late"
        async def setup(ctx):
            async def more(args, inbound):
                ctx.tool(late)
                ctx.hook(turn_context)
            async def less(args, inbound):
                ctx.drop_tool("late")
            ctx.command("more", more)
            ctx.command("less", less)
            ctx.tool(late)
            assert ctx.drop_tool("late") and not ctx.drop_tool("late")
        async def _hidden(context): ...
        async def turn_context(context): return context + "x"
        """,
    )
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        before, relay = place.contributions.tools(), place.hooks.dispatcher
        assert not before
        await place.contributions.find(CommandContribution, "more").act("", None)
        assert list(place.contributions.tools()) == ["late"] and not before
        assert await relay.filter(specs.turn_context, "", turn=None) == "x"
        assert await place.hooks.dispatcher.filter(specs.turn_context, "", turn=None) == "xx"
        await place.contributions.find(CommandContribution, "less").act("", None)
        assert not place.contributions.tools()


async def test_deadlines_of_the_operator_go_over_those_of_the_plugin(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        import asyncio
        async def setup(ctx):
            ctx.hook(before_tool_, name="before_tool", deadline=60)
        async def before_tool_(call):
            await asyncio.Event().wait()
        """.replace("before_tool_", "_gate"),
    )
    async with open_plugin_harness(settings_for(tmp_path, "one", deadlines={"before_tool": 0.1})) as place:
        assert "took longer than 0.1 s" in (await rule(place)).reason


async def test_a_plugin_that_blocks_the_loop_three_times_is_closed_and_what_it_offered_is_gone(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        from alipes.plugin import tool
        async def on_event(event): ...
        @tool()
        async def look() -> str:
            "Look."
            return "x"
        async def setup(ctx):
            ctx.stack.callback((ctx.folder / "closed").touch)
        """,
    )
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        relay = place.hooks.dispatcher
        relay.hold()
        activity = PluginActivity(place.plugins._instances["one"].owner, "a task")
        for _ in range(3):
            activity.interrupted(1.5)
        await until(lambda: place.fact("one").state == "off")
        assert place.fact("one").why == "disabled: a task blocked the event loop three times, last for 1.50 s"
        assert not place.contributions.tools() and not place.hooks.dispatcher.has_hooks(specs.on_event)
        assert not (tmp_path / "plugin-data" / "one" / "closed").exists()  # a turn still uses it
        relay.release()
        await until((tmp_path / "plugin-data" / "one" / "closed").exists)
        assert read_status(Paths(tmp_path)).plugins[0].state == "off"
        assert "was reloaded" in await place.plugins.reload("one")
        assert place.fact("one").state == "on" and list(place.contributions.tools()) == ["look"]


async def test_a_callback_that_fails_three_times_is_shown_and_forgiven(tmp_path):
    write_plugin(tmp_path, "one", "async def on_event(event): raise ValueError('again')")
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        for _ in range(3):
            await place.hooks.dispatcher.notify(specs.on_event, event=None, turn=None)
        assert place.fact("one").state == "on" and "again" in place.fact("one").silenced["on_event"]
        assert "are forgotten" in await place.plugins.forgive("one")
        assert place.fact("one").strikes == 0 and not place.fact("one").silenced
        with pytest.raises(PluginError, match=r"not loaded\. Did you mean one\?"):
            await place.plugins.forgive("onn")


async def test_a_background_task_that_fails_is_a_strike_and_the_others_go_on(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        import asyncio
        async def setup(ctx):
            async def broken(): raise ValueError("x")
            async def steady():
                (ctx.folder / "began").touch()
                try:
                    await asyncio.Event().wait()
                finally:
                    (ctx.folder / "ended").touch()
            ctx.run(steady(), "steady")
            ctx.run(broken(), "broken")
            asyncio.get_running_loop().create_task(steady())
        """,
    )
    data = tmp_path / "plugin-data" / "one"
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        await until(lambda: place.fact("one").strikes == 1 and (data / "began").exists())
        gc.collect()
        assert place.fact("one").state == "on" and not (data / "ended").exists()
        tasks = len(asyncio.all_tasks())
        assert tasks >= 3
    assert (data / "ended").exists() and asyncio.all_tasks() == {asyncio.current_task()}


async def test_a_task_that_refuses_to_end_holds_nobody_up_for_long(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        import asyncio
        async def setup(ctx):
            async def stubborn():
                while True:
                    try:
                        await asyncio.sleep(60)
                    except asyncio.CancelledError:
                        pass
            ctx.run(stubborn(), "stubborn")
        """,
    )
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        assert place.fact("one").state == "on"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_closing_goes_in_reverse_and_survives_what_raises_or_hangs(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        import asyncio
        async def setup(ctx):
            def note(word):
                with (ctx.folder / "closed").open("a") as file:
                    file.write(word + " ")
            async def broken():
                note("second")
                raise ValueError("x")
            ctx.stack.callback(note, "first")
            ctx.stack.push_async_callback(broken)
            ctx.stack.callback(note, "third")
        """,
    )
    async with open_plugin_harness(settings_for(tmp_path, "one")):
        pass
    assert (tmp_path / "plugin-data" / "one" / "closed").read_text() == "third second first "


async def test_a_task_group_of_the_plugins_own_may_stand_on_its_stack(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        import asyncio
        async def setup(ctx):
            group = await ctx.stack.enter_async_context(asyncio.TaskGroup())
            async def work():
                await asyncio.sleep(0.01)
                (ctx.folder / "worked").touch()
            group.create_task(work())
        """,
    )
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        await until((tmp_path / "plugin-data" / "one" / "worked").exists)
        assert place.fact("one").state == "on"


async def test_a_door_for_another_kind_is_made_when_it_is_first_needed(tmp_path):
    write_plugin(tmp_path, "old", "def register(ctx): ...")
    write_plugin(tmp_path, "older", "x = 1", plugin_yaml="name: renamed\nversion: 2\nrequires_env:\n  - name: HOME\n")
    made, opened = [], []

    class Door:
        async def open(self, found, context):
            opened.append((found.name, found.kind, found.manifest.version, context.name))
            context.hook(lambda event: None, name="on_event")

    doors = {"hermes": lambda: made.append(1) or Door()}
    async with open_plugin_harness(settings_for(tmp_path), doors=doors) as place:
        assert not made
    async with open_plugin_harness(settings_for(tmp_path, "old", "renamed"), doors=doors) as place:
        assert {each.state for each in place.plugins.statuses()} == {"on"}
    assert sorted(opened) == [("old", "hermes", "", "old"), ("renamed", "hermes", "2", "renamed")]
    async with open_plugin_harness(settings_for(tmp_path, "old")) as place:
        assert "hermes plugins are not supported" in place.fact("old").why


async def test_file_hooks_and_shell_hooks_need_not_be_enabled_and_can_be_disabled(tmp_path):
    hook = tmp_path / "hooks" / "notes"
    hook.mkdir(parents=True)
    (hook / "HOOK.yaml").write_text("name: notes\nevents: [agent:end]\n")
    Paths(tmp_path).config.write_text('[[hooks.pre_tool_call]]\ncommand = "true"\n')
    opened = []

    class Door:
        async def open(self, found, context):
            opened.append((found.name, found.kind, found.path))

    doors = dict.fromkeys(("file-hook", "shell-hooks"), Door)
    settings = load_settings(tmp_path, {})
    async with open_plugin_harness(settings, doors=doors) as place:
        assert {each.state for each in place.plugins.statuses()} == {"on"}
        await place.plugins.disable("notes")
    assert opened == [("notes", "file-hook", hook), ("shell-hooks", "shell-hooks", None)]
    assert load_settings(tmp_path, {}).plugins.disabled == ("notes",)
    opened.clear()
    async with open_plugin_harness(load_settings(tmp_path, {}), doors=doors):
        assert [name for name, _, _ in opened] == ["shell-hooks"]


def test_a_later_place_goes_over_an_earlier_one(tmp_path, monkeypatch):
    home, user, work = tmp_path / "home", tmp_path / "user", tmp_path / "work"
    monkeypatch.setenv("HOME", str(user))
    for root, name in (
        (user / ".hermes", "a"),
        (user / ".hermes", "b"),
        (home, "b"),
        (home, "c"),
        (work / ".alipes", "c"),
    ):
        write_plugin(root, name, "async def on_event(event): ...")
    write_plugin(home, "family/member", "async def on_event(event): ...")
    write_plugin(home, ".kept/x", "x = 1")

    def found(**more):
        from msgspec import structs

        settings = structs.replace(settings_for(home, **more), workdir=str(work))
        return {each.name: each.source for each in find_plugins(settings) if each.path is not None}

    assert found() == {"b": "home", "c": "home", "member": "home"}
    everything = found(import_hermes=True, project=True)
    assert everything == {"a": "~/.hermes/plugins", "b": "home", "c": "project", "member": "home"}


async def test_a_package_brings_a_plugin_by_entry_point_which_goes_over_a_folder(tmp_path, monkeypatch):
    site = tmp_path / "site"
    about = site / "sunny-1.5.dist-info"
    about.mkdir(parents=True)
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: sunny\nVersion: 1.5\nSummary: Shines\n")
    (about / "entry_points.txt").write_text("[alipes.plugins]\nsun = sunny_plugin:inside\n")
    (site / "sunny_plugin.py").write_text(
        "class inside:\n    @staticmethod\n    async def turn_context(context): return 'sun'\n"
    )
    monkeypatch.syspath_prepend(str(site))
    write_plugin(tmp_path / "home", "sun", "async def turn_context(context): return 'the folder'")
    async with open_plugin_harness(settings_for(tmp_path / "home", "sun")) as place:
        fact = place.fact("sun")
        assert (fact.state, fact.version, fact.source) == ("on", "1.5", "package sunny")
        assert await place.hooks.dispatcher.filter(specs.turn_context, "", turn=None) == "sun"
        with pytest.raises(Exception, match="restart alipes"):
            await place.plugins.reload("sun")
    sys.modules.pop("sunny_plugin", None)


async def test_what_the_body_raises_comes_out_as_it_is(tmp_path):
    write_plugin(tmp_path, "one", "async def on_event(event): ...")
    with pytest.raises(KeyError, match="mine"):
        async with open_plugin_harness(settings_for(tmp_path, "one")):
            raise KeyError("mine")
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_who_is_cancelled_while_plugins_open_closes_those_that_began(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        import asyncio
        async def setup(ctx):
            ctx.stack.callback((ctx.folder / "closed").touch)
            (ctx.folder / "began").touch()
            await asyncio.Event().wait()
        """,
    )

    async def open_it():
        async with open_plugin_harness(settings_for(tmp_path, "one"), opening=60):
            raise AssertionError("it is never open")

    data = tmp_path / "plugin-data" / "one"
    opening = asyncio.create_task(open_it())
    await until((data / "began").exists)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    assert (data / "closed").exists() and asyncio.all_tasks() == {asyncio.current_task()}


async def test_exchanging_often_and_at_once_leaves_one_of_it(tmp_path):
    def version(number):
        write_plugin(
            tmp_path,
            "one",
            """
            from .inner import NUMBER
            async def turn_context(context): return str(NUMBER)
            async def setup(ctx): ctx.run(_work())
            async def _work():
                import asyncio
                await asyncio.Event().wait()
            """,
            inner_py=f"NUMBER = {number}",
        )

    version(0)
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        await asyncio.sleep(0)
        tasks = len(asyncio.all_tasks())
        for number in range(1, 10):
            version(number)  # of the same size, in the same second
            await place.plugins.reload("one")
            assert await place.hooks.dispatcher.filter(specs.turn_context, "", turn=None) == str(number)
        await asyncio.gather(*(place.plugins.reload("one") for _ in range(4)))
        await until(lambda: len([n for n in sys.modules if n.startswith("alipes_plugins.one")]) == 2)
        await until(lambda: len(asyncio.all_tasks()) == tasks)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize(
    ("listed", "why"),
    [
        ({"enabled": ["one"]}, "one/__init__.py:1: RuntimeError: no policy"),
        ({}, "it is not listed in `plugins.enabled`"),
        ({"enabled": ["one"], "safe": True}, "plugins are off (safe mode)"),
    ],
)
async def test_nothing_opens_without_a_required_plugin(tmp_path, listed, why):
    write_plugin(tmp_path, "one", "raise RuntimeError('no policy')")
    settings = settings_for(tmp_path, *listed.get("enabled", ()))
    plugins = msgspec.structs.replace(settings.plugins, required=("one",), safe=listed.get("safe", False))
    with pytest.raises(ConfigError, match=r"The plugin one is required, but it is not loaded: ") as refused:
        async with open_plugin_harness(msgspec.structs.replace(settings, plugins=plugins)):
            pass
    assert why in str(refused.value)


async def test_a_required_plugin_cannot_be_disabled(tmp_path):
    write_plugin(tmp_path, "one", "async def on_event(event): ...")
    settings = settings_for(tmp_path, "one")
    plugins = msgspec.structs.replace(settings.plugins, required=("one",))
    async with open_plugin_harness(msgspec.structs.replace(settings, plugins=plugins)) as place:
        with pytest.raises(PluginError, match=r"`plugins\.required`: remove it there first"):
            await place.plugins.disable("one")
        activity = PluginActivity(place.plugins._instances["one"].owner, "a task")
        for _ in range(3):
            activity.interrupted(1.5)
        assert place.fact("one").state == "on"


async def test_a_command_of_a_plugin_that_is_off_is_answered_here_also_after_a_restart(tmp_path):
    write_plugin(
        tmp_path,
        "one",
        """
        async def wave(args, inbound): return "hello"
        async def setup(ctx): ctx.command("wave", wave)
        """,
    )
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        assert parse("/wave", place.contributions).command.help == "from plugin one"
        await place.plugins.disable("one")
        assert parse("/wave", place.contributions).command.help == "from plugin one, which is off"
    async with open_plugin_harness(settings_for(tmp_path)) as place:
        reply = await parse("/wave", place.contributions).command.act(None, "")
        assert reply.failed and "/wave belongs to the plugin one, which is off. Use /plugins enable one" in reply.text
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        assert parse("/wave", place.contributions).command.help == "from plugin one"


async def test_a_plugin_that_is_long_in_opening_is_named(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("alipes.plugins.loader.SLOW_OPEN", 0.01)
    write_plugin(tmp_path, "slow", "import asyncio\nasync def setup(ctx):\n    await asyncio.sleep(0.5)")
    async with open_plugin_harness(settings_for(tmp_path, "slow")) as place:
        assert place.fact("slow").state == "on"
    assert capsys.readouterr().err == "alipes: still waiting for the setup of these plugins: slow\n"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        ("async def on_event(evnt, turn): ...", "unknown parameter evnt. Did you mean event? It may take event, turn"),
        (
            "from alipes.plugin import tool\n@tool()\nasync def look() -> str: return ''",
            "the tool look: it has no description: add a docstring",
        ),
        (
            "async def wave(args): ...\nasync def setup(ctx): ctx.command('wave', wave)",
            "it is called with two arguments, the text after it and the message: too many positional arguments",
        ),
        (
            "import toolset_distributions",
            "it needs toolset_distributions of Hermes Agent, which alipes does not provide",
        ),
    ],
)
async def test_an_authors_mistake_is_found_at_load_and_named(tmp_path, source, why):
    write_plugin(tmp_path, "one", source)
    async with open_plugin_harness(settings_for(tmp_path, "one")) as place:
        assert place.fact("one").state == "failed" and why in place.fact("one").why
