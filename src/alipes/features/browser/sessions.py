"""The browser of this process: started with the first page, one context per conversation, ended when none is left."""

import asyncio
import logging
import socket
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from alipes.features.browser.chromium import find_obstacle
from alipes.features.browser.driver import BrowserProcess, open_browser_process
from alipes.features.browser.guard import EgressDecider, PageGuard, is_about_resource
from alipes.features.browser.profile import ProfileFile
from alipes.features.browser.session import BrowserSession, open_context
from alipes.features.browser.settings import BrowserConfig
from alipes.features.browser.tabs import Tabs, ignore_errors
from alipes.kernel.errors import ToolError
from alipes.kernel.ports import ToolContext
from alipes.runtime.http.egress import EgressRequest
from alipes.runtime.http.egress_proxy import EgressProxy
from alipes.runtime.http.upstream import UpstreamConnector
from alipes.runtime.processes.process_tree import OrphanGuard
from alipes.runtime.sandbox.backend import CommandScope
from alipes.runtime.tasks import unwrap_error_group

log = logging.getLogger(__name__)
MAX_SESSIONS = 8
"""Conversations with open pages; the one that was used least recently is closed for another one."""
ELEMENT_TIMEOUT_S = 8.0
"""Seconds within which an element must be ready for a click or a key."""
_CLIENT_ERRORS = (ValueError, LookupError, TypeError, AttributeError, AssertionError, RuntimeError)
"""What Playwright's client raises for a message that it does not understand. Only the browser ends."""
LOST = "the browser had ended by itself, so all pages were closed"


class _ProcessStart:
    """A browser process that is starting, is running, or could not be started."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.process: BrowserProcess | None = None
        self.error = "the browser was closed"

    async def wait(self) -> BrowserProcess:
        await self.ready.wait()
        if self.process is None or self.process.has_ended:
            raise ToolError(self.error)
        return self.process


class BrowserSessions:
    """Owns the browser's process, its egress proxy and all contexts."""

    def __init__(
        self,
        config: BrowserConfig,
        rights: EgressDecider,
        connector: UpstreamConnector,
        *,
        environ: Mapping[str, str],
        folder: Path,
        keeper: OrphanGuard | None = None,
    ) -> None:
        """`environ`: variables without secrets. `folder`: where profiles are kept."""
        self.config, self._rights, self._connector = config, rights, connector
        self._environ, self._keeper, self._profile = environ, keeper, ProfileFile(folder, config.profile)
        self._proxy = EgressProxy(self._decide, connector)
        self._group = asyncio.TaskGroup()
        self._exit = AsyncExitStack()
        self._sessions: dict[str, BrowserSession] = {}
        self._guards: dict[str, PageGuard] = {}
        self._lost: set[str] = set()
        self._opening, self._opening_lock = 0, asyncio.Lock()
        self._ending: dict[str, asyncio.Event] = {}
        """Conversations whose pages are being closed."""
        self._start: _ProcessStart | None = None
        self._changed = asyncio.Event()
        self._closing = False
        self.max_sessions, self.element_timeout_s = MAX_SESSIONS, ELEMENT_TIMEOUT_S

    async def __aenter__(self) -> Self:
        await self._exit.enter_async_context(self._proxy)
        await self._group.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._changed.set()
        try:
            with unwrap_error_group():
                await self._group.__aexit__(kind, error, trace)
        finally:
            await self._exit.aclose()

    def why_unavailable(self) -> str:
        """Why the tools cannot be used, as a sentence; empty if they can."""
        return find_obstacle(self.config, self._environ)

    def hosts_read(self, session: str) -> tuple[str, ...]:
        """The hosts whose text the last result of this conversation contained."""
        known = self._sessions.get(session)
        return known.hosts_read if known is not None else ()

    def current_host(self, session: str) -> str:
        """The host of the page that a conversation has open; empty if there is none."""
        known = self._sessions.get(session)
        if known is None or not known.has_page:
            return ""
        known.record_hosts()
        return known.hosts_read[0] if known.hosts_read else ""

    async def session_left(self, session: str) -> None:
        """Hook: the conversation has ended, so its pages are closed."""
        await self.close(session)

    async def close(self, session: str) -> None:
        """Close the pages of a conversation; the browser ends with the last one."""
        known = self._sessions.pop(session, None)
        if known is not None:
            await self._close(session, known)
        self._changed.set()

    @property
    def is_running(self) -> bool:
        return self._start is not None

    @asynccontextmanager
    async def use(self, act: ToolContext, what: str) -> AsyncIterator[BrowserSession]:
        """The pages of the conversation, for one act. Errors of the browser become `ToolError`.

        `what` completes "... took too long". If the act is stopped, the page stops loading; pages that were opened by
        this act are closed.
        """
        if ending := self._ending.get(act.session):
            await ending.wait()
        known = self._sessions.get(act.session)
        session = known or await self._open(act)
        from playwright.async_api import Error  # noqa: PLC0415 - loaded by now

        succeeded = False
        try:
            async with session.lock:
                session.mark_used()
                session.tabs.answer_dialogs(self.config.dialogs)
                scope = CommandScope(act.session, act.workdir, act.turn)
                self._proxy.set_turn(act.session, act.turn)
                async with session.guard.act(scope, self.config.timeout):
                    yield session
            succeeded = True
        except TimeoutError as error:
            raise ToolError(f"{what} took longer than {self.config.timeout:.0f} s (browser.timeout)") from error
        except Error as error:
            if session.context.browser is None or not session.context.browser.is_connected():
                raise ToolError("the browser ended; use browser_navigate to start it again") from error
            raise ToolError(explain_error(error.message, what)) from error
        except asyncio.CancelledError:
            if known is None:
                self._close_soon(act.session)
            else:
                self._spawn(session.stop_loading())
            raise
        finally:
            session.mark_used()
            if known is None and not succeeded and not session.has_page:
                self._close_soon(act.session)
            self._changed.set()

    def _close_soon(self, name: str) -> None:
        """Close the pages of a conversation; its next call waits until they are closed."""
        if self._closing or name in self._ending:
            return
        ended = self._ending[name] = asyncio.Event()

        async def close() -> None:
            try:
                await self.close(name)
            finally:
                del self._ending[name]
                ended.set()

        self._spawn(close())

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if self._closing:
            work.close()
        else:
            self._group.create_task(work)

    async def _decide(self, request: EgressRequest) -> str:
        guard = self._guards.get(request.scope.session)
        return "The page was closed." if guard is None else await guard.decide(request)

    # Contexts

    async def _open(self, act: ToolContext) -> BrowserSession:
        self._opening += 1
        try:
            if self._start is None:
                await act.progress("Starting the browser.")
            async with self._opening_lock:
                process = await self._running_process()
                await self._make_room()
                if known := self._sessions.get(act.session):  # opened by a parallel call meanwhile
                    return known
                session = await self._open_session(process, act)
        finally:
            self._opening -= 1
            self._changed.set()
        if act.session in self._lost:
            self._lost.discard(act.session)
            session.tabs.add_note(LOST)
        return session

    async def _open_session(self, process: BrowserProcess, act: ToolContext) -> BrowserSession:
        guard = PageGuard(self._rights, self._connector.guard, self.config.subresources)
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        self._guards[act.session] = guard
        self._proxy.serve(listener, CommandScope(act.session, act.workdir, act.turn))
        opened = False
        try:
            state = await asyncio.to_thread(self._profile.read)
            context = await open_context(process.browser, self.config, proxy=f"http://127.0.0.1:{port}", state=state)
            tabs = Tabs(context, guard, self._spawn)
            await tabs.listen()
            opened = True
        finally:
            if not opened:
                self._guards.pop(act.session, None)
                self._spawn(self._close_strays(process, act.session))
        session = BrowserSession(
            *(context, tabs, guard, self.config),
            take_refusals=partial(_take_refusals, self._proxy, act.session),
            downloads=process.downloads,
        )
        session.mark_used()
        self._sessions[act.session] = session
        return session

    async def _close_strays(self, process: BrowserProcess, name: str) -> None:
        """Close contexts that no conversation has: opening one was stopped."""
        async with self._opening_lock:
            if name not in self._guards:
                await self._proxy.close_scope(name)
            known = [session.context for session in self._sessions.values()]
            for context in process.browser.contexts:
                if context not in known:
                    await ignore_errors(context.close())

    async def _make_room(self) -> None:
        idle = [(known.last_used, name) for name, known in self._sessions.items() if not known.lock.locked()]
        if len(self._sessions) >= self.max_sessions:
            if not idle:
                raise ToolError(f"{self.max_sessions} conversations use the browser now; try again later")
            await self.close(min(idle)[1])

    async def _close(self, name: str, session: BrowserSession) -> None:
        state = await session.close()
        self._guards.pop(name, None)
        await self._proxy.close_scope(name)
        if state is not None:
            await asyncio.to_thread(self._profile.write, state)

    # The process

    async def _running_process(self) -> BrowserProcess:
        if self._closing:
            raise ToolError("alipes is closing")
        if self._start is None:
            self._start = _ProcessStart()
            self._group.create_task(self._run_process(self._start))
        return await self._start.wait()

    async def _run_process(self, start: _ProcessStart) -> None:
        """The owner of the browser process: it is started and ended here."""
        try:
            async with open_browser_process(self.config, self._environ, self._keeper, self._changed.set) as process:
                start.process = process
                start.ready.set()
                await self._serve(process)
        except (ToolError, OSError) as error:
            start.error = str(error)
            log.warning("browser: %s", error)
        except _CLIENT_ERRORS as error:
            start.error = "the browser ended because of an error, which is in the log; try again"
            log.warning("browser: Playwright's client failed", exc_info=error)
        finally:
            if self._start is start:
                self._start = None
            start.ready.set()

    async def _serve(self, process: BrowserProcess) -> None:
        """Until no conversation uses the browser, or it has ended by itself."""
        while not process.has_ended:
            self._changed.clear()
            now, next_end = _now(), None
            for name, session in [*self._sessions.items()]:
                end = session.last_used + self.config.idle
                if self._closing or (end <= now and not session.lock.locked()):
                    await self.close(name)
                elif not session.lock.locked():
                    next_end = min(end, next_end or end)
            if self._closing or (not self._sessions and not self._opening):
                break
            try:
                async with asyncio.timeout_at(next_end):
                    await self._changed.wait()
            except TimeoutError:
                continue
        self._start = None  # from here on it ends: a call that comes now starts another one
        self._lost.update(self._sessions if process.has_ended else ())
        for name in [*self._sessions]:
            await self.close(name)


def _take_refusals(proxy: EgressProxy, session: str) -> tuple[str, ...]:
    """What the proxy refused, without what the guard counts and what no page has asked for."""
    return tuple(each for each in proxy.take_refusals(session) if not is_about_resource(each))


def explain_error(message: str, what: str) -> str:
    """An error of Playwright as a sentence for the model."""
    first, _, log_text = message.partition("\nCall log:")
    first = first.partition(": ")[2] or first
    if "Timeout" in first and "exceeded" in first:
        lines = [line.strip(" -") for line in log_text.splitlines() if line.strip(" -")]
        hint = next((line for line in reversed(lines) if _is_telling(line)), "")
        return f"{what} was not possible in time{f': {hint[:300]}' if hint else ''}. Take a new browser_snapshot."
    if "net::" in first:
        code = first.partition("net::")[2].split()[0]
        return f"{what} failed: {_NETWORK_ERRORS.get(code, code)}"
    if "Target page, context or browser has been closed" in message:
        return f"{what} failed: the page was closed meanwhile"
    return f"{what} failed: {' '.join(first.split())[:400]}"


_NETWORK_ERRORS = {
    "ERR_NAME_NOT_RESOLVED": "the host is unknown",
    "ERR_CONNECTION_REFUSED": "the host refused the connection",
    "ERR_TUNNEL_CONNECTION_FAILED": "the host cannot be reached",
    "ERR_PROXY_CONNECTION_FAILED": "the egress proxy cannot be reached",
    "ERR_BLOCKED_BY_CLIENT": "it was not allowed",
    "ERR_CONNECTION_CLOSED": "the host closed the connection",
    "ERR_EMPTY_RESPONSE": "the host sent no answer",
    "ERR_ABORTED": "it was cancelled; perhaps it is a download: use browser_download",
    "ERR_CERT_AUTHORITY_INVALID": "its TLS certificate is not trusted",
    "ERR_CERT_DATE_INVALID": "its TLS certificate has expired",
    "ERR_CERT_COMMON_NAME_INVALID": "its TLS certificate is for another host",
    "ERR_SSL_PROTOCOL_ERROR": "it does not speak TLS",
    "ERR_TOO_MANY_REDIRECTS": "it redirects in a circle",
}


def _is_telling(line: str) -> bool:
    return any(word in line for word in ("intercepts", "not visible", "not enabled", "not stable", "outside", "not "))


def _now() -> float:
    return asyncio.get_running_loop().time()
