"""Speaks answers to voice notes through adapters that can send voice."""

import logging
import os
from contextlib import suppress
from typing import Any

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.modules.speech import speak_to_file, speech_of
from alipes.compat.hermes.platform.adapter import call_plugin
from alipes.compat.hermes.platform.events import thread_metadata_for_source
from alipes.compat.hermes.platform.platform import overrides
from alipes.compat.hermes.platform.values import MessageType, event_of
from alipes.compat.hermes.state import PlatformEntry
from alipes.kernel.errors import PluginError, ToolError
from alipes.kernel.turns import Turn
from alipes.plugins.dispatch import guard
from alipes.plugins.owner import PluginOwner

log = logging.getLogger(__name__)
SETTING = "auto_tts"
"""In the plugin's table: false turns spoken answers off."""
SEND_TIMEOUT_S = 60.0


class VoiceReplies:
    """A spoken answer follows the written one if the message was a voice note and a plugin provides a voice."""

    def __init__(self, bridge: Bridge, entry: PlatformEntry, adapter: Any) -> None:
        self._bridge, self._entry, self._adapter = bridge, entry, adapter
        self._can_play = any(overrides(adapter, verb) for verb in ("play_tts", "send_voice"))
        self._owner = PluginOwner(f"{entry.owner.name} ({entry.name})", permanent=True)
        extra = getattr(getattr(adapter, "config", None), "extra", None) or {}
        adapter._auto_tts_default = bool(extra.get(SETTING, True))

    def is_wanted(self, turn: Turn) -> bool:
        if not self._can_play or event_of(turn.inbound).message_type is not MessageType.VOICE:
            return False
        decide = getattr(self._adapter, "_should_auto_tts_for_chat", None)
        return bool(decide is None or decide(turn.inbound.address.chat)) and speech_of(self._bridge).has_voice()

    async def send(self, turn: Turn, text: str) -> None:
        """Speak `text` and play it in the chat. Failures are logged: the written answer was sent."""
        prepare = getattr(self._adapter, "prepare_tts_text", str)
        try:
            path = await speak_to_file(self._bridge, prepare(text))
        except ToolError as error:
            log.warning("%s: the answer is not spoken: %s", self._entry.name, error)
            return
        event = event_of(turn.inbound)
        options = {"reply_to": event.message_id, "metadata": thread_metadata_for_source(event.source)}
        play = call_plugin(self._adapter.play_tts, turn.inbound.address.chat, path, **options)
        try:
            with suppress(PluginError):  # already logged
                await guard(self._owner, "play_tts", play, deadline=SEND_TIMEOUT_S)
        finally:
            with suppress(OSError):
                os.unlink(path)
