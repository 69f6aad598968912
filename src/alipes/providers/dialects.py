"""How servers that speak OpenAI's chat API differ from it, by host; a stranger gets the plainest form."""

from msgspec import Struct

from alipes.kernel.messages import Json


class Dialect(Struct, frozen=True):
    limit: str = "max_tokens"
    """The name of the output limit."""
    counts: bool = True
    """Must token counts be asked for? Who counts unasked may reject the question."""
    cache_key: bool = False
    """May a request say which conversation's cached prefix it continues?"""
    nested_effort: bool = False
    """`reasoning: {effort}` in place of `reasoning_effort`."""
    short_ids: bool = False
    """Tool calls' ids are nine letters or digits."""
    answer_before_user: bool = False
    """After tool results the assistant must speak before the user may."""
    signed_calls: bool = False
    """A call that this server did not sign must say so."""
    headers: dict[str, str] = {}
    body: dict[str, Json] = {}
    """What else every request says."""
    marks: str = ""
    """Models whose name contains this want the prompt cache's breakpoints named."""


PLAIN = Dialect()
_BY_HOST = {
    "api.openai.com": Dialect(limit="max_completion_tokens", cache_key=True),
    "openai.azure.com": Dialect(limit="max_completion_tokens", cache_key=True),
    "openrouter.ai": Dialect(
        cache_key=True,
        nested_effort=True,
        headers={"x-title": "alipes"},
        body={"usage": {"include": True}},
        marks="anthropic/",
    ),
    "api.mistral.ai": Dialect(counts=False, short_ids=True, answer_before_user=True),
    "generativelanguage.googleapis.com": Dialect(signed_calls=True),
}


def dialect(base_url: str) -> Dialect:
    host = base_url.partition("://")[2].partition("/")[0].rpartition("@")[2].partition(":")[0].lower()
    for known, spoken in _BY_HOST.items():
        if host == known or host.endswith(f".{known}"):
            return spoken
    return PLAIN
