"""Trying out what was chosen, with real requests, and saying in plain words what is wrong with it."""

import asyncio
import time
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct, structs

from alipes.cli.setup.choices import KEYS_AT
from alipes.cli.setup.plan import Plan
from alipes.config.known_providers import LOCAL
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError, NotAuthorised, OutOfCredit, ProviderError, Transient
from alipes.kernel.messages import user
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.kernel.turns import Replied
from alipes.providers.catalog import near
from alipes.providers.registry import Models
from alipes.providers.streaming import models
from alipes.runtime.http.clients import ClientScope

Kind: TypeAlias = Literal["key", "credit", "unreachable", "address", "model", "other"]
LISTING = 15.0
ANSWERING = 60.0
SHORTEST = 16
"""Tokens that the answer may have: some refuse to be asked for fewer."""


class Trouble(Struct, frozen=True):
    kind: Kind
    says: str
    advice: str = ""

    @property
    def right_place(self) -> bool:
        """Whoever says this is a model server."""
        return self.kind in ("key", "credit", "model")

    def __str__(self) -> str:
        return f"{self.says.removesuffix('.')}.{' ' + self.advice if self.advice else ''}"


async def list_models(endpoint: Endpoint, scope: ClientScope) -> tuple[str, ...] | Trouble:
    """What the provider offers; nothing when it does not tell, which not everyone does."""
    if not endpoint.base_url:
        return ()
    try:
        return await models(endpoint, scope.http("setup", connect=endpoint.connect), within=LISTING)
    except ProviderError as error:
        return _trouble(endpoint, error, listed=False)


async def ask(
    plan: Plan, settings: Settings, scope: ClientScope, offered: tuple[str, ...] = ()
) -> float | Trouble:
    """One real question, as short as they come: the seconds until it was answered, or what went wrong."""
    endpoint = plan.endpoint
    with_it = structs.replace(settings, providers={**settings.providers, endpoint.name: endpoint})
    began = time.monotonic()
    try:
        async with asyncio.timeout(ANSWERING), Models(with_it, scope) as opened:
            backend = await opened.open(plan.name)
            request = Request(backend.model, "", (user("Say ok."),), max_tokens=SHORTEST)
            async with backend.provider.stream(request) as deltas:
                async for delta in deltas:
                    if isinstance(delta, Replied):
                        return time.monotonic() - began
    except TimeoutError:
        return Trouble("unreachable", f"{plan.name} did not answer within {ANSWERING:.0f} s")
    except ConfigError as error:
        return Trouble("other", str(error))
    except ProviderError as error:
        trouble = _trouble(endpoint, error, listed=bool(offered))
        if trouble.kind == "model" and plan.model in offered:
            return Trouble("address", trouble.says, _about_address(endpoint))
        if trouble.kind == "model" and (close := near(plan.model, offered, 3)):
            return structs.replace(trouble, advice=f"Near to {plan.model}: {', '.join(close)}.")
        return trouble
    return Trouble("other", f"{plan.name} ended without an answer")


async def list_somewhere(
    endpoint: Endpoint, scope: ClientScope
) -> tuple[tuple[str, ...] | Trouble, Endpoint]:
    """The same, and where that is: at the address, else at the one with the /v1 that people leave out."""
    offered = await list_models(endpoint, scope)
    if isinstance(offered, Trouble) and (longer := _longer(endpoint, offered)):
        again = await list_models(longer, scope)
        if not isinstance(again, Trouble) or again.right_place:
            return again, longer
    return offered, endpoint


async def ask_somewhere(
    plan: Plan, settings: Settings, scope: ClientScope, offered: tuple[str, ...] = ()
) -> tuple[float | Trouble, Endpoint]:
    """The same for the question."""
    answer = await ask(plan, settings, scope, offered)
    if isinstance(answer, Trouble) and (longer := _longer(plan.endpoint, answer)):
        again = await ask(structs.replace(plan, endpoint=longer), settings, scope, offered)
        if not isinstance(again, Trouble) or again.right_place:
            return again, longer
    return answer, plan.endpoint


def _longer(endpoint: Endpoint, trouble: Trouble) -> Endpoint | None:
    if trouble.kind != "address" or endpoint.base_url.endswith("/v1"):
        return None
    return structs.replace(endpoint, base_url=f"{endpoint.base_url}/v1")


def _trouble(endpoint: Endpoint, error: ProviderError, *, listed: bool) -> Trouble:
    """Whose fault it is. Who `listed` models has been reached, and knows the address and how to answer."""
    says = str(error)
    match error:
        case NotAuthorised():
            return Trouble("key", says, _about_key(endpoint))
        case OutOfCredit():
            at = f" at {KEYS_AT[endpoint.name].partition('/')[0]}" if endpoint.name in KEYS_AT else ""
            return Trouble("credit", says, f"The key itself is right: add credit{at}, or choose another.")
        case _ if isinstance(error.__cause__, msgspec.DecodeError) and not listed:
            says = f"what answers at {endpoint.base_url} is not a model server"
            return Trouble("address", says, _about_address(endpoint))
        case _ if "certificate" in says and endpoint.base_url.startswith("https:"):
            advice = "Whom to trust can be said with `alipes config set ca_file FILE`."
            return Trouble("unreachable", says, advice)
        case Transient():
            return Trouble("unreachable", says, "" if listed else _about_way(endpoint))
        case _ if listed:
            return Trouble("model", says)
        case _:
            return Trouble("address", says, _about_address(endpoint))


def _about_key(endpoint: Endpoint) -> str:
    at = KEYS_AT.get(endpoint.name)
    return f"Keys of {endpoint.name} are at {at}." if at else ""


def _about_address(endpoint: Endpoint) -> str:
    last = {"anthropic": "/v1/messages", "openai-responses": "/responses"}.get(
        endpoint.api, "/chat/completions"
    )
    return f"The address is what comes before {last}, and speaks {endpoint.api}."


def _about_way(endpoint: Endpoint) -> str:
    if endpoint.name in LOCAL:
        return f"Is {endpoint.name} running?"
    return "Check the network and the address; `alipes doctor` looks further."
