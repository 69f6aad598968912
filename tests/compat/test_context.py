"""Every method of `ctx`, used by a plugin in a real folder: what it gives back, and what comes of it."""

import asyncio
import shutil
import sys

import pytest

from alipes.compat.hermes.modules.current_app import bridge
from alipes.plugins.registry import ProviderContribution, SkillContribution
from alipes.testing import call, open_agent
from tests.compat.chat_harness import open_chat
from tests.compat.hook_log import PLUGINS
from tests.compat.plugin_files import plugin_module
from tests.e2e.program import Home
from tests.world.environment import LIMIT_S
from tests.world.model_server import ModelServer, Say
from tests.world.terminal_process import CTRL_D, ENTER, TerminalProcess

pytestmark = pytest.mark.deadline(40)
EVERYTHING = PLUGINS / "everything"
ENTRIES = {"plugins": {"entries": {"everything": {"depth": {"of": 7}}}}}
NOTHING = '{"parameters": {"type": "object", "properties": {}}}'


@pytest.fixture
def everything(home):
    """Its variable is in the home's `.env`, and nowhere else."""
    (home / ".env").write_text("EVERYTHING_KEY=quiet-secret\n")
    return {"home": home, "plugins": [EVERYTHING], "config": ENTRIES}


async def test_what_each_method_gives_back(everything):
    async with open_agent(**everything, model=[]) as agent:
        gave = plugin_module("everything").gave
        for what in ("tool", "command", "skill", "middleware", "platform", "engine", "task"):
            assert gave[what] is True, what
        for what in ("taken", "refused", "unknown middleware", "hook"):
            assert gave[what] is None, what
        assert gave["config"] == (7, "usual") and gave["key"] == "quiet-secret"
        assert gave["about"] == ("everything", "3.1.0", "A. Glutton", "default")
        assert gave["needs"] == (["EVERYTHING_KEY"], ["EVERYTHING_EXTRA"], "All of it")
        kept = {offer.kind: offer.name for offer in agent.app.contributions.all(ProviderContribution)}
        assert kept == {
            "platform": "everychat",
            **{name: f"a {name}" for name in ("tts", "transcription", "image_gen", "web_search", "browser")},
            "context_engine": "a engine",
            "auxiliary_task": "titles",
        }
        platform = bridge().platforms["everychat"]
        assert (platform.label, platform.platform_hint) == ("Every Chat", "Be brief.")
        (skill,) = agent.app.contributions.all(SkillContribution)
        assert skill.name == "everything:knots" and skill.path.endswith("skills/knots/SKILL.md")


async def test_tools_run_where_they_should_and_may_ask_models_and_use_tools(everything):
    script = [call("ask_back"), "aside", '{"a": 1}', call("use_tools"), "aside", '{"b": 2}', "done"]
    async with open_agent(**everything, model=script) as agent:
        reply = await agent.say("go")
        assert reply.result("ask_back").text == '{"text": "aside", "parsed": {"a": 1}, "used": true}'
        result = reply.result("use_tools")
        assert result.outcome == "ok", result.text
        assert '"text": "aside", "parsed": {"b": 2}' in result.text
        assert "no tool named nothing_like_it" in result.text
        assert (agent.workdir / "by-plugin.txt").read_text() == "dispatched"
        keywords = ["session_id", "task_id", "user_task"]
        assert plugin_module("everything").calls == [
            "began",
            ("ask_back", "loop", keywords),
            ("use_tools", "worker", keywords),
        ]
        assert "knots" in agent.model.requests[0].system


async def test_commands_answer_also_async_ones_and_words_are_injected(everything):
    async with open_agent(**everything, model=["one", "two"]) as agent:
        assert (await agent.command("/loud hello")).text == "HELLO"
        assert (await agent.command("/later on")).text == "later: on"
        await agent.say("hello")
        assert (await agent.command("/inject by the way")).text == "injected: True"
        asked = await agent.model.wait_for_request(2)
        assert asked.messages[-1].text == "by the way"
        assert "/loud WORDS" in (await agent.command("/help")).text
        assert (await agent.command("/stop")).text != "STOP"


async def test_injected_words_reach_the_chat_of_the_moment(everything):
    async with open_chat(everything["home"], ["one", "two"], EVERYTHING, config=ENTRIES) as chat:
        await chat.say("hello")
        await chat.until("one")
        await chat.say("/inject by the way")
        await chat.until("injected: True")
        await chat.until("two")
        assert chat.agent.model.requests[-1].messages[-1].text == "by the way"


async def test_commands_injected_words_skills_and_programs_at_a_real_terminal(home):
    shutil.copytree(EVERYTHING, home / "plugins" / "everything")
    async with ModelServer([Say("One."), Say("Two.")]) as server:
        Home(home).use(server)
        with (home / "config.toml").open("a") as config:
            config.write('[plugins]\nenabled = ["everything"]\n[plugins.entries.everything]\ndepth = {of = 7}\n')
        (home / ".env").write_text("EVERYTHING_KEY=quiet-secret\n")
        (home / ".env").chmod(0o600)
        async with TerminalProcess.of(Home(home)) as terminal:
            terminal.type("/loud hello" + ENTER)
            await terminal.until("HELLO")
            terminal.type("hello" + ENTER)
            await terminal.until("One.")
            terminal.type("/inject by the way" + ENTER)
            await terminal.until("injected: True")
            await terminal.until("by the way\n\nTwo.")
            terminal.type(CTRL_D)
            assert await terminal.ended() == 0
        assert [m["content"] for m in server.bodies[1]["messages"]][-1] == "by the way"
    assert (await Home(home).run("shout", "hey", "--times", "2")).out == "HEYHEY\n"
    assert (await Home(home).run("shout", "hey", "--times", "3")).status == 4
    assert "everything:knots" in (await Home(home).run("skills")).out


async def test_a_plugin_whose_variable_is_missing_is_loaded_and_the_doctor_says_which(home):
    async with open_agent(home=home, model=["hi"]) as agent:
        assert (await agent.say("hello")).text == "hi"
    (home / "plugins").mkdir()
    (home / "plugins" / "everything").symlink_to(EVERYTHING)
    (home / "config.toml").write_text('model = "scripted"\n[plugins]\nenabled = ["everything"]\n')
    done = await Home(home).run("ask", "hello")
    assert done.status == 0 and "You said: hello" in done.out, "the host continues"
    listed = await Home(home).run("plugins", "list")
    assert "2 hooks" in listed.out
    checked = await Home(home).run("plugins", "doctor")
    assert "EVERYTHING_KEY, which is not set" in checked.out + checked.err


async def test_results_of_tools_are_text_as_it_is_and_json_otherwise(folder):
    values = ["'plain ü'", "{'a': [1, 'ü']}", "['x']", "None", "3.5", "True", "{1, 2} and {'when': object}"]
    lines = [
        f"    ctx.register_tool('t{n}', 's', {NOTHING}, lambda args, **kw: {value})" for n, value in enumerate(values)
    ]
    source = "def register(ctx):\n" + "\n".join(lines)
    script = [*(call(f"t{n}") for n in range(len(values))), "done"]
    async with open_agent(plugins=[folder("many", source)], model=script) as agent:
        reply = await agent.say("go")
        seen = [reply.result(f"t{n}").text for n in range(len(values))]
        assert seen == [
            *("plain ü", '{"a": [1, "ü"]}', '["x"]', "null", "3.5", "true"),
            '{"when": "<class \'object\'>"}',
        ]


async def test_a_tool_is_offered_while_its_check_says_so_and_its_variables_are_set(folder, home):
    source = f"""
    state = {{"up": False}}
    def ready():
        if state["up"] is None:
            raise OSError("no idea")
        return state["up"]
    def register(ctx):
        ctx.register_tool("checked", "s", {NOTHING}, print, check_fn=ready)
        ctx.register_tool("keyed", "s", {NOTHING}, print, requires_env=["SOME_KEY_OF_THIS_TEST"])
    """
    async with open_agent(home=home, plugins=[folder("checks", source)], model=["x"] * 4) as agent:
        offered = []
        for up in (False, True, None):
            plugin_module("checks").state["up"] = up
            await agent.say("hello")
            offered.append({spec.name for spec in agent.model.requests[-1].tools} & {"checked", "keyed"})
        (home / ".env").write_text("SOME_KEY_OF_THIS_TEST=1\n")
        await agent.say("hello")
        offered.append({spec.name for spec in agent.model.requests[-1].tools} & {"checked", "keyed"})
        assert offered == [set(), {"checked"}, set(), {"keyed"}]


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_built_in_tool_is_replaced_only_where_the_operator_allows_it(folder, allowed, caplog):
    source = f"""
    def register(ctx):
        ctx.register_tool("terminal", "s", {NOTHING}, lambda args: "mine", override=True)
    """
    config = {"plugins": {"entries": {"bold": {"allow_tool_override": allowed}}}}
    script = [call("terminal", command="echo ours"), "done"]
    async with open_agent(plugins=[folder("bold", source)], model=script, config=config) as agent:
        reply = await agent.say("go")
        assert (reply.result("terminal").text == "mine") is allowed
    assert ("allow_tool_override = true" in caplog.text) is not allowed


async def test_toolsets_of_a_plugin_are_offered_everywhere_unless_the_operator_says_otherwise(folder):
    source = f"""
    def register(ctx):
        ctx.register_tool("one", "first", {NOTHING}, print)
        ctx.register_tool("two", "second", {NOTHING}, print)
    """
    offered = []
    for narrowed in ({}, {"toolsets": {"test": ["second"]}}, {"toolsets": {"other": ["core"]}}):
        folder_here = folder(f"sets{len(offered)}", source)
        async with open_agent(plugins=[folder_here], model=["x"], config=narrowed) as agent:
            await agent.say("hello")
            offered.append({spec.name for spec in agent.model.requests[0].tools})
    assert {"one", "two", "terminal"} <= offered[0] and offered[1] == {"two"} and offered[2] == offered[0]


async def test_a_folder_plugin_is_imported_under_its_name_and_forgotten_at_the_end(everything):
    async with open_agent(**everything, model=[]):
        assert "hermes_plugins.everything.parts" in sys.modules and "hermes_constants" in sys.modules
    assert not [name for name in sys.modules if name.startswith(("hermes_plugins.", "hermes_c", "gateway"))]


async def test_plugins_that_cannot_be_loaded_are_said_and_the_host_continues(folder, home):
    broken = {
        "no-register": "value = 1",
        "raises": "def register(ctx):\n    raise KeyError('lost')",
        "no-import": "import something_that_is_not_there",
        "syntax": "def register(ctx:\n",
    }
    for name, source in broken.items():
        (home / "plugins").mkdir(exist_ok=True)
        (home / "plugins" / name).symlink_to(folder(name, source))
    (home / "plugins" / "fine").symlink_to(folder("fine", "def register(ctx):\n    pass"))
    names = ", ".join(f'"{name}"' for name in (*broken, "fine"))
    (home / "config.toml").write_text(f'model = "scripted"\n[plugins]\nenabled = [{names}]\n')
    done = await Home(home).run("ask", "hello")
    assert done.status == 0 and "You said: hello" in done.out
    listed = (await Home(home).run("plugins", "list")).out
    for word in ("register(ctx)", "lost", "something_that_is_not_there", "__init__.py:1"):
        assert word in listed, word
    off = await Home(home).run("ask", "--safe", "hello")
    assert off.status == 0 and "register" not in off.err


async def test_plain_code_in_a_worker_thread_may_touch_the_loop(folder):
    source = f"""
    import asyncio, threading
    waiting = {{}}

    async def wait(args):
        waiting["future"] = asyncio.get_running_loop().create_future()
        waiting["ready"].set()
        return await waiting["future"]

    async def add(a, b):
        await asyncio.sleep(0)
        return a + b

    def resolve(raw):
        waiting["future"].set_result("woken by a plain command")

    def touch(args):
        loop = asyncio.get_event_loop()
        reported = [asyncio.run(add(1, 1)), asyncio.run_coroutine_threadsafe(add(2, 2), loop).result(5)]
        done = threading.Event()
        loop.call_soon(done.set)
        reported.append(done.wait(5))
        done.clear()
        loop.call_later(0.01, done.set)
        reported.append(done.wait(5))
        done.clear()
        loop.create_task(add(3, 3)).add_done_callback(lambda task: (reported.append(task.result()), done.set()))
        done.wait(5)
        reported.append(loop.run_until_complete(add(4, 4)))
        return reported

    def register(ctx):
        waiting["ready"] = asyncio.Event()
        ctx.register_tool("wait", "s", {NOTHING}, wait, is_async=True)
        ctx.register_tool("touch", "s", {NOTHING}, touch)
        ctx.register_command("resolve", resolve)
    """
    script = [call("touch"), call("wait"), "done"]
    async with open_agent(plugins=[folder("toucher", source)], model=script) as agent:
        running = await agent.start("go")
        async with asyncio.timeout(LIMIT_S):
            await plugin_module("toucher").waiting["ready"].wait()
        assert (await agent.command("/resolve")).text == ""
        reply = await running
        assert reply.result("touch").text == "[2, 4, true, true, 6, 8]"
        assert reply.result("wait").text == "woken by a plain command"
