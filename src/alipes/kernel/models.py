"""Where a model is reached, and what it can do: values that config writes and the wires read."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Json

Api: TypeAlias = Literal["openai-chat", "openai-responses", "anthropic", "scripted", "embedded"]


class Secret:
    """A key that does not print. Only the line that puts it on the wire calls `reveal`."""

    __slots__ = ("_value",)

    def __init__(self, value: str = "") -> None:
        self._value = value

    def reveal(self) -> str:
        return self._value

    def __bool__(self) -> bool:
        return bool(self._value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._value == self._value

    def __hash__(self) -> int:
        return hash(self._value)

    def __repr__(self) -> str:
        return "Secret('***')" if self._value else "Secret('')"

    __str__ = __repr__


class Endpoint(Struct, frozen=True):
    """One provider as the operator configured it. Never changed by whoever is given it."""

    name: str
    api: Api
    base_url: str = ""
    key: Secret = Secret()
    key_env: str = ""
    """The variable the key is looked for in; named in errors, never its value."""
    headers: dict[str, str] = {}
    body: dict[str, Json] = {}
    """Merged over every request's JSON body."""
    stall: float = 120.0
    """Seconds without a byte after which a stream counts as dead."""
    connect: float = 10.0
    """Seconds in which a connection must be made."""
    model: str = ""
    """The model meant when only the provider is named."""


class ModelFacts(Struct, frozen=True):
    """What is known of a model. None is unknown, which is neither zero nor free."""

    window: int | None = None
    """Context window in tokens, input and output together."""
    output: int | None = None
    vision: bool | None = None
    tools: bool | None = None
    reasoning: bool | None = None
    price_input: float | None = None
    """US dollars per million tokens, like the other prices."""
    price_output: float | None = None
    price_cached: float | None = None
    price_cache_write: float | None = None
    long_from: int | None = None
    """A call with more input than this is billed at the prices times the two factors, all of it."""
    long_input: float = 1.0
    long_output: float = 1.0


class Proxies(Struct, frozen=True):
    """What the proxy variables say, validated; empty means none."""

    http: str = ""
    https: str = ""
    all: str = ""
    no: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Without the addresses: a proxy's may carry a password."""
        used = [name for name in ("http", "https", "all") if getattr(self, name)]
        return f"Proxies({', '.join(used)}; no={self.no!r})"
