"""Connects the vision, image, todo, clarify and shell tools to models, plugins, the store and people."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

from alipes.agent.auxiliary import AuxiliaryModels, current_turn
from alipes.agent.budget import SpendingLimits
from alipes.agent.provider_calls import call_provider, find_providers
from alipes.config.settings import Settings
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Image, user
from alipes.kernel.turns import AnswerQuestion, Turn, Usage
from alipes.plugins import specs
from alipes.plugins.dispatch import Hooks
from alipes.plugins.interruption.attribution import TURN
from alipes.plugins.registry import Contributions, ProviderContribution
from alipes.providers.image_generation import ImageModel
from alipes.providers.registry import open_http_client, resolve_model
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import FetchError, PublicFetcher
from alipes.store.sql.conversations import TodoStore
from alipes.store.sql.usage import UsageRecord
from alipes.tools.images import MAX_IMAGE_BYTES, VisionAnalyze
from alipes.tools.todo import TodoItem, TodoItems

IMAGE_PROVIDER = "image_gen"
"""`ctx.provide("image_gen", name, thing)`; see docs/tools.md."""
SIZES = {"landscape": "1536x1024", "square": "1024x1024", "portrait": "1024x1536"}
_items = msgspec.json.Decoder(tuple[TodoItem, ...])


class ImageGenerator:
    """Generates images with the configured model or a plugin."""

    def __init__(
        self,
        contributions: Contributions,
        open_model: Callable[[], ImageModel | None],
        *,
        spending: SpendingLimits,
        fetcher: PublicFetcher,
        seconds: float = 180.0,
    ) -> None:
        """`open_model()`: the configured model, or None; raises `ConfigError` if it cannot be used."""
        self._contributions, self._open_model = contributions, open_model
        self._spending, self._fetcher, self._seconds = spending, fetcher, seconds

    async def is_available(self) -> bool:
        return self._open_model() is not None or await self._plugin() is not None

    async def generate(self, prompt: str, ratio: str, references: tuple[Image, ...]) -> bytes:
        """The image. Raises `ToolError` and `ProviderError` kinds."""
        model = self._open_model()
        if model is not None:
            turn = current_turn()
            async with self._spending.reserve(turn, Usage()):
                image = await model.generate(prompt, SIZES[ratio], references, seconds=self._seconds)
                await self._spending.record(UsageRecord(turn, "images", model.name, image.usage, "image_generate"))
            return image.data or await self._fetch(image.url)
        plugin = await self._plugin()
        if plugin is None:
            raise ToolError("no image model is configured: set images.model or enable an image plugin")
        arguments = {"prompt": prompt, "aspect_ratio": ratio, "images": references}
        return await self._generate_by_plugin(plugin, arguments)

    async def _generate_by_plugin(self, plugin: ProviderContribution, arguments: Mapping[str, Any]) -> bytes:
        """Call its `generate`, sync or async, with the keywords it takes. It returns bytes, a path or a URL,
        also in a dict under `image`, as Hermes plugins do."""
        made = await call_provider(plugin, "generate", options=arguments, seconds=self._seconds)
        if isinstance(made, dict):
            if made.get("error") and not made.get("image"):
                raise ToolError(f"{plugin.name} failed: {made['error']}")
            made = made.get("image")
        if isinstance(made, bytes):
            return made
        location = str(made or "")
        if location.startswith(("http://", "https://")):
            return await self._fetch(location)
        if not location:
            raise ToolError(f"{plugin.name} returned no image")
        return await asyncio.to_thread(Path(location).read_bytes)

    async def _fetch(self, url: str) -> bytes:
        try:
            return (await self._fetcher.fetch(url, largest=MAX_IMAGE_BYTES)).data
        except FetchError as error:
            raise ToolError(f"the image was generated but could not be downloaded: {error}") from error

    async def _plugin(self) -> ProviderContribution | None:
        if not self._contributions.providers(IMAGE_PROVIDER):
            return None  # the usual case
        return next(iter(await find_providers(self._contributions, IMAGE_PROVIDER)), None)


def make_image_generator(
    settings: Settings, scope: ClientScope, contributions: Contributions, spending: SpendingLimits
) -> ImageGenerator:
    endpoint, model = None, ""
    if settings.images.model:
        endpoint, model = resolve_model(settings, settings.images.model)
    allowed = [*settings.fetch.allow]
    if endpoint is not None:  # generated images may be on the same host
        allowed.append(endpoint.base_url.partition("://")[2].partition("/")[0].rpartition("@")[2])

    def open_model() -> ImageModel | None:
        return None if endpoint is None else ImageModel(endpoint, model, open_http_client(endpoint, scope))

    return ImageGenerator(
        contributions,
        open_model,
        spending=spending,
        fetcher=PublicFetcher(scope, allowed, name="drawn"),
        seconds=settings.images.timeout,
    )


class VisionModel:
    """Answers questions about images if the conversation's own model has no vision."""

    def __init__(self, auxiliary: AuxiliaryModels) -> None:
        self._auxiliary = auxiliary

    async def ask(self, question: str, image: Image | None) -> str | None:
        """The answer; None if the conversation's model can see the image itself."""
        turn = current_turn()
        own = await self._auxiliary.backend("", turn)
        separate = bool(self._auxiliary.config_for("vision").model)
        if own.facts.vision or (own.facts.vision is None and not separate):
            return None
        if not separate:
            raise ToolError(f"{own.name} has no vision: set [auxiliary.vision] model")
        asked = user(question) if image is None else user(question, image)
        reply = await self._auxiliary.ask(
            "vision", turn, system="You describe images.", messages=(asked,), tool=VisionAnalyze.spec.name
        )
        return reply.message.text or "(no description)"


class AsksPeople(Protocol):
    """The part of `sessions.questions.Questions` that is needed here."""

    async def ask_question(
        self, turn: Turn, text: str, choices: tuple[str, ...], seconds: float
    ) -> AnswerQuestion | None: ...


class Clarification:
    """Asks the person a question of the model."""

    def __init__(self, questions: AsksPeople, seconds: float) -> None:
        self._questions, self._seconds = questions, seconds

    async def ask(self, question: str, choices: tuple[str, ...]) -> str | None:
        """The answer; None if nobody answers in time."""
        answer = await self._questions.ask_question(current_turn(), question, choices, self._seconds)
        if answer is not None and answer.unasked:
            raise ToolError(
                f"the user could not be asked ({answer.unasked}). Continue with your best judgement and "
                "state your assumptions."
            )
        return None if answer is None else answer.text


class StepLimitQuestion:
    """Asks the person whether a turn at its step limit may continue."""

    def __init__(self, questions: AsksPeople, seconds: float) -> None:
        self._questions, self._seconds = questions, seconds

    async def ask(self, turn: Turn, steps: int) -> str | None:
        """None: it may not, or nobody answered in time. Otherwise the person's words; empty for a plain yes."""
        question = f"Reached {format_count(steps, 'step')}. Continue?"
        answer = await self._questions.ask_question(turn, question, ("yes", "no"), self._seconds)
        words = "" if answer is None or answer.unasked else answer.text.strip()
        if words.lower().rstrip(".!") in ("", "no", "n", "stop", "cancel"):
            return None
        return "" if words.lower().rstrip(".!") in ("yes", "y", "ok", "continue") else words


class StoredTodos:
    """The todo lists of sessions, in the store."""

    def __init__(self, store: TodoStore) -> None:
        self._store = store

    async def read(self, session: str) -> TodoItems:
        data = await self._store.read(session)
        return _items.decode(data) if data else ()

    async def write(self, session: str, items: TodoItems) -> None:
        await self._store.write(session, msgspec.json.encode(items).decode())

    async def list_open(self, session: str) -> tuple[str, ...]:
        """The open items, a line each."""
        items = await self.read(session)
        return tuple(f"todo {item.id} ({item.status}): {item.content}" for item in items if item.open)


class PluginOutputRewriter:
    """Lets plugins rewrite the output of shell commands."""

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def is_active(self) -> bool:
        """True inside a turn if a plugin has the hook."""
        return TURN.get() is not None and self._hooks.dispatcher.has_hooks(specs.terminal_output)

    async def rewrite(self, output: str, command: str, status: int | None) -> str | None:
        """The new text; None if it is unchanged."""
        text = await self._hooks.dispatcher.filter(
            specs.terminal_output, output, command=command, status=status, turn=TURN.get()
        )
        return None if text == output else text
