"""`ctx.llm`: one question of a plugin to a model, beside the conversation. The host asks it."""

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from msgspec import Struct, convert

from alipes.compat.hermes.bridge import Bridge
from alipes.compat.hermes.hook_arguments import model_of
from alipes.compat.hermes.openai_format import messages_from, usage_of
from alipes.kernel.turns import Replied
from alipes.plugins.context import Context

log = logging.getLogger(__name__)


class PluginLlmTrustError(PermissionError):
    """The plugin asks for a model or provider, and the operator has not allowed it to."""


@dataclass
class PluginLlmUsage:
    input_tokens: int = 0
    output_tokens: int = 0
    total_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cost_usd: float | None = None


@dataclass
class PluginLlmCompleteResult:
    text: str
    provider: str
    model: str
    agent_id: str = "default"
    usage: PluginLlmUsage = field(default_factory=PluginLlmUsage)
    audit: dict[str, Any] = field(default_factory=dict)


@dataclass
class PluginLlmStructuredResult(PluginLlmCompleteResult):
    parsed: Any = None
    content_type: str = "text"


class Options(Struct, frozen=True):
    """What may be said beside the words; what is not here (such as a temperature) has no effect."""

    provider: str | None = None
    model: str | None = None
    agent_id: str | None = None
    profile: str | None = None
    max_tokens: int | None = None
    timeout: float | None = None
    purpose: str | None = None
    system_prompt: str | None = None
    json_schema: dict[str, Any] | None = None
    json_mode: bool = False
    schema_name: str | None = None


class PluginLlm:
    """The plain methods are for worker threads, the `a` ones for coroutines."""

    def __init__(self, bridge: Bridge, context: Context) -> None:
        self._bridge, self._context = bridge, context

    def complete(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> PluginLlmCompleteResult:
        return self._bridge.wait(self._context, self.acomplete(messages, **options))

    def complete_structured(
        self, instructions: str = "", input: Any = (), **options: Any
    ) -> PluginLlmStructuredResult:
        return self._bridge.wait(self._context, self.acomplete_structured(instructions, input, **options))

    async def acomplete(
        self, messages: Sequence[Mapping[str, Any]], **options: Any
    ) -> PluginLlmCompleteResult:
        """Raises `ValueError` without a message, `PluginLlmTrustError`, and what asking a model raises."""
        said = _options(options)
        reply, provider, model = await self._ask(messages, said)
        return PluginLlmCompleteResult(
            reply.message.text, provider, model, usage=_usage(reply), audit=self._audit(said)
        )

    async def acomplete_structured(
        self, instructions: str = "", input: Any = (), **options: Any
    ) -> PluginLlmStructuredResult:
        """`parsed` is None where the answer is no JSON. An answer against the schema is a `ValueError`."""
        said = _options(options)
        blocks = [{"type": "text", "text": input}] if isinstance(input, str) else list(input)
        if not blocks or not instructions:
            raise ValueError("complete_structured needs instructions and at least one input")
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": _instructed(instructions, said)},
            {"role": "user", "content": blocks},
        ]
        reply, provider, model = await self._ask(messages, said)
        text = reply.message.text
        result = PluginLlmStructuredResult(
            text, provider, model, usage=_usage(reply), audit=self._audit(said)
        )
        if said.json_schema is not None or said.json_mode:
            found, result.parsed = _json_in(text)
            result.content_type = "json" if found else "text"
            if found and said.json_schema is not None:
                _validate(result.parsed, said.json_schema)
        return result

    async def _ask(self, messages: Sequence[Mapping[str, Any]], said: Options) -> tuple[Replied, str, str]:
        if not messages:
            raise ValueError("there is no message to send")
        name = self._allowed(said)
        system = "\n\n".join(str(each["content"]) for each in messages if each.get("role") == "system")
        talk = messages_from([each for each in messages if each.get("role") != "system"])
        host = self._bridge.host
        async with asyncio.timeout(said.timeout):
            reply = await host.ask(talk, system=system, model=name, max_tokens=said.max_tokens or 0)
        turn = host.living()
        provider, _, model = (
            name or (model_of(self._bridge, turn) if turn else str(host.setting("model") or ""))
        ).partition("/")
        log.info(
            "plugin %s asked %s/%s (%s): %d tokens in, %d out",
            self._context.name,
            provider,
            model,
            said.purpose or "no purpose given",
            reply.usage.input,
            reply.usage.output,
        )
        return reply, provider, model

    def _allowed(self, said: Options) -> str:
        """The model to ask, or empty for the one that answers anyway. Each wish needs the operator's word."""
        config = self._context.config
        rules = config.get("llm", {}) if isinstance(config, Mapping) else {}
        for wish in ("provider", "model", "agent_id", "profile"):
            value = getattr(said, wish)
            if value is None:
                continue
            listed = rules.get(f"allowed_{wish}s")
            if not rules.get(f"allow_{wish}_override") or (
                listed and value not in listed and "*" not in listed
            ):
                raise PluginLlmTrustError(
                    f"{self._context.name} asks for {wish} {value}; to allow it, set "
                    f"allow_{wish}_override = true in [plugins.entries.{self._context.name}.llm]"
                )
        if said.model is None and said.provider is None:
            return ""
        usual = str(self._bridge.host.setting("model") or "")
        provider = said.provider or usual.partition("/")[0]
        model = said.model or ""
        return model if model.startswith(f"{provider}/") else f"{provider}/{model}".rstrip("/")

    def _audit(self, said: Options) -> dict[str, Any]:
        audit = {"plugin_id": self._context.name, "purpose": said.purpose, "profile": said.profile}
        return audit | ({"schema_name": said.schema_name} if said.schema_name else {})


def _options(options: Mapping[str, Any]) -> Options:
    known = {name: options[name] for name in Options.__struct_fields__ if options.get(name) is not None}
    return convert(known, Options)


def _usage(reply: Replied) -> PluginLlmUsage:
    told = usage_of(reply.usage)
    return PluginLlmUsage(**{name: told[name] for name in PluginLlmUsage.__dataclass_fields__})


def _instructed(instructions: str, said: Options) -> str:
    words = [said.system_prompt or "", instructions]
    if said.json_schema is not None:
        words.append(f"Answer with one JSON value that fits this schema:\n{json.dumps(said.json_schema)}")
    elif said.json_mode:
        words.append("Answer with one JSON value.")
    return "\n\n".join(filter(None, words))


def _json_in(text: str) -> tuple[bool, Any]:
    """The value that the text is, also inside a code fence."""
    bare = text.strip()
    if bare.startswith("```"):
        bare = bare.partition("\n")[2].rpartition("```")[0]
    try:
        return True, json.loads(bare)
    except ValueError:
        return False, None


def _validate(value: Any, schema: Mapping[str, Any]) -> None:
    """Where `jsonschema` is installed; it is no dependency of ours."""
    if find_spec("jsonschema") is None:
        return
    checking = import_module("jsonschema")
    try:
        checking.validate(value, schema)
    except checking.ValidationError as error:
        raise ValueError(f"the answer does not fit the schema: {error.message}") from error
