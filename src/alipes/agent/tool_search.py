"""`tool_search`: keeps requests small. Tools of plugins and MCP servers that take too much of the context window are
not listed in requests; the model finds them by words, and they are listed from its next step on.

Nothing is stored: which tools were found follows from the transcript, so a resumed turn lists the same ones.
"""

import math
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeAlias

from alipes.kernel.errors import ToolError
from alipes.kernel.lazy import lazy_pattern
from alipes.kernel.messages import Json, Message, ToolResult
from alipes.kernel.ports import Tool, ToolContext, ToolSpec

NAME = "tool_search"
MAX_SHARE = 0.1
"""The part of the context window that tools may take before some are left to the search."""
TOKENS_PER_CHAR = 0.25
ASSUMED_WINDOW = 100_000
"""Tokens, for a model whose window is not known."""
DEFAULT_LIMIT, MAX_LIMIT = 8, 25
_LISTED_GROUPS = 30
_SUMMARY_CHARS = 160
_WORD = lazy_pattern(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+|[^\W\d_a-zA-Z]+")
_FOUND = lazy_pattern(r"^- ([A-Za-z0-9_-]{1,64}): ", re.MULTILINE)
_NAME_WEIGHT = 3
_SATURATION, _LENGTH_WEIGHT = 1.2, 0.75
_FUSION = 60
"""Of reciprocal rank fusion: how little the first places count more than the next ones."""

RankByMeaning: TypeAlias = Callable[[str, Sequence[str]], Awaitable[Sequence[float] | None]]
"""How similar each text is to a query, by embeddings; None if there are none."""


class ToolSearch:
    """The tool, and the choice of what a request lists."""

    def __init__(
        self, tools: Mapping[str, Tool], groups: Mapping[str, str], rank_by_meaning: RankByMeaning | None = None
    ) -> None:
        """`groups`: the tools that may be left to the search, and the group of each: a server or a plugin."""
        self._groups = {name: group for name, group in groups.items() if name in tools}
        self._specs = {name: tools[name].spec for name in self._groups}
        self._rank_by_meaning = rank_by_meaning
        self.spec = _make_spec(dict.fromkeys(self._groups.values()))

    def select(
        self, specs: tuple[ToolSpec, ...], window: int | None, history: Iterable[Message]
    ) -> tuple[ToolSpec, ...]:
        """The tools that a request lists. Groups are listed whole, in order, as long as they fit. What was found is
        appended in the order in which it was found, so that the beginning of requests stays the same."""
        limit = int((window or ASSUMED_WINDOW) * MAX_SHARE / TOKENS_PER_CHAR)
        if not self._groups or sum(spec.char_count for spec in specs) <= limit:
            return specs
        left_out = self._find_surplus(specs, limit)
        found = dict.fromkeys(name for name in _list_found(history) if name in left_out)
        listed = tuple(spec for spec in specs if spec.name not in left_out)
        return (*listed, self.spec, *(left_out[name] for name in found))

    def _find_surplus(self, specs: tuple[ToolSpec, ...], limit: int) -> dict[str, ToolSpec]:
        room = limit - self.spec.char_count
        sizes: dict[str, int] = {}
        for spec in specs:
            group = self._groups.get(spec.name)
            if group is None:
                room -= spec.char_count
            else:
                sizes[group] = sizes.get(group, 0) + spec.char_count
        kept = set()
        for group, size in sizes.items():
            if size <= room:
                kept.add(group)
                room -= size
        return {spec.name: spec for spec in specs if spec.name in self._groups and self._groups[spec.name] not in kept}

    async def run(self, args: Mapping[str, Json], act: ToolContext) -> str:
        query, limit = str(args["query"]).strip(), args.get("limit", DEFAULT_LIMIT)
        if not query:
            raise ToolError("query is empty; say in a few words what the tool should do")
        count = max(1, min(limit if isinstance(limit, int) else DEFAULT_LIMIT, MAX_LIMIT))
        best = await self._rank(query)
        if not best:
            groups = ", ".join(dict.fromkeys(self._groups.values()))
            return f"No tool matches. Try other words, or the name of a group: {groups}."
        lines = [f"- {name}: {_summarize(self._specs[name].description)}" for name in best[:count]]
        more = f"\n{len(best) - count} more match; use other words or a higher limit." if len(best) > count else ""
        return "\n".join(["You can call these tools from now on:", *lines]) + more

    async def _rank(self, query: str) -> list[str]:
        """Names, best first: by words, and by meaning if something can compare it."""
        if query in self._specs:
            return [query]
        names = list(self._specs)
        by_words = rank_by_words(query, {name: (name, spec.description) for name, spec in self._specs.items()})
        texts = [f"{' '.join(split_words(name))}: {self._specs[name].description}" for name in names]
        scores = await self._rank_by_meaning(query, texts) if self._rank_by_meaning is not None else None
        if scores is None or len(scores) != len(names):
            return by_words
        close = [pair for pair in zip(scores, names, strict=True) if pair[0] > 0]
        by_meaning = [name for _, name in sorted(close, key=lambda pair: -pair[0])[:MAX_LIMIT]]
        return fuse_ranks(by_words, by_meaning)


def split_words(text: str) -> list[str]:
    """Lower-case words; `listIssues` and `list_issues` have the same two, and a plural is like its singular."""
    words = (word.lower() for word in _WORD.findall(text))
    return [word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word for word in words]


def rank_by_words(query: str, texts: Mapping[str, tuple[str, str]]) -> list[str]:
    """BM25 over a name and a description, of which the name counts more. Only those with a word of the query."""
    counts = {
        key: Counter(split_words(name) * _NAME_WEIGHT + split_words(description))
        for key, (name, description) in texts.items()
    }
    average = sum(map(Counter.total, counts.values())) / max(len(counts), 1)
    scores = dict.fromkeys(counts, 0.0)
    for word in set(split_words(query)):
        frequency = sum(word in words for words in counts.values())
        rarity = math.log(1 + (len(counts) - frequency + 0.5) / (frequency + 0.5))
        for key, words in counts.items():
            if times := words[word]:
                norm = _SATURATION * (1 - _LENGTH_WEIGHT + _LENGTH_WEIGHT * words.total() / average)
                scores[key] += rarity * times * (_SATURATION + 1) / (times + norm)
    return sorted((key for key, score in scores.items() if score > 0), key=lambda key: -scores[key])


def fuse_ranks(*rankings: list[str]) -> list[str]:
    """One ranking of several: what is high in any of them is high."""
    scores: dict[str, float] = {}
    for ranking in rankings:
        for place, name in enumerate(ranking):
            scores[name] = scores.get(name, 0.0) + 1 / (_FUSION + place)
    return sorted(scores, key=lambda name: -scores[name])


def _list_found(history: Iterable[Message]) -> Iterable[str]:
    """Tools that were found or called, in the order of the transcript."""
    searches: set[str] = set()
    for message in history:
        for call in message.calls:
            if call.name == NAME:
                searches.add(call.id)
            else:
                yield call.name
        for part in message.parts:
            if isinstance(part, ToolResult) and part.outcome == "ok" and part.call_id in searches:
                yield from _FOUND.findall(part.text)


def _summarize(description: str) -> str:
    line = " ".join(description.split())
    return line if len(line) <= _SUMMARY_CHARS else f"{line[:_SUMMARY_CHARS].rstrip()}…"


def _make_spec(groups: Iterable[str]) -> ToolSpec:
    names = [group.removeprefix("mcp__") for group in groups]
    more = f" and {len(names) - _LISTED_GROUPS} more" if len(names) > _LISTED_GROUPS else ""
    return ToolSpec(
        NAME,
        "Find more tools by what they do. Not all tools are listed: search before you say that something cannot be "
        f"done. Found tools can be called from your next step on. Groups: {', '.join(names[:_LISTED_GROUPS])}{more}.",
        {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "A few words, or the exact name of a tool"},
                "limit": {"type": "integer", "description": f"Default {DEFAULT_LIMIT}, at most {MAX_LIMIT}"},
            },
            "required": ["query"],
        },
        effect="read",
    )
