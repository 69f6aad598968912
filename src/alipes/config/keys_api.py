"""The settings of the HTTP API, and of webhooks that lead into it."""

from collections.abc import Callable

from alipes.config.key import Key
from alipes.config.kinds import HOST, Kind, number, whole
from alipes.config.urls import Wrong, check_base_url
from alipes.kernel.messages import Json


def _each(value: object, check: Callable[[object], str], like: str) -> list[Json]:
    if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
        raise Wrong(f"must be a list like {like}")
    return [check(each) for each in value]


def _origin(value: object) -> str:
    address = check_base_url(str(value)).lower()
    if address.count("/") > 2:
        raise Wrong("has a path: give the page's scheme, host and port alone, as in https://HOST")
    return address


def _parted(text: str) -> list[str]:
    return [each.strip() for each in text.split(",") if each.strip()]


_HOSTS = Kind(
    "list of hosts",
    lambda value: _each(value, lambda each: str(HOST.check(each)).lower(), '["agent.example.com"]'),
    _parted,
)
_ORIGINS = Kind(
    "list of addresses", lambda value: _each(value, _origin, '["https://page.example.com"]'), _parted
)
API_KEYS: tuple[Key, ...] = (
    Key(
        "api.hosts",
        _HOSTS,
        [],
        "Names by which `alipes serve` may be called beside this machine's own, such as that of the web "
        "server in front of it. Others are refused, so that no page reaches us under a name of its own.",
    ),
    Key(
        "api.origins",
        _ORIGINS,
        [],
        "Pages that may call the API from a browser, as in https://HOST. Empty: none of others.",
    ),
    Key(
        "api.rate",
        whole(0, 1_000_000),
        1200,
        "Requests a minute that one key has, unless it was given another number. 0: as many as it likes.",
    ),
    Key("api.body", whole(1000, 1_000_000_000), 20_000_000, "Bytes that one request may bring."),
    Key(
        "api.body_seconds",
        number(0.1, 3600, "seconds"),
        30.0,
        "Seconds in which what a request brings must have arrived.",
    ),
    Key(
        "api.wait",
        number(0.1, 86_400, "seconds"),
        600.0,
        "Seconds that a request waits for its answer. Streams go on for as long as they like.",
    ),
)
