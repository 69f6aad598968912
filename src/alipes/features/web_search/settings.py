"""Settings of web search and of reading web pages."""

from typing import Annotated, Literal

from msgspec import Struct

from alipes.config.value_types import ENDPOINT, VARIABLE, seconds, whole
from alipes.kernel.models import Secret


class WebConfig(Struct, frozen=True):
    search: Annotated[
        Literal["auto", "searxng", "brave", "tavily", "exa", "google", "duckduckgo", "plugin"],
        "What `web_search` uses. `auto`: the first that is configured of SearXNG, a plugin, Brave, Tavily, Exa and "
        "Google; else DuckDuckGo, which needs no key and answers only a few searches in a row.",
    ] = "auto"
    searxng_url: Annotated[
        str, ENDPOINT, "URL of a SearXNG server whose settings allow the format `json`, as in http://127.0.0.1:8080."
    ] = ""
    brave_key_env: Annotated[str, VARIABLE, "Variable with the key of the Brave Search API."] = "BRAVE_API_KEY"
    tavily_key_env: Annotated[str, VARIABLE, "Variable with the key of Tavily."] = "TAVILY_API_KEY"
    exa_key_env: Annotated[str, VARIABLE, "Variable with the key of Exa."] = "EXA_API_KEY"
    google_key_env: Annotated[str, VARIABLE, "Variable with the key of Google's Programmable Search Engine."] = (
        "GOOGLE_SEARCH_API_KEY"
    )
    google_engine: Annotated[str, "Id of the Programmable Search Engine (`cx`). Empty: Google is not used."] = ""
    extract: Annotated[
        Literal["auto", "builtin", "plugin"],
        "What `web_extract` reads pages with: alipes itself, or a search plugin that can read pages. `auto`: alipes "
        "itself if the extra `web` is installed.",
    ] = "auto"
    timeout: Annotated[float, seconds(1, 600), "Seconds that one search or one page may take."] = 30.0
    max_bytes: Annotated[int, whole(10_000, 200_000_000), "Largest page or file that is read, in bytes."] = 10_000_000
    parallel: Annotated[int, whole(1, 64), "Pages of one host that are fetched at the same time."] = 2
    delay: Annotated[float, seconds(0, 60), "Seconds between two requests to the same host."] = 0.5
    cache: Annotated[
        float, seconds(0, 86_400), "Seconds for which a conversation remembers a page it has read. 0: not at all."
    ] = 900.0
    brave_key: Secret = Secret()
    tavily_key: Secret = Secret()
    exa_key: Secret = Secret()
    google_key: Secret = Secret()
