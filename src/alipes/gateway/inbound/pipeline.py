"""Handles incoming messages: access, commands, answers to questions, and messages for the agent.

A message is stored or dealt with before `receive` returns.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from weakref import WeakValueDictionary

from msgspec import structs

from alipes.core.app import App
from alipes.gateway.commands import ChatCommands
from alipes.gateway.inbound.batcher import Batcher, is_voice
from alipes.gateway.live_view import LiveViews
from alipes.gateway.outbound import replies
from alipes.gateway.policy import GatewayPolicy
from alipes.gateway.questions import is_question_button
from alipes.kernel.approvals import message_source
from alipes.kernel.attachments import format_received_file
from alipes.kernel.errors import MessageRejected
from alipes.kernel.outbox import Outbound
from alipes.kernel.platform import IncomingMessage, ReceivedFile
from alipes.kernel.turns import Inbound
from alipes.kernel.untrusted import to_label
from alipes.providers.transcription import NOT_SET_UP, Transcribe
from alipes.runtime.tasks import run_to_completion, unwrap_error_group
from alipes.sessions.commands.context import CommandReply
from alipes.sessions.commands.registry import Parsed, UnknownCommand, run
from alipes.sessions.sessions import admit_message
from alipes.store.sql.people import PersonRole


async def transcribe_voice(message: IncomingMessage, transcribe: Transcribe | None) -> IncomingMessage:
    """Replace the voice notes of a message by their text. Raises `MessageRejected` if that fails."""
    if transcribe is None:
        raise MessageRejected(NOT_SET_UP)
    texts = [await transcribe(file.path) for file in message.files if file.kind == "voice"]
    text = "\n".join(each for each in (message.text, *texts) if each)
    rest = tuple(file for file in message.files if file.kind != "voice")
    return structs.replace(message, text=text, files=rest)


log = logging.getLogger(__name__)
CONFIRM_DELAY = 0.005
"""Seconds by which the confirmation to the messenger may be delayed so that the turn starts first."""
MAIL = "email"
FORWARDED = "Forwarded"
"""How platforms begin the quotation of a forwarded message."""
MAX_STRANGERS = 1000
"""Strangers that are remembered so that each is logged once."""


class InboundPipeline:
    """Handles the messages of one conversation in order, different conversations concurrently."""

    def __init__(
        self,
        app: App,
        policy: GatewayPolicy,
        commands: ChatCommands,
        views: LiveViews,
        *,
        restart: Callable[[], None],
        transcribe: Transcribe | None = None,
    ) -> None:
        self._app, self._policy, self._commands, self._views = app, policy, commands, views
        self._restart, self._transcribe = restart, transcribe
        self._outbox, self._questions, self._inbox = views.outbox, views.questions, app.store.inbox
        self._access, self._counters = views.questions.access, views.outbox.counters
        self.batcher = Batcher(
            self._inbox, self._on_batch, window=policy.batch_window, tasks=views.tasks, is_receiving=views.is_receiving
        )
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._strangers: set[tuple[str, str]] = set()

    async def receive(self, message: IncomingMessage) -> None:
        """Handle a message. A second copy changes nothing."""
        self._counters.arrived[message.address.platform] += 1
        if message.text.startswith("/"):
            self._questions.release(message.address.key)
        async with self._locks.setdefault(message.address.key, asyncio.Lock()):
            await self._handle(message)

    async def _handle(self, message: IncomingMessage) -> None:
        try:
            message, refused = await self._ask_plugins(message), ""
        except MessageRejected as error:
            if error.by_choice:
                return
            refused = str(error)
        platform_policy = self._policy.for_platform(message.address.platform)
        with unwrap_error_group():
            async with asyncio.TaskGroup() as group:  # two reads, which share a round trip to a database elsewhere
                listing = group.create_task(self._questions.list_open(message.address))
                role = await self._access.role(message.address.platform, message.sender)
        if role is None:
            await self._turn_away(message)
        elif refused:
            await self._reply(message, replies.make_note(message, replies.escape_lines(refused)))
        elif await self._questions.handle(message, role, listing.result()):
            return
        elif message.addressed or not message.group or platform_policy.group == "all":
            parsed = self._commands.parse(message.text, self._app.contributions)
            if isinstance(parsed, UnknownCommand) and not message.addressed and message.group:
                return  # perhaps for another bot
            await (self._handle_command(message, parsed, role) if parsed else self._handle_text(message, role))

    async def _ask_plugins(self, message: IncomingMessage) -> IncomingMessage:
        """Let plugins reject or rewrite the text; they are asked before access is checked."""
        if message.pressed:
            return structs.replace(message, text="" if is_question_button(message.pressed) else message.pressed)
        before = Inbound(message.id, message.address, message.sender, message.text, attachments=message.images)
        after = await admit_message(before, self._app.hooks.dispatcher)
        return message if after is before else structs.replace(message, text=after.text)

    async def _turn_away(self, message: IncomingMessage) -> None:
        platform, person = message.address.platform, message.sender
        self._counters.strangers[platform] += 1
        if (platform, person) not in self._strangers:
            if len(self._strangers) >= MAX_STRANGERS:
                self._strangers.clear()
            self._strangers.add((platform, person))
            log.warning("%s has no access on %s: neither in its allow list nor paired", person, platform)
        if await self._access.offer_code(message):
            self._outbox.notify(platform, replies.make_note(message, "").lane)

    async def _reply(self, message: IncomingMessage, *outbounds: Outbound) -> None:
        """Mark a message as handled and send the replies to it."""
        outbounds = await self._app.chat_files.share_outbound(outbounds)
        await self._inbox.mark_handled(message.address.platform, message.id, owed=outbounds)
        for outbound in outbounds:
            self._outbox.notify(message.address.platform, outbound.lane)

    async def _handle_command(self, message: IncomingMessage, parsed: Parsed, role: PersonRole) -> None:
        platform, command = message.address.platform, parsed.command
        if await self._inbox.contains(platform, message.id):
            return
        if command.owners_only and role != "owner":
            note = replies.make_note(message, replies.escape_lines(f"/{command.name} is for owners."))
            await self._reply(message, note)
            return
        self._views.watch_received(message.address)
        if command.stops_turn:
            self._views.mute(message.address.key)
        if command.run_once:
            await run_to_completion(partial(self._run_once, message, parsed))
        elif not command.plugin:
            await self._run(message, parsed)
        else:  # it may take long; it must not hold up a /stop behind it
            await self._inbox.mark_handled(platform, message.id)
            self._views.tasks.start(self._run(message, parsed), f"/{command.name} {message.id}")

    async def _run_once(self, message: IncomingMessage, parsed: Parsed) -> None:
        """Mark as handled first: after a crash the command is lost rather than run twice."""
        await self._inbox.mark_handled(message.address.platform, message.id)
        await self._run(message, parsed)

    async def _run(self, message: IncomingMessage, parsed: Parsed) -> None:
        inbound = to_inbound([message], workdir=self._policy.workdir)
        inbound = await self._with_sender([message], inbound)
        context = self._app.context(inbound, local_files=False)
        busy = self._policy.for_platform(message.address.platform).usual_busy
        reply: CommandReply = await run(structs.replace(context, default_busy=busy), parsed)
        await self._reply(message, *await replies.to_outbound(message, reply, self._policy.outgoing))
        if parsed.command.name == "restart" and not reply.failed:
            self._restart()

    async def _handle_text(self, message: IncomingMessage, role: PersonRole) -> None:
        if not (message.text.strip() or message.quoted or message.images or message.files):
            return
        message = await self._app.chat_files.share_received(message)
        if message.edits:
            await self._handle_edit(message)
        elif self.batcher.wants(message):
            await self.batcher.add(message)
        else:
            await self._submit([message], [role])

    async def _handle_edit(self, edit: IncomingMessage) -> None:
        if await self.batcher.amend(edit):
            return
        changed = to_inbound([edit], workdir=self._policy.workdir)
        result = await self._inbox.apply_edit(edit.id, edit.edits, changed)
        if result in ("unknown", "late"):
            await self._submit([edit], edited=result == "late")

    async def _on_batch(self, messages: Sequence[IncomingMessage]) -> None:
        complete = []
        for message in messages:
            try:
                voice = is_voice(message)
                await self._app.chat_files.fetch_received(message)
                complete.append(await transcribe_voice(message, self._transcribe) if voice else message)
            except MessageRejected as error:
                await self._outbox.enqueue(replies.make_note(message, str(error), kind="voice"))
                complete += [message] if message.text else []
        if complete:
            await self._submit(complete)

    async def _submit(
        self, messages: Sequence[IncomingMessage], roles: Sequence[PersonRole] = (), *, edited: bool = False
    ) -> None:
        """`roles`: those of the senders, if they are known."""
        inbound = to_inbound(messages, workdir=self._policy.workdir, edited=edited)
        inbound = await self._with_sender(messages, inbound, roles)
        inbound = await self._app.files.attach_received(inbound, [file for each in messages for file in each.files])
        self._views.watch_received(inbound.address)
        busy = self._policy.for_platform(inbound.address.platform).usual_busy
        await self._app.sessions.submit(inbound, usual=busy, ruled=True, unhurried=CONFIRM_DELAY)

    async def _with_sender(
        self, messages: Sequence[IncomingMessage], inbound: Inbound, known: Sequence[PersonRole] = ()
    ) -> Inbound:
        """The message with what is known about who sent it. The sender of a mail is never certain."""
        roles: Sequence[PersonRole | None] = known or [
            await self._access.role(each.address.platform, each.sender) for each in messages
        ]
        owner = all(role == "owner" for role in roles) and inbound.address.platform != MAIL
        return structs.replace(inbound, untrusted=_untrusted_source(messages, roles), owner=owner)


def _untrusted_source(messages: Sequence[IncomingMessage], roles: Sequence[PersonRole | None]) -> str:
    """Whose text it is, unless an owner wrote all of it."""
    for message, role in zip(messages, roles, strict=True):
        if message.address.platform == MAIL:
            return f"mail from {message.sender}"
        if role != "owner":
            return message_source(message.name or message.sender)
        if message.quoted.startswith(FORWARDED):
            return "a forwarded message"
    return ""


def to_inbound(messages: Sequence[IncomingMessage], *, workdir: str = "", edited: bool = False) -> Inbound:
    """One message for the agent from the messages of a batch."""
    first = messages[0]
    text = "\n".join(each.text for each in messages if each.text)
    files = [file for each in messages for file in each.files]
    images = tuple(image for each in messages for image in each.images)
    quoted = next((each.quoted for each in messages if each.quoted), "")
    return Inbound(
        first.id,
        first.address,
        first.sender,
        _compose_text(first, f"edited: {text}" if edited else text, quoted, files),
        attachments=images,
        workdir=workdir,
        reply_to=first.message if first.group else "",
    )


def _compose_text(message: IncomingMessage, text: str, quoted: str, files: Sequence[ReceivedFile]) -> str:
    parts = []
    if quoted:
        lines = "\n".join(f"> {line}" for line in quoted.splitlines())
        parts.append(f"[quoted message, written by someone else:]\n{lines}")
    if text:
        # in a conversation that several people share, each message names its sender
        shared = message.group and not message.address.user
        parts.append(_name_sender(message, text) if shared else text)
    return "\n\n".join([*parts, *map(format_received_file, files)])


def _name_sender(message: IncomingMessage, text: str) -> str:
    """`Ann: text`; further lines are indented, so that none of them can pass for another person's message."""
    name = to_label(message.name or message.sender).replace(":", " ")
    return f"{name}: " + "\n  ".join(text.splitlines())
