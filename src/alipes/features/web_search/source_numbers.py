"""Numbers of web pages within a conversation, so that the model can cite them as [1] and answers can list them."""

import re
from collections.abc import Iterable, Iterator
from urllib.parse import quote

from alipes.kernel.messages import Message, ToolResult, WebSource
from alipes.kernel.turns import Turn

_KEPT = "!#$%&'()*+,/:;=?@[]~"


class SourceNumbers:
    """Gives each URL of a conversation one number. Earlier ones are taken from the transcript, also after a restart."""

    def __init__(self) -> None:
        self._turns: dict[str, dict[str, int]] = {}
        """By turn, while it runs: the number of each URL."""

    def number(self, turn: Turn, pages: Iterable[tuple[str, str]], *, read: bool = False) -> tuple[WebSource, ...]:
        """The sources for pages given as URL and title; a URL that the conversation knows keeps its number."""
        known = self._turns.get(turn.id)
        if known is None:
            known = self._turns[turn.id] = {source.url: source.number for source in _recorded_sources(turn)}
        sources = []
        for url, title in pages:
            address = clean_url(url)
            number = known.setdefault(address, max(known.values(), default=0) + 1)
            sources.append(WebSource(number, address, " ".join(title.split())[:300], read))
        return tuple(sources)

    async def turn_ended(self, turn: Turn) -> None:
        """Hook: what is needed later is in the transcript."""
        self._turns.pop(turn.id, None)


def clean_url(url: str) -> str:
    """Safe between `<` and `>`: no spaces, brackets or line breaks."""
    return quote(re.sub(r"\s+", "", url), safe=_KEPT)


def _recorded_sources(turn: Turn) -> Iterator[WebSource]:
    """Those of the conversation so far, and of calls that finished before this process resumed the turn."""
    messages: tuple[Message, ...] = (*turn.history, *turn.said)
    results = [part for message in messages for part in message.parts if isinstance(part, ToolResult)]
    for result in (*results, *filter(None, turn.tool_results.values())):
        yield from result.sources
