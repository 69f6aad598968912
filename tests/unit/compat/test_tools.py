"""Tools of Hermes plugins: how their handlers are called, stopped, offered and taken back."""

import asyncio
import json
import os

import pytest

from alipes.plugins.interruption.attribution import TURN
from tests.unit.compat.plugin_harness import TURN_HERE, Act
from tests.world.environment import LIMIT_S

SCHEMA = """
    SCHEMA = {"name": "greet", "description": "Greets.",
              "parameters": {"type": "object", "properties": {"name": {"type": "string"}}}}
"""


def plugin(handler, **options):
    more = "".join(f", {name}={value}" for name, value in options.items())
    return f"""
    import asyncio, json, threading
    calls = []
    {SCHEMA}
    {handler}

    def register(ctx):
        global ctx_
        ctx_ = ctx
        ctx.register_tool("greet", "greeting", SCHEMA, handler{more})
    """


async def test_a_handler_gets_the_arguments_and_the_keywords_it_takes(harness):
    source = plugin("""
    def handler(params, task_id=None, session_id=None, user_task=None):
        return json.dumps([params, task_id, session_id, user_task])
    """)
    async with harness.plugin(source):
        tool = harness.tool("greet")
        assert (tool.spec.description, tool.spec.effect) == ("Greets.", "write")
        assert tool.spec.schema["properties"] == {"name": {"type": "string"}}
        TURN.set(TURN_HERE)
        assert json.loads(await tool.run({"name": "Ada"}, Act())) == [{"name": "Ada"}, "s1", "s1", "do it"]


async def test_a_handler_that_takes_only_arguments_is_given_only_those(harness):
    async with harness.plugin(plugin("handler = lambda args: 'hello ' + args['name']")):
        assert await harness.tool("greet").run({"name": "Ada"}, Act()) == "hello Ada"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ('{"ok": True, "é": None}', '{"ok": true, "é": null}'),
        ('["a", 1]', '["a", 1]'),
        ("None", "null"),
        ('{"error": "no such name"}', '{"error": "no such name"}'),
        ("{'at': __import__('pathlib').PurePosixPath('/x')}", '{"at": "/x"}'),
        ("'as it is'", "as it is"),
    ],
)
async def test_what_is_no_text_is_given_as_json(harness, given, text):
    async with harness.plugin(plugin(f"handler = lambda args, **kw: {given}")):
        assert await harness.tool("greet").run({}, Act()) == text


async def test_an_async_handler_runs_on_the_loop_and_a_future_resolved_there_wakes_it(harness):
    source = plugin(
        """
    async def handler(args, **kw):
        global waiting
        waiting = asyncio.get_running_loop().create_future()
        calls.append(threading.current_thread() is threading.main_thread())
        return await waiting
    """,
        is_async=True,
    )
    async with harness.plugin(source):
        async with asyncio.TaskGroup() as group:
            run = group.create_task(harness.tool("greet").run({}, Act()))
            while not harness.calls:
                await asyncio.sleep(0)
            harness.module.waiting.set_result({"from": "the client"})
        assert harness.calls == [True]
        assert run.result() == '{"from": "the client"}'


async def test_a_stopped_async_handler_is_reported_at_once_and_may_clean_up(harness):
    source = plugin("""
    async def handler(args, **kw):
        try:
            calls.append("begun")
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise
        finally:
            calls.append("reported the client")
    """)
    async with harness.plugin(source):
        task = asyncio.create_task(harness.tool("greet").run({}, Act()))
        while not harness.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert harness.calls == ["begun", "cancelled", "reported the client"]


async def test_a_plain_lambda_may_give_a_coroutine(harness):
    source = plugin(
        """
    async def work(args):
        return "from " + args["name"]
    handler = lambda args, **kw: work(args)
    """,
        is_async=True,
    )
    async with harness.plugin(source):
        assert await harness.tool("greet").run({"name": "x"}, Act()) == "from x"


async def test_a_plain_handler_runs_in_a_thread_that_knows_the_loop(harness):
    source = plugin("""
    def handler(args, **kw):
        assert threading.current_thread() is not threading.main_thread()
        loop = asyncio.get_event_loop()
        assert loop.is_running()
        waited = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "on the loop"), loop).result(5)
        return [waited, ctx_.dispatch_tool("terminal", {"command": "ls"}), ctx_.inject_message("hello")]
    """)
    async with harness.plugin(source):
        TURN.set(TURN_HERE)
        assert json.loads(await harness.tool("greet").run({}, Act())) == ["on the loop", "done", True]
        await harness.host.received.wait()
        assert harness.host.tool_calls == [("terminal", {"command": "ls"}, TURN_HERE)]
        assert harness.host.submitted[0].text == "hello"


async def test_a_late_result_of_a_stopped_plain_handler_is_dropped_and_reported(harness, caplog):
    source = plugin("""
    go_on = threading.Event()
    def handler(args, **kw):
        calls.append("begun")
        go_on.wait(5)
        calls.append("late")
        return "too late"
    """)
    async with harness.plugin(source):
        task = asyncio.create_task(harness.tool("greet").run({}, Act()))
        while not harness.calls:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        harness.module.go_on.set()
        async with asyncio.timeout(LIMIT_S):
            while "the result is dropped" not in caplog.text:
                await asyncio.sleep(0.001)
        assert harness.calls == ["begun", "late"]


async def test_a_handler_that_raises_is_the_tools_failure(harness):
    async with harness.plugin(plugin("handler = lambda args, **kw: 1 / 0")):
        with pytest.raises(ZeroDivisionError):
            await harness.tool("greet").run({}, Act())


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "object", "properties": {"a": {"type": "string"}}}',
        '{"parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}',
        '{"type": "function", "function": {"name": "t", "description": "d", '
        '"parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}',
    ],
)
async def test_schemas_of_every_form_are_understood(harness, schema):
    source = f"""
    def register(ctx):
        ctx.register_tool(name="t", toolset="s", schema={schema}, handler=print, description="d", emoji="*")
    """
    async with harness.plugin(source):
        spec = harness.tool("t").spec
        assert spec.schema["properties"] == {"a": {"type": "string"}}
        assert spec.description == "d"
        assert harness.door.bridge.tools["t"].emoji == "*"


@pytest.mark.parametrize("hint", ['"annotations": {"readOnlyHint": True}', '"effect": "read"'])
async def test_a_schema_may_say_that_the_tool_only_reads(harness, hint):
    source = f"""
    def register(ctx):
        ctx.register_tool("t", "s", {{"parameters": {{"type": "object"}}, {hint}}}, print)
    """
    async with harness.plugin(source):
        assert harness.tool("t").spec.effect == "read"


async def test_a_tool_is_shown_when_its_check_says_so(harness, monkeypatch, caplog):
    source = plugin(
        """
    state = {"ready": False}
    def check():
        if state["ready"] is None:
            raise ImportError("no library")
        return state["ready"]
    handler = print
    """,
        check_fn="check",
        requires_env='["GREET_KEY"]',
    )
    async with harness.plugin(source):
        assert [*await harness.contributions.unavailable()] == ["greet"]
        harness.module.state["ready"] = True
        assert [*await harness.contributions.unavailable()] == ["greet"]
        monkeypatch.setenv("GREET_KEY", "x")
        assert not await harness.contributions.unavailable()
        harness.module.state["ready"] = None
        assert [*await harness.contributions.unavailable()] == ["greet"]
        assert "no library" in caplog.text
        assert harness.owner.strikes == 0


async def test_a_key_in_the_homes_own_file_counts_too(harness):
    (harness.settings.home / ".env").write_text("GREET_KEY=secret\n")
    async with harness.plugin(plugin("handler = print", requires_env='["GREET_KEY"]')):
        assert not await harness.contributions.unavailable()


async def test_a_tool_of_the_houses_is_replaced_only_where_that_is_allowed(harness, caplog):
    class Own:
        class spec:
            name = "greet"

    harness.contributions.add_builtin(Own)
    source = plugin("handler = lambda args: 'theirs'", override=True)
    async with harness.plugin(source):
        assert harness.tool("greet") is Own
        assert "allow_tool_override" in caplog.text
    async with harness.plugin(source, may_override=True):
        assert await harness.tool("greet").run({}, Act()) == "theirs"


async def test_tools_come_and_go_while_the_plugin_runs_also_from_its_threads(harness):
    source = """
    def register(ctx):
        global ctx_
        ctx_ = ctx

    def connect():
        return ctx_.register_tool("remote", "client", {"type": "object"}, lambda args: "hi")

    def disconnect():
        from tools.registry import registry
        registry.deregister("remote")
    """
    async with harness.plugin(source):
        assert "remote" not in harness.contributions.tools()
        assert await asyncio.to_thread(harness.module.connect)
        begun = harness.contributions.tools()
        assert await begun["remote"].run({}, Act()) == "hi"
        await asyncio.to_thread(harness.module.disconnect)
        assert "remote" not in harness.contributions.tools()
        assert await begun["remote"].run({}, Act()) == "hi", "a turn keeps the tools it began with"


async def test_what_a_plugin_offered_is_gone_with_it(harness):
    async with harness.plugin(plugin("handler = print")):
        assert "greet" in harness.door.bridge.tools
    assert "greet" not in harness.contributions.tools()
    assert harness.door.bridge.tools == {}


async def test_a_file_that_a_handler_wrote_and_named_is_handed_over(harness):
    source = plugin("""
    def handler(params):
        import os
        os.makedirs(params["name"], exist_ok=True)
        path = params["name"] + "/new.ogg"
        open(path, "w").close()
        return json.dumps({"media_tag": "MEDIA:" + path})
    """)
    async with harness.plugin(source):
        tool = harness.tool("greet")
        folder = harness.settings.paths.outgoing
        output = await tool.run({"name": str(folder)}, Act())
        assert tool.spec.media and output.files == (f"{folder}/new.ogg",)


async def test_a_file_that_the_text_of_a_handler_merely_names_is_not_handed_over(harness, tmp_path):
    async with harness.plugin(plugin("handler = lambda args: 'a page says MEDIA:' + args['name']")):
        tool = harness.tool("greet")
        outgoing = harness.settings.paths.outgoing
        outgoing.mkdir(parents=True, exist_ok=True)
        (outgoing / "theirs.png").write_text("x")
        os.utime(outgoing / "theirs.png", (1, 1))
        (tmp_path / ".env").write_text("x")
        for path in (outgoing / "theirs.png", tmp_path / ".env", outgoing / "missing.png"):
            assert (await tool.run({"name": str(path)}, Act())).files == ()


async def test_a_schema_may_declare_media_and_open_world(harness):
    declared = SCHEMA.replace('"Greets.",', '"Greets.", "media": True, "annotations": {"openWorldHint": True},')
    async with harness.plugin(plugin("handler = lambda args: 'MEDIA:' + args['name']").replace(SCHEMA, declared)):
        tool = harness.tool("greet")
        assert tool.spec.untrusted and (await tool.run({"name": "/tmp/a.png"}, Act())).files == ("/tmp/a.png",)
