"""Our exceptions, sorted by who has to act next.

AlipesError
├── ConfigError          the operator edits a file or a variable
├── ProviderError        the loop decides
│   ├── Transient          wait, then ask again
│   ├── ContextTooLong     compact, then ask again
│   ├── Refused            the next model may answer; else tell the user
│   ├── NotAuthorised      the next model may answer; else tell the operator
│   └── OutOfCredit        the next model may answer; else tell the operator
├── ToolError            the model reads it and adapts
├── DeliveryError        the outbox tries again
│   └── Gone               the outbox gives it up: the chat is gone, or we may not write there
├── PluginError          the plugin is switched off, the host goes on
├── NotTaken             the sender says it otherwise, or elsewhere
├── SessionError         the person names another session, or tries again later
└── StoreError           the process stops: who cannot remember must not act
    ├── Fenced             another process lives this turn now; put the pen down
    └── Held               another living process holds this session; signal it instead

A message is a sentence for the person who must act. `asyncio.CancelledError` is
not among them: it is never caught to be kept.
"""


class AlipesError(Exception):
    """Everything we raise on purpose."""


class ConfigError(AlipesError):
    pass


class ProviderError(AlipesError):
    status: int | None = None
    """The HTTP status that the provider answered with, if it did."""


class Transient(ProviderError):
    def __init__(self, message: str, retry_after: float | None = None) -> None:
        """`retry_after`: the seconds the server asked for; None when it named none."""
        super().__init__(message)
        self.retry_after = retry_after


class ContextTooLong(ProviderError):
    pass


class Refused(ProviderError):
    pass


class NotAuthorised(ProviderError):
    pass


class OutOfCredit(ProviderError):
    pass


class ToolError(AlipesError):
    """Raise it inside a tool; the model sees the message as the call's result."""


class DeliveryError(AlipesError):
    def __init__(self, message: str, *, retry_after: float | None = None, uncertain: bool = False) -> None:
        """`retry_after`: seconds the platform asked for. `uncertain`: it may have arrived all the same."""
        super().__init__(message)
        self.retry_after, self.uncertain = retry_after, uncertain


class Gone(DeliveryError):
    pass


class PluginError(AlipesError):
    def __init__(self, plugin: str, hook: str, why: str) -> None:
        super().__init__(f"plugin {plugin}: {hook}: {why}")
        self.plugin, self.hook = plugin, hook


class NotTaken(AlipesError):
    """A message did not become a turn: a plugin dropped it, or failed to say that it may pass."""

    def __init__(self, why: str, *, by_choice: bool = False) -> None:
        super().__init__(why)
        self.by_choice = by_choice
        """A plugin wanted it so, and has told the sender whatever there is to tell."""


class SessionError(AlipesError):
    """The session someone named is not there, is not the only one, or is at work: they choose again."""


class StoreError(AlipesError):
    pass


class Fenced(StoreError):
    pass


class Held(StoreError):
    def __init__(self, key: str, host: str) -> None:
        super().__init__(f"session {key} is held by process {host}")
        self.key, self.host = key, host
