"""`ctx.llm` and `agent.auxiliary_client`: model requests of plugins outside of the conversation."""

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
from alipes.compat.hermes.modules.current_app import NotAvailable, bridge
from alipes.compat.hermes.openai_format import CompletionResponse, messages_from_wire, response_to_wire, usage_to_wire
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply
from alipes.plugins.context import Context

log = logging.getLogger(__name__)


class PluginLlmTrustError(PermissionError):
    """The plugin asked for a model or provider that the operator has not allowed."""


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


class LlmOptions(Struct, frozen=True):
    """Supported options; others, such as temperature, have no effect."""

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
    """`complete` and `complete_structured` are for worker threads, the `a...` variants for coroutines."""

    def __init__(self, bridge: Bridge, context: Context) -> None:
        self._bridge, self._context = bridge, context

    def complete(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> PluginLlmCompleteResult:
        return self._bridge.wait(self._context, self.acomplete(messages, **options))

    def complete_structured(self, instructions: str = "", input: Any = (), **options: Any) -> PluginLlmStructuredResult:
        return self._bridge.wait(self._context, self.acomplete_structured(instructions, input, **options))

    async def acomplete(self, messages: Sequence[Mapping[str, Any]], **options: Any) -> PluginLlmCompleteResult:
        """Raises `ValueError` without messages, `PluginLlmTrustError`, and errors of the model request."""
        chosen = _parse_options(options)
        reply, provider, model = await self._ask(messages, chosen)
        return PluginLlmCompleteResult(
            reply.message.text, provider, model, usage=_usage(reply), audit=self._audit(chosen)
        )

    async def acomplete_structured(
        self, instructions: str = "", input: Any = (), **options: Any
    ) -> PluginLlmStructuredResult:
        """`parsed` is None if the answer is not JSON. Raises `ValueError` if it does not match the schema."""
        chosen = _parse_options(options)
        blocks = [{"type": "text", "text": input}] if isinstance(input, str) else list(input)
        if not blocks or not instructions:
            raise ValueError("complete_structured needs instructions and at least one input")
        messages: list[dict[str, Any]] = [
            {"role": "system", "content": _build_instructions(instructions, chosen)},
            {"role": "user", "content": blocks},
        ]
        reply, provider, model = await self._ask(messages, chosen)
        text = reply.message.text
        result = PluginLlmStructuredResult(text, provider, model, usage=_usage(reply), audit=self._audit(chosen))
        if chosen.json_schema is not None or chosen.json_mode:
            found, result.parsed = _parse_json(text)
            result.content_type = "json" if found else "text"
            if found and chosen.json_schema is not None:
                _validate(result.parsed, chosen.json_schema)
        return result

    async def _ask(self, messages: Sequence[Mapping[str, Any]], options: LlmOptions) -> tuple[ModelReply, str, str]:
        if not messages:
            raise ValueError("there are no messages to send")
        name = self._model_to_ask(options)
        system = "\n\n".join(str(each["content"]) for each in messages if each.get("role") == "system")
        asked = messages_from_wire([each for each in messages if each.get("role") != "system"])
        host = self._bridge.host
        async with asyncio.timeout(options.timeout):
            reply = await host.ask(asked, system=system, model=name, max_tokens=options.max_tokens or 0)
        turn = host.current_turn()
        provider, _, model = (
            name or (model_of(self._bridge, turn) if turn else str(host.setting("model") or ""))
        ).partition("/")
        log.info(
            "plugin %s asked %s/%s (%s): %d tokens in, %d out",
            self._context.name,
            provider,
            model,
            options.purpose or "no purpose given",
            reply.usage.input,
            reply.usage.output,
        )
        return reply, provider, model

    def _model_to_ask(self, options: LlmOptions) -> str:
        """The model to ask; empty means the current one. Other choices need the operator's permission."""
        config = self._context.config
        rules = config.get("llm", {}) if isinstance(config, Mapping) else {}
        for wish in ("provider", "model", "agent_id", "profile"):
            value = getattr(options, wish)
            if value is None:
                continue
            listed = rules.get(f"allowed_{wish}s")
            if not rules.get(f"allow_{wish}_override") or (listed and value not in listed and "*" not in listed):
                raise PluginLlmTrustError(
                    f"{self._context.name} asks for {wish} {value}; to allow it, set "
                    f"allow_{wish}_override = true in [plugins.entries.{self._context.name}.llm]"
                )
        if options.model is None and options.provider is None:
            return ""
        usual = str(self._bridge.host.setting("model") or "")
        provider = options.provider or usual.partition("/")[0]
        model = options.model or ""
        return model if model.startswith(f"{provider}/") else f"{provider}/{model}".rstrip("/")

    def _audit(self, options: LlmOptions) -> dict[str, Any]:
        audit = {"plugin_id": self._context.name, "purpose": options.purpose, "profile": options.profile}
        return audit | ({"schema_name": options.schema_name} if options.schema_name else {})


def _parse_options(options: Mapping[str, Any]) -> LlmOptions:
    given = {name: options[name] for name in LlmOptions.__struct_fields__ if options.get(name) is not None}
    return convert(given, LlmOptions)


def _usage(reply: ModelReply) -> PluginLlmUsage:
    counts = usage_to_wire(reply.usage)
    return PluginLlmUsage(**{name: counts[name] for name in PluginLlmUsage.__dataclass_fields__})


def _build_instructions(instructions: str, options: LlmOptions) -> str:
    parts = [options.system_prompt or "", instructions]
    if options.json_schema is not None:
        parts.append(f"Answer with one JSON value that matches this schema:\n{json.dumps(options.json_schema)}")
    elif options.json_mode:
        parts.append("Answer with one JSON value.")
    return "\n\n".join(filter(None, parts))


def _parse_json(text: str) -> tuple[bool, Any]:
    """Parse the text as JSON, also inside a code fence."""
    bare = text.strip()
    if bare.startswith("```"):
        bare = bare.partition("\n")[2].rpartition("```")[0]
    try:
        return True, json.loads(bare)
    except ValueError:
        return False, None


def _validate(value: Any, schema: Mapping[str, Any]) -> None:
    """Validate if `jsonschema` is installed; it is not a dependency."""
    if find_spec("jsonschema") is None:
        return
    jsonschema = import_module("jsonschema")
    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError as error:
        raise ValueError(f"the answer does not match the schema: {error.message}") from error


_UNSUPPORTED = ("tools", "base_url", "api_key", "stream")
"""Options that must not be ignored silently."""


def call_llm(task: str | None = None, **options: Any) -> CompletionResponse:
    """Ask a model and wait; only from a worker thread. The answer is `.choices[0].message.content`.

    Uses `messages`, `model`, `provider`, `max_tokens` and `timeout`. The default model is the conversation's;
    `task` and `temperature` have no effect.
    """
    current = bridge()
    return current.wait(current.context(), async_call_llm(task, **options), options.get("timeout"))


async def async_call_llm(_task: str | None = None, **options: Any) -> CompletionResponse:
    """The same for coroutines."""
    if refused := [name for name in _UNSUPPORTED if options.get(name)]:
        raise NotAvailable(f"call_llm({refused[0]}=...)")
    messages: Sequence[Mapping[str, Any]] = options.get("messages") or ()
    system = "\n\n".join(str(each.get("content") or "") for each in messages if each.get("role") == "system")
    conversation = messages_from_wire([each for each in messages if each.get("role") != "system"])
    model, limit = (_model_name(options.get("provider"), options.get("model")), int(options.get("max_tokens") or 0))
    reply = await bridge().host.ask(conversation, system=system, model=model, max_tokens=limit)
    return response_to_wire(reply, Request(model, system, conversation))


def _model_name(provider: str | None, model: str | None) -> str:
    if not provider or provider in ("auto", "main"):
        return model or ""
    return f"{provider}/{model}" if model else provider
