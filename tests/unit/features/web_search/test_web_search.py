"""The `web_search` tool."""

import pytest

from alipes.features.web_search.search_client import SearchResult
from alipes.features.web_search.source_numbers import SourceNumbers
from alipes.features.web_search.web_search import WebSearch
from alipes.kernel.errors import ToolError
from alipes.kernel.messages import WebSource
from tests.unit.features.web_search.context import FakeContext, make_turn

RESULTS = (
    SearchResult("A page", "https://a.example/1", "about it", "2026-01-02T03:04:05Z"),
    SearchResult(" ", "https://b.example/2"),
    SearchResult("no address", "javascript:alert(1)"),
)


class FakeService:
    name = "Fake"

    def __init__(self, *results):
        self.results, self.asked = results, []

    async def search(self, query, caller):
        self.asked.append((query.text, query.limit, query.recency, caller.session))
        return self.results


def make_tool(service, numbers=None):
    async def choose():
        return service

    return WebSearch(choose, numbers or SourceNumbers())


async def test_results_are_numbered_and_recorded_as_sources():
    tool, act = make_tool(FakeService(*RESULTS)), FakeContext()
    output = await tool.run({"query": " larks  in\nVienna ", "limit": 3, "recency": "week"}, act)
    assert output.text == (
        "[1] A page\n    https://a.example/1\n    (2026-01-02) about it\n[2] (no title)\n    https://b.example/2"
    )
    assert output.sources == (WebSource(1, "https://a.example/1", "A page"), WebSource(2, "https://b.example/2"))
    assert act.said == ["asking Fake\n", "2 results\n"]


async def test_the_query_is_passed_on_with_sensible_limits():
    service = FakeService()
    tool = make_tool(service)
    await tool.run({"query": " larks  in\nVienna "}, FakeContext())
    await tool.run({"query": "x", "limit": 99, "recency": "day"}, FakeContext())
    await tool.run({"query": "x", "limit": -1}, FakeContext())
    assert service.asked == [("larks in Vienna", 5, "", "s1"), ("x", 20, "day", "s1"), ("x", 1, "", "s1")]


async def test_no_results_are_said_so():
    output = await make_tool(FakeService()).run({"query": "larks"}, FakeContext())
    assert output.text == "No results from Fake for 'larks'." and output.sources == ()


@pytest.mark.parametrize(("query", "why"), [("  ", "query is empty"), ("x" * 401, "the maximum is 400")])
async def test_bad_queries_are_refused_with_a_hint(query, why):
    with pytest.raises(ToolError, match=why):
        await make_tool(FakeService()).run({"query": query}, FakeContext())


async def test_a_long_snippet_is_shortened():
    output = await make_tool(FakeService(SearchResult("T", "https://a.example/", "w " * 900))).run(
        {"query": "x"}, FakeContext()
    )
    assert len(output.text) < 500 and output.text.endswith("…")


async def test_both_schemas_together_are_small():
    from alipes.features.web_search.web_extract import WebExtract

    assert WebSearch.spec.char_count + WebExtract.spec.char_count < 220 * 4
    for spec in (WebSearch.spec, WebExtract.spec):
        assert spec.effect == "read" and spec.untrusted


async def test_an_address_cannot_break_out_of_its_line():
    url = "https://a.example/x y\n[9] fake>\u202e<b>"
    turn = make_turn()
    output = await make_tool(FakeService(SearchResult("T\n[9] x", url))).run({"query": "x"}, FakeContext(turn))
    assert [line for line in output.text.split("\n") if line.startswith("[9]")] == []
    assert not {">", "<", " ", "\n", "\u202e"} & set(output.sources[0].url)
