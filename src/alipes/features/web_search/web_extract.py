"""`web_extract`: reads web pages, documents, feeds and images, in pages or by a question."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from alipes.features.web_search.page_reader import PageReader, WebPage
from alipes.features.web_search.source_numbers import SourceNumbers
from alipes.kernel.errors import ProviderError, ToolError
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Image, Json, WebSource
from alipes.kernel.ports import ToolContext, ToolOutput, ToolSpec
from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.common import int_argument, make_schema
from alipes.tools.images import AskVisionModel, build_vision_prompt, prepare_image

MAX_URLS = 10
DEFAULT_CHARS, MIN_CHARS, MAX_CHARS = 15_000, 500, 44_000
"""Characters of a page that are shown; the last one also for all pages of a call together."""
DESCRIBE_IMAGE = "Describe the image and copy its text."
AskAboutPage: TypeAlias = Callable[[str, WebPage], Awaitable[str]]
"""A question and a page, to the answer of the auxiliary model."""


class WebExtract:
    """The `web_extract` tool."""

    spec = ToolSpec(
        name="web_extract",
        description="Read web pages, PDFs, feeds or images as Markdown. Cite pages as [n].",
        schema=make_schema(
            "urls",
            urls="strings",
            question="string: answered instead of the text",
            char_limit="integer",
            offset="integer: read on from",
        ),
        effect="read",
        untrusted=True,
    )

    def __init__(
        self,
        reader: PageReader,
        numbers: SourceNumbers,
        *,
        ask_model: AskAboutPage,
        ask_vision: AskVisionModel,
        why_unavailable: Callable[[], str] = str,
    ) -> None:
        self._reader, self._numbers, self._ask_model, self._ask_vision = reader, numbers, ask_model, ask_vision
        self.why_unavailable = why_unavailable

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> ToolOutput:
        request = _parse_arguments(args)
        caller = CommandScope(act.session, act.workdir, act.turn)
        progress = _Progress(act, len(request.urls))
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._read(url, request, caller, progress)) for url in request.urls]
        views = [task.result() for task in tasks]
        if all(view.error for view in views):
            raise ToolError("\n".join(view.error for view in views))
        texts, sources = list[str](), list[WebSource]()
        for view in views:
            if view.error:
                texts.append(view.error)
                continue
            (source,) = self._numbers.number(act.turn, [(view.url, view.title)], read=True)
            sources.append(source)
            texts.append(f"[{source.number}] {source.title or '(no title)'}\n{source.url}\n{view.text}")
        images = tuple(image for view in views for image in view.images)
        return ToolOutput("\n\n".join(texts), images, sources=tuple(sources))

    async def _read(self, url: str, request: "_Request", caller: CommandScope, progress: "_Progress") -> "_PageView":
        try:
            page = await self._reader.read(url, caller)
            if page.image:
                view = await self._look_at(page, request.question)
            elif request.question:
                answer = await self._ask_model(request.question, page)
                size = f"[{len(page.text):,} characters; this answers the question only]"
                view = _PageView(page.url, page.title, f"{size}\n\n{answer}")
            else:
                view = _PageView(page.url, page.title, format_part(page, request.offset, request.char_limit))
            await progress.add(page)
        except (ToolError, ProviderError) as error:
            return _PageView(url, error=f"{url[:300]} was not read: {error}")
        return view

    async def _look_at(self, page: WebPage, question: str) -> "_PageView":
        prepared = await asyncio.to_thread(prepare_image, page.image)
        if prepared.image is None:
            return _PageView(page.url, text=f"[{prepared.note}]\n\n{prepared.svg_source}")
        asked = build_vision_prompt(question or DESCRIBE_IMAGE, prepared)
        answer = await self._ask_vision(asked, prepared.image)
        if answer is None:
            return _PageView(page.url, text=f"[{prepared.note}; look at the image]", images=(prepared.image,))
        return _PageView(page.url, text=f"[{prepared.note}]\n\n{answer}")


class _Request(Struct, frozen=True):
    urls: tuple[str, ...]
    question: str
    offset: int
    char_limit: int


class _PageView(Struct, frozen=True):
    """What the model sees of one page."""

    url: str
    title: str = ""
    text: str = ""
    images: tuple[Image, ...] = ()
    error: str = ""


class _Progress:
    """Tells people which pages were read."""

    def __init__(self, act: ToolContext, total: int) -> None:
        self._act, self._total, self._done = act, total, 0

    async def add(self, page: WebPage) -> None:
        self._done += 1
        size = "an image" if page.image else format_count(len(page.text), "character")
        of = f" ({self._done} of {self._total})" if self._total > 1 else ""
        await self._act.progress(f"{urlsplit(page.url).netloc}: {size}{of}\n")


def _parse_arguments(args: Mapping[str, Json]) -> _Request:
    given = args["urls"]
    named = [str(each).strip() for each in given] if isinstance(given, list) else []
    urls = tuple(dict.fromkeys(filter(None, named)))
    if not urls:
        raise ToolError("urls is empty: give at least one whole URL")
    if len(urls) > MAX_URLS:
        raise ToolError(f"{len(urls)} URLs given; read at most {MAX_URLS} in one call")
    offset, limit = int_argument(args, "offset"), int_argument(args, "char_limit", DEFAULT_CHARS)
    if offset < 0 or limit < 1:
        raise ToolError("offset must not be negative, and char_limit must be at least 1")
    limit = min(max(limit, MIN_CHARS), MAX_CHARS // len(urls))
    return _Request(urls, str(args.get("question") or "").strip(), offset, limit)


def format_part(page: WebPage, offset: int, limit: int) -> str:
    """A part of the text, with a line that says how long the whole is and how to read on. Raises `ToolError`."""
    text, total = page.text, len(page.text)
    if offset and offset >= total:
        raise ToolError(f"offset {offset:,} is behind the end: the page has {total:,} characters")
    end = total if offset + limit >= total else _find_break(text, offset + limit, offset + limit * 4 // 5)
    facts = [f"{total:,} characters"]
    if offset or end < total:
        facts.append(f"this is {offset:,}-{end:,}")
    if end < total:
        facts.append(f"{total - end:,} left: read on with offset={end}, or ask a question")
    note = f"\n[{page.note}]" if page.note else ""
    return f"[{'; '.join(facts)}]{note}\n\n{text[offset:end]}"


def _find_break(text: str, end: int, earliest: int) -> int:
    """The end of a paragraph, line or word at or before `end`, not before `earliest`."""
    for mark in ("\n\n", "\n", " "):
        if (found := text.rfind(mark, earliest, end)) > 0:
            return found + len(mark)
    return end
