"""What the HTTP API stores for itself: keys, webhooks and browsers."""

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

from alipes.kernel.models import Secret

KeyScope: TypeAlias = Literal["read", "run", "admin"]


class ApiKey(Struct, frozen=True):
    """A named key, without its value, which is shown only once when it is created."""

    name: str
    scope: KeyScope
    created: float
    expires: float | None = None
    """When it expires, in seconds since the epoch; None: never."""
    rate: int | None = None
    """Requests per minute; None: the default."""


class ApiKeyStore(Protocol):
    async def add(
        self, name: str, hash: bytes, scope: KeyScope, *, lifetime_s: float = 0.0, rate: int | None = None
    ) -> bool:
        """`lifetime_s` 0: it does not expire. False if the name is already in use."""

    async def find(self, hash: bytes) -> ApiKey | None:
        """The key with this hash, unless it has expired."""

    async def all(self) -> tuple[ApiKey, ...]:
        """All keys, including expired ones."""

    async def revoke(self, name: str) -> bool:
        """False if there is no key with this name."""


SignatureStyle: TypeAlias = Literal["standard", "github"]


class Webhook(Struct, frozen=True, omit_defaults=True):
    """A webhook as the operator configured it. Its fields are stored as JSON: do not rename them."""

    name: str
    prompt: str
    """The task; `{body.path}` and `{headers.name}` are replaced by values of the request. Empty: it only starts jobs
    of the schedules."""
    style: SignatureStyle = "standard"
    """How requests are signed."""
    target: str = ""
    """The chat that gets the answer, as in `alipes send`; empty: none."""
    tools: tuple[str, ...] | None = None
    """The tools it may use. None, as in webhooks of earlier versions, where it meant all: none."""
    model: str = ""
    rate: int = 60
    """Deliveries per minute."""
    together: bool = False
    """All deliveries share one conversation; else each has its own."""


class WebhookStatus(Struct, frozen=True, rename={"deliveries": "taken", "last_delivery": "last"}):
    """A webhook and its use; the JSON names are those of `alipes webhook list --json`."""

    webhook: Webhook
    created: float
    deliveries: int
    last_delivery: float | None


class WebhookStore(Protocol):
    async def add(self, webhook: Webhook, secret: str) -> bool:
        """False if the name is already in use."""

    async def find(self, name: str) -> tuple[Webhook, Secret] | None: ...

    async def allow_tools(self, name: str, tools: tuple[str, ...]) -> bool:
        """False if there is no webhook with this name."""

    async def set_secret(self, name: str, secret: str) -> bool:
        """False if there is no webhook with this name."""

    async def secrets(self) -> tuple[str, ...]:
        """The secrets of all webhooks, to mask them."""

    async def all(self) -> tuple[WebhookStatus, ...]: ...

    async def count_delivery(self, name: str) -> None: ...

    async def remove(self, name: str) -> bool:
        """False if there is no webhook with this name."""


BrowserScope: TypeAlias = Literal["read", "admin"]


IDLE_DAYS = 30


IDLE_S = IDLE_DAYS * 86_400.0
"""A browser that was not used for this long has to log in again."""


class Browser(Struct, frozen=True):
    """A browser that is logged in."""

    id: str
    name: str
    scope: BrowserScope
    created: float
    last_seen: float

    @property
    def expires(self) -> float:
        """When it has to log in again, if it is not used before."""
        return self.last_seen + IDLE_S


class BrowserLogin(Struct, frozen=True):
    """A new browser and the two halves that it has to show, of which only hashes are stored."""

    browser: Browser
    cookie: str
    secret: str


class LoginCode(Struct, frozen=True):
    code: str
    expires: float

    def link(self, address: str) -> str:
        """The link that logs in, for the page at `address`. The code is in the fragment, which is sent to no server."""
        return f"{address.rstrip('/')}/#login={self.code}"


class BrowserStore(Protocol):
    async def add_code(self, scope: BrowserScope, name: str = "") -> LoginCode:
        """A code that one browser may log in with, once. `name`: what the browser will be called."""

    async def log_in(self, code: str, name: str) -> BrowserLogin | None:
        """Use the code: it is deleted, and the browser is added, called `name` unless the code says otherwise.

        None if the code is unknown, used or expired.
        """

    async def find(self, cookie: str, secret: str) -> Browser | None:
        """The browser that holds both halves, unless it was revoked or has expired. Its use is recorded."""

    async def exists(self, id: str) -> bool:
        """True unless the browser was revoked or has expired."""

    async def all(self) -> tuple[Browser, ...]:
        """All that are logged in, the last used first."""

    async def revoke(self, id: str) -> bool:
        """False if there is no such browser."""
