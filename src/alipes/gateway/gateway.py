"""The gateway: runs the platforms, receives messages, delivers the outbox and shows live views."""

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from functools import partial

from alipes.core.app import App
from alipes.gateway.commands import ChatCommands
from alipes.gateway.inbound.pipeline import InboundPipeline
from alipes.gateway.live_view import LiveViews
from alipes.gateway.outbound.delivery import OutboxWorker
from alipes.gateway.outbound.policy import OutboundPolicy
from alipes.gateway.outbound.replies import ResumeNotices, delete_old_files
from alipes.gateway.outbound.target import address_message
from alipes.gateway.people import Access
from alipes.gateway.platform_runner import PlatformRunner, PlatformState
from alipes.gateway.platform_state import SharedStates
from alipes.gateway.policy import GatewayPolicy, LateTaskGroup
from alipes.gateway.questions import ChatQuestions
from alipes.kernel.errors import AlipesError, DeliveryError
from alipes.kernel.outbox import Outbound, lane
from alipes.kernel.platform import IncomingMessage, Platform
from alipes.kernel.turns import Turn
from alipes.plugins import specs
from alipes.providers.transcription import Transcribe
from alipes.runtime.tasks import first_error

log = logging.getLogger(__name__)
CLEANUP_INTERVAL = 3600.0
"""Seconds between two removals of old rows and files."""
OUTGOING_MAX_AGE = 30 * 86400.0
"""Seconds that generated files are kept: longer than any message stays in the outbox."""


class Gateway:
    """Serves `platforms`, by name, on an open app."""

    def __init__(
        self,
        app: App,
        platforms: Mapping[str, Platform],
        policy: GatewayPolicy,
        *,
        outbound: OutboundPolicy | None = None,
        restart: Callable[[], None] = lambda: None,
        transcribe: Transcribe | None = None,
    ) -> None:
        """`outbound`: what the app's sessions queue their messages by. `restart`: requests a new process and
        returns at once."""
        self._app, self._policy = app, policy
        self._runners = {name: PlatformRunner(platform) for name, platform in platforms.items()}
        for runner in self._runners.values():
            runner.add_on_ready(partial(self._on_ready, runner))
        self.delivery = OutboxWorker(app.store, self._runners, policy, files=app.chat_files)
        self.counters = self.delivery.counters
        self.access = Access(app.store.people, policy)
        for platform in platforms.values():
            platform.set_fetch_policy(self.access.may_fetch)
        self._questions = ChatQuestions(
            app.store, app.sessions, self.access, self.delivery, self._runners, outgoing=policy.outgoing
        )
        self._resume_notices = ResumeNotices(app.store, self._runners)
        app.sessions.attach(self)
        self._leaders, self._states = app.store.leaders, SharedStates(app.store.platform_states, policy.files)
        self._tasks = LateTaskGroup()
        self._views = LiveViews(app.store, self._runners, policy, self.delivery, self._questions, tasks=self._tasks)
        if outbound is not None:
            outbound.attach(self)
        self.commands = ChatCommands(self.access, self._questions, self._views, page_address=policy.page_address)
        self._pipeline = InboundPipeline(
            app, policy, self.commands, self._views, restart=restart, transcribe=transcribe
        )

    async def run(self) -> None:
        """Serve until cancelled. Raises only `StoreError`; other failures are logged and retried."""
        try:
            await self._app.store.health.warm_up()
            async with asyncio.TaskGroup() as group:
                await self._resume_notices.send(())  # withdraws old rows before a resumed turn asks again
                self._tasks.open(group)
                await self._resume()
                group.create_task(self.delivery.run(), name="delivery")
                group.create_task(self._clean_up(), name="cleanup")
                group.create_task(self._review_questions(), name="questions")
                group.create_task(self._update_menus(), name="menus")
                for name, runner in self._runners.items():
                    serve = runner.serve_elected(self._leaders, partial(self._listen, runner))
                    group.create_task(serve, name=f"platform {name}")
                await self._app.hooks.dispatcher.notify(specs.gateway_started, platforms=tuple(self._runners))
        except* AlipesError as errors:
            raise first_error(errors) from errors

    async def _listen(self, runner: PlatformRunner) -> None:
        """Receive the messages of a platform, as the only process that does."""
        name = runner.name
        async with self._states.share(name):
            await self._pipeline.batcher.recover(name)
            async with asyncio.TaskGroup() as group:
                if self._app.store.clustered:
                    group.create_task(self._serve_others(runner), name=f"others {name}")
                await runner.serve(partial(self.receive, name), silence_timeout=self._policy.silence_timeout)

    async def _serve_others(self, runner: PlatformRunner) -> None:
        """Do what only the receiving process can do for turns of the others, until cancelled."""
        async with asyncio.TaskGroup() as group:
            if not runner.sends_alone:
                for key in await self._app.store.turns.list_running(runner.name):
                    if (address := await self._resume_notices.address(key)) is not None:
                        self._views.watch(address)
                group.create_task(self.delivery.follow(runner.name))
            while True:  # messages of albums that arrived at others, by webhook
                await asyncio.sleep(self._policy.poll_interval)
                await self._pipeline.batcher.recover(runner.name)

    async def receive(self, platform: str, message: IncomingMessage) -> None:
        """Handle a message that arrived on `platform`; it is stored or dealt with once this returns."""
        if message.address.platform != platform:
            raise DeliveryError(f"{platform} reported a message of {message.address.platform}")
        await self._pipeline.receive(message)

    async def send(self, to: str, text: str) -> str:
        """Queue a message for a chat, or for a platform with a default chat; returns its outbox id.

        Raises `MessageRejected` if `to` names nothing.
        """
        outbound = await address_message(self._app.store.people, to, text, self._runners)
        await self.delivery.enqueue(outbound)
        return outbound.id

    def states(self) -> tuple[PlatformState, ...]:
        return tuple(runner.state for runner in self._runners.values())

    def can_reach(self, key: str) -> bool:
        """See `FrontEnd`. A resumed turn may have to ask before the live view of its chat is open again."""
        return key.startswith(tuple(f"agent:main:{name}:" for name in self._runners))

    def send_soon(self, outbound: Outbound) -> None:
        """See `FrontEnd`."""
        self.delivery.notify(outbound.address.platform, outbound.lane)

    async def before_resume(self, keys: tuple[str, ...]) -> None:
        """See `FrontEnd`."""
        await self._resume_notices.send(keys)

    def on_recorded(self, turn: Turn, answer: tuple[Outbound, ...] | None) -> None:
        """See `TurnObserver`. Opens live views also for turns that did not start here."""
        self._views.watch(turn.inbound.address)
        if answer is not None:
            self._views.finalise(turn)
            # the rows appear with the same write, so a lane that looks now finds them
            self.delivery.notify(turn.inbound.address.platform, lane(turn.inbound.address))
        for outbound in answer or ():
            self._app.store.health.call_during_sync(partial(self._prepare, outbound))

    def _prepare(self, outbound: Outbound) -> None:
        """Format a message while its row is being written."""
        if runner := self._runners.get(outbound.address.platform):
            self._tasks.start(runner.prepare(outbound.text), f"preparing {outbound.id}")

    async def _resume(self) -> None:
        """Open live views for resumed sessions and notify their chats once."""
        # also those that the sessions have not looked for yet
        orphans = await self._app.store.turns.list_orphans()
        keys = tuple(dict.fromkeys((*self._app.sessions.recovered, *orphans)))
        await self._resume_notices.send(keys)
        for key in keys:
            if (address := await self._resume_notices.address(key)) is not None:
                await self._questions.recover(key)
                self._views.watch(address)

    def _on_ready(self, runner: PlatformRunner) -> None:
        async def start() -> None:
            await self.delivery.notify_ready(runner.name)
            await self._show_menu(runner)

        self._tasks.start(start(), f"starting {runner.name}")

    def _menu(self) -> tuple[tuple[str, str], ...]:
        return tuple((each.name, each.help) for each in self.commands.known(self._app.contributions))

    async def _update_menus(self) -> None:
        """Plugins add and remove commands at any time, without an event."""
        shown = self._menu()
        while True:
            await asyncio.sleep(self._policy.menu_interval)
            if (wanted := self._menu()) != shown:
                shown = wanted
                for runner in self._runners.values():
                    if runner.ready:
                        await self._show_menu(runner)

    async def _show_menu(self, runner: PlatformRunner) -> None:
        try:
            await runner.set_commands(self._menu())
        except DeliveryError as error:
            log.warning("platform %s does not show our commands: %s", runner.name, error)

    async def _review_questions(self) -> None:
        while True:
            await asyncio.sleep(self._policy.poll_interval)
            await self._questions.review()

    async def _clean_up(self) -> None:
        store = self._app.store
        while True:
            await store.outbox.delete_old()
            await store.drafts.delete_old()
            await store.inbox.delete_old()
            await asyncio.to_thread(delete_old_files, self._policy.outgoing, time.time() - OUTGOING_MAX_AGE)
            await asyncio.sleep(CLEANUP_INTERVAL)
