"""Tools of Hermes plugins: how their handlers are called, stopped, offered and taken back."""

import asyncio
import json

import pytest

from alipes.plugins.attribution import TURN
from tests.unit.compat.stage import TURN_HERE, Act

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


async def test_a_handler_gets_the_arguments_and_the_keywords_it_takes(stage):
    source = plugin("""
    def handler(params, task_id=None, session_id=None, user_task=None):
        return json.dumps([params, task_id, session_id, user_task])
    """)
    async with stage.plugin(source):
        tool = stage.tool("greet")
        assert (tool.spec.description, tool.spec.effect) == ("Greets.", "write")
        assert tool.spec.schema["properties"] == {"name": {"type": "string"}}
        TURN.set(TURN_HERE)
        assert json.loads(await tool.run({"name": "Ada"}, Act())) == [{"name": "Ada"}, "s1", "s1", "do it"]


async def test_a_handler_that_takes_only_arguments_is_given_only_those(stage):
    async with stage.plugin(plugin("handler = lambda args: 'hello ' + args['name']")):
        assert await stage.tool("greet").run({"name": "Ada"}, Act()) == "hello Ada"


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
async def test_what_is_no_text_is_given_as_json(stage, given, text):
    async with stage.plugin(plugin(f"handler = lambda args, **kw: {given}")):
        assert await stage.tool("greet").run({}, Act()) == text


async def test_an_async_handler_runs_on_the_loop_and_a_future_resolved_there_wakes_it(stage):
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
    async with stage.plugin(source):
        async with asyncio.TaskGroup() as group:
            run = group.create_task(stage.tool("greet").run({}, Act()))
            while not stage.calls:
                await asyncio.sleep(0)
            stage.module.waiting.set_result({"from": "the client"})
        assert stage.calls == [True]
        assert run.result() == '{"from": "the client"}'


async def test_a_stopped_async_handler_is_told_at_once_and_may_clean_up(stage):
    source = plugin("""
    async def handler(args, **kw):
        try:
            calls.append("begun")
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            calls.append("cancelled")
            raise
        finally:
            calls.append("told the client")
    """)
    async with stage.plugin(source):
        task = asyncio.create_task(stage.tool("greet").run({}, Act()))
        while not stage.calls:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert stage.calls == ["begun", "cancelled", "told the client"]


async def test_a_plain_lambda_may_give_a_coroutine(stage):
    source = plugin(
        """
    async def work(args):
        return "from " + args["name"]
    handler = lambda args, **kw: work(args)
    """,
        is_async=True,
    )
    async with stage.plugin(source):
        assert await stage.tool("greet").run({"name": "x"}, Act()) == "from x"


async def test_a_plain_handler_runs_in_a_thread_that_knows_the_loop(stage):
    source = plugin("""
    def handler(args, **kw):
        assert threading.current_thread() is not threading.main_thread()
        loop = asyncio.get_event_loop()
        assert loop.is_running()
        waited = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "on the loop"), loop).result(5)
        return [waited, ctx_.dispatch_tool("terminal", {"command": "ls"}), ctx_.inject_message("hello")]
    """)
    async with stage.plugin(source):
        TURN.set(TURN_HERE)
        assert json.loads(await stage.tool("greet").run({}, Act())) == ["on the loop", "done", True]
        await stage.host.told.wait()
        assert stage.host.used == [("terminal", {"command": "ls"}, TURN_HERE)]
        assert stage.host.submitted[0].text == "hello"


async def test_a_late_result_of_a_stopped_plain_handler_is_dropped_and_told(stage, caplog):
    source = plugin("""
    go_on = threading.Event()
    def handler(args, **kw):
        calls.append("begun")
        go_on.wait(5)
        calls.append("late")
        return "too late"
    """)
    async with stage.plugin(source):
        task = asyncio.create_task(stage.tool("greet").run({}, Act()))
        while not stage.calls:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        stage.module.go_on.set()
        async with asyncio.timeout(5):
            while "it is dropped" not in caplog.text:
                await asyncio.sleep(0.001)
        assert stage.calls == ["begun", "late"]


async def test_a_handler_that_raises_is_the_tools_failure(stage):
    async with stage.plugin(plugin("handler = lambda args, **kw: 1 / 0")):
        with pytest.raises(ZeroDivisionError):
            await stage.tool("greet").run({}, Act())


@pytest.mark.parametrize(
    "schema",
    [
        '{"type": "object", "properties": {"a": {"type": "string"}}}',
        '{"parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}',
        '{"type": "function", "function": {"name": "t", "description": "d", '
        '"parameters": {"type": "object", "properties": {"a": {"type": "string"}}}}}',
    ],
)
async def test_schemas_of_every_form_are_understood(stage, schema):
    source = f"""
    def register(ctx):
        ctx.register_tool(name="t", toolset="s", schema={schema}, handler=print, description="d", emoji="*")
    """
    async with stage.plugin(source):
        spec = stage.tool("t").spec
        assert spec.schema["properties"] == {"a": {"type": "string"}}
        assert spec.description == "d"
        assert stage.door.bridge.tools["t"].emoji == "*"


@pytest.mark.parametrize("hint", ['"annotations": {"readOnlyHint": True}', '"effect": "read"'])
async def test_a_schema_may_say_that_the_tool_only_reads(stage, hint):
    source = f"""
    def register(ctx):
        ctx.register_tool("t", "s", {{"parameters": {{"type": "object"}}, {hint}}}, print)
    """
    async with stage.plugin(source):
        assert stage.tool("t").spec.effect == "read"


async def test_a_tool_is_shown_when_its_check_says_so(stage, monkeypatch, caplog):
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
    async with stage.plugin(source):
        assert await stage.offers.unavailable() == {"greet"}
        stage.module.state["ready"] = True
        assert await stage.offers.unavailable() == {"greet"}
        monkeypatch.setenv("GREET_KEY", "x")
        assert await stage.offers.unavailable() == frozenset()
        stage.module.state["ready"] = None
        assert await stage.offers.unavailable() == {"greet"}
        assert "no library" in caplog.text
        assert stage.owner.strikes == 0


async def test_a_key_in_the_homes_own_file_counts_too(stage):
    (stage.settings.home / ".env").write_text("GREET_KEY=secret\n")
    async with stage.plugin(plugin("handler = print", requires_env='["GREET_KEY"]')):
        assert await stage.offers.unavailable() == frozenset()


async def test_a_tool_of_the_houses_is_replaced_only_where_that_is_allowed(stage, caplog):
    class Own:
        class spec:
            name = "greet"

    stage.offers.build_in(Own)
    source = plugin("handler = lambda args: 'theirs'", override=True)
    async with stage.plugin(source):
        assert stage.tool("greet") is Own
        assert "allow_tool_override" in caplog.text
    async with stage.plugin(source, may_override=True):
        assert await stage.tool("greet").run({}, Act()) == "theirs"


async def test_tools_come_and_go_while_the_plugin_runs_also_from_its_threads(stage):
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
    async with stage.plugin(source):
        assert "remote" not in stage.offers.tools()
        assert await asyncio.to_thread(stage.module.connect)
        begun = stage.offers.tools()
        assert await begun["remote"].run({}, Act()) == "hi"
        await asyncio.to_thread(stage.module.disconnect)
        assert "remote" not in stage.offers.tools()
        assert await begun["remote"].run({}, Act()) == "hi", "a turn keeps the tools it began with"


async def test_what_a_plugin_offered_is_gone_with_it(stage):
    async with stage.plugin(plugin("handler = print")):
        assert "greet" in stage.door.bridge.tools
    assert "greet" not in stage.offers.tools()
    assert stage.door.bridge.tools == {}
