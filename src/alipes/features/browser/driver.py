"""The process of the browser: Playwright's driver and Chromium, one tree of child processes.

Playwright would start its driver itself, without our mark and with our variables. Here it is started like every other
child, so that the driver and Chromium end with their scope, also if this process is killed.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from alipes.features.browser.chromium import (
    NO_PROXY_URL,
    chromium_arguments,
    chromium_environment,
    find_chromium,
    shorten_path,
    uses_sandbox,
)
from alipes.features.browser.settings import BrowserConfig
from alipes.kernel.errors import ToolError
from alipes.runtime.processes.child import Child, open_child
from alipes.runtime.processes.process_tree import OrphanGuard, scratch_directory
from alipes.runtime.tasks import unwrap_error_group

if TYPE_CHECKING:
    from playwright.async_api import Browser as PlaywrightBrowser

log = logging.getLogger(__name__)
START_TIMEOUT_S = 60.0
CLOSE_TIMEOUT_S = 2.0
WRITE_TIMEOUT_S = 600.0
_QUIET = 'exec "$@" 2>/dev/null'
"""Its messages to the standard error must not mix with the protocol on its standard output."""


class BrowserProcess(Struct, frozen=True):
    browser: "PlaywrightBrowser"
    downloads: Path
    """Where Chromium puts files until they are saved."""

    @property
    def has_ended(self) -> bool:
        """True if Chromium or the driver has ended."""
        return not self.browser.is_connected()


class _DriverLink:
    """Messages to and from the driver: JSON after four bytes with its length."""

    def __init__(self, child: Child, connection: Any, wait_for_next_task: Any) -> None:
        self._child, self._connection, self._wait_for_next_task = child, connection, wait_for_next_task
        self._queue: asyncio.Queue[bytes] = asyncio.Queue()
        connection.onmessage = self._send

    def _send(self, message: dict[str, Any]) -> None:
        data = json.dumps(message).encode()
        self._queue.put_nowait(len(data).to_bytes(4, "little") + data)

    async def write(self) -> None:
        """Pass on messages until `close` is called or the driver ends; then close its input, which ends it."""
        try:
            while data := await self._queue.get():
                await self._child.input.write(data, WRITE_TIMEOUT_S)
        except OSError as error:
            log.debug("browser: the driver does not read any longer: %s", error)
        self._child.input.close()

    async def read(self) -> None:
        """Pass on messages until the driver has ended."""
        buffer = bytearray()
        try:
            while piece := await self._child.read():
                buffer += piece
                for message in _split_messages(buffer):
                    self._dispatch(message)
                    await self._wait_for_next_task()  # as the driver expects: one message at a time
        finally:
            self._connection.close()
            self.close()

    def close(self) -> None:
        self._queue.put_nowait(b"")

    def _dispatch(self, message: Any) -> None:
        from playwright.async_api import Error  # noqa: PLC0415

        try:
            self._connection.dispatch(message)
        except Error as error:  # about an object that is gone
            log.debug("browser: %s", error)


def _split_messages(buffer: bytearray) -> Iterator[Any]:
    """The complete messages in the buffer, which are removed from it."""
    while len(buffer) >= 4 and len(buffer) >= (end := 4 + int.from_bytes(buffer[:4], "little")):
        message = json.loads(bytes(buffer[4:end]))
        del buffer[:end]
        yield message


@asynccontextmanager
async def open_browser_process(
    config: BrowserConfig, environ: Mapping[str, str], keeper: OrphanGuard | None, on_end: Callable[[], None]
) -> AsyncIterator[BrowserProcess]:
    """Start Chromium. Raises `ToolError` if it cannot be started; leaving the scope ends all its processes.

    `on_end()` is called when it ends, also by itself.
    """
    if not (program := find_chromium(config, environ)):
        raise ToolError("Chromium was not found any longer; start alipes again after you have installed it.")
    with scratch_directory(keeper) as scratch, shorten_path(scratch) as folder:
        env = chromium_environment(environ, folder)
        async with _open_driver(env, keeper) as (playwright, link):
            browser = await _launch(playwright, config, program, env=env, folder=folder)
            browser.on("disconnected", lambda _browser: on_end())
            try:
                yield BrowserProcess(browser, folder / "downloads")
            finally:
                link.close()


@asynccontextmanager
async def _open_driver(env: Mapping[str, str], keeper: OrphanGuard | None) -> AsyncIterator[tuple[Any, _DriverLink]]:
    modules = await asyncio.to_thread(_import_playwright)
    node, script = modules["_impl._driver"].compute_driver_executable()
    version = modules["_repo_version"].version
    env = {**env, "PW_LANG_NAME": "python", "PW_CLI_DISPLAY_VERSION": version}
    argv = ("/bin/sh", "-c", _QUIET, "sh", node, script, "run-driver")
    async with open_child(argv, cwd="/", env=env, link="pipes", keeper=keeper) as child:
        connection = modules["_impl.connection"].Connection(asyncio.get_running_loop())
        link = _DriverLink(child, connection, modules["_impl.utils.tasks"].wait_for_next_task)
        with unwrap_error_group():
            async with asyncio.TaskGroup() as group:
                group.create_task(link.read())
                group.create_task(link.write())
                try:
                    yield await _greet_driver(connection, modules), link
                finally:
                    link.close()
                    await _end_driver(child, link)


async def _greet_driver(connection: Any, modules: Mapping[str, Any]) -> Any:
    try:
        async with asyncio.timeout(START_TIMEOUT_S):
            return modules["async_api._generated"].Playwright(await connection.initialize_playwright())
    except TimeoutError as error:
        raise ToolError(f"Playwright did not start within {START_TIMEOUT_S:.0f} s; try again") from error
    except modules["_impl.errors"].Error as error:
        raise ToolError("Playwright could not be started: `alipes install browser` installs it again") from error


async def _end_driver(child: Child, link: _DriverLink) -> None:
    """Wait for a moment until the driver has closed Chromium, else kill both."""
    try:
        async with asyncio.timeout(CLOSE_TIMEOUT_S):
            await child.wait()
    except TimeoutError:
        log.info("browser: it did not close in time and was killed")
    finally:
        link.close()
        child.tree.kill()


def _import_playwright() -> dict[str, Any]:
    """The modules by name. Raises `ToolError` if this version of Playwright has others."""
    names = (
        *("_repo_version", "_impl._driver", "_impl.connection", "_impl.errors", "_impl.utils.tasks"),
        "async_api._generated",
    )
    try:
        return {name: import_module(f"playwright.{name}") for name in names}
    except ImportError as error:
        raise ToolError(f"this version of Playwright cannot be used ({error}): run `alipes install browser`") from error


async def _launch(
    playwright: Any, config: BrowserConfig, program: str, *, env: dict[str, str], folder: Path
) -> "PlaywrightBrowser":
    from playwright.async_api import Error  # noqa: PLC0415

    try:
        browser: PlaywrightBrowser = await playwright.chromium.launch(
            executable_path=program,
            args=chromium_arguments(),
            chromium_sandbox=uses_sandbox(config),
            env={**env},
            proxy={"server": NO_PROXY_URL},
            downloads_path=str(folder / "downloads"),
            handle_sigint=False,
            handle_sigterm=False,
            handle_sighup=False,
            timeout=START_TIMEOUT_S * 1000,
        )
    except Error as error:
        raise ToolError(_explain_launch(program, str(error))) from error
    return browser


def _explain_launch(program: str, text: str) -> str:
    if "sandbox" in text.lower() and ("No usable" in text or "without --no-sandbox" in text):
        return (
            "Chromium's own sandbox does not work on this machine: allow user namespaces, or set browser.sandbox = "
            "off if you accept that a page with an exploit gets the rights of your user."
        )
    lines = [line.strip(" -").partition("[err] ")[2] or line.strip() for line in text.splitlines() if line.strip()]
    fatal = (line for line in lines if "FATAL" in line or line.lower().startswith("error"))
    return f"{program} could not be started: {next(fatal, lines[0])[:300]}"
