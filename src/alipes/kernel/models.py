"""Where a model is reached and what it can do: values written by config and read by providers."""

from typing import Literal, TypeAlias

from msgspec import Struct

from alipes.kernel.messages import Json

Api: TypeAlias = Literal["openai-chat", "openai-responses", "anthropic", "gemini", "bedrock", "embedded", "python"]
"""`python`: an object in this process, added by a test kit."""

CredentialKind: TypeAlias = Literal["key", "aws", "azure", "google"]
"""How a provider knows who asks: by a key, or as the cloud does that serves it."""
OnLimit: TypeAlias = Literal["wait", "fallback", "fail"]

SCRIPT_MODEL = "schedule/script"
"""The model of scheduled scripts: it runs the message as a command and costs nothing."""


class Secret:
    """An API key that does not print. Only the code that sends it calls `reveal`."""

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


class NamedKey(Struct, frozen=True):
    """An API key with the variable that holds it."""

    variable: str
    key: Secret


class Endpoint(Struct, frozen=True):
    """One provider as configured by the operator. Immutable."""

    name: str
    api: Api
    base_url: str = ""
    key: Secret = Secret()
    key_env: str = ""
    """The variable that holds the key; named in errors."""
    headers: dict[str, str] = {}
    body: dict[str, Json] = {}
    """Merged over every request's JSON body."""
    stall: float = 120.0
    """Seconds without a byte after which a stream is considered dead."""
    connect: float = 10.0
    """Seconds within which a connection must be made."""
    model: str = ""
    """The default model of this provider."""
    schemas: Literal["auto", "on", "off"] = "auto"
    """Whether requests carry the JSON schema of the answer, to be enforced by the server."""
    on_limit: OnLimit = "fallback"
    """What a turn does when the provider's limit is reached for longer than a short wait."""
    credentials: CredentialKind = "key"
    variables: dict[str, Secret] = {}
    """What the environment says about the credentials of a cloud."""
    keys: tuple[NamedKey, ...] = ()
    """All keys, if there are several; `key` is the first."""


class ModelFacts(Struct, frozen=True):
    """What is known about a model. None means unknown, which is neither zero nor free."""

    window: int | None = None
    """Context window in tokens, input and output together."""
    output: int | None = None
    vision: bool | None = None
    tools: bool | None = None
    reasoning: bool | None = None
    efforts: tuple[str, ...] | None = None
    """Its reasoning levels, of `EFFORT_LEVELS`."""
    price_input: float | None = None
    """US dollars per million tokens, like the other prices."""
    price_output: float | None = None
    price_cached: float | None = None
    price_cache_write: float | None = None
    long_from: int | None = None
    """A call with more input than this is billed entirely at the prices times the two factors."""
    long_input: float = 1.0
    long_output: float = 1.0


class Proxies(Struct, frozen=True):
    """The proxy variables, validated; empty: none."""

    http: str = ""
    https: str = ""
    all: str = ""
    no: tuple[str, ...] = ()

    @property
    def used(self) -> bool:
        """True if any connection may go through a proxy."""
        return bool(self.http or self.https or self.all) and "*" not in self.no

    def __repr__(self) -> str:
        """Without the addresses: a proxy URL may contain a password."""
        used = [name for name in ("http", "https", "all") if getattr(self, name)]
        return f"Proxies({', '.join(used)}; no={self.no!r})"
