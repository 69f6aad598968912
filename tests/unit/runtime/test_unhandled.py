"""The guard on a real loop. What a person sees of it is tested in a terminal, in `tests/e2e/test_stale_clients`."""

import ast
import asyncio
import gc
import logging
import sys
import threading
import warnings
from pathlib import Path

import aiohttp
import httpx2
import pytest

from alipes.runtime.tasks import handle_uncaught_errors, report_unclosed_clients
from tests.world.tls import SeenConnection, open_loopback

SRC = Path(__file__).parents[3] / "src" / "alipes"


@pytest.fixture
def shown():
    return []


def dead_loop() -> asyncio.AbstractEventLoop:
    loop = asyncio.new_event_loop()
    loop.close()
    return loop


async def settle() -> None:
    gc.collect()
    for _ in range(3):
        await asyncio.sleep(0)


def start(coro) -> None:
    """A task that nobody waits for."""
    asyncio.get_running_loop().create_task(coro)


async def test_a_task_whose_failure_nobody_asked_for_is_shown_in_one_line_and_logged_in_full(shown, caplog):
    async def unlucky() -> None:
        raise ValueError("bad luck\nand more of it")

    with handle_uncaught_errors(shown.append):
        start(unlucky())
        await settle()
    assert shown == ["Error in the background: ValueError: bad luck (see the log)"]
    assert "in unlucky" in caplog.text


async def test_a_callback_that_raises_is_shown(shown):
    with handle_uncaught_errors(shown.append):
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await settle()
    assert "ZeroDivisionError" in shown[0]


async def test_a_report_of_the_loop_without_an_exception_is_shown(shown):
    with handle_uncaught_errors(shown.append):
        asyncio.get_running_loop().call_exception_handler({"message": "the transport is odd"})
        await settle()
    assert "the transport is odd" in shown[0]


async def test_what_came_last_is_reported_when_the_guard_leaves(shown):
    with handle_uncaught_errors(shown.append):
        asyncio.get_running_loop().call_exception_handler({"message": "at the very end"})
    assert "at the very end" in shown[0]


class Foreign:
    """Not an HTTP client: a failure to close it is reported."""

    async def aclose(self) -> None:
        dead_loop().call_soon(print)


class Vendor(httpx2.AsyncClient):
    """Closes as the vendor SDKs' clients do: from its finaliser, on whichever loop runs."""

    async def aclose(self) -> None:
        dead_loop().call_soon(print)

    def __del__(self) -> None:
        asyncio.get_running_loop().create_task(self.aclose())


async def test_a_client_that_fails_to_close_on_a_dead_loop_is_only_logged(shown, caplog):
    with handle_uncaught_errors(shown.append), caplog.at_level(logging.DEBUG):
        Vendor()
        await settle()
    assert shown == []
    assert f"{__name__}.Vendor" in caplog.text


def on_own_loop(*coroutines) -> None:
    """Run them on a loop as plugins have one, which is closed with tasks that did not end."""
    loop = asyncio.new_event_loop()
    try:
        for coroutine in coroutines:
            loop.run_until_complete(coroutine)
        gc.collect()
    finally:
        loop.close()
    gc.collect()


@pytest.mark.parametrize("ran", [True, False], ids=["it fails to close", "it is never closed"])
async def test_a_client_that_is_collected_on_a_plugins_own_loop_is_only_logged(ran, shown, caplog):
    async def use() -> None:
        Vendor()
        gc.collect()
        for _ in range(3 * ran):
            await asyncio.sleep(0)

    with handle_uncaught_errors(shown.append), caplog.at_level(logging.DEBUG):
        await asyncio.to_thread(on_own_loop, use())
        await settle()
    assert shown == [] and f"{__name__}.Vendor" in caplog.text
    assert [each for each in caplog.records if each.levelno >= logging.WARNING] == []


async def test_other_reports_of_a_plugins_own_loop_are_logged_as_ever(shown, caplog):
    async def fail() -> None:
        asyncio.get_running_loop().call_exception_handler({"message": "the plugin's transport is odd"})

    with handle_uncaught_errors(shown.append):
        await asyncio.to_thread(on_own_loop, fail())
        await settle()
    assert [each.name for each in caplog.records] == ["asyncio"] and "transport is odd" in caplog.text
    on_loop = asyncio.new_event_loop()
    on_loop.call_exception_handler({"message": "after it"})
    on_loop.close()
    assert "after it" in caplog.text, "the loops report as before afterwards"


async def half_read(request: SeenConnection) -> None:
    request.send(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\nhalf")
    await request.reader.read()


async def test_an_answer_of_aiohttp_that_is_dropped_half_read_is_only_logged(shown, caplog):
    async def ask(url: str) -> None:
        session = aiohttp.ClientSession()
        answer = await session.get(url)
        await answer.content.read(4)
        del answer, session

    with handle_uncaught_errors(shown.append), caplog.at_level(logging.DEBUG):
        async with open_loopback(half_read) as server:
            await ask(server.url)
        while "collected: " not in caplog.text:
            await asyncio.sleep(0.01)
            await settle()
    assert shown == [] and "collected: aiohttp." in caplog.text


async def test_anything_else_that_meets_a_dead_loop_is_shown(shown):
    class Asking(httpx2.AsyncClient):
        async def ask(self) -> None:
            dead_loop().call_soon(print)

    async with Asking() as client:
        with handle_uncaught_errors(shown.append):
            start(Foreign().aclose())
            start(client.ask())
            await settle()
    assert [("Event loop is closed" in line) for line in shown] == [True, True]


async def test_a_client_that_fails_to_close_for_another_reason_is_shown(shown):
    class Odd(httpx2.AsyncClient):
        async def aclose(self) -> None:
            raise RuntimeError("something else")

    odd = Odd(transport=httpx2.MockTransport(print))
    with handle_uncaught_errors(shown.append):
        start(odd.aclose())
        await settle()
    assert "something else" in shown[0]
    await super(Odd, odd).aclose()


async def test_a_plain_client_dropped_unclosed_is_named_in_the_log_and_a_closed_one_is_not(shown, caplog):
    with handle_uncaught_errors(shown.append), caplog.at_level(logging.DEBUG):
        await httpx2.AsyncClient().aclose()
        await settle()
        assert "collected" not in caplog.text
        httpx2.AsyncClient()
        with pytest.raises(TypeError):
            httpx2.AsyncClient(no_such_argument=1)
        await settle()
    assert shown == []
    assert caplog.text.count("collected: httpx2.AsyncClient") == 1
    assert "__del__" not in vars(httpx2.AsyncClient)


async def test_a_finaliser_that_raises_is_shown_unless_it_tells_of_a_dead_loop(shown, caplog):
    class Careless:
        def __del__(self) -> None:
            raise ValueError("in a finaliser")

    class Late:
        def __del__(self) -> None:
            dead_loop().call_soon(print)

    with handle_uncaught_errors(shown.append):
        Careless()
        Late()
        await settle()
    assert "in a finaliser" in shown[0]
    assert len(shown) == 2, "only asyncio's own finalisers are known to be harmless"


async def test_an_asyncio_transport_of_a_dead_loop_is_only_logged(shown, caplog):
    def leave_a_child_behind() -> list[object]:
        loop = asyncio.new_event_loop()
        child = loop.run_until_complete(loop.subprocess_exec(asyncio.SubprocessProtocol, "sleep", "0.1"))
        loop.close()
        return [child]

    kept = await asyncio.to_thread(leave_a_child_behind)
    with handle_uncaught_errors(shown.append), caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        kept.clear()
        # Held by the thread that waits for the child, until the child ends.
        while "asyncio.base_subprocess.BaseSubprocessTransport.__del__" not in caplog.text:
            await asyncio.sleep(0.02)
            await settle()
    assert shown == []


async def test_a_warning_goes_to_the_log_and_not_over_the_prompt(shown, caplog, capfd):
    with handle_uncaught_errors(shown.append), caplog.at_level(logging.DEBUG), warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("old ways", DeprecationWarning, stacklevel=1)
        warnings.warn("left open", ResourceWarning, stacklevel=1)
        await settle()
    levels = {record.getMessage().partition(" (")[0]: record.levelname for record in caplog.records}
    assert levels["DeprecationWarning: old ways"] == "WARNING"
    assert levels["ResourceWarning: left open"] == "DEBUG"
    assert (shown, capfd.readouterr().err) == ([], "")


async def test_a_thread_that_dies_is_shown_on_the_loop(shown, capfd):
    def die() -> None:
        raise KeyError("thread")

    with handle_uncaught_errors(
        lambda line: shown.append((threading.current_thread() is threading.main_thread(), line))
    ):
        thread = threading.Thread(target=die)
        thread.start()
        await asyncio.to_thread(thread.join)
        await settle()
    assert shown[0][0]
    assert "KeyError" in shown[0][1]
    assert capfd.readouterr().err == ""


@pytest.mark.deadline(60)
async def test_a_show_that_raises_is_not_called_for_ever(caplog):
    calls = []

    def broken(line: str) -> None:
        calls.append(line)
        raise OSError("no screen")

    with handle_uncaught_errors(broken):
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        for _ in range(10):
            await settle()
    assert len(calls) == 1
    assert "no screen" in caplog.text


async def test_everything_is_put_back():
    loop = asyncio.get_running_loop()

    def state():
        return loop.get_exception_handler(), sys.unraisablehook, threading.excepthook, warnings.showwarning

    before, callbacks = state(), list(gc.callbacks)
    with handle_uncaught_errors(print):
        assert state()[0] is not None
        assert all(now is not then for now, then in zip(state(), before, strict=True))
    assert state() == before
    assert gc.callbacks == callbacks


def test_a_library_loaded_later_is_met_at_the_next_collection(monkeypatch):
    class AsyncClient:
        is_closed = False

    noted: list[str] = []
    monkeypatch.delitem(sys.modules, "httpx", raising=False)
    with report_unclosed_clients(noted.append):
        library = type(sys)("httpx")
        library.AsyncClient = AsyncClient
        monkeypatch.setitem(sys.modules, "httpx", library)
        gc.collect()
        AsyncClient()
    assert len(noted) == 1
    assert "AsyncClient" in noted[0]


def test_our_front_ends_leave_our_exception_handler_in_its_place():
    """prompt_toolkit installs its own unless disabled."""
    for path in SRC.rglob("*.py"):
        calls = [node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
        for call in calls:
            if isinstance(call.func, ast.Attribute) and call.func.attr in ("prompt_async", "run_async"):
                seen = {keyword.arg: ast.unparse(keyword.value) for keyword in call.keywords}
                assert seen.get("set_exception_handler") == "False", f"{path.name}:{call.lineno}"
