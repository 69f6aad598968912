"""The first exchange with an editor. Answered without the protocol package, whose import takes half a second."""

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from alipes import __version__
from alipes.console.line_input import INVALID_REQUEST, JsonLines

PROTOCOL_VERSION = 1


class EditorFeatures(Struct, frozen=True):
    """What the editor can show."""

    name: str = ""
    """The editor, for the log."""
    terminals: bool = False
    """It shows terminals whose output we send (an extension that Zed has)."""
    forms: bool = False
    """It shows forms, for questions of the model."""
    newer_updates: bool = False
    """It knows updates that came to the protocol later: changed choices, title, use of the context window."""


async def shake_hands(lines: JsonLines) -> EditorFeatures | None:
    """Wait for `initialize` and answer it; None if the input ended before."""
    while (message := await lines.receive()) is not None:
        if message.get("method") == "initialize":
            params = message.get("params")
            result = initialize_result()
            await lines.send({"jsonrpc": "2.0", "id": message.get("id"), "result": result})
            return read_features(params if isinstance(params, Mapping) else {})
        if "id" in message:
            await lines.send_error(message["id"], INVALID_REQUEST, "send initialize first")
    return None


def initialize_result() -> dict[str, Any]:
    """The answer to `initialize`: our version of the protocol and what we support."""
    return {
        "protocolVersion": PROTOCOL_VERSION,
        "agentInfo": {"name": "alipes", "title": "alipes", "version": __version__},
        "agentCapabilities": {
            "loadSession": True,
            "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
            "mcpCapabilities": {"http": True, "sse": True},
            "sessionCapabilities": {"list": {}, "resume": {}, "close": {}},
        },
        "authMethods": [],
    }


def read_features(params: Mapping[str, Any]) -> EditorFeatures:
    """What `initialize` says about the editor; anything of the wrong type counts as missing."""
    able = _mapping(params.get("clientCapabilities"))
    name = str(_mapping(params.get("clientInfo")).get("name") or "")
    return EditorFeatures(
        name=name,
        # Editors give no list of the updates that they know; those that do not name themselves are older than these.
        newer_updates=bool(name) or isinstance(able.get("session"), Mapping),
        terminals=_mapping(able.get("_meta")).get("terminal_output") is True,
        forms=isinstance(_mapping(able.get("elicitation")).get("form"), Mapping),
    )


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
