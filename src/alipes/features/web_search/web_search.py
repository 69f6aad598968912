"""`web_search`: searches the web with the configured service."""

from collections.abc import Awaitable, Callable, Mapping

from alipes.features.web_search.search_client import RECENCIES, Recency, SearchesWeb, SearchResult, WebQuery
from alipes.features.web_search.source_numbers import SourceNumbers, clean_url
from alipes.kernel.errors import ToolError
from alipes.kernel.formatting import format_count
from alipes.kernel.messages import Json
from alipes.kernel.ports import ToolContext, ToolOutput, ToolSpec
from alipes.runtime.sandbox.backend import CommandScope
from alipes.tools.common import int_argument, make_schema

DEFAULT_RESULTS, MAX_RESULTS = 5, 20
MAX_QUERY_CHARS = 400
MAX_SNIPPET_CHARS = 400


class WebSearch:
    """The `web_search` tool."""

    spec = ToolSpec(
        name="web_search",
        description="Search the web. Cite results as [n]; the user gets the list.",
        schema=make_schema("query", query="string", limit="integer", recency=[*RECENCIES]),
        effect="read",
        untrusted=True,
    )

    def __init__(
        self,
        choose: Callable[[], Awaitable[SearchesWeb]],
        numbers: SourceNumbers,
        why_unavailable: Callable[[], str] = str,
    ) -> None:
        """`choose()`: the service to use now. Raises `ToolError` if there is none."""
        self._choose, self._numbers, self.why_unavailable = choose, numbers, why_unavailable

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> ToolOutput:
        query = _parse_arguments(args)
        service = await self._choose()
        await act.progress(f"asking {service.name}\n")
        found = await service.search(query, CommandScope(act.session, act.workdir, act.turn))
        results = [each for each in found if each.url.startswith(("http://", "https://"))][: query.limit]
        if not results:
            return ToolOutput(f"No results from {service.name} for {query.text!r}.")
        await act.progress(f"{format_count(len(results), 'result')}\n")
        sources = self._numbers.number(act.turn, [(each.url, each.title) for each in results])
        pairs = zip(sources, results, strict=True)
        return ToolOutput("\n".join(_format(source.number, each) for source, each in pairs), sources=sources)


def _format(number: int, result: SearchResult) -> str:
    snippet = " ".join(result.snippet.split())
    if len(snippet) > MAX_SNIPPET_CHARS:
        snippet = f"{snippet[: MAX_SNIPPET_CHARS - 1]}…"
    lines = [f"[{number}] {' '.join(result.title.split()) or '(no title)'}", clean_url(result.url)]
    lines += [f"({result.date[:10]}) {snippet}" if result.date else snippet] if snippet or result.date else []
    return "\n    ".join(lines)


def _parse_arguments(args: Mapping[str, Json]) -> WebQuery:
    text = " ".join(str(args["query"]).split())
    if not text:
        raise ToolError("query is empty")
    if len(text) > MAX_QUERY_CHARS:
        raise ToolError(
            f"the query has {len(text)} characters; the maximum is {MAX_QUERY_CHARS}: search for fewer words"
        )
    limit = min(max(int_argument(args, "limit", DEFAULT_RESULTS), 1), MAX_RESULTS)
    recency: Recency = next((each for each in RECENCIES if each == args.get("recency")), "")
    return WebQuery(text, limit, recency)
