"""`agent.auxiliary_client`: a question to a model beside the conversation, in the form plugins know."""

from collections.abc import Mapping, Sequence
from typing import Any

from alipes.compat.hermes.names.bound import NotHere, bridge
from alipes.compat.hermes.responses import Response, response_of
from alipes.compat.hermes.wire import messages_from
from alipes.kernel.ports import Request

_REFUSED = ("tools", "base_url", "api_key", "stream")
"""Given with a value, these would be passed over; and another endpoint or no tools is no detail."""


def call_llm(task: str | None = None, **asked: Any) -> Response:
    """Ask, and wait: from a worker thread only. `.choices[0].message.content` is what was said.

    Taken are `messages`, `model`, `provider`, `max_tokens` and `timeout`. The model is by default the one
    that answers in the conversation; `task` and `temperature` are the caller's own business.
    """
    house = bridge()
    return house.wait(house.context(), async_call_llm(task, **asked), asked.get("timeout"))


async def async_call_llm(_task: str | None = None, **asked: Any) -> Response:
    """The same, for who is on the loop."""
    if refused := [name for name in _REFUSED if asked.get(name)]:
        raise NotHere(f"call_llm({refused[0]}=...)")
    messages: Sequence[Mapping[str, Any]] = asked.get("messages") or ()
    system = "\n\n".join(str(each.get("content") or "") for each in messages if each.get("role") == "system")
    told = messages_from([each for each in messages if each.get("role") != "system"])
    model, limit = _model(asked.get("provider"), asked.get("model")), int(asked.get("max_tokens") or 0)
    reply = await bridge().host.ask(told, system=system, model=model, max_tokens=limit)
    return response_of(reply, Request(model, system, told))


def _model(provider: str | None, model: str | None) -> str:
    if not provider or provider in ("auto", "main"):
        return model or ""
    return f"{provider}/{model}" if model else provider
