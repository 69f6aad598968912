"""Transcribes voice notes and speaks texts: with the operator's own service, or with providers of plugins."""

import asyncio
import logging
import os
from collections.abc import Mapping
from typing import Any

from alipes.agent.provider_calls import call_provider, find_providers
from alipes.config.environment import process_environment
from alipes.config.settings import Settings
from alipes.kernel.errors import MessageRejected, PluginError, ToolError
from alipes.plugins.dispatch import guard
from alipes.plugins.owner import PluginOwner
from alipes.plugins.registry import Contributions, ProviderContribution
from alipes.providers.transcription import FAILED, NOT_SET_UP, Transcribe, command_transcriber, endpoint_transcriber
from alipes.runtime.http.clients import ClientScope
from alipes.tools.common import child_environment

log = logging.getLogger(__name__)
TRANSCRIPTION_PROVIDER, VOICE_PROVIDER = "transcription", "tts"
"""`ctx.provide("transcription", name, thing)` and `ctx.provide("tts", name, thing)`; see docs/plugin-api.md."""
TIMEOUT_S = 120.0


class Speech:
    """The operator's own transcription is asked first, then the providers in order."""

    def __init__(self, contributions: Contributions, own: Transcribe | None = None) -> None:
        self._contributions, self._own = contributions, own

    async def transcribe(self, path: str) -> str:
        """The text of a sound file. Raises `MessageRejected` with a sentence for the sender."""
        reason = NOT_SET_UP
        if self._own is not None:
            try:
                return await self._own(path)
            except MessageRejected as error:
                reason = str(error)
        for provider in await find_providers(self._contributions, TRANSCRIPTION_PROVIDER):
            text = _transcript(await self._ask(provider, "transcribe", path, options={}))
            if text is not None:
                return text
            reason = FAILED
        raise MessageRejected(reason)

    def has_voice(self) -> bool:
        """True if a plugin provides a voice, available or not."""
        return bool(self._contributions.providers(VOICE_PROVIDER))

    async def speak(self, text: str, path: str, *, options: Mapping[str, Any] = {}) -> str:
        """Write speech to `path` and return the path of the file. Raises `ToolError`."""
        kind = os.path.splitext(path)[1].lstrip(".") or "mp3"
        given = {"format": kind, **options}
        for provider in await find_providers(self._contributions, VOICE_PROVIDER):
            answer = await self._ask(provider, "synthesize", text, path, options=given)
            made = answer if isinstance(answer, str) and answer else path
            if await asyncio.to_thread(os.path.isfile, made):
                return made
        raise ToolError("no voice is available: enable a plugin that provides one")

    async def _ask(self, provider: ProviderContribution, method: str, *args: Any, options: Mapping[str, Any]) -> Any:
        """Its answer; None if it fails, which is logged. Failures of a service do not disable the plugin."""
        owner = PluginOwner(provider.owner.name, permanent=True)
        work = call_provider(provider, method, *args, options=options, seconds=TIMEOUT_S)
        try:
            return await guard(owner, f"{provider.kind} {provider.name}", work, deadline=TIMEOUT_S)
        except PluginError as error:
            log.warning("%s", error)
            return None


def _transcript(answer: Any) -> str | None:
    """The text in the answer of a provider: a string, or a dict as Hermes providers return."""
    if isinstance(answer, str):
        return answer.strip()
    if not isinstance(answer, Mapping):
        return None
    if answer.get("success") is False or answer.get("error"):
        log.warning("transcription failed: %s", answer.get("error"))
        return None
    text = answer.get("transcript", answer.get("text"))
    return text.strip() if isinstance(text, str) else None


def make_speech(settings: Settings, scope: ClientScope, contributions: Contributions) -> Speech:
    chosen = settings.gateway
    own = None
    if chosen.stt_command:
        own = command_transcriber(chosen.stt_command, child_environment(process_environment(), settings.secrets()))
    elif chosen.stt_url:
        own = endpoint_transcriber(scope.http("stt"), chosen.stt_url, model=chosen.stt_model, key=chosen.stt_key)
    return Speech(contributions, own)
