"""What the web tools need in tests: a call, a turn, a reader of pages on loopback."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from alipes.config.settings import DocumentsConfig
from alipes.features.web_search.converter import PageConverter
from alipes.features.web_search.page_reader import PageReader
from alipes.features.web_search.settings import WebConfig
from alipes.kernel.turns import Address, Inbound, Turn
from alipes.runtime.http.clients import ClientScope
from alipes.runtime.http.public_fetch import PublicFetcher
from alipes.tools.documents.documents import DocumentConverter
from tests.world.web_site import WebSite


def make_turn(id: str = "t1", **more) -> Turn:
    return Turn(id, "s1", Inbound("1", Address("test", "me"), "me", "hi"), **more)


class FakeContext:
    call_id, session, workdir = "c1", "s1", "/"

    def __init__(self, turn: Turn | None = None) -> None:
        self.turn = turn or make_turn()
        self.said: list[str] = []

    async def progress(self, text: str) -> None:
        self.said.append(text)


@asynccontextmanager
async def open_reader(site: WebSite, *, seconds: float = 20.0, **settings) -> AsyncIterator[PageReader]:
    """Reads from the site, with no delay unless the test sets one."""
    chosen = WebConfig(**{"delay": 0.0, **settings})
    async with ClientScope() as scope, PageConverter(dict(os.environ), timeout_s=seconds) as converter:
        documents = DocumentConverter(DocumentsConfig(), env=dict(os.environ))
        yield PageReader(PublicFetcher(scope, [site.place]), converter, chosen, documents=documents)
