"""Stored lists of what servers offer, so that turns know the tools without starting a server.

The first list of a server is accepted, because the operator configured it. Later a tool that is new or has changed is
kept back until a person accepts it.
"""

import contextlib
import os
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from alipes.features.mcp.client.definitions import Definitions, Offer, PromptInfo, ServerInfo, ToolDefinition
from alipes.features.mcp.settings import McpServerConfig
from alipes.runtime.sandbox.policy import short_hash

INSTRUCTIONS = "its instructions"
"""Names changed instructions among changed tools."""


class StoredOffer(Struct, frozen=True):
    """What is known of one server."""

    key: str
    """What it was configured as: another command or URL is another server."""
    accepted: dict[str, str] = {}
    """By tool: the digest of the definition that is offered to models."""
    tools: Definitions = ()
    """Accepted ones that the server still has."""
    pending: Definitions = ()
    """New and changed ones that nobody has accepted yet."""
    prompts: tuple[PromptInfo, ...] = ()
    has_resources: bool = False
    info: ServerInfo = ServerInfo()
    instructions: str | None = None
    """Those that are accepted; None: of an older file, so that the next ones are."""

    @property
    def has_new_instructions(self) -> bool:
        return self.instructions is not None and self.instructions != self.info.instructions

    @property
    def pending_names(self) -> tuple[str, ...]:
        """What a person must accept: tools, and perhaps the instructions."""
        return (*(tool.name for tool in self.pending), *((INSTRUCTIONS,) if self.has_new_instructions else ()))


_decoder = msgspec.json.Decoder(StoredOffer)


def server_key(config: McpServerConfig) -> str:
    """Identifies what is behind the settings of a server."""
    return short_hash(msgspec.json.encode([config.command, [*config.args], config.url]).decode())


class ToolCatalog:
    """The stored offers, one file per server; other processes may change them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._read: dict[str, tuple[tuple[int, int], StoredOffer]] = {}

    def path(self, name: str) -> Path:
        return self._folder / f"{name}.json"

    def find(self, name: str, config: McpServerConfig) -> StoredOffer | None:
        """What is stored about the server; None if it was never connected as configured now."""
        path = self.path(name)
        try:
            facts = os.stat(path)
            stamp = facts.st_mtime_ns, facts.st_ino
            if name not in self._read or self._read[name][0] != stamp:
                self._read[name] = stamp, _decoder.decode(path.read_bytes())
        except (OSError, msgspec.MsgspecError):
            self._read.pop(name, None)
            return None
        stored = self._read[name][1]
        return stored if stored.key == server_key(config) else None

    def record(self, name: str, config: McpServerConfig, offer: Offer, info: ServerInfo) -> tuple[str, ...]:
        """Store what a server offers now. Returns the names of tools that now need to be accepted and did not before.

        Raises OSError.
        """
        before = self.find(name, config)
        now: dict[str, Any] = {"prompts": offer.prompts, "has_resources": offer.has_resources, "info": info}
        if before is None:
            digests = {tool.name: tool.digest for tool in offer.tools}
            offered = StoredOffer(server_key(config), digests, offer.tools, **now, instructions=info.instructions)
            self._write(name, offered)
            return ()
        accepted = tuple(tool for tool in offer.tools if before.accepted.get(tool.name) == tool.digest)
        pending = tuple(tool for tool in offer.tools if before.accepted.get(tool.name) != tool.digest)
        instructions = info.instructions if before.instructions is None else before.instructions
        after = structs.replace(before, tools=accepted, pending=pending, instructions=instructions, **now)
        if after != before:
            self._write(name, after)
        reported = {tool.name: tool.digest for tool in before.pending}
        changed = tuple(tool.name for tool in pending if reported.get(tool.name) != tool.digest)
        is_new = after.has_new_instructions and before.info.instructions != info.instructions
        return (*changed, INSTRUCTIONS) if is_new else changed

    def accept(self, name: str, config: McpServerConfig) -> Definitions:
        """Accept all new and changed tools of a server and its instructions, and return the tools. Raises OSError."""
        stored = self.find(name, config)
        if stored is None or not stored.pending_names:
            return ()
        accepted = {**stored.accepted, **{tool.name: tool.digest for tool in stored.pending}}
        tools = (*stored.tools, *stored.pending)
        instructions = stored.info.instructions
        self._write(
            name, structs.replace(stored, accepted=accepted, tools=tools, pending=(), instructions=instructions)
        )
        return stored.pending

    def forget(self, name: str) -> None:
        """Forget a server: its next list is accepted like the first one."""
        self.path(name).unlink(missing_ok=True)
        self._read.pop(name, None)

    def _write(self, name: str, stored: StoredOffer) -> None:
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        new = self._folder / f".{name}.{os.getpid()}"
        try:
            with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(msgspec.json.encode(stored))
            os.replace(new, self.path(name))
        finally:
            with contextlib.suppress(OSError):
                new.unlink()


def describe_change(before: ToolDefinition | None, after: ToolDefinition) -> str:
    """What is new about a tool, in a few words for the person who accepts it."""
    if before is None:
        return "new"
    parts = [
        word
        for word, changed in (
            ("description", before.description != after.description),
            ("arguments", before.schema != after.schema),
            ("read-only", before.read_only != after.read_only),
            ("title", before.title != after.title),
        )
        if changed
    ]
    return f"changed: {', '.join(parts)}"
