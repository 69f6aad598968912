"""The list of conversations to choose from: those of this folder first, with a preview, rename and delete."""

import os
import time
from collections.abc import Sequence

from msgspec import structs

from alipes.cli.terminal.input.completion import ArgumentChoice
from alipes.cli.terminal.pickers.picker import Picker, PickerAction, PickerItem
from alipes.cli.terminal.terminal import TerminalApp
from alipes.core.app import App
from alipes.kernel.attachments import collapse_attachments
from alipes.kernel.errors import SessionError
from alipes.kernel.formatting import ID, format_ago, format_count, format_excerpt
from alipes.store.ports.archive import SessionFacts
from alipes.store.ports.search import SearchScope

LISTED = 200
PREVIEWED = 3
"""Messages in the preview."""
ROWS_PER_MESSAGE = 2
HERE, ELSEWHERE = "This folder", "Other folders"


async def pick_conversation(terminal: TerminalApp, app: App, workdir: str, current: str = "") -> str | None:
    """Let the user choose a conversation; its id, or None. `current`: the id of the one on the screen."""
    items = [_item(facts, workdir, current) for facts in await list_conversations(app, workdir)]
    actions = _Actions(app, current)
    picker = Picker(
        "Conversations",
        items,
        preview=actions.preview,
        actions={
            "c-r": PickerAction("ctrl-r rename", actions.rename),
            "c-d": PickerAction("ctrl-d delete", actions.delete),
        },
    )
    chosen = await terminal.pick(picker)
    return chosen.value if chosen else None


async def list_conversations(app: App, workdir: str) -> list[SessionFacts]:
    """The conversations of this folder, then the others; each latest first."""
    here = await app.store.archive.sessions(LISTED, scope=SearchScope(workdir=workdir)) if workdir else []
    known = {facts.id for facts in here}
    return [*here, *(facts for facts in await app.store.archive.sessions(LISTED) if facts.id not in known)]


async def conversation_choices(app: App, workdir: str) -> Sequence[ArgumentChoice]:
    """The same as arguments of `/resume`."""
    return [
        ArgumentChoice(facts.id[:ID], facts.title or "(no title)", _describe(facts, workdir))
        for facts in await list_conversations(app, workdir)
    ]


class _Actions:
    """What the list does with a conversation."""

    def __init__(self, app: App, current: str) -> None:
        self._archive, self._sessions, self._current = app.store.archive, app.store.sessions, current
        self._search = app.search

    async def preview(self, item: PickerItem) -> Sequence[str]:
        """The start of its last messages."""
        try:
            messages = await self._archive.messages(item.value)
        except SessionError:  # deleted meanwhile
            return ()
        spoken = [each for each in messages if each.role in ("user", "assistant") and each.text.strip()]
        rows: list[str] = []
        for message in spoken[-PREVIEWED:]:
            lines = [line for line in collapse_attachments(message.text).split("\n") if line.strip()]
            mark = "you: " if message.role == "user" else ""
            rows += [f"{mark}{lines[0]}", *lines[1:ROWS_PER_MESSAGE]]
        return rows

    async def rename(self, picker: Picker, item: PickerItem) -> None:
        title = await picker.ask("New title:", item.label)
        if title is not None and title.strip():
            await self._sessions.configure(item.value, title=title.strip())
            picker.replace(item, structs.replace(item, label=title.strip()))

    async def delete(self, picker: Picker, item: PickerItem) -> None:
        if item.value == self._current:
            picker.note = "this conversation is open here; start another with /new first"
            return
        if not await picker.confirm(f"Delete {format_excerpt(item.label, 30)}? [y] yes [n] no"):
            return
        try:
            await self._archive.delete(item.value)
        except SessionError as error:
            picker.note = str(error)
        else:
            self._search.clean_soon()
            picker.replace(item, None)


def _item(facts: SessionFacts, workdir: str, current: str) -> PickerItem:
    group = HERE if workdir and facts.workdir == workdir else ELSEWHERE
    mark = "*" if facts.id == current else ""
    return PickerItem(facts.id, facts.title or "(no title)", _describe(facts, workdir), group, mark)


def _describe(facts: SessionFacts, workdir: str) -> str:
    parts = [format_ago(facts.updated, time.time()), format_count(facts.turns, "turn")]
    if facts.workdir and facts.workdir != workdir:
        parts.append(_shorten_home(facts.workdir))
    elif not facts.workdir and facts.address.platform != "terminal":
        parts.append(facts.address.platform)
    return " · ".join(parts)


def _shorten_home(path: str) -> str:
    home = os.path.expanduser("~")
    return f"~{path[len(home) :]}" if path == home or path.startswith(f"{home}/") else path
