"""The error tree, grouped by who acts next.

AlipesError
├── ConfigError          the operator edits a file or a variable
│   └── MissingExtra       the person installs it after one yes, then it is tried again
├── ProviderError        the loop decides
│   ├── Transient          wait, then try again
│   ├── ContextTooLong     compact, then try again
│   ├── Refused            try the next model; else tell the user
│   ├── NotAuthorised      try the next model; else tell the operator
│   └── OutOfCredit        try the next model; else tell the operator
├── LimitReached         the turn waits until the provider's limit resets
├── ToolError            the model reads it and adapts
│   └── ToolNeedsExtra     the person installs it after one yes, then the call is tried again
├── DeliveryError        the outbox retries
│   └── Undeliverable      the outbox gives up: the chat is gone or closed to us
├── PluginError          the plugin is disabled, the host continues
├── MessageRejected      the sender rephrases it or sends it elsewhere
├── SessionError         the person names another session or tries again later
├── FileStoreError       the operator checks the store of chat files; the work continues without the file
└── StoreError           the process stops: without a store it must not act
    ├── Fenced             another process runs this turn now; stop writing
    ├── SessionHeld        another live process holds this session; signal it instead
    ├── StoreFull          the operator frees space on the server's disk; a service waits for it and starts over
    └── LeaseLost          the others may count this worker as dead; act no more, start over under a new id

A message is a sentence for the person who must act. `asyncio.CancelledError` is not among
them: it is never swallowed.
"""


class AlipesError(Exception):
    """Base class of all errors that alipes raises on purpose."""

    code: str = "error"
    """Stable name of the error, listed in docs/errors.md."""


class ConfigError(AlipesError):
    code = "config"


class MissingExtra(ConfigError):
    code = "config.extra"

    def __init__(self, message: str, extra: str) -> None:
        """`extra`: the one of `config.extras` that is not installed. The message says how to install it."""
        super().__init__(message)
        self.extra = extra


class ProviderError(AlipesError):
    code = "provider"
    status: int | None = None
    """The HTTP status of the provider's response, if there was one."""
    retry_after: float | None = None
    """The wait that the server asked for, in seconds; None if it named none."""

    @property
    def is_limit(self) -> bool:
        """True if the provider serves this key again later: a rate limit, or a quota with a time."""
        return self.status == 429 or (isinstance(self, OutOfCredit) and self.retry_after is not None)


class Transient(ProviderError):
    code = "provider.transient"

    def __init__(self, message: str, retry_after: float | None = None, *, brief: str = "") -> None:
        """`brief`: the few words that are shown while it is retried."""
        super().__init__(message)
        self.retry_after, self.brief = retry_after, brief


class ContextTooLong(ProviderError):
    code = "provider.context-too-long"


class Refused(ProviderError):
    code = "provider.refused"


class NotAuthorised(ProviderError):
    code = "provider.not-authorised"


class OutOfCredit(ProviderError):
    code = "provider.out-of-credit"


class LimitReached(AlipesError):
    """The model's provider has reached a limit, and the settings say to wait for its reset."""

    code = "provider.limit"

    def __init__(self, message: str, seconds: float) -> None:
        """`seconds`: how long to wait."""
        super().__init__(message)
        self.seconds = seconds


class ToolError(AlipesError):
    """Raise it inside a tool; the model reads the message as the result of the call."""

    code = "tool"


class ToolNeedsExtra(ToolError):
    """Nothing was done yet."""

    code = "tool.extra"

    def __init__(self, message: str, extra: str) -> None:
        super().__init__(message)
        self.extra = extra


class DeliveryError(AlipesError):
    code = "delivery"

    def __init__(self, message: str, *, retry_after: float | None = None, uncertain: bool = False) -> None:
        """`retry_after`: seconds the platform asked for. `uncertain`: the message may have been delivered."""
        super().__init__(message)
        self.retry_after, self.uncertain = retry_after, uncertain


class Undeliverable(DeliveryError):
    code = "delivery.undeliverable"


class PluginError(AlipesError):
    code = "plugin"

    def __init__(self, plugin: str, hook: str, why: str) -> None:
        super().__init__(f"plugin {plugin}: {hook}: {why}")
        self.plugin, self.hook = plugin, hook


class MessageRejected(AlipesError):
    """A message did not become a turn: a plugin dropped it, or a plugin failed while deciding."""

    code = "message.rejected"

    def __init__(self, why: str, *, by_choice: bool = False) -> None:
        super().__init__(why)
        self.by_choice = by_choice
        """A plugin dropped it on purpose and has already informed the sender."""


class SessionError(AlipesError):
    """The named session does not exist, is ambiguous or is busy. The person chooses again."""

    code = "session"


class FileStoreError(AlipesError):
    """A file could not be put into the store of chat files, or read from it."""

    code = "files"


class StoreError(AlipesError):
    code = "store"


class Fenced(StoreError):
    code = "store.fenced"


class SessionHeld(StoreError):
    code = "store.held"

    def __init__(self, key: str, host: str) -> None:
        super().__init__(f"session {key} is held by process {host}")
        self.key, self.host = key, host


class StoreFull(StoreError):
    """The disk of the store's server is full: nothing was saved. What is stored already is not affected."""

    code = "store.full"


class LeaseLost(StoreError):
    """Others may have taken over: nothing may be written, called or sent under this worker's id."""

    code = "store.lease-lost"
