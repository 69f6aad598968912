"""Tests the chosen provider and model with real requests and explains failures."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Struct, structs

from alipes.cli.setup.choices import KEY_PAGES
from alipes.cli.setup.plan import SetupPlan
from alipes.config.known_providers import LOCAL
from alipes.config.settings import Settings
from alipes.kernel.errors import ConfigError, NotAuthorised, OutOfCredit, ProviderError, Transient
from alipes.kernel.messages import user
from alipes.kernel.models import Endpoint
from alipes.kernel.ports import Request
from alipes.kernel.turns import ModelReply
from alipes.providers.registry import Models, has_model_list, similar_names
from alipes.providers.streaming import models
from alipes.runtime.http.clients import ClientScope

T = TypeVar("T")
ProblemKind: TypeAlias = Literal["key", "credit", "unreachable", "address", "model", "other"]
LIST_TIMEOUT_S = 15.0
ANSWER_TIMEOUT_S = 60.0
MIN_TOKENS = 16
"""Maximum tokens of the test answer; some providers refuse smaller limits."""


class SetupProblem(Struct, frozen=True):
    kind: ProblemKind
    message: str
    advice: str = ""

    @property
    def server_found(self) -> bool:
        """The error shows that a model server answered."""
        return self.kind in ("key", "credit", "model")

    def __str__(self) -> str:
        return f"{self.message.removesuffix('.')}.{' ' + self.advice if self.advice else ''}"


async def list_models(endpoint: Endpoint, scope: ClientScope) -> tuple[str, ...] | SetupProblem:
    """The models of the provider; empty if it does not list them."""
    if not has_model_list(endpoint):
        return ()
    try:
        return await models(endpoint, scope.http("setup", connect=endpoint.connect), within=LIST_TIMEOUT_S)
    except ProviderError as error:
        return _to_problem(endpoint, error, listed=False)


async def try_model(
    plan: SetupPlan, settings: Settings, scope: ClientScope, offered: tuple[str, ...] = ()
) -> float | SetupProblem:
    """Ask one short question: the seconds until the answer, or the problem."""
    endpoint = plan.endpoint
    with_it = structs.replace(settings, providers={**settings.providers, endpoint.name: endpoint})
    began = time.monotonic()
    try:
        async with asyncio.timeout(ANSWER_TIMEOUT_S), Models(with_it, scope) as opened:
            backend = await opened.open(plan.name)
            request = Request(backend.model, "", (user("Say ok."),), max_tokens=MIN_TOKENS)
            async with backend.provider.stream(request) as deltas:
                async for delta in deltas:
                    if isinstance(delta, ModelReply):
                        return time.monotonic() - began
    except TimeoutError:
        return SetupProblem("unreachable", f"{plan.name} did not answer within {ANSWER_TIMEOUT_S:.0f} s")
    except ConfigError as error:
        return SetupProblem("other", str(error))
    except ProviderError as error:
        trouble = _to_problem(endpoint, error, listed=bool(offered))
        if trouble.kind == "model" and plan.model in offered:
            return SetupProblem("address", trouble.message, _address_advice(endpoint))
        if trouble.kind == "model" and (close := similar_names(plan.model, offered, 3)):
            return structs.replace(trouble, advice=f"Similar to {plan.model}: {', '.join(close)}.")
        return trouble
    return SetupProblem("other", f"{plan.name} gave no answer")


async def list_models_or_v1(endpoint: Endpoint, scope: ClientScope) -> tuple[tuple[str, ...] | SetupProblem, Endpoint]:
    """The models and their endpoint: the given address, or the same with the often forgotten /v1."""
    return await _retry_with_v1(endpoint, lambda each: list_models(each, scope))


async def try_model_or_v1(
    plan: SetupPlan, settings: Settings, scope: ClientScope, offered: tuple[str, ...] = ()
) -> tuple[float | SetupProblem, Endpoint]:
    """`try_model` at the given address, or with /v1 appended."""
    return await _retry_with_v1(
        plan.endpoint, lambda each: try_model(structs.replace(plan, endpoint=each), settings, scope, offered)
    )


async def _retry_with_v1(
    endpoint: Endpoint, ask: Callable[[Endpoint], Awaitable[T | SetupProblem]]
) -> tuple[T | SetupProblem, Endpoint]:
    answer = await ask(endpoint)
    if isinstance(answer, SetupProblem) and answer.kind == "address" and not endpoint.base_url.endswith("/v1"):
        longer = structs.replace(endpoint, base_url=f"{endpoint.base_url}/v1")
        again = await ask(longer)
        if not isinstance(again, SetupProblem) or again.server_found:
            return again, longer
    return answer, endpoint


def _to_problem(endpoint: Endpoint, error: ProviderError, *, listed: bool) -> SetupProblem:
    """Explain the error. `listed`: the server listed models, so its address and API are right."""
    says, page = str(error), KEY_PAGES.get(endpoint.name, "")
    match error:
        case NotAuthorised():
            return SetupProblem("key", says, f"Find your {endpoint.name} keys at {page}." if page else "")
        case OutOfCredit():
            at = f" at {page.partition('/')[0]}" if page else ""
            return SetupProblem("credit", says, f"The key is valid: add credit{at}, or choose another provider.")
        case _ if isinstance(error.__cause__, msgspec.DecodeError) and not listed:
            says = f"{endpoint.base_url} is not a model server"
            return SetupProblem("address", says, _address_advice(endpoint))
        case _ if "certificate" in says and endpoint.base_url.startswith("https:"):
            advice = "Trust its certificate with `alipes config set ca_file FILE`."
            return SetupProblem("unreachable", says, advice)
        case Transient():
            advice = "Check the address and your network, or run `alipes doctor`."
            if endpoint.name in LOCAL:
                advice = f"Is {endpoint.name} running?"
            return SetupProblem("unreachable", says, "" if listed else advice)
        case _ if listed:
            return SetupProblem("model", says)
        case _:
            return SetupProblem("address", says, _address_advice(endpoint))


def _address_advice(endpoint: Endpoint) -> str:
    lasts = {"anthropic": "/v1/messages", "openai-responses": "/responses", "gemini": "/models/..."}
    last = lasts.get(endpoint.api, "/chat/completions")
    return f"Use the address without {last}; it must support {endpoint.api}."
