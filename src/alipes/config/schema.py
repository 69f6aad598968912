"""Every setting there is: its name, kind, default and meaning.

The loader, `alipes config why` and docs/configuration.md all read this one table.
"""

from functools import cache
from typing import TypeAlias

from alipes.config.schema_features import API_KEYS, DELEGATION_KEYS, SENSES_KEYS, SIDE_KEYS
from alipes.config.schema_platforms import BUSY, MESSENGER_KEYS
from alipes.config.value_types import (
    BODY,
    ENTRY,
    FLAG,
    HEADERS,
    HOST,
    MODEL,
    MODELS,
    NAMES,
    SHELL_HOOKS,
    TEXT,
    URL,
    VARIABLE,
    Key,
    choice,
    number,
    whole,
)

WIRES = ("openai-chat", "openai-responses", "anthropic")
RESERVED = ("mcp",)
"""Tables of rooms that are not built yet: accepted, and not looked into."""

_PRICE = number(0, 100_000, "US dollars")
_FACTOR = number(0, 1000, "times the price")
_TOKENS = whole(1, 100_000_000)
_SECONDS = number(0.1, 86_400, "seconds")

KEYS = (
    Key(
        "model",
        MODEL,
        "",
        "The model that answers, as provider/model; a provider alone means its default model. Empty: chosen "
        "at start by the first key found, else a local server, else the embedded model.",
    ),
    Key(
        "fallback",
        MODELS,
        [],
        "Models asked in turn when `model` is out of reach, out of credit or refuses.",
    ),
    Key(
        "effort",
        choice("", "low", "medium", "high"),
        "",
        "How hard a reasoning model should think. Empty: its own default.",
    ),
    Key("max_steps", whole(1, 10_000), 50, "Model calls in one turn; after these it sums up and ends."),
    Key("max_tokens", whole(1, 10_000_000), 8192, "Tokens a single answer of the model may have."),
    Key(
        "silence",
        number(0, 604_800, "seconds"),
        1800.0,
        "Seconds after which a turn that tells nothing is stopped. 0: never.",
    ),
    Key("workdir", TEXT, "", "The folder tools work in. Empty: the one alipes was started in."),
    Key(
        "ca_file",
        TEXT,
        "",
        "A PEM file with the certificates TLS trusts, in place of the system's. Empty: what the variable "
        "`SSL_CERT_FILE` names, else the system's.",
    ),
    Key(
        "log_level",
        choice("debug", "info", "warning", "error"),
        "info",
        "What the log file keeps: this and everything more serious.",
    ),
    Key(
        "debuggable",
        FLAG,
        False,
        "Whether programs of the same user may look into ours: a debugger, lsof, a profiler. Then commands "
        "that a model runs may do so too, and find the secrets in its memory.",
    ),
    Key(
        "embedded.gguf",
        TEXT,
        "",
        "A GGUF file for the embedded model. Empty: the small one that came along.",
    ),
    Key("embedded.threads", whole(0, 1024), 0, "Threads the embedded model may use. 0: as many as fit."),
    Key("embedded.context", whole(512, 10_000_000), 8192, "Context window of the embedded model, in tokens."),
    Key(
        "terminal.theme",
        choice("auto", "dark", "light"),
        "auto",
        "Colours for a dark or a light background. auto: the terminal is asked. `NO_COLOR` turns them off.",
    ),
    Key("terminal.thinking", FLAG, True, "Whether the terminal shows, short and dim, what a model thinks."),
    Key(
        "terminal.busy",
        BUSY,
        "interrupt",
        "What a message does that you type while a turn runs: it ends the turn and is next; it waits; or the "
        "turn takes it in. `/busy` changes it for one conversation.",
    ),
    Key("serve.host", HOST, "127.0.0.1", "Where `alipes serve` listens."),
    Key("serve.port", whole(1, 65535), 8742, "The port `alipes serve` listens on."),
    Key("serve.key_env", VARIABLE, "ALIPES_API_KEY", "The variable that holds the key callers must show."),
    Key(
        "serve.drain",
        number(0, 3600, "seconds"),
        20.0,
        "Seconds that turns have to come to a safe point when `alipes serve` is told to end or to restart. "
        "What is not over by then goes on at the next start.",
    ),
    Key(
        "providers.*.api",
        choice(*WIRES),
        "openai-chat",
        "How the provider is spoken to. `embedded` and `scripted` are built in and need none.",
    ),
    Key(
        "providers.*.base_url",
        URL,
        "",
        "Its address, up to the part that all calls share, as in https://HOST/v1; with `anthropic` the /v1 "
        "may be left out.",
    ),
    Key("providers.*.key_env", VARIABLE, "", "The variable that holds its key. Empty: no key is sent."),
    Key("providers.*.model", TEXT, "", "Its model when only the provider is named."),
    Key(
        "providers.*.headers",
        HEADERS,
        {},
        "Sent with every request. `${NAME}` stands for a variable, so that secrets stay in .env.",
    ),
    Key("providers.*.body", BODY, {}, "Merged over the JSON body of every request."),
    Key("providers.*.stall", _SECONDS, 120.0, "Seconds without a byte after which an answer counts as dead."),
    Key("providers.*.connect", _SECONDS, 10.0, "Seconds in which a connection must be made."),
    Key("models.*.window", _TOKENS, None, "Context window in tokens, input and output together."),
    Key("models.*.output", _TOKENS, None, "Tokens one answer may have at most."),
    Key("models.*.vision", FLAG, None, "Whether it sees images."),
    Key("models.*.tools", FLAG, None, "Whether it calls tools."),
    Key("models.*.reasoning", FLAG, None, "Whether it thinks before it answers."),
    Key("models.*.price_input", _PRICE, None, "US dollars per million tokens read."),
    Key("models.*.price_output", _PRICE, None, "US dollars per million tokens written."),
    Key("models.*.price_cached", _PRICE, None, "US dollars per million tokens read from its cache."),
    Key("models.*.price_cache_write", _PRICE, None, "US dollars per million tokens written to its cache."),
    Key(
        "models.*.long_from", _TOKENS, None, "A call that reads more tokens than this costs more, all of it."
    ),
    Key("models.*.long_input", _FACTOR, None, "What reading costs in such a call, in times the price."),
    Key("models.*.long_output", _FACTOR, None, "What writing costs in such a call, in times the price."),
    *API_KEYS,
    *SIDE_KEYS,
    *DELEGATION_KEYS,
    *SENSES_KEYS,
    *MESSENGER_KEYS,
    Key(
        "plugins.enabled",
        NAMES,
        [],
        "Plugins that are loaded; no other is. `alipes plugins list` shows which there are.",
    ),
    Key("plugins.disabled", NAMES, [], "Plugins and file hooks that are never loaded, whoever enables them."),
    Key(
        "plugins.safe",
        FLAG,
        False,
        "Safe mode: no plugin and no hook of yours is loaded. `alipes --safe` says it for one start.",
        named="ALIPES_SAFE",
    ),
    Key(
        "plugins.project",
        FLAG,
        False,
        "Whether plugins are also found in `.alipes/plugins` of the working folder. They are code: say yes "
        "only where you trust who wrote them.",
    ),
    Key("plugins.import_hermes", FLAG, False, "Whether plugins are also found in `~/.hermes/plugins`."),
    Key("plugins.deadline", _SECONDS, 5.0, "Seconds in which a hook of a plugin must answer."),
    Key("plugins.deadlines.*", _SECONDS, None, "The same for one hook, by its name: `before_tool = 30`."),
    Key(
        "plugins.entries.*",
        ENTRY,
        {},
        "Settings of a plugin, by its name; it says which there are. `${NAME}` in a text stands for a "
        "variable. `allow_tool_override = true` lets it replace tools of the house.",
    ),
    Key(
        "toolsets.*",
        NAMES,
        None,
        "What the model may use on a platform (`terminal`, `telegram`): toolsets, and tools by name; `core` "
        "are the house's own. Not set: everything.",
    ),
    Key(
        "hooks.*",
        SHELL_HOOKS,
        None,
        "Shell hooks: a list of tables with `command`, `matcher` (tools it is for, a regular expression) and "
        "`timeout` (seconds), under the name of the hook, as in `[[hooks.pre_tool_call]]`.",
    ),
)
Node: TypeAlias = "Key | dict[str, Node]"


@cache
def tree() -> dict[str, Node]:
    """The keys as nested tables; `*` stands for any name."""
    root: dict[str, Node] = {}
    for key in KEYS:
        *tables, last = key.path.split(".")
        node = root
        for name in tables:
            inner = node.setdefault(name, {})
            assert isinstance(inner, dict)
            node = inner
        node[last] = key
    return root


def find_key(path: tuple[str, ...]) -> Key | None:
    """The key that `path` names or lies in: `providers.mine.body.x` lies in `providers.*.body`."""
    node: Node = tree()
    for name in path:
        if isinstance(node, Key):
            return node if node.kind.parse is None else None
        inner = node.get(name) or node.get("*")
        if inner is None:
            return None
        node = inner
    return node if isinstance(node, Key) else None
